//! A tied embedding on two ranks: the first stage looks tokens up in it, the last one makes logits with it. Either has half of its gradient,
//! so the two are summed once a step, over all replicas, as in Megatron's embedding group.

use crate::base::mesh::Axis;
use crate::base::{BufferId, CollectiveId, GroupId, OpId, ParameterId, Rank};
use crate::program::tables::{Collective, CollectiveKind, Group};
use crate::program::{OpKind, Origin, PassName, Program};
use crate::scenario::Training;

use super::Build;

/// Inserts the sum of every step.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let (program, Some(sharing), Some(slices)) = (&mut build.program, &build.sharing, &build.slices) else { return };
    if sharing.tied.is_empty() {
        return;
    }
    for split in training.split().places() {
        let tied = slices.tied(split.place);
        let first = training.mesh.with(Rank(0), Axis::Tensor, split.place);
        if !training.folding.is_followed(first) {
            continue;
        }
        let of_row = |&row: &usize| training.data_group(training.mesh.with(first, Axis::Pipeline, row));
        let all: Vec<Rank> = sharing.tied.iter().flat_map(of_row).collect();
        let (group, sums) = sums(program, training, tied, &all);
        for rank in program.groups[group.index()].ranks.clone() {
            insert(program, rank, build.held[rank.index()].target(tied), &sums);
        }
    }
}

/// One all-reduce for every step, of those that hold the same slice of it.
fn sums(program: &mut Program, training: &Training, tied: ParameterId, all: &[Rank]) -> (GroupId, Vec<CollectiveId>) {
    let place = |rank: Rank| training.mesh.coordinate(rank, Axis::Tensor);
    let number: Option<&dyn Fn(Rank) -> usize> = if training.mesh.size(Axis::Tensor) > 1 { Some(&place) } else { None };
    let group = program.group(Group::new(&training.folding, "embedding", number, all));
    let dtype = training.precision.gradient;
    let bytes = super::data_parallel::bytes(program.parameters[tied.index()].elements(), dtype);
    let sum = |step| Collective {
        group,
        kind: CollectiveKind::AllReduce,
        label: "embedding".to_owned(),
        step,
        bytes,
        dtype,
        padding: crate::base::Bytes::ZERO,
        shards: 1,
    };
    (group, (0..training.batch.steps).map(|step| program.collective(sum(step))).collect())
}

/// Issues each step's sum behind the last op that adds to `gradient`.
fn insert(program: &mut Program, rank: Rank, gradient: BufferId, sums: &[CollectiveId]) {
    let stream = program.communication_stream("tied");
    let order = std::mem::take(&mut program.order[rank.index()]);
    let mut last: Vec<Option<OpId>> = vec![None; sums.len()];
    for &op in &order {
        let view = program.op(op);
        if view.origin.slot.is_some() && view.writes.contains(&gradient) {
            last[view.origin.step as usize] = Some(op);
        }
    }
    let mut issued = Vec::with_capacity(order.len() + sums.len());
    for op in order {
        issued.push(op);
        let step = program.op(op).origin.step;
        if last[step as usize] == Some(op) {
            let origin = Origin { slot: None, step, pass: PassName::DataParallel };
            let kind = OpKind::Collective(sums[step as usize]);
            issued.push(program.add((rank, stream), kind, (&[gradient], &[gradient]), origin));
        }
    }
    program.order[rank.index()] = issued;
}
