//! Whether real values would fit this machine: an estimate, made before anything is allocated.

use super::limits::{self, bytes, float};
use super::problem::{Problem, Problems};
use super::{ContextMethod, Layer, Scenario, Task, Training, Values};
use crate::base::mesh::{Axis, Mesh};
use crate::base::model::{Model, Part};
use crate::base::module::Module;
use crate::base::saved::{self, SavedTensor};
use crate::base::units::Bytes;
use crate::program::plan::{Cell, Pass};

/// Bytes of a kernel or a message between stages with its operands, its buffers and their names, its times, and what is observed:
/// measured at 600 to 1,300.
const BYTES_OF_COMPUTE: f64 = 900.0;
/// Bytes of a step of a collective: measured at 340 to 420.
const BYTES_OF_COLLECTIVE: f64 = 360.0;
/// Bytes of a parameter tensor on a rank: tables of the tensor, its gradient and the optimizer's, whatever they hold.
const BYTES_OF_TENSOR: f64 = 1_500.0;
/// A run is to leave so much of the memory to others.
const SHARE_OF_MEMORY: u64 = 2;

impl Scenario {
    /// Memory that real values would take on the machine that runs this; `None` with shapes alone. An estimate: parameters,
    /// gradients and optimizer state of every rank and of the one-device runs that the verdict compares with, and the
    /// activations of all micro-batches in flight.
    #[must_use]
    pub fn real_bytes(&self) -> Option<Bytes> {
        if self.numerics.values == Values::Shape {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let element = self.numerics.dtype.size() as f64;
        Some(match &self.task {
            Task::Train(training) => bytes(training_bytes(training, element)),
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            Task::Collective(collective) => bytes(collective.bytes.0 as f64 * float(collective.ranks) * 3.0),
            Task::Layer(layer) => bytes(layer_bytes(layer, element)),
            Task::Experts(layer) => bytes(super::experts::real_bytes(layer, element)),
        })
    }

    /// The operations that the run will have. An estimate, and right within a factor of two.
    #[must_use]
    pub fn about_ops(&self) -> f64 {
        limits::ops(self).all()
    }

    /// Memory that the run's operations take whatever their values: program, world, trace, and what is observed. An estimate.
    #[must_use]
    pub fn program_bytes(&self) -> Bytes {
        let ops = limits::ops(self);
        let tensors = match &self.task {
            Task::Train(training) => limits::tensors(training) * limits::lanes(training),
            Task::Collective(collective) => float(collective.ranks),
            Task::Layer(layer) => float(layer.attention.slices),
            Task::Experts(layer) => float(layer.ranks),
        };
        let ops_bytes = BYTES_OF_COMPUTE * ops.compute + BYTES_OF_COLLECTIVE * ops.collectives;
        bytes(ops_bytes + BYTES_OF_TENSOR * tensors)
    }

    /// Refuses a run that would not fit `memory`; its operations are to leave half of it. `name` names the scenario in the message.
    ///
    /// # Errors
    /// If they would not.
    pub fn fits(&self, name: &str, memory: Bytes) -> Result<(), Problems> {
        match self.real_bytes() {
            Some(needed) if needed > memory => {
                let message = format!("real values would take about {needed}, and this machine has {memory}");
                let problem = Problem::new(message).about("numerics.values", Values::Real.name());
                Err(Problems::of_file(
                    name,
                    problem.hint("numerics.values = \"shape\" follows shapes alone and needs no such memory"),
                ))
            }
            _ if self.program_bytes() > Bytes(memory.0 / SHARE_OF_MEMORY) => {
                let (needed, ops) = (self.program_bytes(), limits::whole(self.about_ops()));
                let message = format!("a run of about {ops} operations would take about {needed}, and this machine has {memory}");
                let problem = Problem::new(message).allowed("half of the memory");
                let hint = "fewer micro-batches, steps or ranks; expand = false makes a collective one operation";
                Err(Problems::of_file(name, problem.hint(hint)))
            }
            _ => Ok(()),
        }
    }
}

/// Ten tensors as large as q on every rank, on one device, and there in f64; with all-gather everybody's keys and their gradients.
fn layer_bytes(layer: &Layer, element: f64) -> f64 {
    let attention = &layer.attention;
    let whole = float(attention.sequence) * float(attention.heads) * float(attention.head_size);
    let copies = match layer.method {
        ContextMethod::Ring => 0.0,
        ContextMethod::AllGather => 4.0 * float(attention.slices),
        ContextMethod::Ulysses => 10.0,
    };
    whole * ((20.0 + copies) * element + 80.0)
}

fn training_bytes(training: &Training, element: f64) -> f64 {
    /// The verdict runs one device in the run's type and one in f64.
    const F64: f64 = 8.0;
    let parameters = float(training.model.parameter_count());
    let tensors = float(2 + training.optimizer.kind.moments());
    #[expect(clippy::cast_precision_loss, reason = "a few bytes")]
    let state = training.precision.bytes(training.optimizer.kind).iter().sum::<u64>() as f64;
    let replicas = float(training.mesh.size(Axis::Data) * training.mesh.size(Axis::Context));
    let homes = if training.is_two_way() { 2.0 } else { 1.0 };
    let in_flight = float(in_flight(training));
    let alone = saved_elements(&Training { mesh: Mesh::new(1, 1), ..training.clone() });
    parameters * (state * (replicas * homes + 1.0) + tensors * F64)
        + saved_elements(training) * limits::lanes(training) * in_flight * element
        + alone * (element + F64)
}

/// The most micro-batches that any stage holds at once.
fn in_flight(training: &Training) -> usize {
    let plan = training.plan();
    let peak = |row: &Vec<Cell>| {
        let count = row.iter().flat_map(|cell| cell.slots()).scan(0_usize, |held, slot| {
            match slot.pass {
                Pass::F => *held += 1,
                Pass::B | Pass::W => *held = held.saturating_sub(1),
                Pass::I => {}
            }
            Some(*held)
        });
        count.max().unwrap_or(0)
    };
    let chunks = plan.rows.iter().map(peak).max().unwrap_or(0);
    chunks.div_ceil(training.size().chunks.max(1) as usize)
}

/// Elements that the backward pass of one micro-batch needs in a lane, over all stages. In floating point: sizes that nobody has checked
/// yet may have a product that exceeds 64 bits.
pub(super) fn saved_elements(training: &Training) -> f64 {
    // A token goes through the columns of all experts that it chooses, and each keeps a copy of it.
    let (model, slices) = (&training.model, training.mesh.size(Axis::Context));
    let own = Model { ffn: model.active_ffn(), sequence: model.sequence / slices, experts: None, ..model.clone() };
    let (size, layers) = (training.batch.micro_batch_size, float(model.layers));
    if slices * training.mesh.size(Axis::Tensor) > 1 {
        let of_modules = |part| own.modules_of(part).map(|module| module_elements(training, &own, module)).sum::<f64>();
        return layers * (of_modules(Part::Block(0)) + block_elements(training, &own)) + of_modules(Part::Head);
    }
    let block = sum(&saved::block_saved(&own, size)) + sum(&saved::block_deferred(&own, size));
    layers * block + sum(&saved::head_saved(&own, size)) + sum(&saved::head_deferred(&own, size))
}

fn sum(tensors: &[SavedTensor]) -> f64 {
    tensors.iter().map(|tensor| tensor.dims.iter().copied().map(float).product::<f64>()).sum()
}

/// Those of a module of which a rank has its part: what it saves, and what it makes. `own` is the model with the rank's tokens.
fn module_elements(training: &Training, own: &Model, module: Module) -> f64 {
    let split = training.split();
    let size = training.batch.micro_batch_size;
    let shared = if training.tensor_parallel.sequence_parallel { split.ranks } else { 1 };
    let stream = [size, own.sequence / shared];
    let all = if module.is_of_stream() { stream } else { [size, own.sequence] };
    let made = all.into_iter().chain([split.width(own, module)]).map(float).product::<f64>();
    let is_by_blocks = module == Module::Attention && training.mesh.size(Axis::Context) > 1;
    let saved = if is_by_blocks { Vec::new() } else { saved::module_saved(own, size, split, &stream, module) };
    made + sum(&saved) + sum(&saved::module_deferred(own, size, split, &stream, module))
}

/// Where attention goes by blocks it saves no scores, but the keys and values of others that are there at a time.
fn block_elements(training: &Training, own: &Model) -> f64 {
    let (slices, split) = (training.mesh.size(Axis::Context), training.split());
    let others = match training.context_parallel.method {
        _ if slices == 1 => 0,
        ContextMethod::AllGather => slices - 1,
        ContextMethod::Ring | ContextMethod::Ulysses => 1,
    };
    let keys = [training.batch.micro_batch_size, own.sequence, 2 * split.kv_heads(own) * own.head_size()];
    float(others) * keys.map(float).iter().product::<f64>()
}
