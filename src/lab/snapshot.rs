//! Snapshots: every parameter's gradient before the optimizer and its value behind it, for every update and rank. Mostly an update is a step.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::mesh::{Axis, Mesh};
use crate::base::model::Parameter;
use crate::base::{OpId, ParameterId, Rank};
use crate::engine::session::{join, join_slices};
use crate::engine::value::{Auxiliary, Loss, Value, Values};
use crate::engine::world::World;
use crate::program::{Kernel, Name, Program, Setting};

/// What was seen of one parameter on one rank at one update.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The optimizer's op.
    pub op: OpId,
    /// The averaged gradient that it read.
    pub gradient: Value,
    /// The parameter that it wrote.
    pub parameter: Value,
}

/// All snapshots of a run.
#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    /// The snapshots of whole parameters, by update, parameter and rank.
    pub by_place: BTreeMap<(u32, ParameterId, Rank), Snapshot>,
    /// Those of shards, by update, unit and rank.
    shards: BTreeMap<(u32, u32, Rank), Snapshot>,
}

impl Snapshots {
    /// Takes the snapshots of an op that has ended, if it is an optimizer's.
    pub fn take(&mut self, world: &World, op: OpId) {
        let program = &world.machine.program;
        let Some(kernel) = program.kernel_of(op) else { return };
        let Values::Real { buffers, .. } = &world.values else { return };
        let view = program.op(op);
        match kernel {
            Kernel::Optimizer(_) => {}
            Kernel::OptimizerShard => {
                let (read, written) = (view.reads[0].index(), view.writes[0].index());
                let Name::GradientShard(unit, _) = program.buffers[read].name else { return };
                let snapshot = Snapshot { op, gradient: buffers[read].clone(), parameter: buffers[written].clone() };
                self.shards.insert((view.origin.update(), unit, view.rank), snapshot);
                return;
            }
            _ => return,
        }
        let value = |place: usize| buffers[view.reads[place].index()].clone();
        for (place, gradient) in view.reads.iter().enumerate() {
            let Name::Gradient(parameter) = program.buffers[gradient.index()].name else { break };
            // The optimizer reads its gradients first, and writes its parameters in the same order.
            let written = buffers[view.writes[place].index()].clone();
            let snapshot = Snapshot { op, gradient: value(place), parameter: written };
            self.by_place.insert((view.origin.update(), parameter, view.rank), snapshot);
        }
    }
}

impl Snapshots {
    /// Puts shards together: the snapshot of a whole parameter stands on the first rank of those that share it.
    ///
    /// # Errors
    /// If a shard has not the size that its unit says.
    pub fn join_shards(&mut self, program: &Program) -> crate::engine::Result<()> {
        let shards: Vec<_> = std::mem::take(&mut self.shards).into_iter().collect();
        for of_unit in shards.chunk_by(|((update, unit, _), _), ((other, same, _), _)| (update, unit) == (other, same)) {
            let ((update, unit, _), _) = of_unit[0];
            let unit = &program.units[unit as usize];
            for copy in of_unit.chunks(unit.shards) {
                let ((.., rank), Snapshot { op, .. }) = copy[0];
                let gradients = join(program, unit, &copy.iter().map(|(_, shard)| &shard.gradient).collect::<Vec<_>>())?;
                let parameters = join(program, unit, &copy.iter().map(|(_, shard)| &shard.parameter).collect::<Vec<_>>())?;
                for ((&name, gradient), parameter) in unit.parameters.iter().zip(gradients).zip(parameters) {
                    self.by_place.insert((update, name, rank), Snapshot { op, gradient, parameter });
                }
            }
        }
        Ok(())
    }
}

/// A slice, who holds it, and what was seen of it.
type Held<'p> = (&'p Parameter, Rank, Snapshot);

