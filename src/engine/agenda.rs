//! The agenda: what ends later, the earliest first; at one time by rank, then by op.
//!
//! Many things end at one time: all stages' slots, all messages of a ring's step. So there is one page for each time, sorted when its time
//! has come; a heap of single entries would sort all of them against each other.

use std::collections::BTreeMap;

use crate::base::{OpId, Rank, Ticks};

/// What ends when.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    /// The time of the open page.
    time: Ticks,
    /// The open page, the last entry next.
    open: Vec<(Rank, OpId)>,
    /// Later pages, not sorted.
    pages: BTreeMap<Ticks, Vec<(Rank, OpId)>>,
    /// An empty page for reuse.
    spare: Vec<(Rank, OpId)>,
}

impl Agenda {
    /// Notes that `op` of `rank` ends at `time`, which must not be before what was taken last.
    pub(super) fn push(&mut self, time: Ticks, rank: Rank, op: OpId) {
        if time == self.time && !self.open.is_empty() {
            let place = self.open.partition_point(|&entry| entry > (rank, op));
            self.open.insert(place, (rank, op));
            return;
        }
        let spare = &mut self.spare;
        self.pages.entry(time).or_insert_with(|| std::mem::take(spare)).push((rank, op));
    }

    /// When the next thing ends.
    pub(super) fn next(&self) -> Option<Ticks> {
        if self.open.is_empty() { self.pages.first_key_value().map(|(&time, _)| time) } else { Some(self.time) }
    }

    /// Takes what ends first.
    pub(super) fn pop(&mut self) -> Option<(Ticks, OpId)> {
        if self.open.is_empty() {
            let (time, page) = self.pages.pop_first()?;
            self.spare = std::mem::replace(&mut self.open, page);
            self.time = time;
            self.open.sort_unstable_by(|a, b| b.cmp(a));
        }
        self.open.pop().map(|(_, op)| (self.time, op))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_leave_in_the_order_of_a_heap(steps in prop::collection::vec(prop::option::of((0..4_u64, 0..5_u32)), 0..99)) {
            let (mut agenda, mut heap) = (Agenda::default(), BinaryHeap::new());
            let mut now = Ticks(0);
            for (op, step) in (0..).map(OpId).zip(steps) {
                if let Some((delay, rank)) = step {
                    agenda.push(now + Ticks(delay), Rank(rank), op);
                    heap.push(Reverse((now + Ticks(delay), Rank(rank), op)));
                } else {
                    let expected = heap.pop().map(|Reverse((time, _, op))| (time, op));
                    prop_assert_eq!(agenda.pop(), expected);
                    now = expected.map_or(now, |(time, _)| time);
                }
            }
        }
    }
}
