//! Looped breadth-first: GPipe over the stages of a loop, one stage after the other.

use super::{Placement, Schedule, Size, Theory, any};
use crate::program::plan::{Cell, Pass, Plan, Slot};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "looped-bfs",
    title: "looped BFS",
    meaning: "every rank takes all micro-batches through its first stage, then through its next, and back the way they came; \
              it holds the activations of all of them, on all its stages",
    theory: Theory::SHORT_RAMPS,
    source: "Lamy-Poirier 2023, arXiv 2211.05953; backward in reversed order of micro-batches, as PyTorch has it",
    placement: Placement::Loop,
    takes: any,
    plan: |size| Plan::of_rows(size.ranks, |rank| row(size, rank)),
    ..Schedule::PLAIN
};

fn row(size: Size, rank: u32) -> Vec<Cell> {
    let stages = SCHEDULE.placement.stages(size, rank);
    let all = stages.iter().flat_map(|&stage| (0..size.micro_batches).map(move |m| (stage, m)));
    let cell = |pass| move |(stage, m)| Cell::One(Slot::new(stage, pass, m));
    let forward = all.clone().map(cell(Pass::F));
    let backward = all.rev().map(cell(Pass::B));
    forward.chain(backward).collect()
}
