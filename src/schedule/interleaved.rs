//! Interleaved 1F1B: 1F1B over the stages of a loop, so that a ramp is as long as a chunk and not as a whole rank's layers.
//!
//! Micro-batches go in groups: a rank takes a group through its first chunk, then through its second, and so on, then the next group.

use super::row::Row;
use super::{Illegal, Measure, Placement, Schedule, Size, Theory};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "interleaved",
    title: "interleaved 1F1B",
    meaning: "each rank holds several stages of a loop and takes micro-batches through them in groups of p; ramps are v times shorter, \
              for more activations and v times the messages",
    theory: Theory {
        value: |size, t| size.micro_batches.is_multiple_of(size.ranks).then(|| (size.p() - 1.0) * t.all()),
        ..Theory::SHORT_RAMPS
    },
    source: "Narayanan et al. 2021, arXiv 2104.04473, figure 4 bottom; groups as PyTorch cuts them",
    placement: Placement::Loop,
    takes,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank)),
    ..Schedule::PLAIN
};

fn row(size: Size, rank: u32) -> Vec<Cell> {
    let mut row = Row::new(size, SCHEDULE.placement, rank);
    let turns = Turns::new(size);
    let warm_up = turns.warm_up(2 * (size.ranks - 1 - rank));
    for step in 0..warm_up {
        row.forward(turns.forward(step));
    }
    for step in warm_up..size.passes() {
        row.forward(turns.forward(step));
        row.backward(turns.backward(step - warm_up));
    }
    for step in size.passes() - warm_up..size.passes() {
        row.backward(turns.backward(step));
    }
    row.finish()
}

/// Whose turn it is: the chunks of a rank take turns, a group of micro-batches each.
pub(super) struct Turns {
    size: Size,
    group: u32,
}

impl Turns {
    pub fn new(size: Size) -> Self {
        Self { size, group: size.micro_batches / rounds(size) }
    }

    /// Forwards before the first backward: those that bring the first group to the last chunk, and `lead` more.
    pub fn warm_up(&self, lead: u32) -> u32 {
        ((self.size.chunks - 1) * self.group + lead).min(self.size.passes())
    }

    /// The chunk of the rank's forward number `step`.
    pub fn forward(&self, step: u32) -> u32 {
        step / self.group % self.size.chunks
    }

    /// The chunk of its backward number `step`: the last one comes first.
    pub fn backward(&self, step: u32) -> u32 {
        self.size.chunks - 1 - self.forward(step)
    }
}

/// Micro-batches must fill rounds of one size, of p or a few more.
pub(super) fn takes(size: Size) -> Result<(), Illegal> {
    let fills = |m: u32| m.is_multiple_of(rounds(Size { micro_batches: m, ..size }));
    let m = size.micro_batches;
    if fills(m) {
        return Ok(());
    }
    // A multiple of p is never more than p away.
    let nearest = (1..).find_map(|distance| [m - distance, m + distance].into_iter().find(|&m| fills(m))).unwrap_or(size.ranks);
    let reason = format!("groups micro-batches in {} equal rounds, which {m} micro-batches do not fill", rounds(size));
    Err(Illegal::new(Measure::MicroBatches, nearest, reason))
}

/// As many rounds as p goes into m.
fn rounds(size: Size) -> u32 {
    (size.micro_batches / size.ranks).max(1)
}
