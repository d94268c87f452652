//! ZB-H2: ZB-H1 with twice the warm-up. Every rank works without a pause from its first op to its last.

use super::zb_h1;
use super::{Placement, Schedule, Theory, any};
use crate::program::plan::Plan;

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "zb-h2",
    title: "ZB-H2",
    meaning: "ZB-H1 with a warm-up of 2(p-1-r) forwards: no rank pauses between its first op and its last, for nearly twice the activations; \
              what is left are the ends of a parallelogram, and a barrier at the end of the step turns them into idle time",
    theory: Theory::PARALLELOGRAM,
    source: "Qi et al. 2024, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, figure 3",
    placement: Placement::Line,
    takes: any,
    plan: |size| Plan::of_rows(size.ranks, |rank| zb_h1::row(size, rank, 2)),
    ..Schedule::PLAIN
};
