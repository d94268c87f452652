//! `Seq1F1B`: 1F1B over segments of sequences, so that a ramp is as long as a segment and not as a whole sequence.
//!
//! A segment's queries look at its own keys and at those of the segments before it, so segments of a micro-batch go forward in order. Its
//! keys get gradients from the segments behind it, so they come back in reverse order. The plan numbers segments through: segment s of
//! micro-batch i is number i k + s.

use super::row::Row;
use super::{Schedule, Size, Theory};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "seq1f1b",
    title: "Seq1F1B",
    meaning: "1F1B over k segments of each sequence, the last of a sequence going back first: ramps are k times shorter, and a rank holds \
              p+k-1-r segments in place of p-r sequences",
    theory: Theory {
        idle: "(p-1) t, of a segment",
        makespan: "(mk+p-1) t",
        fraction: "(p-1)/(mk+p-1)",
        ratio: "(p-1)/(mk)",
        value: |size, t| Some((f64::from(size.ranks) - 1.0) * t.all()),
    },
    source: "Sun et al. 2024, Seq1F1B, arXiv 2406.03488, section 3",
    segmented: true,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank)),
    ..Schedule::PLAIN
};

fn row(size: Size, rank: u32) -> Vec<Cell> {
    let mut row = Row::new(size, SCHEDULE.placement, rank);
    let all = size.micro_batches * size.segments;
    // The first backward is that of a whole sequence's last segment.
    let warm_up = (size.ranks - 1 - rank + size.segments - 1).min(all);
    let last_first = |step: u32| step / size.segments * size.segments + size.segments - 1 - step % size.segments;
    for _ in 0..warm_up {
        row.forward(0);
    }
    for step in 0..all {
        if step + warm_up < all {
            row.forward(0);
        }
        row.backward_of(0, last_first(step));
    }
    row.finish()
}
