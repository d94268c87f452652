//! Alerts: the places of a run at which something is wrong. They are drawn at every zoom, and the cursor can jump to them.

use super::data::RunData;
use crate::base::{OpId, Ticks};
use crate::observe::run::Run;
use crate::observe::why::edge_sentence;
use crate::program::OpKind;
use crate::program::head::head_with_rank;
use crate::program::trace::Outcome;

/// Something that is wrong, with its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alert {
    /// When.
    pub time: Ticks,
    /// A place in [`RunData::rows`].
    pub row: usize,
    /// What is wrong, in a sentence.
    pub text: String,
    /// A trouble rule took an op out: it is drawn as such anyway.
    pub is_skip: bool,
    /// An op waits here for ever.
    pub waits: bool,
}

/// All that is wrong, in order of time: skipped ops, the first wrong number, the first that is none, what a deadlock or a full card stopped.
#[must_use]
pub fn alerts(data: &RunData) -> Vec<Alert> {
    let (run, program) = (data.run(), data.program());
    let skipped = program.all().filter(|&op| matches!(program.kind(op), OpKind::Skipped(_)));
    let taken_out = skipped.map(|op| (op, format!("{} was taken out by a trouble rule", head_with_rank(program, op)), true));
    let wrong = data.first_difference.map(|op| (op, format!("the first wrong result: {}", head_with_rank(program, op)), false));
    let nan =
        data.first_nan.map(|op| (op, format!("the first result that is no number: {}", head_with_rank(program, op)), false));
    let all = taken_out.chain(wrong).chain(nan).chain(stopped(&run).into_iter().map(|(op, text)| (op, text, false)));
    let placed = |(op, text, is_skip): (OpId, String, bool)| {
        let (row, time) = data.place_of(op)?;
        let waits = run.times(op).is_none();
        Some(Alert { time, row, text, is_skip, waits })
    };
    let mut alerts: Vec<Alert> = all.filter_map(placed).collect();
    alerts.sort();
    alerts
}

/// The ops that stopped a run which did not complete.
fn stopped(run: &Run) -> Vec<(OpId, String)> {
    match &run.trace.outcome {
        Outcome::Deadlocked(graph) => graph.edges.iter().map(|edge| (edge.op, edge_sentence(run, edge))).collect(),
        Outcome::OutOfMemory { op: Some(op), needed, limit, .. } => {
            vec![(*op, format!("{} needs {}", head_with_rank(run.program, *op), needed.out_of(*limit)))]
        }
        Outcome::OutOfMemory { op: None, .. } | Outcome::Completed => Vec::new(),
    }
}
