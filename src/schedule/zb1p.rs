//! ZB1P: interleaved 1F1B whose backward is cut in two, as ZB-H1 cuts that of 1F1B.

use super::interleaved::{Turns, takes};
use super::row::Row;
use super::{Placement, Schedule, Size, Theory};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "zb1p",
    title: "ZB1P",
    meaning: "interleaved 1F1B with the backward cut in two: half its lead in the warm-up, and weights' gradients that stay behind by r",
    theory: Theory {
        idle: "(p-1)(F+I-W)",
        makespan: "mvt + (p-1)(F+I-W)",
        fraction: "(p-1)/(3mv+p-1)",
        ratio: "(p-1)/(3mv)",
        value: |size, t| {
            let is_known = t.are_equal() && size.micro_batches.is_multiple_of(size.ranks);
            is_known.then(|| (size.p() - 1.0) * (t.forward + t.input - t.weight))
        },
    },
    source: "PyTorch's InterleavedZeroBubble; Qi et al. 2024, arXiv 2401.10241",
    placement: Placement::Loop,
    takes,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank)),
    ..Schedule::PLAIN
};

fn row(size: Size, rank: u32) -> Vec<Cell> {
    let mut row = Row::new(size, SCHEDULE.placement, rank);
    let turns = Turns::new(size);
    let warm_up = turns.warm_up(size.ranks - 1 - rank);
    for step in 0..warm_up {
        row.forward(turns.forward(step));
    }
    for step in 0..size.passes() {
        if step + warm_up < size.passes() {
            row.forward(turns.forward(step + warm_up));
        }
        row.input(turns.backward(step));
        if step >= rank {
            row.weight();
        }
    }
    row.finish()
}
