//! What is found out about a run beside its numbers: messages that met the wrong way around, and changes that resolve a deadlock.

use serde::Serialize;

/// What is wrong with a run, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The rank that is to blame.
    pub rank: u32,
    /// Its op, in the program's text syntax.
    pub op: Option<String>,
    /// Why, as a sentence about the rank.
    pub cause: String,
}

/// The first result that is no number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NanReport {
    /// The training step.
    pub step: u32,
    /// The op, in the program's text syntax.
    pub op: String,
    /// The rank.
    pub rank: u32,
}

/// A send and the receive that it meets by order: of equal shapes, so that nothing notices, but for other data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SilentSwap {
    /// The rank that sends.
    pub from: u32,
    /// Its op.
    pub send: String,
    /// The rank that receives.
    pub to: u32,
    /// Its op.
    pub receive: String,
}

/// A change with which a deadlocked run completes: it was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repair {
    /// What kind of change.
    pub kind: RepairKind,
    /// The change in words; the first of them, and how many more like it.
    pub what: String,
    /// Every change of an order, in the order in which a run needs them.
    pub changes: Vec<String>,
    /// End of the first step with it, in the run's unit.
    pub makespan: f64,
}

/// What a repair changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairKind {
    /// A rank issues its ops in another order.
    Reorder,
    /// A rank issues two ends of messages as one batch.
    Batch,
    /// Messages take other queues.
    Semantics,
}
