//! The ledger: what every rank holds over time, by role, with the peak and the op that caused it.

use super::replay::{Moment, replay_memory};
use super::run::Run;
use crate::base::{Bytes, OpId, Rank, Ticks};
use crate::program::memory::{ByRole, Memory};
use crate::program::{Program, Role};

/// The memory of a whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    /// One account per rank.
    pub ranks: Vec<Account>,
}

/// The memory of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// What it holds, whenever that changes; the first sample stands before the first event.
    pub samples: Vec<Sample>,
    /// Place of the first sample that holds the most.
    pub peak: usize,
}

/// What a rank holds from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// From when.
    pub time: Ticks,
    /// How many events have happened.
    pub event: u32,
    /// The op whose start or end changed it; `None` before the first.
    pub op: Option<OpId>,
    /// Bytes by role, in the order of [`Role::ALL`].
    pub by_role: ByRole,
}

/// What a rank owns between steps, and its gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Parameters.
    pub parameter: Bytes,
    /// Gradients.
    pub gradient: Bytes,
    /// Optimizer state.
    pub optimizer: Bytes,
}

impl Ledger {
    /// Follows the run with the account of [`Memory`]. Linear in the ops.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        let mut memory = Memory::new(run.program);
        let sample = |memory: &Memory, rank: Rank, moment: Option<Moment>| Sample {
            time: moment.map_or(Ticks::ZERO, |moment| moment.time),
            event: moment.map_or(0, |moment| moment.event),
            op: moment.map(|moment| moment.op),
            by_role: memory.holding(rank).by_role,
        };
        let first = (0..run.program.ranks()).map(|rank| vec![sample(&memory, Rank::new(rank), None)]);
        let mut samples: Vec<Vec<Sample>> = first.collect();
        replay_memory(run, |moment| {
            apply(&mut memory, run.program, moment);
            let rank = run.program.rank_of(moment.op);
            let samples = &mut samples[rank.index()];
            if samples.last().is_some_and(|last| last.by_role != memory.holding(rank).by_role) {
                samples.push(sample(&memory, rank, Some(moment)));
            }
        });
        Self { ranks: samples.into_iter().map(Account::new).collect() }
    }

    /// The account of `rank`.
    #[must_use]
    pub fn rank(&self, rank: Rank) -> &Account {
        &self.ranks[rank.index()]
    }
}

impl Account {
    fn new(samples: Vec<Sample>) -> Self {
        let mut peak = 0;
        for (place, sample) in samples.iter().enumerate() {
            if sample.total() > samples[peak].total() {
                peak = place;
            }
        }
        Self { samples, peak }
    }

    /// The first sample that holds the most.
    #[must_use]
    pub fn peak(&self) -> &Sample {
        &self.samples[self.peak]
    }

    /// What the rank holds at `time`, when all that happens then has happened.
    #[must_use]
    pub fn at(&self, time: Ticks) -> &Sample {
        let behind = self.samples.partition_point(|sample| sample.time <= time);
        &self.samples[behind.saturating_sub(1)]
    }

    /// What the rank holds after `events` events.
    #[must_use]
    pub fn after(&self, events: usize) -> &Sample {
        let behind = self.samples.partition_point(|sample| sample.event as usize <= events);
        &self.samples[behind.saturating_sub(1)]
    }
}

impl Sample {
    /// All roles together.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.by_role.iter().copied().sum()
    }
}

/// What every rank owns between steps, and its gradients: a sum over the program's buffers.
#[must_use]
pub fn state(program: &Program) -> Vec<State> {
    let mut states = vec![State::default(); program.ranks()];
    let bytes: Vec<Bytes> = program.layouts.iter().map(crate::program::Layout::bytes).collect();
    for buffer in &program.buffers {
        let state = &mut states[buffer.rank.index()];
        let bytes = bytes[buffer.layout.index()];
        match buffer.role {
            Role::Parameter => state.parameter += bytes,
            Role::Gradient => state.gradient += bytes,
            Role::Optimizer => state.optimizer += bytes,
            _ => {}
        }
    }
    states
}

fn apply(memory: &mut Memory, program: &Program, moment: Moment) {
    if moment.starts {
        memory.start(program, moment.op);
    } else {
        memory.end(program, moment.op);
    }
}
