//! 1F1B with flush: a stage that is warm alternates one forward and one backward.

use super::row::Row;
use super::{Placement, Schedule, Size, Theory, any};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "1f1b",
    title: "1F1B",
    meaning: "after a warm-up of p-1-r forwards a stage alternates one forward and one backward; it holds at most p-r micro-batches",
    theory: Theory::RAMPS,
    source: "PipeDream-Flush: Narayanan et al. 2021, arXiv 2104.04473, figure 4 top",
    placement: Placement::Line,
    takes: any,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank)),
    ..Schedule::PLAIN
};

/// The row of `rank`.
pub(super) fn row(size: Size, rank: u32) -> Vec<Cell> {
    let mut row = Row::new(size, SCHEDULE.placement, rank);
    let warm_up = (size.ranks - 1 - rank).min(size.micro_batches);
    for _ in 0..warm_up {
        row.forward(0);
    }
    for _ in warm_up..size.micro_batches {
        row.forward(0);
        row.backward(0);
    }
    for _ in 0..warm_up {
        row.backward(0);
    }
    row.finish()
}
