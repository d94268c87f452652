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
    /// Per send, what it and all before it carried, and for how long they moved.
    sums: Vec<(Bytes, Ticks)>,
}

/// What a wire has carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Messages that have left.
    pub messages: usize,
    /// What they carry.
    pub bytes: Bytes,
    /// For how long messages were moving; those that move together count each.
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
        let mut sum = (Bytes::ZERO, Ticks::ZERO);
        let sums = sends.iter().map(|&send| {
            let times = run.times(send).unwrap_or_default();
            sum = (sum.0 + run.message_bytes(send), sum.1 + (times.end - times.start));
            sum
        });
        let sums = sums.collect();
        Self { from, to, collective, sends, sums }
    }

    /// What the wire carries in the whole run, and for how long.
    #[must_use]
    pub fn total(&self) -> (Bytes, Ticks) {
        self.sums.last().copied().unwrap_or_default()
    }

    /// What it has carried at an event.
    #[must_use]
    pub fn at(&self, at: &At) -> Carried {
        let messages = self.sends.partition_point(|&send| at.state(send) >= State::Running);
        let Some(last) = messages.checked_sub(1) else { return Carried::default() };
        let (bytes, mut busy) = self.sums[last];
        // Streams run in order, so only the last few can still be on their way.
        let recent = &self.sends[messages.saturating_sub(MOST_AT_ONCE)..messages];
        let moving: Vec<OpId> = recent.iter().copied().filter(|&send| at.state(send) == State::Running).collect();
        for &send in &moving {
            let end = at.run.times(send).map_or(Ticks::ZERO, |times| times.end);
            busy -= Ticks(end.0.saturating_sub(at.time().0));
        }
        Carried { messages, bytes, busy, moving }
    }
}

/// More messages than this never move over one wire at a time: as many streams of a rank as send to one other.
const MOST_AT_ONCE: usize = 16;
