//! Which named schedules deadlock under which point-to-point semantics, and who waits for whom: found by running each on shapes.

use std::sync::Arc;

use super::LabError;
use crate::base::OpId;
use crate::compile;
use crate::engine::session::{self, Numbers};
use crate::observe::{Run, why};
use crate::program::trace::Outcome;
use crate::program::{Name, OpKind, Program, Trace};
use crate::scenario::{PointToPoint, Scenario};
use crate::schedule::{SCHEDULES, Schedule};

/// Ranks of the runs.
pub const RANKS: u32 = 4;
/// Their micro-batches.
pub const MICRO_BATCHES: u32 = 8;

/// One schedule under all semantics.
#[derive(Clone, Debug)]
pub struct Row {
    /// The schedule's name.
    pub schedule: &'static str,
    /// Whether it completes, by the places of [`PointToPoint::ALL`].
    pub completes: Vec<bool>,
    /// The circle with sends that hold their rank; empty if it completes.
    pub why: String,
    /// What makes it one.
    pub cause: Option<Cause>,
}

/// What makes a circle of ranks whose sends hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An activation and a gradient want to pass each other.
    Opposite,
    /// Two activations want to pass each other: one goes down the ranks, the other up.
    Mirrored,
    /// Activations alone, all in one direction, as stages stand in a loop.
    Around,
    /// Gradients alone.
    Back,
    /// A rank stands at a receive that comes too early.
    Order,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Opposite, Self::Mirrored, Self::Around, Self::Back, Self::Order];

    /// It in a sentence.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Opposite => "An activation and a gradient want to pass each other, and both senders wait for a receiver",
            Self::Mirrored => {
                "Two activations want to pass each other, as one micro-batch goes down the ranks and another goes up"
            }
            Self::Around => {
                "Activations alone close the circle, as the stages stand in a loop: each rank sends one, and none receives"
            }
            Self::Back => "Gradients alone close the circle: each rank sends one, and none receives",
            Self::Order => "A rank waits to receive what the other would send later",
        }
    }

    /// The cause of a circle of these ops.
    fn of(program: &Program, circle: &[OpId]) -> Self {
        let sent = circle.iter().filter(|&&op| matches!(program.kind(op), OpKind::Send(_)));
        let is_forward = |&op: &OpId| {
            let buffer = program.reads(op).first().map(|buffer| program.buffers[buffer.index()].name);
            matches!(buffer, Some(Name::Activation(..)))
        };
        let forward = sent.clone().filter(|op| is_forward(op)).count();
        match (sent.count(), forward) {
            (sends, _) if sends < circle.len() => Self::Order,
            (2, 2) => Self::Mirrored,
            (sends, forward) if sends == forward => Self::Around,
            (_, 0) => Self::Back,
            _ => Self::Opposite,
        }
    }
}

/// Every schedule on [`RANKS`] ranks with [`MICRO_BATCHES`] micro-batches.
///
/// # Errors
/// If a kernel fails, which shapes have none of.
pub fn table() -> Result<Vec<Row>, LabError> {
    SCHEDULES.iter().map(row).collect()
}

fn row(schedule: &'static Schedule) -> Result<Row, LabError> {
    let mut row = Row { schedule: schedule.name, completes: Vec::new(), why: String::new(), cause: None };
    for &p2p in PointToPoint::ALL {
        let Some((program, trace)) = run(schedule, p2p)? else { continue };
        row.completes.push(trace.outcome == Outcome::Completed);
        if let (PointToPoint::Blocking, Outcome::Deadlocked(graph)) = (p2p, &trace.outcome) {
            row.why = why::cycles(&Run::new(&program, &trace)).into_iter().next().unwrap_or_default();
            let circle = graph.cycles.first().map(|circle| circle.iter().map(|&(_, op)| op).collect::<Vec<_>>());
            row.cause = circle.map(|circle| Cause::of(&program, &circle));
        }
    }
    Ok(row)
}

/// A run of `schedule` on shapes; `None` if it does not take the size, which every schedule does: tests hold the table against runs.
///
/// # Errors
/// If a kernel fails, which shapes have none of.
pub fn run(schedule: &Schedule, p2p: PointToPoint) -> Result<Option<(Arc<Program>, Trace)>, LabError> {
    let text = format!(
        "model = {{ layers = 8, hidden = 8, heads = 2, sequence = 4, vocab = 11 }}\nbatch = {{ micro_batches = {MICRO_BATCHES}, steps = 1 }}\n\
         parallel.pipeline = {RANKS}\nnumerics.values = \"shape\"\npipeline = {{ schedule = \"{}\", p2p = \"{p2p}\" }}\n",
        schedule.name
    );
    let Ok(scenario) = Scenario::parse("table", &text, &[]) else { return Ok(None) };
    let program = Arc::new(compile::compile(&scenario).program);
    let (_, trace) = session::run(program.clone(), &scenario.hardware, &[], Numbers::Shape, &mut |_, _| {})?;
    Ok(Some((program, trace)))
}
