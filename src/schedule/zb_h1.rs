//! ZB-H1: 1F1B whose backward is cut in two. I sends its gradient on at once; W waits until its rank would be idle.

use super::row::Row;
use super::{Placement, Schedule, Size, Theory, any};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "zb-h1",
    title: "ZB-H1",
    meaning: "1F1B with the backward cut in two: the gradient of the input goes on at once, the weights' fills what would be a bubble; \
              no rank holds more than the first one of 1F1B",
    theory: Theory {
        idle: "(p-1)(F+I-W)",
        makespan: "mt + (p-1)(F+I-W)",
        fraction: "(p-1)/(3m+p-1)",
        ratio: "(p-1)/(3m)",
        value: |size, t| {
            let is_known = t.are_equal() && size.micro_batches >= size.ranks;
            is_known.then(|| (size.p() - 1.0) * (t.forward + t.input - t.weight))
        },
    },
    source: "Qi et al. 2024, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, figure 2",
    placement: Placement::Line,
    takes: any,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank, 1)),
    ..Schedule::PLAIN
};

/// The row of `rank`: `depth` forwards of warm-up for every rank behind it, and W passes that stay behind by `depth` for every rank
/// before it, so that all ranks hold the same.
pub(super) fn row(size: Size, rank: u32, depth: u32) -> Vec<Cell> {
    let mut row = Row::new(size, SCHEDULE.placement, rank);
    let warm_up = (depth * (size.ranks - 1 - rank)).min(size.micro_batches);
    let behind = depth * rank;
    for _ in 0..warm_up {
        row.forward(0);
    }
    for step in 0..size.micro_batches {
        if step + warm_up < size.micro_batches {
            row.forward(0);
        }
        row.input(0);
        if step >= behind {
            row.weight();
        }
    }
    row.finish()
}
