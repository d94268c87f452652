//! Links: for every op of a program its neighbours on its stream and its partners on other ranks, found once per program.
//!
//! Messages meet by order: the k-th send of a channel and its k-th receive. That is what real communicators do, so a send that a trouble
//! rule takes out shifts all later ones.

use super::op::OpKind;
use super::tables::Program;
use crate::base::{CollectiveId, OpId};

/// The neighbours and partners of every op.
#[derive(Clone, Debug)]
pub struct Links {
    before: Vec<Option<Id>>,
    behind: Vec<Option<Id>>,
    peer: Vec<Option<Id>>,
    /// Per collective, the ops of the members that issue one.
    members: Vec<Vec<OpId>>,
    /// The first op of every rank and stream.
    pub heads: Vec<OpId>,
}

/// An op id that leaves room for "none" in four bytes.
#[derive(Clone, Copy, Debug)]
struct Id(std::num::NonZeroU32);

impl Id {
    fn new(op: OpId) -> Self {
        Self(std::num::NonZeroU32::MIN.saturating_add(op.0))
    }

    fn op(self) -> OpId {
        OpId(self.0.get() - 1)
    }
}

impl Links {
    /// Finds them.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let ops = program.ops();
        let mut links = Self {
            before: vec![None; ops],
            behind: vec![None; ops],
            peer: vec![None; ops],
            members: vec![Vec::new(); program.collectives.len()],
            heads: Vec::new(),
        };
        links.streams(program);
        links.partners(program);
        links
    }

    /// The op before `op` on its stream.
    #[must_use]
    pub fn before(&self, op: OpId) -> Option<OpId> {
        self.before[op.index()].map(Id::op)
    }

    /// The op behind `op` on its stream.
    #[must_use]
    pub fn behind(&self, op: OpId) -> Option<OpId> {
        self.behind[op.index()].map(Id::op)
    }

    /// The other end of a message.
    #[must_use]
    pub fn peer(&self, op: OpId) -> Option<OpId> {
        self.peer[op.index()].map(Id::op)
    }

    /// The ops of a collective, in the order of their ranks.
    #[must_use]
    pub fn members(&self, collective: CollectiveId) -> &[OpId] {
        &self.members[collective.index()]
    }

    fn streams(&mut self, program: &Program) {
        let mut last: Vec<Option<OpId>> = vec![None; program.streams.len()];
        for order in &program.order {
            last.fill(None);
            for &op in order {
                let last = &mut last[program.stream_of(op).index()];
                match *last {
                    Some(before) => {
                        self.before[op.index()] = Some(Id::new(before));
                        self.behind[before.index()] = Some(Id::new(op));
                    }
                    None => self.heads.push(op),
                }
                *last = Some(op);
            }
        }
    }

    fn partners(&mut self, program: &Program) {
        let mut sends: Vec<Vec<OpId>> = vec![Vec::new(); program.channels.len()];
        let mut receives = sends.clone();
        for op in program.all() {
            match program.kind(op) {
                OpKind::Send(channel) => sends[channel.index()].push(op),
                OpKind::Recv(channel) | OpKind::RecvReduce(channel) => receives[channel.index()].push(op),
                OpKind::Collective(collective) => self.members[collective.index()].push(op),
                OpKind::Run(_) | OpKind::Skipped(_) => {}
            }
        }
        for (send, receive) in sends.iter().zip(&receives).flat_map(|(sends, receives)| sends.iter().zip(receives)) {
            self.peer[send.index()] = Some(Id::new(*receive));
            self.peer[receive.index()] = Some(Id::new(*send));
        }
    }
}
