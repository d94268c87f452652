//! Wrong numbers, and right ones at too high a price: what was left out, what was not averaged, what is summed too often.

use std::collections::BTreeMap;

use super::{Diagnosis, pipeline, tensor};
use crate::base::{OpId, Rank};
use crate::lab::Verdict;
use crate::lab::reference::Reference;
use crate::lab::snapshot::Snapshots;
use crate::program::op::SkippedKind;
use crate::program::trouble::TroubleKind;
use crate::program::{CollectiveKind, Name, OpKind, PassName, Program};
use crate::scenario::{Scenario, Task};

/// How far, relative to its norm, a gradient may be from a multiple of one device's.
const SAME: f64 = 1e-3;

/// Why a completed run is wrong.
pub(super) fn diagnose(program: &Program, verdict: &Verdict, factor: Option<f64>) -> Vec<Diagnosis> {
    let Verdict::Wrong { first_difference: first, .. } = verdict else { return Vec::new() };
    if let Some(padded) = padded(program) {
        return vec![padded];
    }
    let sums: Vec<OpId> = program.all().filter(|&op| is_sum(program, op) && program.op(op).origin.step == first.step).collect();
    let is_skipped = |&op: &OpId| matches!(program.kind(op), OpKind::Skipped(_));
    let cause = if !sums.is_empty() && sums.iter().all(is_skipped) {
        format!(
            "no rank sums its gradients with the others in step {}: replicas drift apart, each trains on its own data",
            first.step
        )
    } else if is_skipped(&first.op) {
        format!("it leaves this op out{}: {} is wrong from here on", goes_on(program, first.op), first.tensor)
    } else if let Some(found) = tensor::diagnose(program).or_else(|| pipeline::diagnose(program, first)) {
        return vec![found];
    } else if let Some(factor) = factor {
        let over = if (factor - factor.round()).abs() < SAME && factor > 1.5 {
            format!(": summed over {} ranks, and not divided by them", factor.round())
        } else {
            String::new()
        };
        format!("every gradient of step {} is {} times one device's{over}", first.step, short(factor))
    } else {
        format!("the first result that is not one device's: {}", first.tensor)
    };
    vec![Diagnosis { rank: first.rank, op: Some(first.op), cause }]
}

/// With what a rank goes on that left out `op`: all shapes are right.
fn goes_on(program: &Program, op: OpId) -> &'static str {
    let OpKind::Collective(collective) = program.kind(op).original() else { return "" };
    match program.collectives[collective.index()].kind {
        CollectiveKind::AllReduce => ", and goes on with its own part of the sum",
        CollectiveKind::ReduceScatter => ", and goes on without its share of the sum",
        CollectiveKind::AllGather => ", and goes on without what was to be gathered",
        CollectiveKind::AllToAll | CollectiveKind::Barrier => "",
    }
}

/// A rank of whose tokens fewer count, and as much as those of the others together.
fn padded(program: &Program) -> Option<Diagnosis> {
    let (padded, model) = (program.setting.padded?, program.setting.model.as_ref()?);
    let is_padded = |op: &OpId| {
        let mut reads = program.reads(*op).iter();
        reads
            .any(|buffer| matches!(program.buffers[buffer.index()].name, Name::Targets(micro_batch) if padded.meets(micro_batch)))
    };
    let op = program.all().find(is_padded)?;
    let cause = format!(
        "of its sequences {} of {} tokens count, and its mean counts as much as the others': a mean of means is not the mean over all tokens",
        padded.tokens, model.sequence
    );
    Some(Diagnosis { rank: program.rank_of(op), op: Some(op), cause })
}

/// What rank 0 saves if nobody gathers.
pub(super) fn saved_alone(scenario: &Scenario, program: &Program) -> Option<Diagnosis> {
    scenario.trouble.iter().find(|rule| rule.kind == TroubleKind::SaveAlone)?;
    let sharded: usize = program.units.iter().map(|unit| unit.parameters.len()).sum();
    let (all, shards) = (program.parameters.len(), program.units.first()?.shards);
    let cause = format!(
        "it saves the model by itself: {sharded} of {all} tensors have the shape [0], as their shards lie on {shards} ranks and nobody gathers"
    );
    Some(Diagnosis { rank: Rank(0), op: None, cause })
}

