//! `ranklab run FILE|LESSON`: run it, and print a summary or one JSON document. It may go on from a checkpoint, and save one.

use std::path::PathBuf;

use super::failure::print;
use super::input::Input;
use super::{Exit, Failure, Outcome, checkpoint};
use crate::lab::Lab;
use crate::observe::export::{Format, export, summary::summary};
use crate::program::trace;

/// What to run, and how to print it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Print one JSON document, `ranklab.run/1` (its schema: ranklab show schema)
    #[arg(long)]
    json: bool,
    /// Save the state of all ranks at the end: in a new folder, or in place of an earlier checkpoint of the same training
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Go on from a checkpoint, whatever ranks and strategy saved it; batch.steps counts the steps that are done, too
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Write the parameters at the end to one safetensors file, which must not exist, and check what was written
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

/// Runs it; the exit code is the outcome's.
pub fn run(arguments: &Arguments) -> Outcome {
    let asked = arguments.input.scenario()?;
    // What cannot be saved is told before a long run, not behind it.
    arguments.save.iter().try_for_each(|folder| checkpoint::place(folder, &asked.scenario))?;
    arguments.export.iter().try_for_each(|file| checkpoint::new_file(file, &asked.scenario))?;
    let start = arguments.resume.as_deref().map(|folder| checkpoint::start(folder, &asked.scenario)).transpose()?;
    let (scenario, state) = start.as_ref().map_or((&asked.scenario, None), |start| (&start.scenario, Some(&start.state)));
    let run = Lab::new().run_from(scenario, state).map_err(|error| asked.failure(error))?;
    let (observed, given) = (run.observed(), run.given());
    let text =
        if arguments.json { export(&observed, given, Format::Json) } else { summary(&observed.run, observed.metrics(), &given) };
    print(&text)?;
    let is_complete = run.session.trace().outcome == trace::Outcome::Completed;
    if let Some(path) = arguments.save.as_ref().or(arguments.export.as_ref()).filter(|_| !is_complete) {
        return Err(Failure::NotSaved(Exit::of(&run), path.display().to_string()));
    }
    arguments.save.iter().try_for_each(|folder| checkpoint::save(folder, &run))?;
    let exported = arguments.export.as_ref().map(|file| checkpoint::export_end(file, &run)).transpose()?;
    Ok(exported.filter(|exit| *exit != Exit::Done).unwrap_or_else(|| Exit::of(&run)))
}
