//! GPipe: all micro-batches forward, then all backward.

use super::row::Row;
use super::{Placement, Schedule, Size, Theory, any};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "gpipe",
    title: "GPipe",
    meaning: "all micro-batches go forward, then all go backward; every stage holds the activations of all of them",
    theory: Theory::RAMPS,
    source: "Huang et al. 2019, arXiv 1811.06965",
    placement: Placement::Line,
    takes: any,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank)),
    ..Schedule::PLAIN
};

fn row(size: Size, rank: u32) -> Vec<Cell> {
    let mut row = Row::new(size, SCHEDULE.placement, rank);
    (0..size.micro_batches).for_each(|_| row.forward(0));
    (0..size.micro_batches).for_each(|_| row.backward(0));
    row.finish()
}
