//! The world: all that changes while a program runs. And the one function that says why an op cannot start.

use std::collections::VecDeque;
use std::sync::Arc;

use super::agenda::Agenda;
use super::cost::CostModel;
use super::value::Values;
use crate::base::{OpId, Ticks};
use crate::program::links::{Links, SomeOp};
use crate::program::memory::Memory;
use crate::program::trace::Outcome;
use crate::program::{OpKind, Program, Wait};

/// What does not change while a program runs.
#[derive(Debug)]
pub struct Machine {
    /// The program.
    pub program: Arc<Program>,
    /// Its ops' neighbours and partners.
    pub links: Links,
    /// What its ops cost.
    pub costs: CostModel,
}

/// All that changes.
#[derive(Clone, Debug)]
pub struct World {
    /// What does not.
    pub machine: Arc<Machine>,
    /// Now.
    pub time: Ticks,
    /// What the ranks hold.
    pub memory: Memory,
    /// The buffers' values.
    pub values: Values,
    /// Set when a rank runs out of memory: nothing starts any more.
    pub stopped: Option<Outcome>,
    pub(super) ops: Vec<Progress>,
    /// Per collective, how many members are there.
    pub(super) arrived: Vec<u32>,
    /// Ops to look at now, in order.
    pub(super) candidates: VecDeque<OpId>,
    /// What ends later.
    pub(super) agenda: Agenda,
    /// Ops that are done.
    pub(super) done: usize,
    /// Events that have happened: the position in the run.
    pub(super) events: usize,
}

/// What changes about one op.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub state: State,
    /// The first op that is looked at again when this one is done.
    pub parked: Option<SomeOp>,
    /// The next one in the chain that this op is parked in.
    pub next: Option<SomeOp>,
}

/// How far an op is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Not at the head of its stream, or its rank still owes it something.
    #[default]
    Waiting,
    /// Its own rank owes it nothing: only peers are missing.
    Posted,
    /// Started.
    Running,
    /// Ended. A buffered message may still be on its way.
    Done,
    /// A buffered message has arrived.
    Delivered,
}

impl World {
    /// The world before the first op.
    #[must_use]
    pub fn new(machine: Arc<Machine>, values: Values) -> Self {
        let (program, links) = (&machine.program, &machine.links);
        Self {
            time: Ticks::ZERO,
            memory: Memory::new(program),
            values,
            stopped: None,
            ops: vec![Progress::default(); program.ops()],
            arrived: vec![0; program.collectives.len()],
            candidates: links.heads.iter().copied().collect(),
            agenda: Agenda::default(),
            done: 0,
            events: 0,
            machine,
        }
    }

    /// How far `op` is.
    #[must_use]
    pub fn state(&self, op: OpId) -> State {
        self.ops[op.index()].state
    }

    /// Whether `op` has ended.
    #[must_use]
    pub fn is_done(&self, op: OpId) -> bool {
        self.state(op) >= State::Done
    }
}

/// Why `op` cannot start now; `None` if it can.
///
/// The stepper asks it before it starts an op, the debugger to say why a rank waits, the deadlock finder for the edges of its graph.
#[must_use]
pub fn blocked(world: &World, op: OpId) -> Option<Wait> {
    let Machine { program, links, .. } = &*world.machine;
    if let Some(before) = links.before(op).filter(|&before| !world.is_done(before)) {
        return Some(Wait::Stream(before));
    }
    if let Some(event) = program.waits(op).find(|&event| !world.is_done(event)) {
        return Some(Wait::Event(event));
    }
    match program.kind(op) {
        OpKind::Run(_) | OpKind::Skipped(_) => None,
        OpKind::Send(channel) if program.channels[channel.index()].buffered => None,
        OpKind::Send(channel) => match links.peer(op) {
            Some(peer) => (world.state(peer) != State::Posted).then_some(Wait::Peer(peer)),
            None => Some(Wait::NoPeer(program.channels[channel.index()].to)),
        },
        OpKind::Recv(channel) | OpKind::RecvReduce(channel) => {
            let channel = program.channels[channel.index()];
            let Some(peer) = links.peer(op) else { return Some(Wait::NoPeer(channel.from)) };
            match world.state(peer) {
                State::Delivered => None,
                State::Posted if !channel.buffered => None,
                State::Done => Some(Wait::Message(peer)),
                _ => Some(Wait::Peer(peer)),
            }
        }
        OpKind::Collective(collective) => {
            let ranks = &program.groups[program.collectives[collective.index()].group.index()].ranks;
            let members = links.members(collective);
            let others = world.arrived[collective.index()] - u32::from(world.state(op) == State::Posted);
            if others as usize + 1 == ranks.len() {
                return None;
            }
            let absent = members.iter().find(|&&member| member != op && world.state(member) < State::Posted);
            let never = || ranks.iter().copied().find(|&rank| members.iter().all(|&member| program.rank_of(member) != rank));
            absent.map(|&member| Wait::Member(member)).or_else(|| never().map(Wait::NoMember))
        }
    }
}
