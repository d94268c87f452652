//! `[[trouble]]`: faults, each with the ranks, ops and steps that it meets.

use super::keys::{Key, trouble};
use super::problem::Problem;
use super::reader::Extent;
use super::value::Value;
use super::written::Written;
use super::{OffByOne, Order, Scenario, Task};
use crate::base::mesh::Axis;
use crate::schedule::Placement;

use crate::base::{AttentionBug, Rank};
use crate::program::tables::Padded;
use crate::program::trouble::{FAULTS, Fault, RuleKey, Trouble, TroubleKind};

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
    let fault = fault(written, index)?;
    refuse_missing_keys(written, index, fault);
    refuse_idle_keys(written, index, fault);
    let usual = match fault.kind {
        TroubleKind::LessMemory | TroubleKind::UnequalTokens => 0.5,
        TroubleKind::CapacityDrop => 1.0,
        _ if fault.takes.contains(&RuleKey::Factor) => 2.0,
        _ => 1.0,
    };
    Some(Trouble { kind: fault.kind, rank: rank.map(Rank::new), op, step, factor: factor.unwrap_or(usual) })
}

/// A cut that is off by one is the training's own; where a rank has several stages, or its only one a single layer, there is none.
fn settle_cut(scenario: &mut Scenario) {
    let Task::Train(training) = &mut scenario.task else { return };
    let cut = |rule: &Trouble| {
        let is_early = rule.kind == TroubleKind::LayerTwice;
        let stage = training.mesh.coordinate(rule.rank?, Axis::Pipeline);
        let is_line = matches!(training.pipeline.order, Order::Schedule(schedule) if schedule.placement == Placement::Line);
        let has_room = stage > 0 && training.pipeline.layers_per_stage[stage] > 1;
        let is_it = is_early || rule.kind == TroubleKind::LayerMissing;
        (is_it && is_line && has_room).then_some(OffByOne { stage, is_early })
    };
    training.pipeline.off_by_one = scenario.trouble.iter().find_map(cut);
}

/// What a fault of the data means for the batches.
pub(super) fn settle(scenario: &mut Scenario) {
    settle_cut(scenario);
    let rule = scenario.trouble.iter().find(|rule| rule.kind == TroubleKind::UnequalTokens);
    let (Some(rule), Task::Train(training)) = (rule, &mut scenario.task) else { return };
    let (Ok(ranks), Some(rank)) = (u32::try_from(training.data_ranks()), rule.rank) else { return };
    let sequence = training.model.sequence;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a number of tokens"
    )]
    let tokens = ((sequence as f64 * rule.factor) as usize).clamp(1, sequence);
    let place = u32::try_from(training.mesh.coordinate(rank, Axis::Data)).unwrap_or(0);
    let each = training.batch.micro_batches;
    training.batch.padded = Some(Padded { first: 0, each, ranks, place, tokens, weighted: false });
}

/// The problem that the rule `index` meets no op.
pub(super) fn refuse_idle(written: &mut Written, index: usize, message: &str, hint: &str) {
    let problem = Problem::new(message).hint(hint);
    written.refuse_at(&[&trouble::OP, &trouble::KIND], index, problem);
}

fn fault(written: &mut Written, index: usize) -> Option<&'static Fault> {
    let key = &trouble::KIND;
    if !written.has(key, index) {
        let problem = Problem::new("a trouble needs its `kind`").allowed(key.allowed());
        written.refuse_at(&[key], index, problem);
        return None;
    }
    Fault::find(&written.value(key, index).and_then(Value::text)?)
}

/// The bugs of attention that a scenario asks for, each with its place among the rules.
pub(super) fn attention_bugs(trouble: &[Trouble]) -> impl Iterator<Item = (usize, AttentionBug)> {
    trouble.iter().enumerate().filter_map(|(index, rule)| rule.kind.attention_bug().map(|bug| (index, bug)))
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

fn refuse_missing_keys(written: &mut Written, index: usize, fault: &Fault) {
    for &key in fault.needs.iter().filter(|&&key| !written.has(row(key), index)).collect::<Vec<_>>() {
        let (what, hint) = match key {
            RuleKey::Rank => ("which rank it meets", "rank = 1"),
            RuleKey::Op => ("which op it meets", "op = \"all-reduce bucket0\", or op = \"0F3\""),
            RuleKey::Step => ("from which step on", "step = 1"),
            RuleKey::Factor => ("by how much", "factor = 2"),
        };
        let problem = Problem::new(format!("{} needs to know {what}", fault.name));
        written.refuse_at(&[&trouble::KIND], index, problem.hint(hint));
    }
}

/// What a fault does not look at is refused: it would seem to do something.
fn refuse_idle_keys(written: &mut Written, index: usize, fault: &Fault) {
    let all = [RuleKey::Rank, RuleKey::Op, RuleKey::Step, RuleKey::Factor];
    for key in all.into_iter().filter(|&key| !fault.takes.contains(&key) && written.has(row(key), index)).collect::<Vec<_>>() {
        let with: Vec<&str> = FAULTS.iter().filter(|fault| fault.takes.contains(&key)).map(|fault| fault.name).collect();
        let problem = Problem::new(format!("`{}` means nothing to {}", key.name(), fault.name));
        written.refuse_at(&[row(key)], index, problem.hint(format!("leave it out; {} have one", and(&with))));
    }
}

/// The row of a rule's key in the table of keys.
fn row(key: RuleKey) -> &'static Key {
    match key {
        RuleKey::Rank => &trouble::RANK,
        RuleKey::Op => &trouble::OP,
        RuleKey::Step => &trouble::STEP,
        RuleKey::Factor => &trouble::FACTOR,
    }
}

/// `a, b and c`.
fn and(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}
