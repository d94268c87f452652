//! The end of a step: gradients are averaged once, ranks meet where the scenario asks for it, the optimizer updates the parameters.
//!
//! A shared optimizer updates the rank's shard of each unit. Where every rank keeps whole parameters, the shard is cut out of them first,
//! and the updated shards of all ranks are gathered behind it.
//!
//! A pipeline that is never drained has no end of a step: each of its stages updates for itself, behind its own last backward.

use std::collections::BTreeMap;

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::{BufferId, Bytes, CollectiveId, KernelId, OpId, ParameterId, Rank, Updates};
use crate::program::plan::{Pass, Slot};
use crate::program::tables::{COMPUTE, Collective, CollectiveKind, Group};
use crate::program::{Kernel, KernelCost, OpKind, Origin, PassName, Program};
use crate::scenario::Training;

use super::data_parallel::{Copies, Held, Meeting, Sharing, bytes};
use super::{Build, stages};

/// Appends the end of every step, rank by rank.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let (program, Some(sharing)) = (&mut build.program, &build.sharing) else { return };
    let barriers = barriers(program, training);
    let mut gathers = Gathers { training, sharing, known: BTreeMap::new() };
    for (rank, whole) in training.followed() {
        let mut end = End { rank, seat: training.seat(whole), held: &build.held[rank.index()], gathers: &mut gathers };
        let parts = end.owned_parts(program);
        let mut order = std::mem::take(&mut program.order[rank.index()]);
        if training.pipeline.updates.is_asynchronous() {
            end.update_under_way(program, &parts, &order);
            continue;
        }
        for step in 0..training.batch.steps {
            let behind = order.split_off(order.partition_point(|&op| program.op(op).origin.step <= step));
            program.order[rank.index()].append(&mut order);
            order = behind;
            let origin = Origin { slot: None, step, pass: PassName::Optimizer };
            end.average(program, &parts, origin);
            if let Some(&barrier) = barriers.get(step as usize) {
                program.append((rank, COMPUTE), OpKind::Collective(barrier), (&[], &[]), origin);
            }
            end.update(program, &parts, origin);
        }
    }
}

/// With a pipeline and `barrier` the ranks meet once a step: that is what a global gradient norm costs.
fn barriers(program: &mut Program, training: &Training) -> Vec<CollectiveId> {
    let is_drained = !training.pipeline.updates.is_asynchronous();
    if training.mesh.size(Axis::Pipeline) == 1 || !training.pipeline.barrier || !is_drained {
        return Vec::new();
    }
    let all: Vec<Rank> = (0..training.mesh.ranks()).map(Rank::new).collect();
    let group = program.group(Group::new(&training.folding, "world", None, &all));
    let (bytes, dtype) = (Bytes::ZERO, training.precision.gradient);
    let barrier = |step| Collective {
        group,
        kind: CollectiveKind::Barrier,
        label: "step".to_owned(),
        step,
        bytes,
        dtype,
        padding: bytes,
        shards: 1,
    };
    (0..training.batch.steps).map(|step| program.collective(barrier(step))).collect()
}

/// The end of one rank's steps.
struct End<'a, 'b> {
    rank: Rank,
    seat: usize,
    held: &'a Held,
    gathers: &'a mut Gathers<'b>,
}

