//! Replay: the starts and ends of all ops in the order in which the driver had them, from the trace alone.
//!
//! A trace lists starts. At one time an end may come before or behind a start of another stream, and a memory peak depends on which. The
//! driver takes ends by (time, rank, op), and only as many as the next event needs; so does this.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::run::Run;
use crate::base::{OpId, Ticks};
use crate::program::OpKind;
use crate::program::trace::Outcome;

/// A start or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub time: Ticks,
    /// The event, from 1, with which it happens: a run stepped to that event has seen it.
    pub event: u32,
    /// Which op.
    pub op: OpId,
    /// Whether it starts; otherwise it ends.
    pub starts: bool,
}

/// Calls `visit` at every start and end of the run, in order.
pub fn replay(run: &Run, mut visit: impl FnMut(Moment)) {
    let mut replay = Replay {
        run,
        event: 0,
        ended: vec![false; run.program.ops()],
        arrived: vec![false; run.program.ops()],
        members: Vec::new(),
        pending: BinaryHeap::new(),
    };
    for event in &run.trace.events {
        // What ends so that this event can happen belongs to it, as in a run that is stepped.
        replay.event += 1;
        replay.end_until(event.op, event.time, &mut visit);
        replay.start(event.op, event.time, &mut visit);
    }
    // A run that stopped for want of memory stands still in its last event.
    if !matches!(run.trace.outcome, Outcome::OutOfMemory { .. }) {
        while replay.end_next(&mut visit) {}
    }
}

/// The same for whoever follows memory: nothing is visited where none comes or goes, as in a bare collective, in which every rank holds its
/// array from the start to the end.
pub fn replay_memory(run: &Run, visit: impl FnMut(Moment)) {
    let program = run.program;
    if program.lasting() < program.buffers.len() || program.all().any(|op| program.frees(op).next().is_some()) {
        replay(run, visit);
    }
}

struct Replay<'run, 'a> {
    run: &'run Run<'a>,
    event: u32,
    ended: Vec<bool>,
    /// Buffered messages that are there.
    arrived: Vec<bool>,
    /// What ends now; kept, so that no end allocates.
    members: Vec<OpId>,
    /// What ends later, by (time, rank, op); both ends of a message as its send, a collective as the member that completed it.
    pending: BinaryHeap<Reverse<(Ticks, u32, OpId)>>,
}

impl Replay<'_, '_> {
    /// Ends what lies before `time`, and of what ends then as much as `op` waits for.
    fn end_until(&mut self, op: OpId, time: Ticks, visit: &mut impl FnMut(Moment)) {
        while let Some(&Reverse((next, ..))) = self.pending.peek() {
            if next > time || next == time && self.is_ready(op) {
                break;
            }
            self.end_next(visit);
        }
    }

    /// Whether all that the event of `op` waits for has ended. A message's event comes when its later end is ready.
    fn is_ready(&self, op: OpId) -> bool {
        let run = self.run;
        let before = run.links.before(op).is_none_or(|before| self.ended[before.index()]);
        let kind = run.program.kind(op);
        let message = match run.links.peer(op) {
            Some(send) if kind.receives() && self.is_buffered(op) => self.arrived[send.index()],
            _ => true,
        };
        before && message && run.program.waits(op).all(|on| self.ended[on.index()])
    }

    fn is_buffered(&self, op: OpId) -> bool {
        let channel = self.run.program.kind(op).channel();
        channel.is_some_and(|channel| self.run.program.channels[channel.index()].buffered)
    }

    /// Starts what the event of `op` starts; what takes no time ends at once.
    fn start(&mut self, op: OpId, time: Ticks, visit: &mut impl FnMut(Moment)) {
        let event = self.event;
        self.each(op, |member| visit(Moment { time, event, op: member, starts: true }));
        let key = self.key(op);
        let Some(times) = self.run.times(key) else { return };
        let rank = self.run.program.rank_of(key).0;
        if times.end > times.start {
            self.pending.push(Reverse((times.end, rank, key)));
            return;
        }
        self.end(key, time, visit);
        if matches!(self.run.program.kind(key), OpKind::Send(_)) && self.is_buffered(key) {
            // When a message is there shows only if its receive waits for it; otherwise it is there in time.
            let receive = self.run.links.peer(key).and_then(|receive| self.run.times(receive));
            let arrives = receive.filter(|receive| receive.start > receive.posted).map_or(time, |receive| receive.start);
            self.pending.push(Reverse((arrives.max(time), rank, key)));
        }
    }

    fn end_next(&mut self, visit: &mut impl FnMut(Moment)) -> bool {
        let Some(Reverse((time, _, key))) = self.pending.pop() else { return false };
        self.end(key, time, visit);
        true
    }

    fn end(&mut self, key: OpId, time: Ticks, visit: &mut impl FnMut(Moment)) {
        if self.ended[key.index()] {
            self.arrived[key.index()] = true;
            return;
        }
        let event = self.event;
        let mut members = std::mem::take(&mut self.members);
        self.each(key, |member| members.push(member));
        for op in members.drain(..) {
            self.ended[op.index()] = true;
            visit(Moment { time, event, op, starts: false });
        }
        self.members = members;
    }

    /// The op that stands for all that start and end with `op` among the pending.
    fn key(&self, op: OpId) -> OpId {
        let receives = self.run.program.kind(op).receives() && !self.is_buffered(op);
        self.run.links.peer(op).filter(|_| receives).unwrap_or(op)
    }

    /// All ops that start and end with `op`: itself, both ends of its message, all members of its collective.
    fn each(&self, op: OpId, mut visit: impl FnMut(OpId)) {
        let links = &self.run.links;
        if let OpKind::Collective(collective) = self.run.program.kind(op) {
            links.members(collective).iter().copied().for_each(visit);
        } else {
            visit(op);
            links.peer(op).filter(|_| !self.is_buffered(op)).into_iter().for_each(visit);
        }
    }
}
