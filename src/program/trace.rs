//! What happened: when each op of a program was ready, started and ended, in one total order of events.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::tables::Program;
use super::wait::Wait;
use crate::base::prefetch::prefetch;
use crate::base::units::Clock;
use crate::base::{Bytes, OpId, Rank, Ticks};

/// The record of a run. Times are indexed by op; an event starts one op, both ends of a message, or all members of a collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What a tick is.
    pub clock: Clock,
    /// The events, in order; the position of a stepped run is a number of events.
    pub events: Vec<Event>,
    /// How the run ended.
    pub outcome: Outcome,
    /// Per op.
    ops: Vec<Fate>,
}

/// What became of an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    times: Times,
    /// The event that started it.
    event: Option<NonZeroU32>,
    last_wait: Option<Wait>,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub time: Ticks,
    /// The op whose readiness made it happen.
    pub op: OpId,
}

/// The times of an op that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When all that its own rank owes it was done: from here it waits only for its peers.
    pub posted: Ticks,
    /// When it started.
    pub start: Ticks,
    /// When it ended.
    pub end: Ticks,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every op ran.
    Completed,
    /// No op can ever start again.
    Deadlocked(WaitGraph),
    /// A rank needs as much memory as its device has, or more.
    OutOfMemory {
        /// The rank.
        rank: Rank,
        /// The op that did not fit; `None` if the state alone does not.
        op: Option<OpId>,
        /// What the rank would hold.
        needed: Bytes,
        /// What the device has.
        limit: Bytes,
    },
}

/// Who waits for whom when nothing moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitGraph {
    /// One edge for each rank that waits for another.
    pub edges: Vec<WaitEdge>,
    /// Ranks that wait for each other in a circle, with the op at which each stands.
    pub cycles: Vec<Vec<(Rank, OpId)>>,
}

/// `op` of `rank` waits for `on_op` of `on_rank`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitEdge {
    /// Who waits.
    pub rank: Rank,
    /// At which op.
    pub op: OpId,
    /// For whom.
    pub on_rank: Rank,
    /// For which op of theirs; `None` if they never issue it.
    pub on_op: Option<OpId>,
    /// Why.
    pub why: Wait,
}

impl Outcome {
    /// Its word in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Deadlocked(_) => "deadlocked",
            Self::OutOfMemory { .. } => "out-of-memory",
        }
    }
}

impl Trace {
    /// An empty record for `program`.
    #[must_use]
    pub fn new(program: &Program, clock: Clock) -> Self {
        let events = Vec::with_capacity(program.ops());
        Self { clock, events, outcome: Outcome::Completed, ops: vec![Fate::default(); program.ops()] }
    }

    /// When `op` ran; `None` if it never started.
    #[must_use]
    pub fn times(&self, op: OpId) -> Option<Times> {
        self.ops[op.index()].event.map(|_| self.ops[op.index()].times)
    }

    /// When `op` was ready as far as its own rank is concerned; zero if it never was.
    #[must_use]
    pub fn posted_at(&self, op: OpId) -> Ticks {
        self.ops[op.index()].times.posted
    }

    /// The event that started `op`, from 1; `None` if it never started.
    #[must_use]
    pub fn event_of(&self, op: OpId) -> Option<usize> {
        self.ops[op.index()].event.map(|event| event.get() as usize)
    }

    /// What `op` waited for last before it started, or what it still waits for; `None` if it never waited.
    #[must_use]
    pub fn last_wait(&self, op: OpId) -> Option<Wait> {
        self.ops[op.index()].last_wait
    }

    /// The end of the last op of training step `step`.
    #[must_use]
    pub fn step_end(&self, program: &Program, step: u32) -> Ticks {
        let of_step = program.all().filter(|&op| program.op(op).origin.step == step);
        of_step.filter_map(|op| self.times(op)).map(|times| times.end).max().unwrap_or_default()
    }

    /// The end of the last op.
    #[must_use]
    pub fn end(&self) -> Ticks {
        self.ops.iter().map(|fate| fate.times.end).max().unwrap_or_default()
    }

    /// Gets the record of `op` closer, if it will soon be written.
    #[inline]
    pub fn prefetch(&self, op: OpId) {
        prefetch(self.ops.get(op.index()));
    }

    /// Records that `op` waits.
    pub fn waits(&mut self, op: OpId, wait: Wait) {
        self.ops[op.index()].last_wait = Some(wait);
    }

    /// Records that `op` is ready as far as its own rank is concerned.
    pub fn posted(&mut self, op: OpId, time: Ticks) {
        self.ops[op.index()].times.posted = time;
    }

    /// Records event `number`, from 0. A replay records the same events again, which changes nothing.
    pub fn event(&mut self, number: usize, event: Event) {
        if number == self.events.len() {
            self.events.push(event);
        }
    }

    /// Records that the event behind which `events` have happened starts `op`, which will end at `end`, or no earlier than that if
    /// [`Self::ends`] follows. A replay changes nothing.
    pub fn starts(&mut self, op: OpId, events: usize, (start, end): (Ticks, Ticks)) {
        let event = NonZeroU32::new(u32::try_from(events).expect("fewer than 2^32 events"));
        let fate = &mut self.ops[op.index()];
        if fate.event != event {
            fate.event = event;
            (fate.times.start, fate.times.end) = (start, end);
        }
    }

    /// Records when `op` has ended, where that was not known when it started.
    pub fn ends(&mut self, op: OpId, end: Ticks) {
        self.ops[op.index()].times.end = end;
    }
}
