//! Links: for every op of a program its neighbours on its stream and its partners on other ranks, found once per program.

use super::partners::Partners;
use super::tables::Program;
use crate::base::prefetch::prefetch;
use crate::base::{ChannelId, CollectiveId, OpId};

/// The neighbours and partners of every op.
#[derive(Clone, Debug)]
pub struct Links {
    of: Vec<Neighbours>,
    /// Per collective, the ops of the members that issue one.
    members: Vec<Vec<OpId>>,
    /// The first op of every rank and stream.
    pub heads: Vec<OpId>,
}

/// The neighbours and the partner of one op: side by side, because whoever asks for one soon asks for another.
#[derive(Clone, Copy, Debug, Default)]
struct Neighbours {
    before: Option<SomeOp>,
    behind: Option<SomeOp>,
    peer: Option<SomeOp>,
}

/// An op id that leaves room for "none" in four bytes.
#[derive(Clone, Copy, Debug)]
pub struct SomeOp(std::num::NonZeroU32);

impl From<OpId> for SomeOp {
    fn from(op: OpId) -> Self {
        Self(std::num::NonZeroU32::MIN.saturating_add(op.0))
    }
}

impl From<SomeOp> for OpId {
    fn from(op: SomeOp) -> Self {
        Self(op.0.get() - 1)
    }
}

impl Links {
    /// Finds them.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let mut links = Self { of: vec![Neighbours::default(); program.ops()], members: Vec::new(), heads: Vec::new() };
        links.streams(program);
        links.partners(program);
        links
    }

    /// The op before `op` on its stream.
    #[must_use]
    pub fn before(&self, op: OpId) -> Option<OpId> {
        self.of[op.index()].before.map(OpId::from)
    }

    /// The op behind `op` on its stream.
    #[must_use]
    pub fn behind(&self, op: OpId) -> Option<OpId> {
        self.of[op.index()].behind.map(OpId::from)
    }

    /// Gets the neighbours of `op` closer, if they will soon be asked for.
    #[inline]
    pub fn prefetch(&self, op: OpId) {
        prefetch(self.of.get(op.index()));
    }

    /// The other end of a message.
    #[must_use]
    pub fn peer(&self, op: OpId) -> Option<OpId> {
        self.of[op.index()].peer.map(OpId::from)
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
                        self.of[op.index()].before = Some(before.into());
                        self.of[before.index()].behind = Some(op.into());
                    }
                    None => self.heads.push(op),
                }
                *last = Some(op);
            }
        }
    }

    fn partners(&mut self, program: &Program) {
        let partners = Partners::of(program);
        for channel in (0..program.channels.len()).map(ChannelId::new) {
            for (&send, &receive) in partners.sends(channel).iter().zip(partners.receives(channel)) {
                self.of[send.index()].peer = Some(receive.into());
                self.of[receive.index()].peer = Some(send.into());
            }
        }
        self.members = partners.members;
    }
}
