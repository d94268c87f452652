//! Trouble in the program: rules that leave ops out or let them change places. (Slow ranks and links are a matter of cost.)
//!
//! The pass runs twice, before and after collectives are expanded, so that a rule can meet a whole all-reduce or one of its messages;
//! a rule that met an op the first time is spent.

use crate::base::settings::Bias;
use crate::base::{OpId, Rank};
use crate::program::head;
use crate::program::trouble::{Trouble, TroubleKind};
use crate::program::{OpKind, Program};
use crate::scenario::Scenario;

use super::Build;

/// The rules that change the program, and not only its costs, by their place in the scenario.
pub(super) fn rules(scenario: &Scenario) -> Vec<usize> {
    let changes = |&index: &usize| matches!(scenario.trouble[index].kind, TroubleKind::SkipOp | TroubleKind::SwapOps);
    (0..scenario.trouble.len()).filter(changes).collect()
}

/// The rules that met no op, by their place in the scenario: those that are left, and those that would slow an op and find none.
pub(super) fn idle(build: &Build) -> Vec<usize> {
    let is_idle = |(index, rule): &(usize, &Trouble)| match rule.kind {
        TroubleKind::SkipOp | TroubleKind::SwapOps => build.trouble.contains(index),
        TroubleKind::SlowRank | TroubleKind::SlowLink => !rule.op.is_empty() && !slows_any(&build.program, rule),
        TroubleKind::SameSeed => build.program.setting.tensor.ranks == 1,
        TroubleKind::BiasBeforeSum => {
            let has_bias = build.program.setting.model.as_ref().is_some_and(|model| model.bias != Bias::None);
            build.program.setting.tensor.ranks == 1 || !has_bias
        }
        TroubleKind::RowsOfQkv => {
            let is_fused = build.program.setting.model.as_ref().is_some_and(|model| model.fused_qkv);
            build.program.setting.tensor.ranks == 1 || !is_fused
        }
    };
    build.scenario.trouble.iter().enumerate().filter(is_idle).map(|(index, _)| index).collect()
}

/// Whether a rule of slowness fits a computation, or the start of a message.
fn slows_any(program: &Program, rule: &Trouble) -> bool {
    let is_slowed = |kind: OpKind| match rule.kind {
        TroubleKind::SlowRank => matches!(kind, OpKind::Run(_)),
        _ => matches!(kind, OpKind::Send(_)),
    };
    program.all().any(|op| is_slowed(program.kind(op)) && head::fits(program, op, rule))
}

/// Applies the rules that fit an op, and keeps the others for later.
pub(super) fn run(build: &mut Build) {
    let rules = &build.scenario.trouble;
    for index in std::mem::take(&mut build.trouble) {
        if !apply(&mut build.program, &rules[index]) {
            build.trouble.push(index);
        }
    }
}

/// Applies one rule to every op that it fits; whether it fitted any.
fn apply(program: &mut Program, rule: &Trouble) -> bool {
    let fits = |program: &Program, op: &OpId| head::fits(program, *op, rule) && !matches!(program.kind(*op), OpKind::Skipped(_));
    let ops: Vec<OpId> = program.all().filter(|op| fits(program, op)).collect();
    for &op in &ops {
        match rule.kind {
            TroubleKind::SkipOp => program.set_kind(op, program.kind(op).skipped()),
            TroubleKind::SwapOps => swap_with_next(program, op),
            _ => {}
        }
    }
    !ops.is_empty()
}

/// Lets `op` and the next op of its stream change places in the order of issue.
fn swap_with_next(program: &mut Program, op: OpId) {
    let (rank, stream): (Rank, _) = (program.rank_of(op), program.stream_of(op));
    let order = &program.order[rank.index()];
    let Some(place) = order.iter().position(|&other| other == op) else { return };
    let next = order[place + 1..].iter().position(|&other| program.stream_of(other) == stream);
    if let Some(next) = next {
        program.order[rank.index()].swap(place, place + 1 + next);
    }
}
