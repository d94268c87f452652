//! Trouble in the program: rules that leave ops out, let them change places, or add some. (Slow ranks and links and small devices are a
//! matter of the machine; what is made wrong from the start is asked of this file by the passes that make it.)
//!
//! The pass runs twice, before and after collectives are expanded, so that a rule can meet a whole all-reduce or one of its messages;
//! a rule that met an op the first time is spent.

use crate::base::mesh::Axis;
use crate::base::settings::Bias;
use crate::base::{OpId, PointToPoint, Rank};
use crate::program::head;
use crate::program::tables::CollectiveKind;
use crate::program::trouble::{Acts, Trouble, TroubleKind};
use crate::program::{Name, OpKind, PassName, Program, Role};
use crate::scenario::{Scenario, Training};

use super::Build;

/// The rules that meet ops of the program, by their place in the scenario.
pub(super) fn rules(scenario: &Scenario) -> Vec<usize> {
    let meets_ops = |&index: &usize| scenario.trouble[index].kind.fault().acts == Acts::Ops;
    (0..scenario.trouble.len()).filter(meets_ops).collect()
}

/// The rules that met nothing, by their place in the scenario: those that are left, and those that would change something and find none.
pub(super) fn idle(build: &Build) -> Vec<usize> {
    let is_idle = |(index, rule): &(usize, &Trouble)| match (rule.kind.fault().acts, rule.kind) {
        (Acts::Ops, _) => build.trouble.contains(index),
        // The scenario was refused where it would do nothing.
        (Acts::Making, kind) if kind.attention_bug().is_some() || kind.is_of_experts() => false,
        (Acts::Making, kind) => !build.training().is_some_and(|training| changes(kind, training)),
        (Acts::Machine, TroubleKind::LessMemory) => build.scenario.hardware.memory.is_none(),
        (Acts::Machine, _) => !rule.op.is_empty() && !slows_any(&build.program, rule),
    };
    build.scenario.trouble.iter().enumerate().filter(is_idle).map(|(index, _)| index).collect()
}

/// How many micro-batches a gradient is averaged over, where there are so many on every one of `data` ranks.
pub(super) fn averaged_over(scenario: &Scenario, micro_batches: u32, data: u32) -> u32 {
    if scenario.has_trouble(TroubleKind::SumGradients) { micro_batches } else { micro_batches * data }
}

/// Whether a fault of the making changes anything about this training.
fn changes(kind: TroubleKind, training: &Training) -> bool {
    let (sharing, _) = training.sharing();
    let (is_several, is_cut) = (training.data_ranks() > 1, training.mesh.size(Axis::Tensor) > 1);
    match kind {
        TroubleKind::SyncAlways => sums_at_the_end(training) && training.batch.micro_batches > 1,
        TroubleKind::EarlySum => sums_early_is_possible(training),
        TroubleKind::BlockingSends => training.mesh.size(Axis::Pipeline) > 1 && training.pipeline.p2p != PointToPoint::Blocking,
        TroubleKind::MeanOfMeans => !training.batch.sizes.is_empty(),
        TroubleKind::LayerMissing | TroubleKind::LayerTwice => training.pipeline.off_by_one.is_some(),
        TroubleKind::UnequalTokens => {
            is_several
                && training.mesh.size(Axis::Context) == 1
                && training.batch.padded.is_some_and(|padded| padded.tokens < training.model.sequence)
        }
        TroubleKind::SaveAlone => sharing.parameters,
        TroubleKind::SameSeed => is_cut,
        TroubleKind::RowsOfQkv => is_cut && training.model.fused_qkv,
        TroubleKind::BiasBeforeSum => is_cut && training.model.bias != Bias::None,
        _ => is_several,
    }
}

/// Whether several ranks sum whole gradients once a step.
fn sums_at_the_end(training: &Training) -> bool {
    let (sharing, _) = training.sharing();
    training.data_ranks() > 1 && !sharing.gradients && training.data_parallel.no_sync && !training.is_two_way()
}

fn sums_early_is_possible(training: &Training) -> bool {
    sums_at_the_end(training) && training.pieces() > 1
}

