//! A session: a program run once to its end, and a world that can stand at any event of that run.
//!
//! Going back is the nearest checkpoint and a replay. Tensors are shared between checkpoints, so these cost little.

use std::sync::Arc;

use super::Result;
use super::checkpoint::Checkpoints;
use super::cost::CostModel;
use super::deadlock::wait_graph;
use super::sharing::Network;
use super::state::Whole;
use super::stepped::{OnEnd, finish, step};
use super::value::{Value, Values};
use super::world::{Machine, State, World, blocked};
use crate::base::hardware::Hardware;
use crate::base::{BufferId, OpId, Rank};
use crate::program::links::Links;
use crate::program::memory::Memory;
use crate::program::trace::Outcome;
use crate::program::trouble::Trouble;
use crate::program::{Buffer, Program, Trace, Wait};

pub use super::kernels::{join, join_slices, tensors};

/// A recorded run and a position in it.
pub struct Session {
    trace: Trace,
    world: World,
    checkpoints: Checkpoints,
}

/// Whether a run computes.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// Shapes alone.
    Shape,
    /// Real values on the CPU.
    Real,
    /// Real values that go on from a state.
    From(&'a Whole),
}

impl Session {
    /// Runs `program` to its end, and stands there.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn record(
        program: Arc<Program>,
        hardware: &Hardware,
        trouble: &[Trouble],
        numbers: Numbers,
        on_end: OnEnd,
    ) -> Result<Self> {
        let (mut world, mut trace) = start(program, hardware, trouble, numbers, true)?;
        let mut checkpoints = Checkpoints::new(&world);
        while step(&mut world, &mut trace, on_end)? {
            checkpoints.pass(&world);
        }
        trace.outcome = outcome(&world);
        Ok(Self { trace, world, checkpoints })
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.world.machine.program
    }

    /// What happened in the whole run.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// How many events have happened at the present position.
    #[must_use]
    pub fn position(&self) -> usize {
        self.world.events
    }

    /// What the ranks hold at the present position.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        self.world.memory.as_ref().expect("a session keeps an account")
    }

    /// The buffers of `rank` that have memory at the present position: an op that writes them has started, the one that frees them has not
    /// ended. A walk through the rank's list.
    #[must_use]
    pub fn held(&self, rank: Rank) -> Vec<BufferId> {
        let program = self.program();
        let mut live: Vec<bool> = program.buffers.iter().map(Buffer::lives_from_start).collect();
        for &op in program.order[rank.index()].iter().filter(|&&op| self.state(op) >= State::Running) {
            program.writes(op).iter().for_each(|buffer| live[buffer.index()] = true);
            if self.state(op) >= State::Done {
                program.frees(op).for_each(|buffer| live[buffer.index()] = false);
            }
        }
        let of_rank = |buffer: &BufferId| live[buffer.index()] && program.buffers[buffer.index()].rank == rank;
        (0..live.len()).map(BufferId::new).filter(of_rank).collect()
    }

    /// Losses computed up to the present position.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.world.values
    }

    /// The value of `buffer` at the present position; `None` in a shape-only run.
    #[must_use]
    pub fn value(&self, buffer: BufferId) -> Option<&Value> {
        self.world.values.get(buffer)
    }

    /// How far `op` is at the present position.
    #[must_use]
    pub fn state(&self, op: OpId) -> State {
        self.world.state(op)
    }

    /// Why `op` cannot start at the present position; `None` if it can, runs or is done.
    #[must_use]
    pub fn blocked(&self, op: OpId) -> Option<Wait> {
        if self.state(op) >= State::Running { None } else { blocked(&self.world, op) }
    }

    /// Stands after `position` events, or at the end if there are fewer.
    ///
    /// # Errors
    /// If a kernel fails; it did not when the run was recorded.
    pub fn seek(&mut self, position: usize) -> Result<()> {
        let position = position.min(self.trace.events.len());
        let nearest = self.checkpoints.nearest(position);
        if position < self.position() || nearest.events > self.position() {
            self.world = nearest.clone();
        }
        while self.position() < position {
            step(&mut self.world, &mut self.trace, &mut |_, _| {})?;
        }
        Ok(())
    }

    /// The ranks' next ops: for each stream of `rank`, the first op that is not done.
    #[must_use]
    pub fn heads(&self, rank: Rank) -> Vec<OpId> {
        let program = self.program();
        let mut seen = vec![false; program.streams.len()];
        let open = program.order[rank.index()].iter().copied().filter(|&op| self.state(op) < State::Done);
        open.filter(|&op| !std::mem::replace(&mut seen[program.stream_of(op).index()], true)).collect()
    }
}

/// Runs `program` to its end without keeping a way back.
///
/// # Errors
/// If a kernel fails.
pub fn run(
    program: Arc<Program>,
    hardware: &Hardware,
    trouble: &[Trouble],
    numbers: Numbers,
    on_end: OnEnd,
) -> Result<(World, Trace)> {
    let (mut world, mut trace) = start(program, hardware, trouble, numbers, hardware.memory.is_some())?;
    finish(&mut world, &mut trace, on_end)?;
    trace.outcome = outcome(&world);
    Ok((world, trace))
}

fn start(
    program: Arc<Program>,
    hardware: &Hardware,
    trouble: &[Trouble],
    numbers: Numbers,
    has_account: bool,
) -> Result<(World, Trace)> {
    let values = match numbers {
        Numbers::Shape => Values::Shape,
        Numbers::Real => Values::real(&program, None)?,
        Numbers::From(state) => Values::real(&program, Some(state))?,
    };
    let costs = CostModel::new(&program, hardware, trouble);
    let trace = Trace::new(&program, costs.clock());
    let links = Links::new(&program);
    let network = Network::new(&program, hardware, trouble);
    let mut world = World::new(Arc::new(Machine { program, links, costs, network }), values, has_account);
    world.stopped = state_alone(&world);
    Ok((world, trace))
}

/// Whether the ranks' state alone fills a device.
fn state_alone(world: &World) -> Option<Outcome> {
    let memory = world.memory.as_ref()?;
    let full = |rank: Rank| {
        let (needed, limit) = (memory.holding(rank).total, world.machine.costs.memory(rank)?);
        (needed >= limit).then_some(Outcome::OutOfMemory { rank, op: None, needed, limit })
    };
    (0..world.machine.program.ranks()).map(Rank::new).find_map(full)
}

fn outcome(world: &World) -> Outcome {
    let all: usize = world.machine.program.order.iter().map(Vec::len).sum();
    match &world.stopped {
        Some(outcome) => outcome.clone(),
        None if world.done == all => Outcome::Completed,
        None => Outcome::Deadlocked(wait_graph(world)),
    }
}