impl Snapshots {
    /// Puts slices together: of ranks that share a layer's tensors, the snapshot of the whole tensor stands on the first, once for every copy
    /// that they have between them. `whole` are the model's parameters, whose numbers the snapshots get.
    ///
    /// # Errors
    /// If the slices do not make up their tensor.
    pub fn join_slices(&mut self, program: &Program, mesh: &Mesh, whole: &[Parameter]) -> crate::engine::Result<()> {
        if mesh.size(Axis::Tensor) == 1 {
            return Ok(());
        }
        let numbers: BTreeMap<&str, usize> = whole.iter().enumerate().map(|(number, one)| (one.name.as_str(), number)).collect();
        let mut slices: BTreeMap<(u32, usize, Rank), Vec<Held>> = BTreeMap::new();
        for ((step, id, rank), snapshot) in std::mem::take(&mut self.by_place) {
            let parameter = &program.parameters[id.index()];
            let number = numbers[parameter.name.as_str()];
            if parameter.slice.is_none() {
                self.keep(step, number, rank, snapshot);
                continue;
            }
            let first = mesh.with(rank, Axis::Tensor, 0);
            slices.entry((step, number, first)).or_default().push((parameter, rank, snapshot));
        }
        for ((step, number, first), mut slices) in slices {
            slices.sort_by_key(|(parameter, rank, _)| (parameter.slice, *rank));
            let places: Vec<&[Held]> = slices.chunk_by(|(one, ..), (other, ..)| one.slice == other.slice).collect();
            let copies = places.iter().map(|holders| holders.len()).max().unwrap_or(0);
            for copy in 0..copies {
                // Where fewer hold a slice, theirs stands in several copies.
                let own = || places.iter().map(|holders| &holders[copy % holders.len()]);
                let gradients = own().map(|(slice, _, seen)| (*slice, &seen.gradient));
                let parameters = own().map(|(slice, _, seen)| (*slice, &seen.parameter));
                let (gradient, parameter) = (join_slices(program, gradients)?, join_slices(program, parameters)?);
                let snapshot = Snapshot { op: places[0][0].2.op, gradient, parameter };
                self.keep(step, number, mesh.with(first, Axis::Tensor, copy), snapshot);
            }
        }
        Ok(())
    }

    fn keep(&mut self, step: u32, number: usize, rank: Rank, snapshot: Snapshot) {
        self.by_place.insert((step, ParameterId::new(number), rank), snapshot);
    }
}

/// The mean loss of every step, over the sequences of all micro-batches.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a number of micro-batches")]
pub fn mean_losses(losses: &[Loss], setting: &Setting) -> Vec<f64> {
    let weight = |loss: &Loss| setting.size_and_weight(loss.micro_batch / setting.segments.max(1)).1;
    let steps = losses.iter().map(|loss| loss.step + 1).max().unwrap_or(0);
    let mean = |step| {
        // Summed by micro-batch, so that the schedule's order does not show in the last bits.
        let mut of_step: Vec<Loss> = losses.iter().copied().filter(|loss| loss.step == step).collect();
        of_step.sort_by_key(|loss| (loss.micro_batch, loss.slice));
        of_step.iter().map(|loss| weight(loss) * loss.value).sum::<f64>() / of_step.len() as f64
    };
    (0..steps).map(mean).collect()
}

/// The auxiliary losses of all layers in every step, as a mean over micro-batches, and where ranks have slices of them, over these.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a number of micro-batches")]
pub fn auxiliary_losses(all: &[Auxiliary]) -> Vec<f64> {
    let steps = all.iter().map(|one| one.loss.step + 1).max().unwrap_or(0);
    let mean = |step| {
        let mut of_step: Vec<&Auxiliary> = all.iter().filter(|one| one.loss.step == step).collect();
        of_step.sort_by_key(|one| (one.layer, one.place, one.loss.micro_batch, one.loss.slice));
        let slices: BTreeSet<_> = of_step.iter().map(|one| (one.loss.micro_batch, one.loss.slice)).collect();
        of_step.iter().map(|one| one.loss.value).sum::<f64>() / slices.len().max(1) as f64
    };
    (0..steps).map(mean).collect()
}
