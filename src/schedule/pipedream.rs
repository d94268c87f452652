//! `PipeDream`: 1F1B that is never drained. A stage updates its weights behind every micro-batch's backward.
//!
//! While a micro-batch is under way its stage's weights move on, so a stage keeps the weights that the forward of each used until its
//! backward is done: stage r holds up to p-r versions. The gradients are those of older weights, and by the number of its stage.

use super::{Placement, Schedule, Theory, Updates, any, one_f_one_b};
use crate::program::plan::Plan;

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "pipedream",
    title: "PipeDream",
    meaning: "1F1B that is never drained: each stage updates its weights behind every micro-batch and stashes up to p-r versions of them, so \
              that a micro-batch goes back with the weights that it came with; no bubble once the pipeline is full, but stale weights",
    theory: Theory::NEVER_DRAINED,
    source: "Narayanan et al. 2019, PipeDream, SOSP'19, sections 3.2 and 3.3",
    placement: Placement::Line,
    updates: Updates::EachMicroBatch,
    takes: any,
    plan: |size| Plan::of_rows(size.ranks, |rank| one_f_one_b::row(size, rank)),
    ..Schedule::PLAIN
};
