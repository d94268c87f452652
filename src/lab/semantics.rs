//! Which named schedules deadlock under which point-to-point semantics, and who waits for whom: found by running each on shapes.

use std::sync::Arc;

use super::LabError;
use crate::compile;
use crate::engine::session::{self, Numbers};
use crate::observe::{Run, why};
use crate::program::trace::Outcome;
use crate::scenario::{PointToPoint, Scenario};
use crate::schedule::{SCHEDULES, Schedule};

/// One schedule under all semantics.
#[derive(Clone, Debug)]
pub struct Row {
    /// The schedule's name.
    pub schedule: &'static str,
    /// Whether it completes, by the places of [`PointToPoint::ALL`].
    pub completes: Vec<bool>,
    /// The circle with sends that hold their rank; empty if it completes.
    pub why: String,
}

/// Every schedule on 4 ranks with 8 micro-batches.
///
/// # Errors
/// If a kernel fails, which shapes have none of.
pub fn table() -> Result<Vec<Row>, LabError> {
    SCHEDULES.iter().map(row).collect()
}

fn row(schedule: &'static Schedule) -> Result<Row, LabError> {
    let mut row = Row { schedule: schedule.name, completes: Vec::new(), why: String::new() };
    for p2p in PointToPoint::ALL {
        let text = format!(
            "model = {{ layers = 8, hidden = 8, heads = 2, sequence = 4, vocab = 11 }}\nbatch.micro_batches = 8\nparallel.pipeline = 4\n\
             numerics.values = \"shape\"\npipeline = {{ schedule = \"{}\", p2p = \"{p2p}\" }}\n",
            schedule.name
        );
        // Every schedule takes this size: tests hold the table against runs.
        let Ok(scenario) = Scenario::parse("table", &text, &[]) else { continue };
        let program = Arc::new(compile::compile(&scenario).program);
        let (_, trace) = session::run(program.clone(), &scenario.hardware, &[], Numbers::Shape, &mut |_, _| {})?;
        row.completes.push(trace.outcome == Outcome::Completed);
        if *p2p == PointToPoint::Blocking {
            row.why = why::cycles(&Run::new(&program, &trace)).into_iter().next().unwrap_or_default();
        }
    }
    Ok(row)
}
