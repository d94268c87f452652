//! `[[trouble]]`: faults, each with the ranks, ops and steps that it meets.

use super::keys::{Key, trouble};
use super::problem::Problem;
use super::reader::Extent;
use super::value::Value;
use super::written::Written;

use crate::base::Rank;
use crate::program::trouble::{Trouble, TroubleKind};

/// All faults, in the order of the text.
pub(super) fn read(written: &mut Written, extent: Extent) -> Option<Vec<Trouble>> {
    let all: Vec<_> = (0..written.troubles).map(|index| one(written, index, extent)).collect();
    all.into_iter().collect()
}

/// A refused value counts as unwritten: its problem is noted, and the scenario is refused with it.
fn one(written: &mut Written, index: usize, extent: Extent) -> Option<Trouble> {
    let value = |key: &Key| written.value(key, index);
    let rank = value(&trouble::RANK).and_then(Value::size);
    let step = value(&trouble::STEP).and_then(Value::count);
    let op = value(&trouble::OP).and_then(Value::text).unwrap_or_default();
    let factor = value(&trouble::FACTOR).and_then(Value::number);
    if let (Some(rank), Some(ranks)) = (rank, extent.ranks) {
        refuse_far_rank(written, index, rank, ranks);
    }
    if let (Some(step), Some(steps)) = (step, extent.steps) {
        refuse_late_step(written, index, step, steps);
    }
    let kind = kind(written, index)?;
    refuse_missing_op(written, index, kind);
    refuse_place(written, index, kind);
    refuse_idle_factor(written, index, kind);
    let neutral = if is_slow(kind) { 2.0 } else { 1.0 };
    Some(Trouble { kind, rank: rank.map(Rank::new), op, step, factor: factor.unwrap_or(neutral) })
}

/// The problem that the rule `index` meets no op.
pub(super) fn refuse_idle(written: &mut Written, index: usize, message: &str, hint: &str) {
    let problem = Problem::new(message).hint(hint);
    written.refuse_at(&[&trouble::OP, &trouble::KIND], index, problem);
}

fn kind(written: &mut Written, index: usize) -> Option<TroubleKind> {
    let key = &trouble::KIND;
    if !written.has(key, index) {
        let problem = Problem::new("a trouble needs its `kind`").allowed(key.allowed());
        written.refuse_at(&[key], index, problem);
        return None;
    }
    let name = written.value(key, index).and_then(Value::text)?;
    TroubleKind::ALL.iter().find(|(_, known, _)| *known == name).map(|(kind, ..)| *kind)
}

fn is_slow(kind: TroubleKind) -> bool {
    matches!(kind, TroubleKind::SlowRank | TroubleKind::SlowLink)
}

fn refuse_far_rank(written: &mut Written, index: usize, rank: usize, ranks: usize) {
    if rank >= ranks {
        let problem = Problem::new(format!("there is no rank {rank}: the run has {ranks}"));
        written.refuse_at(&[&trouble::RANK], index, problem.allowed(format!("0 to {}", ranks - 1)));
    }
}

fn refuse_late_step(written: &mut Written, index: usize, step: u32, steps: u32) {
    if step >= steps {
        let problem = Problem::new(format!("there is no step {step}: the run has {steps}"));
        written.refuse_at(&[&trouble::STEP], index, problem.allowed(format!("0 to {}", steps - 1)));
    }
}

fn refuse_missing_op(written: &mut Written, index: usize, kind: TroubleKind) {
    if !is_slow(kind) && !kind.is_of_slices() && !written.has(&trouble::OP, index) {
        let problem = Problem::new(format!("{} needs to know which op it meets", kind.name()));
        written.refuse_at(&[&trouble::KIND], index, problem.hint("op = \"all-reduce bucket0\", or op = \"0F3\""));
    }
}

/// What is about slices meets all of them, from the start.
fn refuse_place(written: &mut Written, index: usize, kind: TroubleKind) {
    for key in [&trouble::OP, &trouble::RANK, &trouble::STEP] {
        if kind.is_of_slices() && written.has(key, index) {
            let problem = Problem::new(format!("`{}` means nothing to {}", key.name, kind.name()));
            written.refuse_at(&[key], index, problem.hint("leave it out: it meets all slices, from the start"));
        }
    }
}

fn refuse_idle_factor(written: &mut Written, index: usize, kind: TroubleKind) {
    if !is_slow(kind) && written.has(&trouble::FACTOR, index) {
        let problem = Problem::new(format!("`factor` means nothing to {}", kind.name()));
        written.refuse_at(&[&trouble::FACTOR], index, problem.hint("leave it out; slow-rank and slow-link have one"));
    }
}
