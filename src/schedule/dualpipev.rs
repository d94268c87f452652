//! DualPipeV: half of DualPipe, folded: the middle of the pipeline becomes its turning point, and no stage stands twice.

use super::dualpipe::Half;
use super::row::Row;
use super::{Illegal, Measure, Placement, Schedule, Size, Theory};
use crate::program::plan::Plan;

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "dualpipev",
    title: "DualPipeV",
    meaning: "one half of DualPipe over stages in a V: the same steps on half of the ranks, and parameters stand once",
    theory: Theory {
        idle: "(p-1)(F&B+B-3W)",
        makespan: "2mt + (p-1)(F&B+B-3W)",
        fraction: "(p-1)/(3m+p-1)",
        ratio: "(p-1)/(3m)",
        value: |size, t| t.are_equal().then(|| (size.p() - 1.0) * (t.overlapped + t.backward() - 3.0 * t.weight)),
    },
    source: "cut in half by Sea AI Lab; steps of dualpipev.py in github.com/deepseek-ai/DualPipe",
    placement: Placement::Vee,
    takes,
    plan: |size| {
        let half = Half { ranks: size.ranks, micro_batches: size.micro_batches };
        Plan::of_rows(size.ranks, |rank| half.row(rank, Row::new(size, SCHEDULE.placement, rank)))
    },
    ..Schedule::PLAIN
};

fn takes(size: Size) -> Result<(), Illegal> {
    let (least, m) = (2 * size.ranks, size.micro_batches);
    if m >= least {
        return Ok(());
    }
    let reason = format!("needs at least 2p = {least} micro-batches, so that forward and backward meet on every rank, not {m}");
    Err(Illegal::new(Measure::MicroBatches, least, reason))
}
