//! The plan that the learner edits, and its par: what the plan that it began as takes.

use crate::base::{Bytes, Ticks};
use crate::observe::metrics::RankMetrics;
use crate::program::edit::{Editor, Place};
use crate::program::trace::Outcome;
use crate::schedule::Schedule;

use super::data::RunData;

/// A plan at work.
#[derive(Clone, Debug)]
pub struct Editing {
    /// The plan, and the way back.
    pub editor: Editor,
    /// The cell under the cursor; behind the last one of its row, where a cell can be put.
    pub cursor: Place,
    /// What the run took in which the plan was found; `None` if it stopped.
    pub par: Option<Score>,
    /// The schedule that the plan is, if it has a name and nothing is out of the plan: found when it changes, not for every frame.
    pub known: Option<&'static Schedule>,
    /// The knobs of that run: with others, its numbers are no par.
    pub knobs: Vec<(String, String)>,
}

/// The numbers that a plan is judged by, of the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// How long it takes.
    pub makespan: Ticks,
    /// Idle time of all ranks over ranks times makespan.
    pub bubble: f64,
    /// The same without the ramps.
    pub inside: f64,
    /// The most micro-batches that a rank holds.
    pub in_flight: u32,
    /// The most memory that a rank takes.
    pub peak: Bytes,
}

impl Score {
    /// Of a run that completed.
    #[must_use]
    pub fn of(data: &RunData) -> Option<Self> {
        if data.record.trace.outcome != Outcome::Completed {
            return None;
        }
        let (metrics, ranks) = (&data.metrics, &data.metrics.ranks);
        let inside: Ticks = ranks.iter().map(RankMetrics::idle_in_own_span).sum();
        let all = metrics.makespan * ranks.len() as u64;
        #[expect(clippy::cast_precision_loss, reason = "a share on the screen")]
        let inside = inside.0 as f64 / all.0.max(1) as f64;
        Some(Self {
            makespan: metrics.makespan,
            bubble: metrics.bubble_fraction(),
            inside,
            in_flight: ranks.iter().map(|rank| rank.peak_in_flight).max().unwrap_or(0),
            peak: ranks.iter().map(|rank| rank.peak_bytes).max().unwrap_or_default(),
        })
    }
}
