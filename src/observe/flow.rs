//! Flow: what every wire has carried at any event of a run.

use std::collections::BTreeMap;

use super::run::Run;
use super::state::{At, State};
use super::traffic::collective_of;
use crate::base::{Bytes, OpId, Rank, Ticks};
use crate::program::OpKind;

/// The messages of one wire, a directed pair of ranks, in order of their starts.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Who sends.
    pub from: Rank,
    /// Who receives.
    pub to: Rank,
    /// Whether these are the messages of collectives; other messages of the same wire are a flow of their own.
    pub collective: bool,
    /// The sends that ran.
    pub sends: Vec<OpId>,
    /// Per send, what it and all before it carried.
    sums: Vec<Sum>,
}

/// What some messages carried together.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    bytes: Bytes,
    /// For how long any of them was moving.
    busy: Ticks,
    /// When the last of them arrived.
    until: Ticks,
}

/// What a wire has carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Messages that have left.
    pub messages: usize,
    /// What they carry.
    pub bytes: Bytes,
    /// For how long any message was moving.
    pub busy: Ticks,
    /// Those that are moving now.
    pub moving: Vec<OpId>,
}

/// All wires over which the program sends a message in any step, by sender and receiver. Linear in the ops but for sorting.
#[must_use]
pub fn flows(run: &Run) -> Vec<Flow> {
    let mut wires: BTreeMap<(Rank, Rank, bool), Vec<OpId>> = BTreeMap::new();
    for op in run.program.all() {
        let OpKind::Send(channel) = run.program.kind(op) else { continue };
        let channel = run.program.channels[channel.index()];
        let sends = wires.entry((channel.from, channel.to, collective_of(run, op).is_some())).or_default();
        sends.extend(run.times(op).map(|_| op));
    }
    wires.into_iter().map(|(wire, sends)| Flow::new(run, wire, sends)).collect()
}

impl Flow {
    fn new(run: &Run, (from, to, collective): (Rank, Rank, bool), mut sends: Vec<OpId>) -> Self {
        sends.sort_by_key(|&send| run.trace.event_of(send));
        let mut sum = Sum::default();
        let sums = sends.iter().map(|&send| {
            let times = run.times(send).unwrap_or_default();
            let until = times.end.max(sum.until);
            // They start in order, so what is new is what lies behind all before.
            let busy = sum.busy + (until - times.start.max(sum.until));
            sum = Sum { bytes: sum.bytes + run.message_bytes(send), busy, until };
            sum
        });
        let sums = sums.collect();
        Self { from, to, collective, sends, sums }
    }

    /// What the wire carries in the whole run, and for how long.
    #[must_use]
    pub fn total(&self) -> (Bytes, Ticks) {
        self.sums.last().map_or((Bytes::ZERO, Ticks::ZERO), |sum| (sum.bytes, sum.busy))
    }

    /// What it has carried at an event.
    #[must_use]
    pub fn at(&self, at: &At) -> Carried {
        let messages = self.sends.partition_point(|&send| at.state(send) >= State::Running);
        let Some(last) = messages.checked_sub(1) else { return Carried::default() };
        let Sum { bytes, busy, until } = self.sums[last];
        // Streams run in order, so only the last few can still be on their way.
        let recent = &self.sends[messages.saturating_sub(MOST_AT_ONCE)..messages];
        let moving: Vec<OpId> = recent.iter().copied().filter(|&send| at.state(send) == State::Running).collect();
        let busy = busy - Ticks(until.0.saturating_sub(at.time().0));
        Carried { messages, bytes, busy, moving }
    }
}

/// More messages than this never move over one wire at a time: as many streams of a rank as send to one other.
const MOST_AT_ONCE: usize = 16;
