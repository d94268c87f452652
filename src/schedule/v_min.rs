//! V-Min: a V whose ways are as short as they can be, so that a rank holds about a third of what 1F1B's first does.

use super::block::Block;
use super::{Placement, Schedule, Theory, any};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "v-min",
    title: "V-Min",
    meaning: "stages in a V, backward cut in two, and a timetable that hands every micro-batch on at once: \
              no rank holds more than about a third of 1F1B's first; where passes differ in length, bubbles add up",
    theory: Theory::UNKNOWN,
    source: "Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, section 3",
    placement: Placement::Vee,
    takes: any,
    plan: |size| Block { hops: [1; 4], room: 2 * ((size.ranks + 1) / 3) + 2 }.plan(size),
    ..Schedule::PLAIN
};
