//! A bundle: flows that are all as fast as their link's fair share, in the order in which they end.

use std::collections::BTreeSet;

use super::{lasts, moved};
use crate::base::{OpId, Rank, Ticks};

/// The flows of one contended link.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    /// Bytes a second of each flow.
    rate: f64,
    /// Bytes that each flow was served, or would have been had it been there all the time.
    served: f64,
    /// Since when.
    since: Ticks,
    /// By the bytes served at which they end; at one end by rank, then by op. The bits of positive numbers are in the numbers' order.
    order: BTreeSet<(u64, Rank, OpId, u32)>,
    /// When the first one ends, as noted last.
    pub alarm: Ticks,
}

impl Bundle {
    pub(super) fn new(now: Ticks) -> Self {
        Self { rate: 0.0, served: 0.0, since: now, order: BTreeSet::new(), alarm: Ticks::ZERO }
    }

    pub(super) fn served_at(&self, now: Ticks) -> f64 {
        self.served + moved(self.rate, now - self.since)
    }

    pub(super) fn advance(&mut self, now: Ticks) {
        self.served = self.served_at(now);
        self.since = now;
    }

    /// From now on, that is from the time to which it was advanced.
    pub(super) fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// Takes in a flow with so many bytes left; when it ends, in bytes served.
    pub(super) fn join(&mut self, place: u32, (rank, send): (Rank, OpId), left: f64) -> f64 {
        let finish = self.served + left;
        self.order.insert((finish.to_bits(), rank, send, place));
        finish
    }

    pub(super) fn leave(&mut self, place: u32, (rank, send): (Rank, OpId), finish: f64) {
        self.order.remove(&(finish.to_bits(), rank, send, place));
    }

    /// When the first flow ends.
    pub(super) fn next_end(&self) -> Option<Ticks> {
        let &(finish, ..) = self.order.first()?;
        Some(self.since + lasts((f64::from_bits(finish) - self.served).max(0.0), self.rate))
    }

    /// Takes out the first flow, if it ends by `time`.
    pub(super) fn take_due(&mut self, time: Ticks) -> Option<u32> {
        let is_due = self.next_end().is_some_and(|end| end <= time);
        is_due.then(|| self.order.pop_first()).flatten().map(|(.., place)| place)
    }
}
