//! Wrong numbers of a pipeline: a cut that is off, weights that moved on, gradients that were summed too early, means of means.

use std::collections::BTreeMap;

use super::Diagnosis;
use crate::base::model::Part;
use crate::base::{BufferId, OpId};
use crate::lab::Difference;
use crate::program::plan::{Pass, Slot};
use crate::program::{Kernel, Name, PassName, Program};

/// What of this the program shows, if any of it does, given the first wrong result.
pub(super) fn diagnose(program: &Program, first: &Difference) -> Option<Diagnosis> {
    let causes: [fn(&Program, &Difference) -> Option<Diagnosis>; 4] = [cut, stash, early_sum, mean_of_means];
    causes.into_iter().find_map(|cause| cause(program, first))
}

/// Every layer runs on one stage.
fn cut(program: &Program, _: &Difference) -> Option<Diagnosis> {
    let layers = program.setting.model.as_ref()?.layers;
    let mut runs: BTreeMap<u32, Vec<(u32, OpId)>> = BTreeMap::new();
    for op in program.all() {
        let origin = program.op(op).origin;
        let (Some(Kernel::Forward(part)), Some(slot)) = (program.kernel_of(op), origin.slot) else { continue };
        let Part::Block(layer) = part.whole() else { continue };
        let stages = runs.entry(layer).or_default();
        if origin.step == 0 && slot.micro_batch == 0 && stages.iter().all(|&(stage, _)| stage != slot.stage) {
            stages.push((slot.stage, op));
        }
    }
    let found = |op: OpId, cause| Diagnosis { rank: program.rank_of(op), op: Some(op), cause };
    (0..u32::try_from(layers).ok()?).find_map(|layer| match runs.get(&layer).map(Vec::as_slice) {
        None | Some([]) => {
            let &(stage, op) = runs.get(&(layer + 1))?.first()?;
            let cause = format!(
                "its stage {stage} begins at blocks.{}, and nobody runs blocks.{layer}: the cut is off by one",
                layer + 1
            );
            Some(found(op, cause))
        }
        Some([(before, _), (stage, op), ..]) => {
            let cause =
                format!("its stage {stage} runs blocks.{layer}, which stage {before} has run already: the cut is off by one");
            Some(found(*op, cause))
        }
        Some([_]) => None,
    })
}

/// Backward uses the weights that forward used.
fn stash(program: &Program, first: &Difference) -> Option<Diagnosis> {
    let view = program.op(first.op);
    let (Kernel::BackwardInput(part), Some(Slot { micro_batch, .. })) = (program.kernel_of(first.op)?, view.origin.slot) else {
        return None;
    };
    let is_parameter = |buffer: &BufferId| matches!(program.buffers[buffer.index()].name, Name::Parameter(_));
    if !view.reads.iter().any(is_parameter) {
        return None;
    }
    let order = &program.order[view.rank.index()];
    let is_forward = |&&op: &&OpId| {
        let is_it = program.op(op).origin.slot.is_some_and(|slot| slot.pass == Pass::F && slot.micro_batch == micro_batch);
        is_it && program.kernel_of(op) == Some(Kernel::Forward(part))
    };
    let since = order.iter().skip_while(|op| !is_forward(op)).take_while(|&&op| op != first.op);
    let updates = since.filter(|&&op| program.kernel_of(op) == Some(Kernel::Optimizer(part.whole()))).count();
    let times = if updates == 1 { "once".to_owned() } else { format!("{updates} times") };
    let cause = format!("it goes back with weights that were updated {times} since its forward used them: nobody stashed those");
    (updates > 0).then_some(Diagnosis { rank: view.rank, op: Some(first.op), cause })
}

/// Nothing is added to gradients behind their sum over the ranks.
fn early_sum(program: &Program, first: &Difference) -> Option<Diagnosis> {
    let order = &program.order[first.rank.index()];
    let of_step = || order.iter().copied().enumerate().filter(|&(_, op)| program.op(op).origin.step == first.step);
    let gradient = |buffer: &&BufferId| matches!(program.buffers[buffer.index()].name, Name::Gradient(_));
    // Expanded, a sum begins with a copy of the gradients.
    // Those inside layers have slots.
    let sums = |&(_, op): &(usize, OpId)| {
        let origin = program.op(op).origin;
        matches!(origin.pass, PassName::DataParallel | PassName::Expand) && origin.slot.is_none()
    };
    of_step().filter(sums).find_map(|(place, sum)| {
        let summed: Vec<BufferId> = program.reads(sum).iter().filter(gradient).copied().collect();
        let adds = |&(later, op): &(usize, OpId)| {
            later > place && program.op(op).origin.slot.is_some() && program.writes(op).iter().any(|buffer| summed.contains(buffer))
        };
        let late = of_step().find(adds)?.1;
        let slot = program.op(late).origin.slot?;
        let cause = format!(
            "it sums gradients over the ranks before all are there: {slot} and later micro-batches add to them afterwards, and the replicas \
             drift apart"
        );
        Some(Diagnosis { rank: first.rank, op: Some(sum), cause })
    })
}

/// Micro-batches count by their sequences.
fn mean_of_means(program: &Program, first: &Difference) -> Option<Diagnosis> {
    let setting = &program.setting;
    let sizes: Vec<String> = setting.micro_batch_sizes.iter().map(ToString::to_string).collect();
    let has_own_updates = program.all().any(|op| {
        let origin = program.op(op).origin;
        origin.pass == PassName::Optimizer && origin.slot.is_some()
    });
    if !setting.mean_of_means || sizes.is_empty() || has_own_updates {
        return None;
    }
    let cause = format!("micro-batches of {} sequences count alike: a sequence of a small one weighs more", sizes.join(", "));
    Some(Diagnosis { rank: first.rank, op: Some(first.op), cause })
}
