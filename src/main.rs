//! The `ranklab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ranklab::engine::kernels::cpu::allocator::keep_memory();
    ranklab::cli::main()
}
