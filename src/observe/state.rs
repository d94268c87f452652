//! State: how far every op, stream and rank is when a run stands at an event. All of it follows from the trace.

use std::collections::BTreeSet;

use super::replay::replay;
use super::run::Run;
use super::why::Chain;
use crate::base::{OpId, Rank, Ticks};
use crate::program::ready::{self, Standing};
use crate::program::tables::COMPUTE;
use crate::program::trace::{WaitEdge, WaitGraph};
use crate::program::{OpKind, Wait};

pub use crate::program::ready::State;

/// Where a rank stands: the op that its computation needs next, or waits for in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// The op.
    pub op: OpId,
    /// What it does.
    pub doing: Doing,
}

/// What a rank does where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The op computes.
    Computing,
    /// Computation waits, or there is none left, while a message, collective or copy of the rank moves.
    Moving,
    /// The op starts at this very time, with a later event.
    Ready,
    /// The op waits for another rank.
    Blocked(Wait),
}

/// A message that has left and is not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Its send.
    pub send: OpId,
    /// Its receive; `None` if nobody ever takes it.
    pub receive: Option<OpId>,
}

/// What [`At`] needs of a run; made once.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Per op, the event with which its end is seen; [`NEVER`] if it never ends.
    ended: Vec<u32>,
    /// Per op, its place in its rank's list.
    place: Vec<u32>,
    /// Per rank, the ops of each stream.
    streams: Vec<Vec<Vec<OpId>>>,
    /// Per buffered channel, its sends.
    buffered: Vec<Vec<OpId>>,
    end: Ticks,
}

const NEVER: u32 = u32::MAX;

/// A run that stands behind a number of events.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// The run.
    pub run: &'a Run<'a>,
    /// How many events have happened. Behind the last one, everything that still ran has ended.
    pub event: usize,
    progress: &'a Progress,
}

impl Progress {
    /// Follows the run once. Linear in its ops.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        let mut ended = vec![NEVER; run.program.ops()];
        replay(run, |moment| {
            if !moment.starts {
                ended[moment.op.index()] = moment.event;
            }
        });
        let mut place = vec![0; run.program.ops()];
        for order in &run.program.order {
            (0..).zip(order).for_each(|(number, op)| place[op.index()] = number);
        }
        let streams = run.program.order.iter().map(|order| streams(run, order)).collect();
        Self { ended, place, streams, buffered: buffered(run), end: run.trace.end() }
    }

    /// The run behind `event` events, or at its end if there are fewer.
    #[must_use]
    pub fn at<'a>(&'a self, run: &'a Run<'a>, event: usize) -> At<'a> {
        At { run, event: event.min(run.trace.events.len()), progress: self }
    }
}

