//! A run as observers see it: the program, what happened, and what made each op start when it did.

use std::borrow::Cow;
use std::sync::Arc;

use crate::base::{Bytes, OpId, Rank, Ticks};
use crate::program::links::Links;
use crate::program::tables::COMPUTE;
use crate::program::trace::Times;
use crate::program::{OpKind, Program, Trace, Wait};

/// A program with its trace. Everything in this room is computed from it.
pub struct Run<'a> {
    /// What the ranks were to do.
    pub program: &'a Program,
    /// What happened.
    pub trace: &'a Trace,
    /// The ops' neighbours and partners.
    pub links: Cow<'a, Links>,
    /// The end of each training step, as far as it ran.
    pub step_ends: Cow<'a, [Ticks]>,
}

/// A run that owns what it is made of, for whoever keeps it.
#[derive(Clone, Debug)]
pub struct Record {
    /// What the ranks were to do.
    pub program: Arc<Program>,
    /// What happened.
    pub trace: Arc<Trace>,
    links: Links,
    step_ends: Vec<Ticks>,
}

impl Record {
    /// Pairs `program` with the trace of one of its runs. Linear in the ops.
    #[must_use]
    pub fn new(program: Arc<Program>, trace: Arc<Trace>) -> Self {
        let (links, step_ends) = (Links::new(&program), step_ends(&program, &trace));
        Self { program, trace, links, step_ends }
    }

    /// The run, at no cost.
    #[must_use]
    pub fn run(&self) -> Run<'_> {
        let (links, step_ends) = (Cow::Borrowed(&self.links), Cow::Borrowed(self.step_ends.as_slice()));
        Run { program: &self.program, trace: &self.trace, links, step_ends }
    }
}

impl<'a> Run<'a> {
    /// Pairs `program` with the trace of one of its runs. Linear in the ops.
    #[must_use]
    pub fn new(program: &'a Program, trace: &'a Trace) -> Self {
        Self { program, trace, links: Cow::Owned(Links::new(program)), step_ends: Cow::Owned(step_ends(program, trace)) }
    }

    /// The ops that the event which starts `op` starts with it: `op`, the other end of a message, the other members of a collective.
    fn started_by(&self, op: OpId) -> impl Iterator<Item = OpId> + '_ {
        let members: &[OpId] = match self.program.kind(op) {
            OpKind::Collective(collective) => self.links.members(collective),
            _ => &[],
        };
        let together = |peer: &OpId| self.trace.event_of(*peer) == self.trace.event_of(op);
        let peer = self.links.peer(op).filter(together);
        std::iter::once(op).chain(peer).chain(members.iter().copied().filter(move |&member| member != op))
    }

    /// What `rank` does in the event that starts `op`; `None` if it takes no part.
    #[must_use]
    pub fn part_of(&self, rank: Rank, op: OpId) -> Option<OpId> {
        self.started_by(op).find(|&op| self.program.rank_of(op) == rank)
    }

    /// The end of the first step: the makespan.
    #[must_use]
    pub fn makespan(&self) -> Ticks {
        self.step_ends.first().copied().unwrap_or_default()
    }

    /// The end of the last step minus the end of the one before; `None` unless at least two steps ran to their ends.
    #[must_use]
    pub fn step_period(&self) -> Option<Ticks> {
        let complete = self.trace.outcome == crate::program::trace::Outcome::Completed;
        match &*self.step_ends {
            [.., before, last] if complete => Some(*last - *before),
            _ => None,
        }
    }

    /// When `op` ran; `None` if it never started.
    #[must_use]
    pub fn times(&self, op: OpId) -> Option<Times> {
        self.trace.times(op)
    }

    /// Whether `op` belongs to training step `step`.
    #[must_use]
    pub fn of_step(&self, op: OpId, step: u32) -> bool {
        self.program.op(op).origin.step == step
    }

    /// Whether `op` computes on the compute stream: what counts as busy.
    #[must_use]
    pub fn computes(&self, op: OpId) -> bool {
        matches!(self.program.kind(op), OpKind::Run(_)) && self.program.stream_of(op) == COMPUTE
    }

    /// Whether `op` waits for others and moves data: a message's end or a collective.
    #[must_use]
    pub fn communicates(&self, op: OpId) -> bool {
        let kind = self.program.kind(op);
        matches!(kind, OpKind::Collective(_)) || kind.channel().is_some()
    }

    /// The first op that takes time and that `rank` has not started in step `step`: there is one if the run stopped before.
    #[must_use]
    pub fn next_compute(&self, rank: Rank, step: u32) -> Option<OpId> {
        let is_open = |op: &OpId| self.of_step(*op, step) && self.computes(*op) && self.times(*op).is_none();
        self.program.order[rank.index()].iter().copied().find(is_open)
    }

    /// What a message carries; nothing for other ops.
    #[must_use]
    pub fn message_bytes(&self, op: OpId) -> Bytes {
        self.program.carried(op).iter().map(|&buffer| self.program.bytes(buffer)).sum()
    }

    /// What held `op` up last before it started, with the op that ended it; for an op that never started, what it still waits for.
    /// `None` if it never waited.
    #[must_use]
    pub fn cause(&self, op: OpId) -> Option<Wait> {
        let Some(times) = self.times(op) else { return self.pending(op) };
        if times.start > times.posted { self.remote_cause(op) } else { self.local_cause(op) }
    }

    /// The op of its own rank that `op` waited for last: before it on its stream, or on another one.
    #[must_use]
    pub fn local_cause(&self, op: OpId) -> Option<Wait> {
        let ended = |on: OpId| self.times(on).map(|times| times.end);
        let before = self.links.before(op).map(Wait::Stream);
        let events = self.program.waits(op).map(Wait::Event);
        let done = before.into_iter().chain(events).filter_map(|wait| Some((ended(wait.on()?)?, wait)));
        // Of two that end together the first counts: the stream's order.
        done.reduce(|latest, next| if next.0 > latest.0 { next } else { latest }).map(|(_, wait)| wait)
    }

    /// The op of another rank that a posted `op` waited for: its peer, its message, or the last member of its collective.
    #[must_use]
    pub fn remote_cause(&self, op: OpId) -> Option<Wait> {
        match self.program.kind(op) {
            OpKind::Collective(collective) => {
                let posted = |member: &OpId| self.times(*member).map(|times| times.posted);
                let others = self.links.members(collective).iter().filter(|&&member| member != op);
                others.max_by_key(|member| posted(member)).map(|&member| Wait::Member(member))
            }
            kind => {
                let buffered = self.program.channels[kind.channel()?.index()].buffered;
                self.links.peer(op).map(|peer| if buffered { Wait::Message(peer) } else { Wait::Peer(peer) })
            }
        }
    }

    /// What an op that never started waits for.
    fn pending(&self, op: OpId) -> Option<Wait> {
        let before = self.links.before(op).filter(|&before| self.times(before).is_none());
        before.map(Wait::Stream).or_else(|| self.trace.last_wait(op))
    }
}

fn step_ends(program: &Program, trace: &Trace) -> Vec<Ticks> {
    let mut ends = Vec::new();
    for op in program.all() {
        let Some(times) = trace.times(op) else { continue };
        let step = program.op(op).origin.step as usize;
        if ends.len() <= step {
            ends.resize(step + 1, Ticks::ZERO);
        }
        ends[step] = times.end.max(ends[step]);
    }
    ends
}
