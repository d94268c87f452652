//! ZBV: a zero bubble at 1F1B's memory. Each rank holds a stage on the way down and its mirror image on the way up.
//!
//! The micro-batch that has come up is back where it started, so the first rank has the loss: backward can begin everywhere early.

use super::row::Row;
use super::{Placement, Schedule, Size, Theory, any};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "zbv",
    title: "ZBV",
    meaning: "stages go down the ranks and up again in a V, backward is cut in two: no pause inside a rank's span, \
              and no rank holds more than the first one of 1F1B",
    theory: Theory::PARALLELOGRAM,
    source: "Qi et al. 2024, arXiv 2401.10241, section 6; order as PyTorch's ZBVZeroBubble",
    placement: Placement::Vee,
    takes: any,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank)),
    ..Schedule::PLAIN
};

const DOWN: u32 = 0;
const UP: u32 = 1;

fn row(size: Size, rank: u32) -> Vec<Cell> {
    // The phases are those of a full pipeline: a shorter step leaves out what it does not have.
    let full = Size { micro_batches: size.micro_batches.max(2 * size.ranks - 1), ..size };
    let mut row = Row::new(full, SCHEDULE.placement, rank);
    let behind = size.ranks - rank;

    for _ in 0..2 * behind - 1 {
        row.forward(DOWN);
    }
    for _ in 0..rank {
        row.forward(UP);
        row.forward(DOWN);
    }
    for _ in 0..behind {
        row.forward(UP);
        row.input(UP);
        row.weight();
    }
    // p micro-batches have come up by now, and 2p-1-r gone down.
    for step in size.ranks..full.micro_batches {
        if step + behind - 1 < full.micro_batches {
            row.forward(DOWN);
        }
        row.input(DOWN);
        row.weight();
        row.forward(UP);
        row.input(UP);
        row.weight();
    }
    for _ in 0..rank {
        row.input(DOWN);
        row.input(UP);
    }
    for _ in 0..behind {
        row.input(DOWN);
        row.weight_of_chunk(DOWN);
    }
    for _ in 0..rank {
        row.weight_of_chunk(UP);
    }
    row.finish().into_iter().filter(|cell| cell.slots().all(|slot| slot.micro_batch < size.micro_batches)).collect()
}
