//! `ranklab compare A B`: two runs side by side. Each is a scenario, a lesson, a plan, or a trace that was saved with `export -f trace`.

use super::failure::print;
use super::input::{self, Input};
use super::{Exit, Failure, Outcome};
use crate::lab::Lab;
use crate::observe::Report;
use crate::observe::compare::{Comparison, Side, json};
use crate::observe::export::comparison::table;
use crate::observe::slack::Slack;
use crate::program::record;

/// What to compare.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The first run: a file, a lesson, a shipped scenario, or a saved trace
    #[arg(value_name = "A")]
    a: String,
    /// The second run
    #[arg(value_name = "B")]
    b: String,
    /// Override a key of both scenarios; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Override a key of the first scenario alone
    #[arg(long = "set-a", value_name = "KEY=VALUE")]
    set_a: Vec<String>,
    /// Override a key of the second scenario alone
    #[arg(long = "set-b", value_name = "KEY=VALUE")]
    set_b: Vec<String>,
    /// Print one JSON document, `ranklab.compare/1` (its schema: ranklab show schema-compare)
    #[arg(long)]
    json: bool,
}

/// Runs or reads both, and prints how they differ.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut lab = Lab::new();
    let with = |own: &[String]| arguments.set.iter().chain(own).cloned().collect::<Vec<_>>();
    let a = side(&mut lab, &arguments.a, with(&arguments.set_a))?;
    let b = side(&mut lab, &arguments.b, with(&arguments.set_b))?;
    let comparison = Comparison::new(&a, &b);
    print(&if arguments.json { json(&comparison) } else { table(&comparison) })?;
    Ok(Exit::Done)
}

fn side(lab: &mut Lab, what: &str, set: Vec<String>) -> Result<Side, Failure> {
    let name = std::iter::once(what.to_owned()).chain(set.iter().cloned()).collect::<Vec<_>>().join("  ");
    if let Some(text) = input::trace(what)? {
        let record = record::read(&text).map_err(|errors| {
            let lines: Vec<String> = errors.iter().take(8).map(|error| format!("{what}: {error}")).collect();
            Failure::Input(lines.join("\n"))
        })?;
        if let Some(set) = set.first() {
            return Err(Failure::Input(format!("`{what}` is a saved trace: nothing of it can be set, such as {set}")));
        }
        return Ok(Side::of_record(&name, record));
    }
    let asked = Input::of(what, set).scenario()?;
    let run = lab.run(&asked.scenario).map_err(|error| asked.failure(error))?;
    let observed = run.observed();
    let report = Report::new(&observed.run, observed.metrics(), &Slack::new(&observed.run), run.given());
    Ok(Side::of_run(&name, record::Record::of(run.session.program(), run.session.trace()), &report))
}
