//! Naive model parallelism: one micro-batch is in the pipeline at a time.

use super::row::Row;
use super::{Placement, Schedule, Size, Theory, any};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "naive",
    title: "naive",
    meaning: "each micro-batch goes forward through all stages and back before the next one starts; one stage works at a time",
    theory: Theory {
        idle: "(p-1) m t",
        makespan: "p m t",
        fraction: "(p-1)/p",
        ratio: "p-1",
        value: |size, t| Some((size.p() - 1.0) * size.m() * t.all()),
    },
    source: "the baseline of GPipe, arXiv 1811.06965, figure 2b",
    placement: Placement::Line,
    takes: any,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank)),
    ..Schedule::PLAIN
};

fn row(size: Size, rank: u32) -> Vec<Cell> {
    let mut row = Row::new(size, SCHEDULE.placement, rank);
    for _ in 0..size.micro_batches {
        row.forward(0);
        row.backward(0);
    }
    row.finish()
}
