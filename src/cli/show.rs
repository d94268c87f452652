//! `ranklab show`: the keys of a scenario, the schema of a report, a page of the book that is made from tables, or the text of a scenario
//! or lesson that ships with ranklab.

use super::failure::print;
use super::input::Input;
use super::{Exit, Failure, Outcome, input};
use crate::base::Rank;
use crate::lab::Lab;
use crate::observe::compare;
use crate::observe::cube::Cube;
use crate::observe::report::JSON_SCHEMA;
use crate::scenario;
use crate::teach::book::PAGES;

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// `scenario` for all keys with defaults and meaning, `schema` for the JSON Schema of `run --json`, `schema-compare` for that of
    /// `compare --json`, `schedules` or `deadlocks` for a page of the book, `mesh` for who talks to whom over which wires in a scenario, or
    /// the name of a scenario or lesson
    what: String,
    /// With `mesh`: a scenario file, a lesson, or a scenario that ships with ranklab
    #[arg(value_name = "FILE|LESSON")]
    of: Option<String>,
    /// With `mesh`: the rank whose groups are shown, such as 9 or r9
    #[arg(long, value_name = "RANK", default_value = "0")]
    rank: String,
    /// With `mesh`: override a key of the scenario, such as parallel.order=dp-tp-cp-pp; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Prints it.
pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.what == "mesh" {
        return mesh(arguments);
    }
    if let Some(of) = &arguments.of {
        return Err(Failure::Input(format!("`show {}` stands alone; `show mesh {of}` shows a mesh", arguments.what)));
    }
    match arguments.what.as_str() {
        "scenario" => print(&scenario::show_scenario())?,
        "schema" => print(JSON_SCHEMA)?,
        "schema-compare" => print(compare::JSON_SCHEMA)?,
        name => match PAGES.iter().find(|(page, _)| *page == name) {
            Some((_, make)) => print(&make().map_err(|error| Failure::Io(error.to_string()))?)?,
            None => print(&input::source(name).map_err(|failure| unknown(name, failure))?.text)?,
        },
    }
    Ok(Exit::Done)
}

/// The same failure; where nothing is called so, with all that there is to show.
fn unknown(name: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Input(message) if !name.contains(['/', '.']) => {
            let pages: Vec<&str> =
                ["scenario", "schema", "schema-compare", "mesh"].into_iter().chain(PAGES.iter().map(|page| page.0)).collect();
            Failure::Input(format!("{message}\n`show` takes {}, or the name of a scenario or lesson", pages.join(", ")))
        }
        other => other,
    }
}

/// Who talks to whom over which wires.
fn mesh(arguments: &Arguments) -> Outcome {
    let Some(of) = &arguments.of else {
        return Err(Failure::Input("`show mesh` takes a scenario: `ranklab show mesh 18`".to_owned()));
    };
    let asked = Input::of(of, arguments.set.clone()).scenario()?;
    let Some(cube) = Cube::of(&asked.scenario) else {
        return Err(Failure::Input(format!("`{of}` is no training step, and has no mesh")));
    };
    let ranks = cube.mesh.ranks();
    let rank = arguments.rank.trim_start_matches('r').parse().ok().filter(|&rank: &usize| rank < ranks);
    let Some(rank) = rank else {
        return Err(Failure::Input(format!("there is no rank `{}`: they are r0 to r{}", arguments.rank, ranks - 1)));
    };
    let run = Lab::new().run(&asked.scenario).map_err(|error| asked.failure(error))?;
    print(cube.text(&run.observed().run, Rank::new(rank)).trim_end())?;
    Ok(Exit::Done)
}
