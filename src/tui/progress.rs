//! Progress: how far every op is at any event of a run, and what it waits for, from the trace alone.

use crate::base::{OpId, Rank};
use crate::observe::replay::replay;
use crate::observe::run::Run;
use crate::program::{OpKind, Wait};

/// When each op is posted, starts and ends, as numbers of events.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    lives: Vec<Life>,
}

/// One op's moments: the first position at which each is true; [`NEVER`] if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Its own rank owes it nothing: only peers are missing.
    pub posted: u32,
    /// It has started.
    pub started: u32,
    /// It has ended.
    pub ended: u32,
}

/// How far an op is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpState {
    /// It stands behind others of its own rank.
    Waiting,
    /// Its own rank owes it nothing: it starts, or peers are missing.
    Posted,
    /// It runs.
    Running,
    /// It has ended.
    Done,
}

/// It never happens.
pub const NEVER: u32 = u32::MAX;

impl Progress {
    /// Follows the run. Linear in the ops.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        let mut lives = vec![Life { posted: NEVER, started: NEVER, ended: NEVER }; run.program.ops()];
        replay(run, |moment| {
            let life = &mut lives[moment.op.index()];
            let event = u32::try_from(moment.event).expect("fewer than 2^32 events");
            *(if moment.starts { &mut life.started } else { &mut life.ended }) = event;
        });
        for op in run.program.all() {
            let before = run.links.before(op).into_iter().chain(run.program.waits(op));
            lives[op.index()].posted = before.map(|on| lives[on.index()].ended).max().unwrap_or(0);
        }
        Self { lives }
    }

    /// The moments of `op`.
    #[must_use]
    pub fn life(&self, op: OpId) -> Life {
        self.lives[op.index()]
    }

    /// How far `op` is when `event` events have happened.
    #[must_use]
    pub fn state(&self, op: OpId, event: usize) -> OpState {
        let life = self.life(op);
        let reached = |moment: u32| moment as usize <= event && moment != NEVER;
        match life {
            _ if reached(life.ended) => OpState::Done,
            _ if reached(life.started) => OpState::Running,
            _ if reached(life.posted) => OpState::Posted,
            _ => OpState::Waiting,
        }
    }

    /// The ops at which `rank` stands: for each of its streams the first that has not ended. In issue order.
    #[must_use]
    pub fn heads(&self, run: &Run, rank: Rank, event: usize) -> Vec<OpId> {
        let mut seen = vec![false; run.program.streams.len()];
        let open = run.program.order[rank.index()].iter().copied().filter(|&op| self.state(op, event) < OpState::Done);
        open.filter(|&op| !std::mem::replace(&mut seen[run.program.stream_of(op).index()], true)).collect()
    }

    /// Why `op` cannot start when `event` events have happened; `None` if it can, runs, or has ended.
    #[must_use]
    pub fn blocked(&self, run: &Run, op: OpId, event: usize) -> Option<Wait> {
        let state = |op: OpId| self.state(op, event);
        match state(op) {
            OpState::Running | OpState::Done => None,
            OpState::Waiting => {
                let before = run.links.before(op).filter(|&before| state(before) < OpState::Done);
                let owed = || run.program.waits(op).find(|&on| state(on) < OpState::Done);
                before.map(Wait::Stream).or_else(|| owed().map(Wait::Event))
            }
            OpState::Posted => self.missing(run, op, event),
        }
    }

    /// The peer that a posted `op` waits for.
    fn missing(&self, run: &Run, op: OpId, event: usize) -> Option<Wait> {
        let absent = |other: OpId| self.state(other, event) < OpState::Posted;
        let kind = run.program.kind(op);
        if let OpKind::Collective(collective) = kind {
            let members = run.links.members(collective);
            let late = members.iter().copied().find(|&member| member != op && absent(member));
            return late.map(Wait::Member).or_else(|| never(run, op).map(Wait::NoMember));
        }
        let channel = run.program.channels[kind.channel()?.index()];
        if channel.buffered && matches!(kind, OpKind::Send(_)) {
            return None;
        }
        let Some(peer) = run.links.peer(op) else {
            return Some(Wait::NoPeer(if kind.receives() { channel.from } else { channel.to }));
        };
        match (channel.buffered, self.state(peer, event)) {
            (true, OpState::Done) => Some(Wait::Message(peer)),
            (true, _) => Some(Wait::Peer(peer)),
            (false, state) => (state < OpState::Posted).then_some(Wait::Peer(peer)),
        }
    }
}

/// A member of the group of `op` that never issues its part.
fn never(run: &Run, op: OpId) -> Option<Rank> {
    let OpKind::Collective(collective) = run.program.kind(op) else { return None };
    let group = run.program.collectives[collective.index()].group;
    let issues = |rank: Rank| run.links.members(collective).iter().any(|&member| run.program.rank_of(member) == rank);
    run.program.groups[group.index()].ranks.iter().copied().find(|&rank| !issues(rank))
}
