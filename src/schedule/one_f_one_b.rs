//! 1F1B with flush: a stage that is warm alternates one forward and one backward.

use super::{Schedule, Size};
use crate::program::plan::{Pass, Plan, Slot};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "1f1b",
    title: "1F1B",
    meaning: "after a warm-up of p-1-r forwards a stage alternates one forward and one backward; it holds at most p-r micro-batches",
    source: "PipeDream-Flush: Narayanan et al. 2021, arXiv 2104.04473, figure 4 top",
    plan,
};

fn plan(size: Size) -> Plan {
    Plan { rows: (0..size.stages).map(|stage| row(size, stage)).collect() }
}

fn row(size: Size, stage: u32) -> Vec<Slot> {
    let m = size.micro_batches;
    let warm_up = (size.stages - 1 - stage).min(m);
    let forward = |micro_batch| Slot::new(stage, Pass::F, micro_batch);
    let backward = |micro_batch| Slot::new(stage, Pass::B, micro_batch);

    let warming = (0..warm_up).map(forward);
    let steady = (warm_up..m).flat_map(|next| [forward(next), backward(next - warm_up)]);
    let draining = (m - warm_up..m).map(backward);
    warming.chain(steady).chain(draining).collect()
}
