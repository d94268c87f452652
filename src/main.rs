//! The `ranklab` command.
fn main() {}
