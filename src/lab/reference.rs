//! The reference: the same training on one device, by the same code on a mesh of one rank.
//!
//! One device runs the micro-batches of all data-parallel ranks, in their order, without trouble and without a memory limit.

use std::sync::Arc;

use super::snapshot::Snapshots;
use crate::base::Ticks;
use crate::base::hardware::{Costs, Hardware, UnitCosts};
use crate::base::mesh::{Axis, Mesh};
use crate::base::settings::{Dtype, Recompute, Strategy};
use crate::compile;
use crate::engine::session::{self, Numbers};
use crate::engine::value::Loss;
use crate::program::Program;
use crate::scenario::{Scenario, Task, Training};

/// One device's numbers.
#[derive(Debug)]
pub struct Reference {
    /// Gradients and parameters of every step.
    pub snapshots: Snapshots,
    /// Losses of micro-batches.
    pub losses: Vec<Loss>,
}

/// One device in the run's own type, and in f64 when somebody asks.
#[derive(Debug)]
pub struct Pair {
    /// The program of the reference; equal programs have equal numbers.
    program: Program,
    /// In the run's own type.
    pub own: Reference,
    double: Option<Reference>,
}

/// References that were computed before.
#[derive(Debug, Default)]
pub struct References {
    known: Vec<Pair>,
}

/// References that are remembered: a knob that changes the schedule alone does not change its reference.
const REMEMBERED: usize = 4;

impl References {
    /// The reference of `scenario`.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn get(&mut self, scenario: &Scenario, training: &Training) -> crate::engine::Result<&mut Pair> {
        let program = compile::compile(&one_device(scenario, training)).program;
        let known = self.known.iter().position(|pair| pair.program == program);
        if let Some(place) = known {
            return Ok(&mut self.known[place]);
        }
        if self.known.len() == REMEMBERED {
            self.known.remove(0);
        }
        let own = run(program.clone())?;
        self.known.push(Pair { program, own, double: None });
        let place = self.known.len() - 1;
        Ok(&mut self.known[place])
    }
}

impl Pair {
    /// The type of the run's own numbers.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.program.setting.dtype
    }

    /// One device in f64, from the same starting parameters.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn double(&mut self) -> crate::engine::Result<(&Reference, &Reference)> {
        if self.double.is_none() {
            self.double = Some(run(in_double(&self.program))?);
        }
        match &self.double {
            Some(double) => Ok((&self.own, double)),
            None => unreachable!("it was made above"),
        }
    }
}

/// The scenario on one device.
#[must_use]
pub fn one_device(scenario: &Scenario, training: &Training) -> Scenario {
    let mut training = training.clone();
    let replicas = u32::try_from(training.mesh.size(Axis::Data)).expect("a checked mesh");
    training.batch.micro_batches *= replicas;
    training.mesh = Mesh::new(1, 1);
    training.data_parallel.strategy = Strategy::Ddp;
    training.recompute.mode = Recompute::None;
    training.pipeline.layers_per_stage = vec![training.model.layers];
    Scenario { task: Task::Train(training), hardware: untimed(), trouble: Vec::new(), ..scenario.clone() }
}

/// The same program with f64 tensors; its parameters start at the precision that they had.
fn in_double(program: &Program) -> Program {
    let mut program = program.clone();
    program.setting.initial = program.setting.dtype;
    program.setting.dtype = Dtype::F64;
    for part in program.layouts.iter_mut().flat_map(|layout| &mut layout.parts) {
        if part.dtype != Dtype::U32 {
            part.dtype = Dtype::F64;
        }
    }
    program
}

fn run(program: Program) -> crate::engine::Result<Reference> {
    let mut snapshots = Snapshots::default();
    let (world, _) = session::run(Arc::new(program), &untimed(), &[], Numbers::Real, &mut |world, op| snapshots.take(world, op))?;
    Ok(Reference { snapshots, losses: world.values.losses().to_vec() })
}

/// A reference's time does not matter.
pub(super) fn untimed() -> Hardware {
    let slot = UnitCosts { ticks_per_slot: 1, forward: Ticks(1), backward_input: Ticks(1), backward_weight: Ticks(1) };
    Hardware { costs: Costs::Unit(slot), memory: None, ranks_per_node: 1, sharing: None }
}
