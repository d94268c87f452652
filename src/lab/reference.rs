//! The reference: the same training on one device, by the same code on a mesh of one rank.
//!
//! One device runs the micro-batches of all data-parallel ranks, in their order, without trouble and without a memory limit. A stage adds
//! up its weights' gradients in the order in which the plan computes them; one device does it in the same order.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::snapshot::Snapshots;
use crate::base::hardware::{Costs, Hardware, UnitCosts};
use crate::base::mesh::{Axis, Mesh};
use crate::base::settings::{Dtype, Recompute, Strategy};
use crate::base::{OpId, Ticks};
use crate::compile;
use crate::engine::session::{self, Numbers};
use crate::engine::state::Whole;
use crate::engine::value::Loss;
use crate::engine::world::World;
use crate::program::plan::{Cell, Pass, Plan, Slot};
use crate::program::tables::Padded;
use crate::program::{Name, Program};
use crate::scenario::{Order, Scenario, Task, Training};

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
    /// The program of the reference, and the state that it goes on from: where both are equal, the numbers are.
    program: Program,
    start: Option<Arc<Whole>>,
    /// In the run's own type.
    pub own: Reference,
    double: Option<Reference>,
}

impl Pair {
    /// One device's program.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }
}

/// References that were computed before.
#[derive(Debug, Default)]
pub struct References {
    known: Vec<Pair>,
}

/// References that are remembered: a knob that changes the schedule alone does not change its reference.
const REMEMBERED: usize = 4;

