//! `ranklab run FILE|LESSON`: run it, and print a summary or one JSON document.

use super::failure::print;
use super::input::Input;
use super::{Exit, Outcome};
use crate::lab::Lab;
use crate::observe::export::{json, summary::summary};
use crate::observe::report::Report;
use crate::observe::{Ledger, Metrics};

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
    let scenario = arguments.input.scenario()?;
    let run = Lab::new().run(&scenario)?;
    let (record, given) = (run.record(), run.given());
    let observed = record.run();
    let metrics = Metrics::new(&observed, &Ledger::new(&observed));
    let text = if arguments.json { json(&Report::new(&observed, &metrics, given)) } else { summary(&observed, &metrics, &given) };
    print(&text)?;
    Ok(Exit::of(&run))
}