impl End<'_, '_> {
    /// Issues `order` with an update of a stage behind the last backward that it waits for: of its micro-batch, or of a step.
    fn update_under_way(&mut self, program: &mut Program, parts: &[(Part, Vec<ParameterId>)], order: &[OpId]) {
        let updates = self.gathers.training.pipeline.updates;
        let backward = |program: &Program, op: OpId| {
            let origin = program.op(op).origin;
            origin.slot.filter(|slot| matches!(slot.pass, Pass::B | Pass::W)).map(|slot| (origin, slot))
        };
        let number = |origin: Origin, slot: Slot| if updates == Updates::EachMicroBatch { slot.micro_batch } else { origin.step };
        let mut last: BTreeMap<(u32, u32), OpId> = BTreeMap::new();
        for &op in order {
            if let Some((origin, slot)) = backward(program, op) {
                last.insert((slot.stage, number(origin, slot)), op);
            }
        }
        for &op in order {
            program.order[self.rank.index()].push(op);
            let Some((origin, slot)) = backward(program, op) else { continue };
            if last.get(&(slot.stage, number(origin, slot))) != Some(&op) {
                continue;
            }
            let of_stage = self.gathers.training.parts(slot.stage as usize);
            let parts: Vec<_> = parts.iter().filter(|(part, _)| of_stage.contains(part)).cloned().collect();
            let slot = (updates == Updates::EachMicroBatch).then_some(slot);
            let origin = Origin { slot, step: origin.step, pass: PassName::Optimizer };
            self.average(program, &parts, origin);
            self.update(program, &parts, origin);
            self.zero(program, &parts, origin);
        }
    }

    /// The next backward adds to zeros.
    fn zero(&self, program: &mut Program, parts: &[(Part, Vec<ParameterId>)], origin: Origin) {
        let all = parts.iter().flat_map(|(_, parameters)| self.held.of(parameters, |copies| copies.gradient));
        let gradients: Vec<BufferId> = all.collect();
        let kernel = program.kernel(KernelCost::free(Kernel::ZeroGradients));
        program.append((self.rank, COMPUTE), OpKind::Run(kernel), (&[], &gradients), origin);
    }

    /// The parts whose own parameters the rank holds, with those parameters.
    fn owned_parts(&self, program: &Program) -> Vec<(Part, Vec<ParameterId>)> {
        let own = self.gathers.sharing.parameters[self.seat].iter().copied();
        let mut parts: Vec<(Part, Vec<ParameterId>)> = Vec::new();
        for parameter in own {
            let part = program.parameters[parameter.index()].part;
            match parts.last_mut() {
                Some((last, parameters)) if *last == part => parameters.push(parameter),
                _ => parts.push((part, vec![parameter])),
            }
        }
        parts
    }

    fn average(&self, program: &mut Program, parts: &[(Part, Vec<ParameterId>)], origin: Origin) {
        if self.gathers.sharing.row.optimizer {
            for shard in &self.held.shards {
                let gradient: Vec<BufferId> = shard.gradient.into_iter().collect();
                let kernel = shard_kernel(program, Kernel::AverageShard, 1, &gradient);
                program.append((self.rank, COMPUTE), OpKind::Run(kernel), (&gradient, &gradient), origin);
            }
            return;
        }
        for (part, parameters) in parts {
            let gradients = self.held.of(parameters, |copies| copies.gradient);
            let kernel = kernel(program, self.gathers.training, Kernel::Average(*part), parameters);
            program.append((self.rank, COMPUTE), OpKind::Run(kernel), (&gradients, &gradients), origin);
        }
    }

    fn update(&mut self, program: &mut Program, parts: &[(Part, Vec<ParameterId>)], origin: Origin) {
        let Sharing { row, .. } = *self.gathers.sharing;
        if row.optimizer {
            (0..self.held.shards.len()).for_each(|place| self.update_shard(program, place, origin));
            return;
        }
        for (part, parameters) in parts {
            let kinds: [fn(&Copies) -> Option<BufferId>; 4] = [
                |copies| copies.parameter,
                |copies| copies.optimizer[0],
                |copies| copies.optimizer[1],
                |copies| copies.optimizer[2],
            ];
            let state: Vec<BufferId> = kinds.into_iter().flat_map(|kind| self.held.of(parameters, kind)).collect();
            let reads = [self.held.of(parameters, |copies| copies.gradient), state.clone()].concat();
            let kernel = kernel(program, self.gathers.training, Kernel::Optimizer(*part), parameters);
            program.append((self.rank, COMPUTE), OpKind::Run(kernel), (&reads, &state), origin);
        }
    }

