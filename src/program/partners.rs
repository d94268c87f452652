//! Who meets whom: the k-th send of a channel its k-th receive, the members of a collective each other.
//!
//! That messages meet by order is what real communicators do, so a send that is left out shifts all later ones.

use super::op::OpKind;
use super::tables::Program;
use crate::base::{ChannelId, CollectiveId, OpId};

/// The ends of every channel's messages and the members of every collective, rank by rank in issue order.
#[derive(Debug)]
pub struct Partners {
    sends: Vec<Vec<OpId>>,
    receives: Vec<Vec<OpId>>,
    pub(super) members: Vec<Vec<OpId>>,
}

impl Partners {
    /// Collects them.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        let ends = vec![Vec::new(); program.channels.len()];
        let mut partners = Self { sends: ends.clone(), receives: ends, members: vec![Vec::new(); program.collectives.len()] };
        // A loop in a loop: a flattened iterator is slow for programs of millions of ops.
        program.order.iter().for_each(|order| order.iter().for_each(|&op| partners.join(program, op)));
        partners
    }

    fn join(&mut self, program: &Program, op: OpId) {
        match program.kind(op) {
            OpKind::Send(channel) => self.sends[channel.index()].push(op),
            OpKind::Recv(channel) | OpKind::RecvReduce(channel) => self.receives[channel.index()].push(op),
            OpKind::Collective(collective) => self.members[collective.index()].push(op),
            OpKind::Run(_) | OpKind::Skipped(_) => {}
        }
    }

    /// The sends of `channel`.
    #[must_use]
    pub fn sends(&self, channel: ChannelId) -> &[OpId] {
        &self.sends[channel.index()]
    }

    /// The receives of `channel`.
    #[must_use]
    pub fn receives(&self, channel: ChannelId) -> &[OpId] {
        &self.receives[channel.index()]
    }

    /// The ops of a collective.
    #[must_use]
    pub fn members(&self, collective: CollectiveId) -> &[OpId] {
        &self.members[collective.index()]
    }
}
