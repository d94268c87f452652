//! PipeDream-2BW: 1F1B that is never drained, with one update a step. A stage holds two versions of its weights, not p-r.
//!
//! Gradients of a step's micro-batches are summed as in 1F1B. A step's update comes while the next step's micro-batches are under way; those
//! all use the weights from before it, on every stage. So step t is computed with the weights that step t-2 has left.

use super::{Illegal, Measure, Placement, Schedule, Size, Theory, Updates, one_f_one_b};
use crate::program::plan::Plan;

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "pipedream-2bw",
    title: "PipeDream-2BW",
    meaning: "1F1B that is never drained, with one update a step and two versions of the weights: every micro-batch of a step uses the weights \
              from before the last update, the same delay on all stages",
    theory: Theory::NEVER_DRAINED,
    source: "Narayanan et al. 2021, Memory-Efficient Pipeline-Parallel DNN Training, arXiv 2006.09503, section 3.1",
    placement: Placement::Line,
    updates: Updates::Delayed,
    takes,
    plan: |size| Plan::of_rows(size.ranks, |rank| one_f_one_b::row(size, rank)),
    ..Schedule::PLAIN
};

/// With fewer micro-batches than ranks, those of three steps would be under way at once, and two versions would not do.
fn takes(size: Size) -> Result<(), Illegal> {
    let (p, m) = (size.ranks, size.micro_batches);
    if m >= p {
        return Ok(());
    }
    let reason = format!("needs at least p = {p} micro-batches in a step to do with two versions of the weights, not {m}");
    Err(Illegal::new(Measure::MicroBatches, p, reason))
}
