//! `ranklab export FILE -f FORMAT -o OUT`: run it, and write its picture or its record. A file that exists is never overwritten.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;

use super::failure::{note, print};
use super::input::Input;
use super::{Exit, Failure, Outcome};
use crate::lab::Lab;
use crate::observe::export::{Format, export, file};

/// What to export, how, and where to.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    /// The form
    #[arg(short, long, value_parser = formats())]
    format: Format,
    /// The file to make, which must not exist; `-` for standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(|(_, name)| name)).map(|name| Format::find(&name).unwrap_or(Format::Text))
}

/// Runs and writes; the exit code is the outcome's.
pub fn run(arguments: &Arguments) -> Outcome {
    let asked = arguments.input.scenario()?;
    let run = Lab::new().run(&asked.scenario).map_err(|error| asked.failure(error))?;
    let text = export(&run.observed(), run.given(), arguments.format);
    if arguments.output == Path::new("-") {
        print(&text)?;
    } else {
        write_new(&arguments.output, &text)?;
        note(format_args!("wrote {}", arguments.output.display()));
    }
    Ok(Exit::of(&run))
}

/// Writes a file that does not exist yet.
///
/// # Errors
/// If it exists, or cannot be written.
pub fn write_new(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let name = path.display();
    file::write_new(path, bytes).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::Input(format!("`{name}` exists, and is left as it is: choose another name")),
        ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(path).display();
            Failure::Input(format!("cannot write `{name}`: there is no folder `{folder}`"))
        }
        _ => Failure::Io(format!("cannot write `{name}`: {error}; nothing was left behind")),
    })
}
