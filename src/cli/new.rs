//! `ranklab new FILE`: a commented scenario to start from. A file that exists is never touched.

use std::path::PathBuf;

use super::export::write_new;
use super::{Exit, Outcome};
use crate::scenario;

/// What to write.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The file to make; it must not exist
    file: PathBuf,
}

/// Writes the file.
pub fn run(arguments: &Arguments) -> Outcome {
    write_new(&arguments.file, &scenario::new_scenario())?;
    let name = arguments.file.display();
    eprintln!("wrote {name}; next: ranklab run {name}");
    Ok(Exit::Done)
}
