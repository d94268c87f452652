//! In flight: how many micro-batches a rank holds over time, from the start of a forward to the end of its backward for the input.

use crate::base::{Rank, Ticks};
use crate::observe::metrics;
use crate::observe::run::Run;
use crate::program::plan::Pass;

/// A step function over time, with the largest count of any stretch at hand.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// From each time on, how many; in order.
    steps: Vec<(Ticks, u32)>,
    /// Of each [`BLOCK`] of steps, when it begins and the largest count in it.
    blocks: Vec<(Ticks, u32)>,
}

const BLOCK: usize = 64;

impl InFlight {
    /// Of a rank.
    #[must_use]
    pub fn new(run: &Run, rank: Rank) -> Self {
        let changes = metrics::in_flight(run, &run.program.order[rank.index()], |pass| matches!(pass, Pass::B | Pass::I));
        let mut count = 0_u32;
        let step = |(time, change): (Ticks, i32)| {
            count = count.saturating_add_signed(change);
            (time, count)
        };
        Self::of_steps(changes.into_iter().map(step).collect())
    }

    fn of_steps(steps: Vec<(Ticks, u32)>) -> Self {
        let blocks = steps.chunks(BLOCK).map(|block| (block[0].0, largest(block))).collect();
        Self { steps, blocks }
    }

    /// Whether nothing is ever in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The most at any time.
    #[must_use]
    pub fn peak(&self) -> u32 {
        largest(&self.blocks)
    }

    /// The most between two ticks: one search, and a look at no more than two blocks and the blocks between.
    #[must_use]
    pub fn most(&self, from: u64, to: u64) -> u32 {
        let first = self.count(|time| time.0 <= from).saturating_sub(1);
        let last = self.count(|time| time.0 < to).max(first);
        let (whole_from, whole_to) = (first.div_ceil(BLOCK), last / BLOCK);
        if whole_from >= whole_to {
            return largest(&self.steps[first..last]);
        }
        let between = largest(&self.blocks[whole_from..whole_to]);
        let ends = [&self.steps[first..whole_from * BLOCK], &self.steps[whole_to * BLOCK..last]];
        ends.into_iter().map(largest).fold(between, u32::max)
    }

    /// How many steps begin `before`: first by blocks, which are few enough to stay at hand.
    fn count(&self, before: impl Fn(Ticks) -> bool) -> usize {
        let Some(block) = self.blocks.partition_point(|block| before(block.0)).checked_sub(1) else { return 0 };
        let steps = &self.steps[block * BLOCK..self.steps.len().min((block + 1) * BLOCK)];
        block * BLOCK + steps.partition_point(|step| before(step.0))
    }
}

fn largest(steps: &[(Ticks, u32)]) -> u32 {
    steps.iter().map(|step| step.1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_flight(steps: &[(u64, u32)]) -> InFlight {
        InFlight::of_steps(steps.iter().map(|&(tick, count)| (Ticks(tick), count)).collect())
    }

    #[test]
    fn a_column_shows_its_largest_count() {
        let steps = in_flight(&[(2, 1), (5, 3), (6, 2), (9, 0)]);
        let check = |from, to, expected| assert_eq!(steps.most(from, to), expected, "{from}..{to}");
        check(0, 2, 0);
        check(0, 3, 1);
        check(3, 4, 1);
        check(4, 7, 3);
        check(6, 9, 2);
        check(9, 20, 0);
        assert_eq!(steps.peak(), 3);
        assert_eq!(in_flight(&[]).most(0, 9), 0);
    }

    proptest! {
        #[test]
        fn blocks_equal_the_sweep(
            pieces in prop::collection::vec((0_u64..4, 0_u32..9), 0..400),
            from in 0_u64..900,
            length in 1_u64..500,
        ) {
            let mut tick = 0;
            let place = |(pause, count): (u64, u32)| {
                tick += pause;
                (tick, count)
            };
            let steps: Vec<(u64, u32)> = pieces.into_iter().map(place).collect();
            let to = from + length;
            // What holds at `from`, and what begins before `to`.
            let held = steps.iter().rfind(|step| step.0 <= from);
            let begins = steps.iter().filter(|step| step.0 > from && step.0 < to);
            let swept = begins.chain(held).map(|step| step.1).max().unwrap_or(0);
            prop_assert_eq!(in_flight(&steps).most(from, to), swept);
        }
    }
}
