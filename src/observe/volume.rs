//! Volume: what a step moves and computes, in the units in which strategies are compared. And what padding costs.
//!
//! Traffic is counted in payloads, without a ring's (N-1)/N, and in units of the rank's own parameters: an all-reduce passes its payload
//! twice, a reduce-scatter and an all-gather once. So plain data parallelism moves 2 whatever its size.

use std::collections::BTreeSet;

use super::run::Run;
use super::traffic::collective_of;
use crate::base::{Bytes, CollectiveId, Rank};
use crate::program::plan::Pass;
use crate::program::{Kernel, Name, OpKind, Program};

/// Floating-point operations of a step on all ranks, a multiply-add counted as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// What the model needs: forward, and backward for inputs and weights. MFU counts these.
    pub model: u64,
    /// What the hardware computes for it: recomputation, too. HFU counts these.
    pub hardware: u64,
}

/// The FLOPs of step `step`, as far as it ran.
#[must_use]
pub fn flops(run: &Run, step: u32) -> Flops {
    let mut flops = Flops::default();
    for op in run.program.all().filter(|&op| run.of_step(op, step) && run.times(op).is_some()) {
        let OpKind::Run(kernel) = run.program.kind(op) else { continue };
        let kernel = run.program.kernels[kernel.index()];
        match kernel.kernel {
            Kernel::Forward(_) | Kernel::BackwardInput(_) | Kernel::BackwardWeight(_) => {
                flops.model += kernel.flops;
                flops.hardware += kernel.flops;
            }
            Kernel::Recompute(_) | Kernel::RecomputeAttention(_) => flops.hardware += kernel.flops,
            _ => {}
        }
    }
    let fold = run.program.fold() as u64;
    Flops { model: flops.model * fold, hardware: flops.hardware * fold }
}

/// Per rank, the payloads of the collectives that it took part in during step `step`, in units of its own parameters, without padding.
/// 0 where a rank has no parameters.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a report's number")]
pub fn traffic_psi(run: &Run, step: u32) -> Vec<f64> {
    let own = own_parameters(run.program);
    let moved =
        |rank: usize| -> u64 { taken_part(run, Rank::new(rank), step).into_iter().map(|id| payload(run.program, id)).sum() };
    let psi = |rank: usize| if own[rank] == 0 { 0.0 } else { moved(rank) as f64 / own[rank] as f64 };
    (0..run.program.ranks()).map(psi).collect()
}

/// What the ranks that share tensors with rank 0 add up inside layers during step `step`, forward and backward: payloads of all-reduces. A
/// reduce-scatter and a gather are half of one each. `None` where nobody shares any.
#[must_use]
pub fn inside_layers(run: &Run, step: u32) -> Option<[Bytes; 2]> {
    let program = run.program;
    let ran = program.order.first()?.iter().filter(|&&op| run.of_step(op, step) && run.times(op).is_some());
    let met = ran.filter_map(|&op| Some((collective_of(run, op)?, program.op(op).origin.slot?.pass != Pass::F)));
    // An expanded collective is many ops.
    let met: BTreeSet<(CollectiveId, bool)> = met.filter(|&(id, _)| !is_of_replicas(program, id)).collect();
    let mut payloads = [Bytes::ZERO; 2];
    for (id, is_backward) in met {
        let collective = &program.collectives[id.index()];
        if collective.label.starts_with("blocks.") {
            payloads[usize::from(is_backward)] += Bytes(collective.bytes.0 * collective.kind.rounds() / 2);
        }
    }
    (program.setting.tensor.ranks > 1).then_some(payloads)
}

/// Per rank, those that are folded each for itself, what zeros at the ends of its shards take: parameters, gradients, and the optimizer's
/// tensors.
#[must_use]
pub fn padding(program: &Program) -> Vec<Bytes> {
    let fold = program.fold();
    let mut padding = vec![Bytes::ZERO; program.ranks() * fold];
    for buffer in program.buffers.iter().filter(|buffer| buffer.role.is_state()) {
        let (Name::Shard(unit, place)
        | Name::GradientShard(unit, place)
        | Name::FirstMomentShard(unit, place)
        | Name::SecondMomentShard(unit, place)
        | Name::MasterShard(unit, place)) = buffer.name
        else {
            continue;
        };
        let Some(unit) = program.units.get(unit as usize) else { continue };
        let element: u64 = program.layouts[buffer.layout.index()].parts.iter().map(|part| part.dtype.size()).sum();
        for folded in 0..fold {
            let place = (place as usize + folded) % unit.shards;
            padding[program.unfolded(buffer.rank, folded)] += Bytes(unit.padding(program, place) as u64 * element);
        }
    }
    padding
}

/// The collectives that `rank` took part in, as one op or message by message.
fn taken_part(run: &Run, rank: Rank, step: u32) -> BTreeSet<CollectiveId> {
    let ops = run.program.order[rank.index()].iter().copied();
    let ran = ops.filter(|&op| run.of_step(op, step) && run.times(op).is_some());
    ran.filter_map(|op| collective_of(run, op)).filter(|&id| is_of_replicas(run.program, id)).collect()
}

/// Whether replicas meet, and not ranks that share a layer's tensors.
fn is_of_replicas(program: &Program, id: CollectiveId) -> bool {
    let group = &program.groups[program.collectives[id.index()].group.index()];
    let line = program.setting.tensor;
    line.ranks == 1 || group.ranks.iter().all(|&rank| line.split(rank) == line.split(group.ranks[0]))
}

/// Elements that a collective moves past a member.
fn payload(program: &Program, id: CollectiveId) -> u64 {
    let collective = &program.collectives[id.index()];
    collective.kind.rounds() * ((collective.bytes - collective.padding).0 / collective.dtype.size())
}

/// Per rank, the elements of its parameters, kept whole or gathered.
fn own_parameters(program: &Program) -> Vec<u64> {
    let mut own = vec![0; program.ranks()];
    for buffer in &program.buffers {
        if let Name::Parameter(parameter) = buffer.name {
            let elements = program.parameters.get(parameter.index()).map_or(0, |one| one.elements() - one.padding());
            own[buffer.rank.index()] += elements as u64;
        }
    }
    own
}
