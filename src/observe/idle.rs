//! Idle time: what a compute stream waits for between two ops, as stretches of bubble and of exposed communication.
//!
//! The stretches follow from the chain of causes on the rank itself: while a message, a collective or a copy that the next op needs is
//! moving, communication is exposed; while it is posted and its peer is not there, the gap is a bubble.

use super::kind::Kind;
use super::run::Run;
use crate::base::{OpId, Ticks};
use crate::program::Wait;

/// A stretch in which a rank's compute stream stands still although it has work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// From.
    pub start: Ticks,
    /// Until.
    pub end: Ticks,
    /// [`Kind::Bubble`] or [`Kind::ExposedCommunication`].
    pub kind: Kind,
}

/// The stretches between `from` and the start of `op`, in order: they fill the gap exactly.
#[must_use]
pub fn gap(run: &Run, from: Ticks, op: OpId) -> Vec<Idle> {
    let Some(times) = run.times(op) else { return Vec::new() };
    let mut gap = Gap { from, until: times.start, stretches: Vec::new() };
    let mut op = op;
    while gap.until > from {
        gap.wait_for_peer(run, op);
        let before = run.local_cause(op).and_then(Wait::on);
        let Some(before) = before.filter(|_| gap.until > from) else { break };
        gap.run(run, before);
        op = before;
    }
    gap.back_to(from, Kind::Bubble);
    gap.stretches.reverse();
    gap.stretches
}

/// A gap that is filled from its end.
struct Gap {
    from: Ticks,
    /// What lies behind is filled.
    until: Ticks,
    /// Latest first.
    stretches: Vec<Idle>,
}

impl Gap {
    /// From when `op` was posted until it started: its peer was missing, or its message on the way.
    fn wait_for_peer(&mut self, run: &Run, op: OpId) {
        let Some(times) = run.times(op).filter(|times| times.start > times.posted) else { return };
        if let Some(Wait::Message(send)) = run.remote_cause(op) {
            let left = run.times(send).map_or(times.start, |send| send.end);
            self.back_to(left.max(times.posted), Kind::ExposedCommunication);
        }
        self.back_to(times.posted, Kind::Bubble);
    }

    /// While `op` itself ran.
    fn run(&mut self, run: &Run, op: OpId) {
        let Some(times) = run.times(op) else { return };
        self.back_to(times.end, Kind::Bubble);
        let kind = if run.computes(op) { Kind::Bubble } else { Kind::ExposedCommunication };
        self.back_to(times.start, kind);
    }

    /// Fills back to `time`, or to the gap's start if that is later.
    fn back_to(&mut self, time: Ticks, kind: Kind) {
        let time = time.max(self.from);
        if time >= self.until {
            return;
        }
        match self.stretches.last_mut() {
            Some(last) if last.kind == kind => last.start = time,
            _ => self.stretches.push(Idle { start: time, end: self.until, kind }),
        }
        self.until = time;
    }
}
