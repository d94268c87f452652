//! Naive model parallelism: one micro-batch is in the pipeline at a time.

use super::{Schedule, Size};
use crate::program::plan::{Pass, Plan, Slot};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "naive",
    title: "naive",
    meaning: "each micro-batch goes forward through all stages and back before the next one starts; one stage works at a time",
    source: "the baseline of GPipe, arXiv 1811.06965, figure 2b",
    plan,
};

fn plan(size: Size) -> Plan {
    let row =
        |stage| (0..size.micro_batches).flat_map(|m| [Slot::new(stage, Pass::F, m), Slot::new(stage, Pass::B, m)]).collect();
    Plan { rows: (0..size.stages).map(row).collect() }
}
