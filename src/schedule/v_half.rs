//! V-Half: a V whose ways are short by turns, so that a rank holds about half of what 1F1B's first does.

use super::block::Block;
use super::{Placement, Schedule, Theory, any};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "v-half",
    title: "V-Half",
    meaning: "stages in a V, backward cut in two, and a timetable that brings a micro-batch back soon: \
              no rank holds more than about half of 1F1B's first, and the bubble stays small",
    theory: Theory::UNKNOWN,
    source: "Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, section 3",
    placement: Placement::Vee,
    takes: any,
    plan: |size| Block { hops: [1, 2, 1, 2], room: 2 * (size.ranks / 2) + 2 }.plan(size),
    ..Schedule::PLAIN
};
