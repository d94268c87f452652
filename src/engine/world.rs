//! The world: all that changes while a program runs.

use std::collections::VecDeque;
use std::sync::Arc;

use super::agenda::Agenda;
use super::cost::CostModel;
use super::sharing::{Network, Sharing};
use super::value::Values;
use crate::base::{CollectiveId, OpId, Ticks};
use crate::program::links::{Links, SomeOp};
use crate::program::memory::Memory;
use crate::program::ready::{self, Standing};
use crate::program::trace::Outcome;
use crate::program::{Program, Wait};

pub use crate::program::ready::State;

/// What does not change while a program runs.
#[derive(Debug)]
pub struct Machine {
    /// The program.
    pub program: Arc<Program>,
    /// Its ops' neighbours and partners.
    pub links: Links,
    /// What its ops cost.
    pub costs: CostModel,
    /// Its links, if messages share them.
    pub network: Option<Network>,
}

/// All that changes.
#[derive(Clone, Debug)]
pub struct World {
    /// What does not.
    pub machine: Arc<Machine>,
    /// Now.
    pub time: Ticks,
    /// What the ranks hold, if somebody asks: a device that has a limit, or a session.
    pub memory: Option<Memory>,
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
    /// Transfers in flight, if they share their links.
    pub(super) sharing: Option<Box<Sharing>>,
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

impl World {
    /// The world before the first op, with an account of memory or without.
    #[must_use]
    pub fn new(machine: Arc<Machine>, values: Values, has_account: bool) -> Self {
        let (program, links) = (&machine.program, &machine.links);
        Self {
            time: Ticks::ZERO,
            memory: has_account.then(|| Memory::new(program)),
            values,
            stopped: None,
            ops: vec![Progress::default(); program.ops()],
            arrived: vec![0; program.collectives.len()],
            candidates: links.heads.iter().copied().collect(),
            agenda: Agenda::default(),
            sharing: machine.network.as_ref().map(|network| Box::new(Sharing::new(program.ops(), network))),
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

impl Standing for World {
    fn state_of(&self, op: OpId) -> State {
        self.state(op)
    }

    fn arrived(&self, collective: CollectiveId) -> Option<usize> {
        Some(self.arrived[collective.index()] as usize)
    }
}

/// Why `op` cannot start now; `None` if it can.
#[must_use]
pub fn blocked(world: &World, op: OpId) -> Option<Wait> {
    ready::blocked(&world.machine.program, &world.machine.links, world, op)
}
