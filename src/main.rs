//! The `ranklab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ranklab::cli::main()
}
