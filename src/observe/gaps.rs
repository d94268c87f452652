//! Gaps: the longest stretches in which a rank of the first step did not compute, each with its cause.

use super::kind::Kind;
use super::lanes::Lanes;
use super::metrics::Metrics;
use super::run::Run;
use crate::base::{OpId, Rank, Ticks};

/// A stretch without computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The rank.
    pub rank: Rank,
    /// From.
    pub start: Ticks,
    /// Until.
    pub end: Ticks,
    /// What it is.
    pub kind: GapKind,
    /// The op that waits; `None` behind a rank's last one.
    pub op: Option<OpId>,
}

/// What a gap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GapKind {
    /// Before a rank's first computation.
    RampUp,
    /// Behind its last.
    RampDown,
    /// Behind its last, because the run stopped: its next op cannot start.
    Blocked,
    /// Inside, waiting for data.
    Bubble,
    /// Inside, while what it needs is moving.
    Exposed,
}

impl GapKind {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RampUp | Self::RampDown => "ramp",
            Self::Blocked => "blocked",
            Self::Bubble => "bubble",
            Self::Exposed => "exposed",
        }
    }
}

/// The longest gaps of the first step, at most `most`, the longest first.
#[must_use]
pub fn longest(run: &Run, lanes: &Lanes, metrics: &Metrics, most: usize) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = lanes.ranks.iter().flat_map(|rank| of_rank(run, rank, metrics.makespan)).collect();
    gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.end - gap.start), gap.rank, gap.start));
    gaps.truncate(most);
    gaps
}

fn of_rank(run: &Run, lanes: &super::lanes::RankLanes, makespan: Ticks) -> Vec<Gap> {
    let row = &lanes.compute;
    let rank = lanes.rank;
    let in_step = |op: OpId| run.of_step(op, 0);
    let mut gaps = Vec::new();
    let mut first: Option<(Ticks, OpId)> = None;
    let mut last = Ticks::ZERO;
    for span in &row.spans {
        let op = row.ops_of(span)[0];
        if !in_step(op) || span.kind == Kind::Skipped {
            continue;
        }
        if !span.kind.is_idle() {
            first = first.or(Some((span.start, op)));
            last = last.max(span.end);
            continue;
        }
        let kind = if span.kind == Kind::ExposedCommunication { GapKind::Exposed } else { GapKind::Bubble };
        gaps.push(Gap { rank, start: span.start, end: span.end, kind, op: Some(op) });
    }
    let Some((start, op)) = first else { return gaps };
    if start > Ticks::ZERO {
        gaps.push(Gap { rank, start: Ticks::ZERO, end: start, kind: GapKind::RampUp, op: Some(op) });
    }
    if last < makespan {
        let next = run.next_compute(rank, 0);
        let kind = if next.is_some() { GapKind::Blocked } else { GapKind::RampDown };
        gaps.push(Gap { rank, start: last, end: makespan, kind, op: next });
    }
    gaps
}
