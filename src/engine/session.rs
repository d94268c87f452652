//! A session: a program run once to its end, and a world that can stand at any event of that run.
//!
//! Going back is the nearest checkpoint and a replay. Tensors are shared between checkpoints, so these cost little.

use std::sync::Arc;

use super::Result;
use super::checkpoint::Checkpoints;
use super::cost::CostModel;
use super::deadlock::wait_graph;
use super::sharing::Network;
use super::stepped::{OnEnd, finish, step};
use super::value::{Value, Values};
use super::world::{Machine, State, World, blocked};
use crate::base::hardware::Hardware;
use crate::base::{BufferId, OpId, Rank, Ticks};
use crate::program::links::Links;
use crate::program::memory::Memory;
use crate::program::trace::{Event, Outcome};
use crate::program::trouble::Trouble;
use crate::program::{Buffer, OpKind, Program, Trace, Wait, head};

pub use super::kernels::{join, join_slices, tensors};

/// A recorded run and a position in it.
pub struct Session {
    trace: Trace,
    world: World,
    checkpoints: Checkpoints,
}

/// Whether a run computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Shapes alone.
    Shape,
    /// Real values on the CPU.
    Real,
}

/// Where a run is to stop. A breakpoint is one of these, too.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// When this much time has passed.
    Time(Ticks),
    /// When this op starts.
    Op(OpId),
    /// When any op of this rank starts.
    Rank(Rank),
    /// When an op of this micro-batch of a step starts.
    MicroBatch(u32),
    /// When an op of this rank, or of any, starts whose head begins with these words.
    Head(Option<Rank>, String),
}

impl Stop {
    /// Whether the run stops at `event`.
    #[must_use]
    pub fn meets(&self, program: &Program, links: &Links, event: Event) -> bool {
        started(program, links, event.op).any(|op| match self {
            Self::Time(time) => event.time >= *time,
            Self::Op(wanted) => op == *wanted,
            Self::Rank(rank) => program.rank_of(op) == *rank,
            Self::MicroBatch(micro_batch) => program.op(op).origin.slot.is_some_and(|slot| slot.micro_batch == *micro_batch),
            Self::Head(rank, words) => rank.is_none_or(|rank| program.rank_of(op) == rank) && head::begins(program, op, words),
        })
    }
}

/// The ops that the event of `op` starts: the op, both ends of its message, or all members of its collective.
fn started<'a>(program: &'a Program, links: &'a Links, op: OpId) -> impl Iterator<Item = OpId> + 'a {
    let members: &[OpId] = match program.kind(op) {
        OpKind::Collective(collective) => links.members(collective),
        _ => &[],
    };
    let buffered = program.kind(op).channel().is_some_and(|channel| program.channels[channel.index()].buffered);
    let peer = if buffered { None } else { links.peer(op) };
    let others = members.iter().copied().filter(move |&member| member != op);
    std::iter::once(op).chain(peer).chain(others)
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
        let (mut world, mut trace) = start(program, hardware, trouble, numbers)?;
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
        &self.world.memory
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

    /// Goes on until an event meets one of `stops`, or to the end; whether one did. The event has happened then.
    ///
    /// # Errors
    /// As [`Self::seek`].
    pub fn run_until(&mut self, stops: &[Stop]) -> Result<bool> {
        let found = (self.position()..self.trace.events.len()).find(|&event| self.meets(stops, event));
        self.seek(found.map_or(usize::MAX, |event| event + 1))?;
        Ok(found.is_some())
    }

    /// Goes back until the event that happened last meets one of `stops`, or to the start; whether one did.
    ///
    /// # Errors
    /// As [`Self::seek`].
    pub fn run_back_until(&mut self, stops: &[Stop]) -> Result<bool> {
        let before = self.position().saturating_sub(1);
        let found = (0..before).rfind(|&event| self.meets(stops, event));
        self.seek(found.map_or(0, |event| event + 1))?;
        Ok(found.is_some())
    }

    fn meets(&self, stops: &[Stop], event: usize) -> bool {
        let links = &self.world.machine.links;
        stops.iter().any(|stop| stop.meets(self.program(), links, self.trace.events[event]))
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
    let (mut world, mut trace) = start(program, hardware, trouble, numbers)?;
    finish(&mut world, &mut trace, on_end)?;
    trace.outcome = outcome(&world);
    Ok((world, trace))
}

fn start(program: Arc<Program>, hardware: &Hardware, trouble: &[Trouble], numbers: Numbers) -> Result<(World, Trace)> {
    let values = match numbers {
        Numbers::Shape => Values::Shape,
        Numbers::Real => Values::real(&program)?,
    };
    let costs = CostModel::new(&program, hardware, trouble);
    let trace = Trace::new(&program, costs.clock());
    let links = Links::new(&program);
    let network = Network::new(&program, hardware, trouble);
    let mut world = World::new(Arc::new(Machine { program, links, costs, network }), values);
    world.stopped = state_alone(&world);
    Ok((world, trace))
}

/// Whether the ranks' state alone fills a device.
fn state_alone(world: &World) -> Option<Outcome> {
    let limit = world.machine.costs.memory()?;
    let ranks = (0..world.machine.program.ranks()).map(Rank::new);
    let mut needs = ranks.map(|rank| (rank, world.memory.holding(rank).total));
    needs.find(|(_, needed)| *needed >= limit).map(|(rank, needed)| Outcome::OutOfMemory { rank, op: None, needed, limit })
}

fn outcome(world: &World) -> Outcome {
    let all: usize = world.machine.program.order.iter().map(Vec::len).sum();
    match &world.stopped {
        Some(outcome) => outcome.clone(),
        None if world.done == all => Outcome::Completed,
        None => Outcome::Deadlocked(wait_graph(world)),
    }
}
