//! GPipe: all micro-batches forward, then all backward.

use super::{Schedule, Size};
use crate::program::plan::{Pass, Plan, Slot};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "gpipe",
    title: "GPipe",
    meaning: "all micro-batches go forward, then all go backward; every stage holds the activations of all of them",
    source: "Huang et al. 2019, arXiv 1811.06965",
    plan,
};

fn plan(size: Size) -> Plan {
    let all = |stage, pass| (0..size.micro_batches).map(move |m| Slot::new(stage, pass, m));
    let row = |stage| all(stage, Pass::F).chain(all(stage, Pass::B)).collect();
    Plan { rows: (0..size.stages).map(row).collect() }
}
