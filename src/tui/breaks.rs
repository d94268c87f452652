//! The learner's breakpoints, each with the events of the run that is shown at which it is met.

use super::data::RunData;
use crate::observe::breakpoint::Breakpoint;

/// The breakpoints, in the order in which they were set.
#[derive(Clone, Debug, Default)]
pub struct Breaks {
    list: Vec<Break>,
}

/// A breakpoint in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Break {
    /// The condition.
    pub when: Breakpoint,
    /// The events at which it is met, in order.
    pub hits: Vec<usize>,
}

impl Break {
    /// The first event behind `event` at which it is met.
    #[must_use]
    pub fn next(&self, event: usize) -> Option<usize> {
        self.hits.get(self.hits.partition_point(|&hit| hit <= event)).copied()
    }
}

impl Breaks {
    /// Breakpoints on single events, for tests and pictures.
    #[must_use]
    pub fn on(breakpoint: Breakpoint, hits: Vec<usize>) -> Self {
        Self { list: vec![Break { when: breakpoint, hits }] }
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> &[Break] {
        &self.list
    }

    /// Sets a breakpoint, or takes it away if it is set; returns it if it is set now.
    pub fn toggle(&mut self, when: Breakpoint, data: &RunData) -> Option<&Break> {
        if let Some(place) = self.list.iter().position(|other| other.when == when) {
            self.list.remove(place);
            return None;
        }
        let hits = hits(&when, data);
        self.list.push(Break { when, hits });
        self.list.last()
    }

    /// Takes the breakpoint at `place` away.
    pub fn remove(&mut self, place: usize) {
        if place < self.list.len() {
            self.list.remove(place);
        }
    }

    /// Takes all away.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// Looks them up in another run.
    pub fn follow(&mut self, data: &RunData) {
        for one in &mut self.list {
            one.hits = hits(&one.when, data);
        }
    }

    /// The first event behind `event` at which the run stops, and why.
    #[must_use]
    pub fn next(&self, event: usize) -> Option<(usize, &Break)> {
        self.list.iter().filter_map(|one| Some((one.next(event)?, one))).min_by_key(|(hit, _)| *hit)
    }

    /// The last event before `event` at which the run stops, and why.
    #[must_use]
    pub fn last(&self, event: usize) -> Option<(usize, &Break)> {
        let last = |one: &Break| one.hits[..one.hits.partition_point(|&hit| hit < event)].last().copied();
        self.list.iter().filter_map(|one| Some((last(one)?, one))).max_by_key(|(hit, _)| *hit)
    }

    /// Whether the run stops at `event`.
    #[must_use]
    pub fn contains(&self, event: usize) -> bool {
        self.list.iter().any(|one| one.hits.binary_search(&event).is_ok())
    }
}

fn hits(when: &Breakpoint, data: &RunData) -> Vec<usize> {
    when.hits(&data.run(), &data.ledger, data.first_nan)
}
