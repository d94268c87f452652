//! Volume: what a step moves and computes, in the units in which strategies are compared. And what padding costs.
//!
//! Traffic is counted in payloads, without a ring's (N-1)/N, and in units of the rank's own parameters: an all-reduce passes its payload
//! twice, a reduce-scatter and an all-gather once. So plain data parallelism moves 2 whatever its size.

use std::collections::BTreeSet;

use super::metrics::Metrics;
use super::run::Run;
use super::traffic::collective_of;
use crate::base::settings::AttentionTensor;
use crate::base::units::Clock;
use crate::base::{Bytes, CollectiveId, Rank, Ticks};
use crate::program::plan::Pass;
use crate::program::trace::Outcome;
use crate::program::{CollectiveKind, Kernel, Name, OpKind, PassName, Program};

/// Floating-point operations of a step on all ranks, a multiply-add counted as two. Sixteen million tokens of a model of 405 billion
/// parameters need more than 64 bits can count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// What the model needs: forward, and backward for inputs and weights. MFU counts these.
    pub model: u128,
    /// What the hardware computes for it: recomputation, too. HFU counts these.
    pub hardware: u128,
}

/// Shares of the peak of all devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Utilization {
    /// Model FLOPs utilization, MFU: of the FLOPs that the model needs (Chowdhery et al. 2022, arXiv 2204.02311, section 4.1).
    pub model: f64,
    /// Hardware FLOPs utilization, HFU: of those that were computed (Korthikanti et al. 2022, arXiv 2205.05198, section 6.3).
    pub hardware: f64,
}

impl Flops {
    /// The share of what `ranks` devices of `peak` FLOP/s could have computed in `seconds`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a report's number")]
    pub fn utilization(self, ranks: usize, peak: f64, seconds: f64) -> Utilization {
        let most = ranks as f64 * peak * seconds;
        Utilization { model: self.model as f64 / most, hardware: self.hardware as f64 / most }
    }
}

/// The utilization of the first step; `None` without a model or a peak, where time is counted in slots, and where the step did not end.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a report's number")]
pub fn utilization(run: &Run, metrics: &Metrics, peak: Option<f64>) -> Option<Utilization> {
    let is_whole = run.trace.outcome == Outcome::Completed && metrics.flops.model > 0;
    let is_timed = run.trace.clock == Clock::Nanoseconds && metrics.makespan > Ticks::ZERO;
    let seconds = metrics.makespan.0 as f64 / 1e9;
    let ranks = metrics.ranks.len() * run.program.fold();
    peak.filter(|_| is_whole && is_timed).map(|peak| metrics.flops.utilization(ranks, peak, seconds))
}

/// The FLOPs of step `step`, as far as it ran.
#[must_use]
pub fn flops(run: &Run, step: u32) -> Flops {
    let mut flops = Flops::default();
    for op in run.program.all().filter(|&op| run.of_step(op, step) && run.times(op).is_some()) {
        let OpKind::Run(kernel) = run.program.kind(op) else { continue };
        let kernel = run.program.kernels[kernel.index()];
        // Attention by blocks has one kernel, whether it computes for the first time or again.
        let is_again = run.program.op(op).origin.pass == PassName::Recompute;
        match kernel.kernel {
            Kernel::Attend if is_again => flops.hardware += u128::from(kernel.flops),
            Kernel::Forward(_)
            | Kernel::BackwardInput(_)
            | Kernel::BackwardWeight(_)
            | Kernel::Attend
            | Kernel::AttendBackward
            | Kernel::Route
            | Kernel::Experts
            | Kernel::ExpertsBackward
            | Kernel::RouteBackward => {
                flops.model += u128::from(kernel.flops);
                flops.hardware += u128::from(kernel.flops);
            }
            Kernel::Recompute(_) | Kernel::RecomputeAttention(_) => flops.hardware += u128::from(kernel.flops),
            _ => {}
        }
    }
    let fold = run.program.fold() as u128;
    Flops { model: flops.model * fold, hardware: flops.hardware * fold }
}

/// Per rank, the payloads of the collectives that it took part in during step `step`, in units of its own parameters, without padding.
/// 0 where a rank has no parameters.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a report's number")]
pub fn traffic_psi(run: &Run, step: u32) -> Vec<f64> {
    let own = own_parameters(run.program);
    let moved =
        |rank: usize| -> f64 { taken_part(run, Rank::new(rank), step).into_iter().map(|id| payload(run.program, id)).sum() };
    let psi = |rank: usize| if own[rank] == 0 { 0.0 } else { moved(rank) / own[rank] as f64 };
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
        let (Name::Shard(unit, _)
        | Name::GradientShard(unit, _)
        | Name::FirstMomentShard(unit, _)
        | Name::SecondMomentShard(unit, _)
        | Name::MasterShard(unit, _)) = buffer.name
        else {
            continue;
        };
        let Some(unit) = program.units.get(unit as usize) else { continue };
        let element: u64 = program.layouts[buffer.layout.index()].parts.iter().map(|part| part.dtype.size()).sum();
        for rank in (0..fold).map(|folded| program.unfolded(buffer.rank, folded)) {
            let place = program.setting.data_place(rank) / unit.apart % unit.shards;
            padding[rank.index()] += Bytes(unit.padding(program, place) as u64 * element);
        }
    }
    padding
}

/// The collectives that `rank` took part in, as one op or message by message.
fn taken_part(run: &Run, rank: Rank, step: u32) -> BTreeSet<CollectiveId> {
    let ops = run.program.order[rank.index()].iter().copied();
    let ran = ops.filter(|&op| run.of_step(op, step) && run.times(op).is_some());
    // Tokens that go to experts are no state of replicas, and who alone has its experts meets nobody.
    let is_of_state = |id: CollectiveId| {
        let collective = &run.program.collectives[id.index()];
        collective.kind != CollectiveKind::AllToAll && run.program.groups[collective.group.index()].size() > 1
    };
    ran.filter_map(|op| collective_of(run, op)).filter(|&id| is_of_state(id) && is_of_replicas(run.program, id)).collect()
}

/// Whether replicas meet, and not ranks that share a layer's tensors, or for its attention.
fn is_of_replicas(program: &Program, id: CollectiveId) -> bool {
    let collective = &program.collectives[id.index()];
    let line = program.setting.tensor;
    let first_word = collective.label.split(' ').next().unwrap_or_default();
    if program.setting.context.ranks > 1 && AttentionTensor::find(first_word).is_some() {
        return false;
    }
    let [first, last] = program.groups[collective.group.index()].ends(&program.setting.folding);
    line.ranks == 1 || line.place(first) == line.place(last)
}

/// Elements that a collective moves past a member.
#[expect(clippy::cast_precision_loss, reason = "a report's number")]
fn payload(program: &Program, id: CollectiveId) -> f64 {
    let collective = &program.collectives[id.index()];
    collective.kind.rounds() as f64 * collective.payload()
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
