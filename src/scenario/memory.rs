//! Whether real values would fit this machine: an estimate, made before anything is allocated.

use super::limits::{self, bytes, float};
use super::problem::{Problem, Problems};
use super::{ContextMethod, Layer, Scenario, Task, Training, Values};
use crate::base::mesh::Axis;
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
    let saved = saved_elements(training);
    let in_flight = float(in_flight(training));
    parameters * (state * (replicas * homes + 1.0) + tensors * F64)
        + saved * (limits::lanes(training) * in_flight * element + element + F64)
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

/// Elements that the backward pass of one micro-batch needs, over all stages. In floating point: sizes that nobody has checked yet
/// may have a product that exceeds 64 bits.
pub(super) fn saved_elements(training: &Training) -> f64 {
    // A token goes through the columns of all experts that it chooses, and each keeps a copy of it.
    let model = &crate::base::model::Model { ffn: training.model.active_ffn(), ..training.model.clone() };
    let size = training.batch.micro_batch_size;
    let sum = |tensors: Vec<SavedTensor>| -> f64 {
        tensors.iter().map(|tensor| tensor.dims.iter().copied().map(float).product::<f64>()).sum()
    };
    let block = sum(saved::block_saved(model, size)) + sum(saved::block_deferred(model, size));
    let head = sum(saved::head_saved(model, size)) + sum(saved::head_deferred(model, size));
    float(model.layers) * block + head
}
