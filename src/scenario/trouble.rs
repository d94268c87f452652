//! `[[trouble]]`: faults, each with the ranks, ops and steps that it meets.

use super::keys::trouble;
use super::problem::Problem;
use super::value::Value;
use super::written::Written;
use super::{Task, keys::Key};
use crate::base::Rank;
use crate::program::trouble::{Trouble, TroubleKind};

/// All faults, in the order of the text.
pub(super) fn read(written: &mut Written, task: Option<&Task>) -> Option<Vec<Trouble>> {
    let all: Vec<_> = (0..written.troubles).map(|index| one(written, index, task)).collect();
    all.into_iter().collect()
}

fn one(written: &mut Written, index: usize, task: Option<&Task>) -> Option<Trouble> {
    let kind = kind(written, index);
    let rank = optional(written, &trouble::RANK, index, |value| match value {
        Value::Integer(rank) => usize::try_from(rank).ok(),
        _ => None,
    });
    let step = optional(written, &trouble::STEP, index, |value| match value {
        Value::Integer(step) => u32::try_from(step).ok(),
        _ => None,
    });
    let op = optional(written, &trouble::OP, index, |value| match value {
        Value::Text(op) => Some(op),
        _ => None,
    });
    let factor = optional(written, &trouble::FACTOR, index, |value| match value {
        Value::Number(factor) => Some(factor),
        _ => None,
    });
    if let (Some(rank), Some(task)) = (rank.flatten(), task) {
        refuse_far_rank(written, index, rank, task);
    }
    if let (Some(step), Some(task)) = (step.flatten(), task) {
        refuse_late_step(written, index, step, task);
    }
    let kind = kind?;
    refuse_missing_op(written, index, kind);
    refuse_idle_factor(written, index, kind);
    let neutral = if is_slow(kind) { 2.0 } else { 1.0 };
    Some(Trouble {
        kind,
        rank: rank?.map(Rank::new),
        op: op?.unwrap_or_default(),
        step: step?,
        factor: factor?.unwrap_or(neutral),
    })
}

/// The outer `None`: the value was refused. The inner: nothing was written.
fn optional<T>(written: &Written, key: &Key, index: usize, read: impl Fn(Value) -> Option<T>) -> Option<Option<T>> {
    if !written.has(key, index) {
        return Some(None);
    }
    written.value(key, index).and_then(read).map(Some)
}

fn kind(written: &mut Written, index: usize) -> Option<TroubleKind> {
    let key = &trouble::KIND;
    if !written.has(key, index) {
        let problem = Problem::new("a trouble needs its `kind`").allowed(key.allowed());
        written.refuse_at(&[key], index, problem);
        return None;
    }
    let Some(Value::Text(name)) = written.value(key, index) else { return None };
    TroubleKind::ALL.iter().find(|(_, known, _)| *known == name).map(|(kind, ..)| *kind)
}

fn is_slow(kind: TroubleKind) -> bool {
    matches!(kind, TroubleKind::SlowRank | TroubleKind::SlowLink)
}

fn refuse_far_rank(written: &mut Written, index: usize, rank: usize, task: &Task) {
    let ranks = match task {
        Task::Train(training) => training.mesh.ranks(),
        Task::Collective(collective) => collective.ranks,
    };
    if rank >= ranks {
        let problem = Problem::new(format!("there is no rank {rank}: the run has {ranks}"));
        written.refuse_at(&[&trouble::RANK], index, problem.allowed(format!("0 to {}", ranks - 1)));
    }
}

fn refuse_late_step(written: &mut Written, index: usize, step: u32, task: &Task) {
    let steps = match task {
        Task::Train(training) => training.batch.steps,
        Task::Collective(_) => 1,
    };
    if step >= steps {
        let problem = Problem::new(format!("there is no step {step}: the run has {steps}"));
        written.refuse_at(&[&trouble::STEP], index, problem.allowed(format!("0 to {}", steps - 1)));
    }
}

fn refuse_missing_op(written: &mut Written, index: usize, kind: TroubleKind) {
    if !is_slow(kind) && !written.has(&trouble::OP, index) {
        let problem = Problem::new(format!("{} needs to know which op it meets", kind.name()));
        written.refuse_at(&[&trouble::KIND], index, problem.hint("op = \"all-reduce bucket0\", or op = \"0F3\""));
    }
}

fn refuse_idle_factor(written: &mut Written, index: usize, kind: TroubleKind) {
    if !is_slow(kind) && written.has(&trouble::FACTOR, index) {
        let problem = Problem::new(format!("`factor` means nothing to {}", kind.name()));
        written.refuse_at(&[&trouble::FACTOR], index, problem.hint("leave it out; slow-rank and slow-link have one"));
    }
}
