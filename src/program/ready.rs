//! Readiness: the one rule that says why an op cannot start.
//!
//! The engine asks it before it starts an op and for the edges of a deadlock's graph; the debugger asks it of a recorded run, at any event.

use super::links::Links;
use super::op::OpKind;
use super::tables::{Channel, Program};
use super::wait::Wait;
use crate::base::{CollectiveId, OpId};

/// How far an op is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its own rank owes it something: an earlier op of its stream, or one that it waits for.
    #[default]
    Waiting,
    /// Its own rank owes it nothing: if anything is missing, it is a peer.
    Posted,
    /// Started.
    Running,
    /// Ended. A buffered message may still be on its way.
    Done,
    /// A buffered message has arrived.
    Delivered,
}

/// Where a run stands: a world that runs, or a recorded run at an event.
pub trait Standing {
    /// How far `op` is.
    fn state_of(&self, op: OpId) -> State;

    /// Whether `op` has ended.
    fn has_ended(&self, op: OpId) -> bool {
        self.state_of(op) >= State::Done
    }

    /// How many members of `collective` are posted, where that is counted.
    fn arrived(&self, _collective: CollectiveId) -> Option<usize> {
        None
    }
}

/// Why `op`, which has not started, cannot start now; `None` if it can.
#[inline]
pub fn blocked(program: &Program, links: &Links, at: &impl Standing, op: OpId) -> Option<Wait> {
    owed(program, links, at, op).or_else(|| missing(program, links, at, op))
}

/// What its own rank owes `op`: the op before it on its stream, then the ops that it waits for.
#[inline]
pub fn owed(program: &Program, links: &Links, at: &impl Standing, op: OpId) -> Option<Wait> {
    if let Some(before) = links.before(op).filter(|&before| !at.has_ended(before)) {
        return Some(Wait::Stream(before));
    }
    program.waits(op).find(|&event| !at.has_ended(event)).map(Wait::Event)
}

/// Which peer `op` misses.
#[inline]
fn missing(program: &Program, links: &Links, at: &impl Standing, op: OpId) -> Option<Wait> {
    match program.kind(op) {
        OpKind::Run(_) | OpKind::Skipped(_) => None,
        OpKind::Send(channel) => {
            let Channel { to, buffered, .. } = program.channels[channel.index()];
            match links.peer(op) {
                _ if buffered => None,
                Some(peer) => (at.state_of(peer) != State::Posted).then_some(Wait::Peer(peer)),
                None => Some(Wait::NoPeer(to)),
            }
        }
        OpKind::Recv(channel) | OpKind::RecvReduce(channel) => {
            let Channel { from, buffered, .. } = program.channels[channel.index()];
            let Some(peer) = links.peer(op) else { return Some(Wait::NoPeer(from)) };
            match at.state_of(peer) {
                State::Delivered => None,
                State::Posted if !buffered => None,
                State::Done => Some(Wait::Message(peer)),
                _ => Some(Wait::Peer(peer)),
            }
        }
        OpKind::Collective(collective) => absent(program, links, at, op, collective),
    }
}

/// Which member of its collective `op` misses: one that is not there yet, or one that never comes.
fn absent(program: &Program, links: &Links, at: &impl Standing, op: OpId, collective: CollectiveId) -> Option<Wait> {
    let ranks = &program.group_of(collective).ranks;
    if let Some(arrived) = at.arrived(collective) {
        let others = arrived - usize::from(at.state_of(op) == State::Posted);
        if others + 1 == ranks.len() {
            return None;
        }
    }
    let members = links.members(collective);
    let late = members.iter().find(|&&member| member != op && at.state_of(member) < State::Posted);
    let never = || ranks.iter().copied().find(|&rank| members.iter().all(|&member| program.rank_of(member) != rank));
    late.map(|&member| Wait::Member(member)).or_else(|| never().map(Wait::NoMember))
}