    /// Updates the rank's shard of the unit at `place`. Whole parameters are cut up before, and put together behind.
    fn update_shard(&mut self, program: &mut Program, place: usize, origin: Origin) {
        let sharing = self.gathers.sharing;
        let (seat, shard) = (self.seat, self.held.shards[place]);
        let (Some(gradient), Some(parameter)) = (shard.gradient, shard.parameter) else { return };
        let whole = self.held.of(&sharing.units[seat][place].parameters, |copies| copies.parameter);
        if !sharing.row.parameters {
            let take = shard_kernel(program, Kernel::TakeShard, 0, &[parameter]);
            program.append((self.rank, COMPUTE), OpKind::Run(take), (&whole, &[parameter]), origin);
        }
        let updated: Vec<BufferId> = std::iter::once(parameter).chain(shard.optimizer()).collect();
        let reads = [vec![gradient], updated.clone()].concat();
        let update = shard_kernel(program, Kernel::OptimizerShard, UPDATE_FLOPS, &reads);
        program.append((self.rank, COMPUTE), OpKind::Run(update), (&reads, &updated), origin);
        if !sharing.row.parameters {
            let gather = self.gathers.collective(program, (self.rank, seat), place, origin.step);
            let stream = program.communication_stream("dp");
            program.append((self.rank, stream), OpKind::Collective(gather), (&[parameter], &whole), origin);
        }
    }
}

/// The gathers of updated parameters, by first rank of the group, step and unit.
struct Gathers<'a> {
    training: &'a Training,
    sharing: &'a Sharing,
    known: BTreeMap<(Rank, u32, usize), CollectiveId>,
}

impl Gathers<'_> {
    fn collective(&mut self, program: &mut Program, (rank, seat): (Rank, usize), place: usize, step: u32) -> CollectiveId {
        let Self { training, sharing, .. } = *self;
        let members = sharing.members(training, (rank, place), Meeting::Copy);
        *self.known.entry((members[0], step, place)).or_insert_with(|| {
            let unit = &sharing.units[seat][place];
            let (dtype, padded) = (training.precision.parameter, unit.shard_elements(program) * unit.shards);
            let padding = bytes(padded - unit.elements(program), dtype);
            let group = program.group(sharing.group(training, (&members, place), Meeting::Copy));
            let (kind, label, bytes) = (CollectiveKind::AllGather, unit.label.clone(), bytes(padded, dtype));
            program.collective(Collective { group, kind, label, step, bytes, dtype, padding, shards: 1 })
        })
    }
}

/// A kernel on whole parameters. Adam: two moving averages, a root, a division, the update.
fn kernel(program: &mut Program, training: &Training, kernel: Kernel, parameters: &[ParameterId]) -> KernelId {
    let elements: usize = parameters.iter().map(|parameter| program.parameters[parameter.index()].elements()).sum();
    let flops = if let Kernel::Optimizer(_) = kernel { UPDATE_FLOPS } else { 1 } * elements as u64;
    program.kernel(KernelCost { flops, ..stages::cost(training, kernel, 0) })
}

/// Operations of an update for each parameter.
const UPDATE_FLOPS: u64 = 12;

/// A kernel on shards: so many operations for each element of the first, and all bytes once.
fn shard_kernel(program: &mut Program, kernel: Kernel, flops: u64, shards: &[BufferId]) -> KernelId {
    let elements = shards.first().map_or(0, |shard| {
        program.layouts[program.buffers[shard.index()].layout.index()]
            .parts
            .first()
            .map_or(0, crate::program::TensorPart::elements)
    });
    let bytes: Bytes = shards.iter().map(|&shard| program.bytes(shard)).sum();
    program.kernel(KernelCost { flops: flops * elements as u64, bytes: 2 * bytes.0, ..KernelCost::free(kernel) })
}
