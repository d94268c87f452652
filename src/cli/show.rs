//! `ranklab show`: the keys of a scenario, the schema of a report, a page of the book that is made from tables, or the text of a scenario
//! or lesson that ships with ranklab.

use super::failure::print;
use super::{Exit, Failure, Outcome, input};
use crate::observe::compare;
use crate::observe::report::JSON_SCHEMA;
use crate::scenario;
use crate::teach::book::PAGES;

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// `scenario` for all keys with defaults and meaning, `schema` for the JSON Schema of `run --json`, `schema-compare` for that of
    /// `compare --json`, `schedules` or `deadlocks` for a page of the book, or the name of a scenario or lesson
    what: String,
}

/// Prints it.
pub fn run(arguments: &Arguments) -> Outcome {
    match arguments.what.as_str() {
        "scenario" => print(&scenario::show_scenario())?,
        "schema" => print(JSON_SCHEMA)?,
        "schema-compare" => print(compare::JSON_SCHEMA)?,
        name => match PAGES.iter().find(|(page, _)| *page == name) {
            Some((_, make)) => print(&make().map_err(|error| Failure::Io(error.to_string()))?)?,
            None => print(&input::source(name)?.text)?,
        },
    }
    Ok(Exit::Done)
}
