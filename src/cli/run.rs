//! `ranklab run FILE|LESSON`: run it, and print a summary or one JSON document.

use super::failure::print;
use super::input::Input;
use super::{Exit, Outcome};
use crate::lab::Lab;
use crate::observe::export::{Format, export, summary::summary};

/// What to run, and how to print it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Print one JSON document, `ranklab.run/1` (its schema: ranklab show schema)
    #[arg(long)]
    json: bool,
}

/// Runs it; the exit code is the outcome's.
pub fn run(arguments: &Arguments) -> Outcome {
    let asked = arguments.input.scenario()?;
    let run = Lab::new().run(&asked.scenario).map_err(|error| asked.failure(error))?;
    let (observed, given) = (run.observed(), run.given());
    let text =
        if arguments.json { export(&observed, given, Format::Json) } else { summary(&observed.run, observed.metrics(), &given) };
    print(&text)?;
    Ok(Exit::of(&run))
}
