//! Why nothing runs: for any place of a row at which nothing does, the chain of waits from what comes next to the cause.

use super::lanes::in_compute_row;
use super::rows::Row;
use super::run::Run;
use super::why::{Chain, chain, last};
use crate::base::{OpId, Rank, Ticks};

/// Why a row is idle at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    /// The rank.
    pub rank: Rank,
    /// Who is waited for.
    pub kind: IdleKind,
    /// From the op that waits to the cause; without steps if that op waits for nothing.
    pub chain: Chain,
}

/// Who is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleKind {
    /// The row's next op waits, and starts later.
    Next(OpId),
    /// The row's next op never starts: the run stopped.
    Stuck(OpId),
    /// The row has run its last op; the run ends later, with this one.
    Done(OpId),
}

/// Why `row`, which is the compute row of `rank` or its communication row, is idle at `time`. `None` if something runs there, and behind the
/// end of the run.
#[must_use]
pub fn idle(run: &Run, row: &Row, (rank, compute): (Rank, bool), time: Ticks) -> Option<Idle> {
    let runs = |place: usize| !row.spans[place].kind.is_idle() && !row.spans[place].is_mark();
    if time >= run.trace.end() || row.place_at(time).is_some_and(runs) {
        return None;
    }
    let kind = next(run, row, time)
        .map(IdleKind::Next)
        .or_else(|| stuck(run, rank, compute).map(IdleKind::Stuck))
        .or_else(|| last(run, run.program.all()).map(|(_, op)| IdleKind::Done(op)))?;
    let mut chain = chain(run, kind.op(), time);
    // What runs until the end, and waits for nobody, is told by its name.
    if matches!(kind, IdleKind::Done(op) if run.program.rank_of(op) == run.program.rank_of(chain.root)) {
        chain.steps.clear();
    }
    Some(Idle { rank, kind, chain })
}

/// The first op of the row that starts behind `time`.
fn next(run: &Run, row: &Row, time: Ticks) -> Option<OpId> {
    let place = row.place_at(time).filter(|&place| row.spans[place].end > time);
    let behind = row.spans.partition_point(|span| span.start <= time);
    let spans = &row.spans[place.unwrap_or(behind)..];
    spans.iter().flat_map(|span| row.ops_of(span)).copied().find(|&op| run.times(op).is_some_and(|times| times.start > time))
}

/// The first op of the row that never started; if all have, that of the rank's other row.
fn stuck(run: &Run, rank: Rank, compute: bool) -> Option<OpId> {
    let open = || run.program.order[rank.index()].iter().copied().filter(|&op| run.times(op).is_none());
    open().find(|&op| in_compute_row(run, op) == compute).or_else(|| open().next())
}

impl IdleKind {
    /// The op at which the chain begins.
    #[must_use]
    pub fn op(self) -> OpId {
        match self {
            Self::Next(op) | Self::Stuck(op) | Self::Done(op) => op,
        }
    }
}

impl Idle {
    /// What the row's rank has to do with it, in a sentence; empty if the chain says it.
    #[must_use]
    pub fn heading(&self, run: &Run) -> String {
        let rank = run.program.whole(self.rank);
        match self.kind {
            IdleKind::Next(_) => String::new(),
            IdleKind::Stuck(_) => format!("{rank} never goes on: the run stopped"),
            IdleKind::Done(op) => {
                let end = run.times(op).map_or_else(String::new, |times| run.trace.clock.show(times.end));
                let name = super::kind::label(run, op);
                format!(
                    "{rank} has done all its work; the run goes on until {end}, when {name} of {} ends",
                    run.program.whole_rank_of(op)
                )
            }
        }
    }

    /// The whole in one sentence.
    #[must_use]
    pub fn brief(&self, run: &Run) -> String {
        let parts = [self.heading(run), if self.chain.steps.is_empty() { String::new() } else { self.chain.brief(run) }];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }
}
