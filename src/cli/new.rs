//! `ranklab new FILE`: a commented scenario to start from. A file that exists is never touched.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use super::{Exit, Failure, Outcome};
use crate::scenario;

/// What to write.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The file to make; it must not exist
    file: PathBuf,
}

/// Writes the file.
pub fn run(arguments: &Arguments) -> Outcome {
    let name = arguments.file.display();
    let file = OpenOptions::new().write(true).create_new(true).open(&arguments.file);
    let mut file = file.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::Input(format!("`{name}` exists, and is left as it is: choose another name")),
        _ => Failure::Io(format!("cannot write `{name}`: {error}")),
    })?;
    file.write_all(scenario::new_scenario().as_bytes()).map_err(|error| Failure::Io(format!("cannot write `{name}`: {error}")))?;
    eprintln!("wrote {name}; next: ranklab run {name}");
    Ok(Exit::Done)
}