impl References {
    /// The reference of `scenario`, which goes on from `start`.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn get(
        &mut self,
        scenario: &Scenario,
        training: &Training,
        start: Option<&Arc<Whole>>,
    ) -> crate::engine::Result<&mut Pair> {
        let program = compile::compile(&one_device(scenario, training)).program;
        let known = self.known.iter().position(|pair| pair.program == program && pair.start.as_ref() == start);
        if let Some(place) = known {
            return Ok(&mut self.known[place]);
        }
        if self.known.len() == REMEMBERED {
            self.known.remove(0);
        }
        let own = run(program.clone(), start)?;
        self.known.push(Pair { program, start: start.cloned(), own, double: None });
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

    /// The model's parameters, whose numbers the snapshots have.
    #[must_use]
    pub fn parameters(&self) -> &[crate::base::model::Parameter] {
        &self.program.parameters
    }

    /// One device in f64, from the same starting parameters.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn double(&mut self) -> crate::engine::Result<(&Reference, &Reference)> {
        if self.double.is_none() {
            self.double = Some(run(in_double(&self.program), self.start.as_ref())?);
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
    training.pipeline.off_by_one = None;
    if training.pipeline.updates.is_asynchronous() {
        return with_delayed_weights(scenario, training);
    }
    let replicas = u32::try_from(training.mesh.size(Axis::Data)).expect("a checked mesh");
    if !training.batch.sizes.is_empty() {
        return with_one_micro_batch(scenario, training);
    }
    let mut orders = sum_orders(&compile::plan(&training), &training, replicas);
    training.pipeline.segments = 1;
    if orders.windows(2).all(|pair| pair[0] == pair[1]) {
        orders.truncate(1);
        training.pipeline.layers_per_stage = vec![training.model.layers];
    }
    training.pipeline.order = Order::Plan(Arc::new(in_turn(&orders)));
    training.batch.micro_batches *= replicas;
    alone(scenario, training)
}

/// Micro-batches of different sizes as a single one: whoever weighs their losses as he should gets what all sequences of a step give together.
fn with_one_micro_batch(scenario: &Scenario, mut training: Training) -> Scenario {
    let replicas = training.mesh.size(Axis::Data);
    let all = std::mem::take(&mut training.batch.sizes).iter().sum::<usize>() * replicas;
    (training.batch.micro_batches, training.batch.micro_batch_size) = (1, all);
    training.pipeline.layers_per_stage = vec![training.model.layers];
    training.pipeline.segments = 1;
    training.pipeline.order = Order::Plan(Arc::new(in_turn(&[vec![0]])));
    alone(scenario, training)
}

/// On a mesh of one rank, where nothing is shared out, computed again, or in trouble.
fn alone(scenario: &Scenario, mut training: Training) -> Scenario {
    // One device takes the mean over all tokens that count.
    training.batch.padded = training.batch.padded.map(|padded| Padded { weighted: true, ..padded });
    (training.mesh, training.expert) = (Mesh::new(1, 1), 1);
    training.data_parallel.strategy = Strategy::Ddp;
    training.recompute.mode = Recompute::None;
    training.pipeline.off_by_one = None;
    Scenario { task: Task::Train(training), hardware: untimed(), trouble: Vec::new(), ..scenario.clone() }
}

/// An asynchronous scenario on one device: all stages on one rank, each with the slots that it had in the order that it had them, so that
/// every micro-batch uses the same old weights.
fn with_delayed_weights(scenario: &Scenario, mut training: Training) -> Scenario {
    training.pipeline.order = Order::Plan(Arc::new(in_one_row(&compile::plan(&training))));
    alone(scenario, training)
}

/// The rows of a plan as one: again and again, each row gives what is ready.
fn in_one_row(plan: &Plan) -> Plan {
    let last = plan.stages().saturating_sub(1);
    let mut rows: Vec<_> = plan.rows.iter().map(|row| row.iter().copied().peekable()).collect();
    let (mut done, mut order) = (BTreeSet::new(), Vec::new());
    let is_ready = |done: &BTreeSet<Slot>, slot: Slot| match slot.pass {
        Pass::F => slot.stage == 0 || done.contains(&Slot { stage: slot.stage - 1, ..slot }),
        Pass::B => slot.stage as usize == last || done.contains(&Slot { stage: slot.stage + 1, ..slot }),
        Pass::I | Pass::W => true,
    };
    while rows.iter_mut().any(|row| row.peek().is_some()) {
        let before = order.len();
        for row in &mut rows {
            while let Some(cell) = row.next_if(|cell| cell.slots().all(|slot| is_ready(&done, slot))) {
                done.extend(cell.slots());
                order.push(cell);
            }
        }
        if order.len() == before {
            // A sound plan always has a slot that is ready.
            order.extend(rows.iter_mut().flatten());
        }
    }
    Plan { rows: vec![order] }
}

/// Per stage, the micro-batches of all replicas in the order in which their gradients are summed. Where a stage stands twice its sums
/// meet in an all-reduce, and no order on one device is theirs.
fn sum_orders(plan: &Plan, training: &Training, replicas: u32) -> Vec<Vec<u32>> {
    let (micro_batches, segments) = (training.batch.micro_batches, training.pipeline.segments);
    let mut orders: Vec<Vec<u32>> = vec![Vec::new(); plan.stages()];
    let mut homes: Vec<Option<usize>> = vec![None; orders.len()];
    let mut stands_twice = false;
    for (row, cells) in plan.rows.iter().enumerate() {
        for slot in cells.iter().flat_map(|cell| cell.slots()).filter(|slot| matches!(slot.pass, Pass::B | Pass::W)) {
            stands_twice |= homes[slot.stage as usize].replace(row).is_some_and(|home| home != row);
            // One device takes whole sequences.
            let (order, micro_batch) = (&mut orders[slot.stage as usize], slot.micro_batch / segments);
            if segments == 1 || !order.contains(&micro_batch) {
                order.push(micro_batch);
            }
        }
    }
    for order in &mut orders {
        if stands_twice {
            order.sort_unstable();
        }
        *order = (0..replicas).flat_map(|replica| order.iter().map(move |m| replica * micro_batches + m)).collect();
    }
    orders
}

/// All stages on one rank. A single one takes each micro-batch forward and back at once; several go forward together, then back one after
/// the other, each in its own order.
fn in_turn(orders: &[Vec<u32>]) -> Plan {
    let cell = |stage: usize, pass, m: u32| Cell::One(Slot::new(u32::try_from(stage).expect("a checked number"), pass, m));
    let row = if let [order] = orders {
        order.iter().flat_map(|&m| [cell(0, Pass::F, m), cell(0, Pass::B, m)]).collect()
    } else {
        let all = |pass| orders.iter().enumerate().map(move |(stage, order)| (stage, order, pass));
        let stages = all(Pass::F).chain(all(Pass::B).rev());
        stages.flat_map(|(stage, order, pass)| order.iter().map(move |&m| cell(stage, pass, m))).collect()
    };
    Plan { rows: vec![row] }
}

/// A bare piece of `scenario` as `task` has it, on one device without trouble: in the run's own type, or in f64.
///
/// # Errors
/// If a kernel fails.
pub(super) fn bare(scenario: &Scenario, task: Task, is_double: bool) -> crate::engine::Result<World> {
    let scenario = Scenario { task, hardware: untimed(), trouble: Vec::new(), ..scenario.clone() };
    let program = compile::compile(&scenario).program;
    let program = if is_double { in_double(&program) } else { program };
    let (world, _) = session::run(Arc::new(program), &untimed(), &[], Numbers::Real, &mut |_, _| {})?;
    Ok(world)
}

/// The op of `rank` that wrote a buffer of such a name last, or the rank's last op.
pub(super) fn last_writer(program: &Program, rank: usize, is_it: impl Fn(Name) -> bool) -> OpId {
    let writes_it = |op: &&OpId| program.writes(**op).iter().any(|buffer| is_it(program.buffers[buffer.index()].name));
    let order = &program.order[rank];
    order.iter().rfind(writes_it).or(order.last()).copied().unwrap_or_default()
}

/// The same program with f64 tensors; its parameters start at the precision that they had.
pub(super) fn in_double(program: &Program) -> Program {
    let mut program = program.clone();
    program.setting.initial = program.setting.dtype;
    program.setting.dtype = Dtype::F64;
    for part in program.layouts.iter_mut().flat_map(|layout| &mut layout.parts) {
        if !matches!(part.dtype, Dtype::U32 | Dtype::U8) {
            part.dtype = Dtype::F64;
        }
    }
    program
}

fn run(program: Program, start: Option<&Arc<Whole>>) -> crate::engine::Result<Reference> {
    let mut snapshots = Snapshots::default();
    let numbers = start.map_or(Numbers::Real, |start| Numbers::From(start));
    let (world, _) = session::run(Arc::new(program), &untimed(), &[], numbers, &mut |world, op| snapshots.take(world, op))?;
    Ok(Reference { snapshots, losses: world.values.losses().to_vec() })
}

/// A reference's time does not matter.
pub(super) fn untimed() -> Hardware {
    let tick = Ticks(1);
    let slot = UnitCosts { ticks_per_slot: 1, forward: tick, backward_input: tick, backward_weight: tick, overlapped: Ticks(3) };
    Hardware { costs: Costs::Unit(slot), memory: None, ranks_per_node: 1, sharing: None }
}
