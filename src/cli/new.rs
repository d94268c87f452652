//! `ranklab new FILE`: a commented scenario to start from. A file that exists is never touched.

use std::path::{Path, PathBuf};

use super::export::write_new;
use super::failure::{note, print};
use super::{Exit, Outcome};
use crate::base::words::shell_word;
use crate::scenario;

/// What to write.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The file to make, which must not exist; `-` for standard output
    file: PathBuf,
}

/// Writes the file.
pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.file == Path::new("-") {
        print(&scenario::new_scenario())?;
        return Ok(Exit::Done);
    }
    write_new(&arguments.file, scenario::new_scenario())?;
    let name = arguments.file.display().to_string();
    note(format_args!("wrote {name}; next: ranklab run {}", shell_word(&name)));
    Ok(Exit::Done)
}