impl At<'_> {
    /// Now: the time of the last event; at the end, that of the last end.
    #[must_use]
    pub fn time(&self) -> Ticks {
        let events = &self.run.trace.events;
        if self.event == events.len() {
            return self.progress.end;
        }
        self.event.checked_sub(1).map_or(Ticks::ZERO, |last| events[last].time)
    }

    /// The place of `op` in its rank's list.
    #[must_use]
    pub fn place(&self, op: OpId) -> usize {
        self.progress.place[op.index()] as usize
    }

    /// How far `op` is.
    #[must_use]
    pub fn state(&self, op: OpId) -> State {
        if self.is_done(op) {
            State::Done
        } else if self.has_started(op) {
            State::Running
        } else if self.owed(op).is_none() {
            State::Posted
        } else {
            State::Waiting
        }
    }

    /// Why `op` cannot start now; `None` if it can, runs or is done.
    #[must_use]
    pub fn wait(&self, op: OpId) -> Option<Wait> {
        if self.has_started(op) {
            return None;
        }
        ready::blocked(self.run.program, &self.run.links, self, op)
    }

    /// From when on `op` waits for no op of its own rank: the latest end of those that it waits for.
    #[must_use]
    pub fn posted(&self, op: OpId) -> Ticks {
        let local = self.run.links.before(op).into_iter().chain(self.run.program.waits(op));
        local.filter_map(|on| self.run.times(on)).map(|times| times.end).max().unwrap_or_default()
    }

    /// The first op that is not done of every stream of `rank`, in issue order.
    #[must_use]
    pub fn heads(&self, rank: Rank) -> Vec<OpId> {
        let open = |ops: &Vec<OpId>| ops.get(ops.partition_point(|&op| self.is_done(op))).copied();
        let mut heads: Vec<OpId> = self.progress.streams[rank.index()].iter().filter_map(open).collect();
        heads.sort_by_key(|&op| self.place(op));
        heads
    }

    /// Where `rank` stands; `None` if it has nothing left to do.
    #[must_use]
    pub fn stand(&self, rank: Rank) -> Option<Stand> {
        let heads = self.heads(rank);
        let is_compute = |op: &&OpId| self.run.program.stream_of(**op) == COMPUTE;
        let computing = heads.iter().find(is_compute);
        let moving = || heads.iter().find(|op| self.state(**op) == State::Running);
        let op = self.held_up_by(*computing.or_else(moving).or(heads.first())?);
        let doing = match self.wait(op) {
            Some(wait) => Doing::Blocked(wait),
            None if !self.has_started(op) => Doing::Ready,
            None if self.run.computes(op) => Doing::Computing,
            None => Doing::Moving,
        };
        Some(Stand { op, doing })
    }

    /// What `op` waits for, what that waits for, and so on.
    #[must_use]
    pub fn chain(&self, op: OpId) -> Chain {
        Chain::follow(self.run, op, |op| self.wait(op), |root| self.state(root) == State::Running)
    }

    /// Who waits for whom: an edge for each head that waits for another rank, and the circles among them.
    #[must_use]
    pub fn wait_graph(&self) -> WaitGraph {
        let heads: Vec<OpId> = (0..self.run.program.ranks()).flat_map(|rank| self.heads(Rank::new(rank))).collect();
        WaitGraph::new(self.run.program, &heads, |op| self.wait(op))
    }

    /// The edge behind an edge: what holds up the op that it waits for; `None` if nothing of another rank does.
    #[must_use]
    pub fn next_edge(&self, edge: &WaitEdge) -> Option<WaitEdge> {
        self.edge(self.held_up_by(edge.on_op?))
    }

    /// The op of the same rank that holds `op` up in the end: `op` itself, or what it waits for on its own rank. In a circle within the
    /// rank, some op of the circle.
    fn held_up_by(&self, mut op: OpId) -> OpId {
        let mut passed = BTreeSet::new();
        while let Some(Wait::Stream(on) | Wait::Event(on)) = self.wait(op) {
            if !passed.insert(op) {
                break;
            }
            op = on;
        }
        op
    }

    /// The edge of an op that waits for another rank, and for nothing of its own.
    #[must_use]
    pub fn edge(&self, op: OpId) -> Option<WaitEdge> {
        let program = self.run.program;
        let why = self.wait(op)?;
        let (on_rank, on_op) = match why {
            Wait::Stream(_) | Wait::Event(_) => return None,
            Wait::Peer(other) | Wait::Message(other) | Wait::Member(other) => (program.rank_of(other), Some(other)),
            Wait::NoPeer(rank) | Wait::NoMember(rank) => (rank, None),
        };
        Some(WaitEdge { rank: program.rank_of(op), op, on_rank, on_op, why })
    }

    /// The messages that have left and are not taken yet, rank by rank; buffered ones last.
    #[must_use]
    pub fn in_flight(&self) -> Vec<Flight> {
        let heads = (0..self.run.program.ranks()).flat_map(|rank| self.heads(Rank::new(rank)));
        let is_send = |op: &OpId| matches!(self.run.program.kind(*op), OpKind::Send(_));
        let moving = heads.filter(|op| is_send(op) && self.has_started(*op));
        let waiting = self.progress.buffered.iter().flat_map(|sends| {
            let left = sends.partition_point(|&send| self.has_started(send));
            let taken = sends.partition_point(|&send| self.run.links.peer(send).is_some_and(|receive| self.is_done(receive)));
            sends[taken.min(left)..left].iter().copied()
        });
        moving.chain(waiting).map(|send| Flight { send, receive: self.run.links.peer(send) }).collect()
    }

    fn is_done(&self, op: OpId) -> bool {
        self.progress.ended[op.index()] as usize <= self.event
    }

    /// Whether `op` has begun.
    #[must_use]
    pub fn has_started(&self, op: OpId) -> bool {
        self.run.trace.event_of(op).is_some_and(|event| event <= self.event)
    }

    fn owed(&self, op: OpId) -> Option<Wait> {
        ready::owed(self.run.program, &self.run.links, self, op)
    }

    /// Whether the message of `send` is taken by now: a trace does not tell when a message arrives, but when its receive starts.
    fn is_taken(&self, send: OpId) -> bool {
        let receive = self.run.links.peer(send).and_then(|receive| self.run.times(receive));
        receive.is_some_and(|times| times.start <= self.time())
    }
}

impl Standing for At<'_> {
    fn state_of(&self, op: OpId) -> State {
        match self.state(op) {
            State::Done if self.is_taken(op) => State::Delivered,
            state => state,
        }
    }

    fn has_ended(&self, op: OpId) -> bool {
        self.is_done(op)
    }
}

fn streams(run: &Run, order: &[OpId]) -> Vec<Vec<OpId>> {
    let mut streams: Vec<Vec<OpId>> = vec![Vec::new(); run.program.streams.len()];
    order.iter().for_each(|&op| streams[run.program.stream_of(op).index()].push(op));
    streams.retain(|ops| !ops.is_empty());
    streams
}

fn buffered(run: &Run) -> Vec<Vec<OpId>> {
    let mut sends: Vec<Vec<OpId>> = vec![Vec::new(); run.program.channels.len()];
    for op in run.program.all() {
        if let OpKind::Send(channel) = run.program.kind(op)
            && run.program.channels[channel.index()].buffered
        {
            sends[channel.index()].push(op);
        }
    }
    sends.retain(|sends| !sends.is_empty());
    sends
}