/// Whether whole gradients are summed behind the first micro-batch of a step.
pub(super) fn sums_early(scenario: &Scenario, training: &Training) -> bool {
    scenario.has_trouble(TroubleKind::EarlySum) && sums_early_is_possible(training)
}

/// Whether micro-batches of different sizes count alike.
pub(super) fn takes_mean_of_means(scenario: &Scenario) -> bool {
    scenario.has_trouble(TroubleKind::MeanOfMeans)
}

/// Whether the messages of `rank` hold it until the peer stands at the other end.
pub(super) fn blocks(scenario: &Scenario, rank: Rank) -> bool {
    let meets = |rule: &Trouble| rule.kind == TroubleKind::BlockingSends && rule.rank.is_none_or(|one| one == rank);
    scenario.trouble.iter().any(meets)
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

/// Applies one rule to every op that it meets; whether it met any.
fn apply(program: &mut Program, rule: &Trouble) -> bool {
    let ops: Vec<OpId> = program.all().filter(|&op| meets(program, op, rule)).collect();
    for &op in &ops {
        match rule.kind {
            TroubleKind::SwapOps => swap_with_next(program, op),
            TroubleKind::LoneRead => read_alone(program, op),
            _ => program.set_kind(op, program.kind(op).skipped()),
        }
    }
    !ops.is_empty()
}

/// Whether a rule meets `op`.
fn meets(program: &Program, op: OpId, rule: &Trouble) -> bool {
    if matches!(program.kind(op), OpKind::Skipped(_)) {
        return false;
    }
    match rule.kind {
        TroubleKind::FewerSteps => {
            let view = program.op(op);
            Some(view.rank) == rule.rank && rule.step.is_some_and(|first| view.origin.step >= first)
        }
        // The versions pass has met its ops.
        TroubleKind::NoStash => false,
        TroubleKind::SyncNever => is_sum(program, op) && head::fits(program, op, rule),
        TroubleKind::LoneRead => head::fits(program, op, rule) && gather_before(program, op).is_some(),
        _ => head::fits(program, op, rule),
    }
}

/// Whether `op` sums whole gradients over data-parallel ranks.
fn is_sum(program: &Program, op: OpId) -> bool {
    let OpKind::Collective(collective) = program.kind(op) else { return false };
    let is_all_reduce = program.collectives[collective.index()].kind == CollectiveKind::AllReduce;
    is_all_reduce && program.op(op).origin.pass == PassName::DataParallel
}

/// The gather that put the parameters together on which a computation works.
fn gather_before(program: &Program, op: OpId) -> Option<OpId> {
    let OpKind::Run(_) = program.kind(op) else { return None };
    let is_gathered = |buffer: &&crate::base::BufferId| {
        let buffer = &program.buffers[buffer.index()];
        matches!(buffer.name, Name::Parameter(_)) && buffer.role == Role::Bucket
    };
    let whole = program.reads(op).iter().find(is_gathered)?;
    let earlier = program.order[program.rank_of(op).index()].iter().take_while(|&&other| other != op);
    let gathers =
        |other: &&OpId| matches!(program.kind(**other), OpKind::Collective(_)) && program.writes(**other).contains(whole);
    earlier.filter(gathers).last().copied()
}

/// Gathers, before `op` and on its rank alone, what `op` works on once more.
fn read_alone(program: &mut Program, op: OpId) {
    let Some(gather) = gather_before(program, op) else { return };
    let OpKind::Collective(collective) = program.kind(gather) else { return };
    let mut read = program.collectives[collective.index()].clone();
    read.label = format!("{}.read", read.label);
    let (rank, stream) = (program.rank_of(op), program.stream_of(gather));
    let (shards, whole) = (program.reads(gather).to_vec(), program.writes(gather).to_vec());
    let origin = crate::program::Origin { pass: PassName::Gather, ..program.op(op).origin };
    let read = OpKind::Collective(program.collective(read));
    let read = program.add((rank, stream), read, (&shards, &whole), origin);
    let order = &mut program.order[rank.index()];
    let place = order.iter().position(|&other| other == op).unwrap_or(order.len());
    order.insert(place, read);
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
