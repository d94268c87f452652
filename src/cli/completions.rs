//! `ranklab completions SHELL`.

use clap::CommandFactory;

use super::failure::print;
use super::{Exit, Outcome};

/// Which shell.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the completions.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Arguments::command(), "ranklab", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