/// Up to three digits behind the point.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Whether `op` sums gradients over data-parallel ranks, or would.
fn is_sum(program: &Program, op: OpId) -> bool {
    let (OpKind::Collective(collective) | OpKind::Skipped(SkippedKind::Collective(collective))) = program.kind(op) else {
        return false;
    };
    let reduces = program.collectives[collective.index()].kind != CollectiveKind::AllGather;
    reduces && program.op(op).origin.pass == PassName::DataParallel
}

/// The number by which every gradient of `step` is one device's times; `None` if there is no such number, or it is 1.
pub(in crate::lab) fn factor(snapshots: &Snapshots, reference: &Reference, step: u32) -> crate::engine::Result<Option<f64>> {
    let mut common: Option<f64> = None;
    for (&(_, parameter, _), snapshot) in snapshots.by_place.iter().filter(|((of, ..), _)| *of == step) {
        let one = &reference.snapshots.by_place[&(step, parameter, Rank(0))].gradient;
        let (Some(ours), Some(theirs)) = (snapshot.gradient.elements()?, one.elements()?) else { continue };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let norm = dot(&theirs, &theirs);
        if norm == 0.0 {
            continue;
        }
        let factor = common.unwrap_or(dot(&ours, &theirs) / norm);
        let rest: f64 = ours.iter().zip(&theirs).map(|(a, b)| (a - factor * b).powi(2)).sum();
        // Written so that a NaN is no multiple.
        let is_multiple = rest.sqrt() <= SAME * factor.abs() * norm.sqrt();
        if !is_multiple {
            return Ok(None);
        }
        common = Some(factor);
    }
    Ok(common.filter(|factor| (factor - 1.0).abs() > SAME))
}

/// Whole gradients that are summed more than once a step: as many times the traffic, for the same sum.
pub(super) fn repeated_sums(scenario: &Scenario, program: &Program) -> Option<Diagnosis> {
    let Task::Train(training) = &scenario.task else { return None };
    if training.sharing().0.gradients {
        // Ranks that share gradients have no room to wait.
        return None;
    }
    let mut times: BTreeMap<&str, (u64, OpId)> = BTreeMap::new();
    let order = program.order.first()?;
    let first_step = order.iter().filter(|&&op| program.op(op).origin.step == 0 && is_data_parallel(program, op));
    for &op in first_step {
        if let OpKind::Collective(collective) = program.kind(op) {
            times.entry(&program.collectives[collective.index()].label).or_insert((0, op)).0 += 1;
        }
    }
    if times.is_empty() {
        times = of_messages(program);
    }
    let (label, (times, op)) = times.into_iter().max_by_key(|(_, (times, _))| *times).filter(|(_, (times, _))| *times > 1)?;
    let cause = format!(
        "{label} is summed {times} times a step, once for each micro-batch: with `no_sync` on all but the last it is summed once, \
         for {} of the traffic",
        if times == 2 { "half".to_owned() } else { format!("a {times}th") }
    );
    Some(Diagnosis { rank: Rank(0), op: Some(op), cause })
}

fn is_data_parallel(program: &Program, op: OpId) -> bool {
    program.op(op).origin.pass == PassName::DataParallel
}

/// The same where collectives were expanded: their entries are left in the program's table.
fn of_messages(program: &Program) -> BTreeMap<&str, (u64, OpId)> {
    let mut times: BTreeMap<&str, (u64, OpId)> = BTreeMap::new();
    let first = |number: u32| {
        let is_its = |op: &&OpId| {
            let mut buffers = program.reads(**op).iter().chain(program.writes(**op));
            buffers.any(|buffer| matches!(program.buffers[buffer.index()].name, Name::Piece(of, _) if of == number))
        };
        program.order.first()?.iter().find(is_its).copied()
    };
    let sums = program.collectives.iter().zip(0..).filter(|(collective, _)| {
        let group = &program.groups[collective.group.index()];
        let reduces = matches!(collective.kind, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter);
        reduces && collective.step == 0 && group.ranks.contains(&Rank(0)) && collective.label.starts_with("bucket")
    });
    for (collective, number) in sums {
        match times.get_mut(collective.label.as_str()) {
            Some((times, _)) => *times += 1,
            None => drop(first(number).map(|op| times.insert(&collective.label, (1, op)))),
        }
    }
    times
}
