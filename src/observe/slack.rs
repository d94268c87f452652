//! Slack: how much later an op could end without the end of its step moving. Ops without any are critical.
//!
//! An op starts when the last of those that it waits for has ended, so a run is a graph of events, and slack is found on the way back from
//! the end of a step: an op has to end before the latest start of whatever waits for it. Durations are taken to stay as they are, also
//! where transfers share their links.

use std::ops::Range;

use super::run::Run;
use crate::base::units::Clock;
use crate::base::{OpId, Rank, Ticks};
use crate::program::Wait;
use crate::program::trace::Outcome;

/// The slack of every op, within its own training step.
#[derive(Clone, Debug, Default)]
pub struct Slack {
    of: Vec<Option<Ticks>>,
}

/// The latest end of an event that nothing of the step waits for.
const FREE: u64 = u64::MAX;

impl Slack {
    /// Follows the events of each step back from its end; nothing is known of a run that stopped before. Linear in the ops, unless steps
    /// overlap.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        let mut of = vec![None; run.program.ops()];
        if run.trace.outcome != Outcome::Completed {
            return Self { of };
        }
        let events = ByEvent::new(run);
        let mut latest = vec![FREE; run.trace.events.len() + 1];
        for (step, range) in (0..).zip(events.steps(run)) {
            latest[range.clone()].fill(FREE);
            for event in range.rev() {
                for &op in events.ops(event).iter().filter(|&&op| run.of_step(op, step)) {
                    latest[event] = latest[event].min(run.step_ends[step as usize].0);
                    of[op.index()] = run.times(op).map(|times| Ticks(latest[event].saturating_sub(times.end.0)));
                }
                if latest[event] < FREE {
                    events.ops(event).iter().for_each(|&op| before(run, op, latest[event], &mut latest));
                }
            }
        }
        Self { of }
    }

    /// How much later `op` could end; `None` if it never ran, or the run stopped.
    #[must_use]
    pub fn of(&self, op: OpId) -> Option<Ticks> {
        self.of.get(op.index()).copied().flatten()
    }

    /// Whether any delay of `op` delays its step.
    #[must_use]
    pub fn is_critical(&self, op: OpId) -> bool {
        self.of(op) == Some(Ticks::ZERO)
    }

    /// How long `rank` computes in step `step` with no slack left.
    #[must_use]
    pub fn critical_time(&self, run: &Run, rank: Rank, step: u32) -> Ticks {
        let critical = |op: &&OpId| run.of_step(**op, step) && run.computes(**op) && self.is_critical(**op);
        let ops = run.program.order[rank.index()].iter().filter(critical);
        ops.filter_map(|&op| run.times(op)).map(|times| times.end - times.start).sum()
    }
}

/// Hands the latest end of the event of `op` on to what `op` waits for.
fn before(run: &Run, op: OpId, end: u64, latest: &mut [u64]) {
    let Some(times) = run.times(op) else { return };
    let start = end - (times.end - times.start).0;
    let mut bound = |on: OpId, at: u64| {
        if let Some(event) = run.trace.event_of(on) {
            latest[event] = latest[event].min(at);
        }
    };
    run.links.before(op).into_iter().chain(run.program.waits(op)).for_each(|on| bound(on, start));
    if let (Some(Wait::Message(send)), true) = (run.remote_cause(op), run.program.kind(op).receives()) {
        bound(send, start.saturating_sub(on_the_way(run, send, op).0));
    }
}

/// How long a buffered message travels. A trace tells it where the receiver waited for it; messages without cost take no time; otherwise
/// the most that it can be, so that slack is never too large.
fn on_the_way(run: &Run, send: OpId, receive: OpId) -> Ticks {
    let (Some(left), Some(taken)) = (run.times(send), run.times(receive)) else { return Ticks::ZERO };
    let waited = taken.start > taken.posted;
    if waited || run.trace.clock == Clock::Nanoseconds { taken.start - left.end } else { Ticks::ZERO }
}

/// The ops that each event starts.
struct ByEvent {
    ops: Vec<OpId>,
    /// Per event, from 0, where its ops end.
    ends: Vec<u32>,
}

impl ByEvent {
    fn new(run: &Run) -> Self {
        let started = || run.program.all().filter_map(|op| Some((run.trace.event_of(op)?, op)));
        let mut ends = vec![0_u32; run.trace.events.len() + 1];
        started().for_each(|(event, _)| ends[event] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += *end;
            *end = sum;
        }
        let mut ops = vec![OpId(0); sum as usize];
        let mut place = ends.clone();
        for (event, op) in started() {
            place[event] -= 1;
            ops[place[event] as usize] = op;
        }
        Self { ops, ends }
    }

    fn ops(&self, event: usize) -> &[OpId] {
        let start = event.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ops[start as usize..self.ends[event] as usize]
    }

    /// For each step, from its first event to its last.
    fn steps(&self, run: &Run) -> Vec<Range<usize>> {
        let mut steps: Vec<Range<usize>> = vec![0..0; run.step_ends.len()];
        for event in 0..self.ends.len() {
            for &op in self.ops(event) {
                let range = &mut steps[run.program.op(op).origin.step as usize];
                *range = if range.start == range.end { event..event + 1 } else { range.start..event + 1 };
            }
        }
        steps
    }
}
