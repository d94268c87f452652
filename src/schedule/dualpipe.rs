//! DualPipe: micro-batches enter at both ends, and a forward of one direction runs as one with a backward of the other.
//!
//! A rank's own chunk is the one that a micro-batch from the nearer end enters first; the far chunk is entered by those from the other
//! end. Both halves of the pipeline do the same, mirrored, so the eight steps are written for half of the ranks and half of the
//! micro-batches. `DualPipeV` is one half by itself.

use super::row::Row;
use super::{Illegal, Measure, Placement, Schedule, Size, Theory};
use crate::program::plan::{Cell, Plan};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "dualpipe",
    title: "DualPipe",
    meaning: "micro-batches enter at both ends of the pipeline and ranks hold two stages, so parameters stand twice; forward and backward \
              of the two directions run as one, so that either can hide the other's communication",
    theory: Theory {
        idle: "(p/2-1)(F&B+B-3W)",
        makespan: "mt + (p/2-1)(F&B+B-3W)",
        fraction: "(p-2)/(3m+p-2)",
        ratio: "(p-2)/(3m)",
        value: |size, t| t.are_equal().then(|| (size.p() / 2.0 - 1.0) * (t.overlapped + t.backward() - 3.0 * t.weight)),
    },
    source: "DeepSeek-AI 2024, DeepSeek-V3, arXiv 2412.19437, figure 5; steps of github.com/deepseek-ai/DualPipe",
    placement: Placement::TwoWay,
    takes,
    plan: |size| {
        let half = Half { ranks: size.ranks / 2, micro_batches: size.micro_batches / 2 };
        Plan::of_rows(size.ranks, |rank| half.row(rank.min(size.ranks - 1 - rank), Row::new(size, SCHEDULE.placement, rank)))
    },
    ..Schedule::PLAIN
};

fn takes(size: Size) -> Result<(), Illegal> {
    let (p, m) = (size.ranks, size.micro_batches);
    if m < 2 * p {
        let reason = format!("needs at least 2p = {} micro-batches to have both directions everywhere, not {m}", 2 * p);
        return Err(Illegal::new(Measure::MicroBatches, 2 * p, reason));
    }
    if m.is_multiple_of(2) {
        return Ok(());
    }
    Err(Illegal::new(Measure::MicroBatches, m + 1, format!("lets half of the micro-batches enter at either end, and {m} is odd")))
}

/// One half of the pipeline: rank 0 stands at its end, the last one in the middle.
pub(super) struct Half {
    pub ranks: u32,
    /// Of each direction.
    pub micro_batches: u32,
}

const NEAR: u32 = 0;
const FAR: u32 = 1;

impl Half {
    /// The eight steps of `rank`, counted from the pipeline's end.
    pub fn row(&self, rank: u32, mut row: Row) -> Vec<Cell> {
        let to_the_middle = self.ranks - 1 - rank;
        // 1: the near direction fills its way to the middle and back.
        for _ in 0..2 * to_the_middle {
            row.forward(NEAR);
        }
        // 2: both directions go forward.
        for _ in 0..=rank {
            row.forward(NEAR);
            row.forward(FAR);
        }
        // 3: the far direction comes back; W fills what would be a bubble.
        for _ in 0..to_the_middle {
            row.input(FAR);
            row.weight();
            row.forward(FAR);
        }
        // 4: forward of one direction with backward of the other, by turns.
        for step in 0..=self.micro_batches + rank - 2 * self.ranks {
            if step == 0 && to_the_middle == 0 {
                row.forward(NEAR);
                row.backward(FAR);
            } else {
                row.overlap(NEAR, FAR);
            }
            row.overlap(FAR, NEAR);
        }
        // 5: nothing more enters from the near end.
        for _ in 0..to_the_middle {
            row.backward(FAR);
            row.overlap(FAR, NEAR);
        }
        // 6: backward alone; its second half is cut in two.
        for pass in 0..2 * (rank + 1) {
            let chunk = if pass % 2 == 0 { FAR } else { NEAR };
            if pass <= rank { row.backward(chunk) } else { row.input(chunk) }
        }
        // 7 and 8: the near direction comes back; W fills what would be a bubble, and what is left comes last.
        for _ in 0..to_the_middle {
            row.weight();
            row.input(NEAR);
        }
        row.finish()
    }
}
