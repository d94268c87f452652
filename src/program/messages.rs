//! Which ends of messages meet: the k-th send of a channel and its k-th receive.
//!
//! That is what real communicators do, so a send that is left out shifts all later ones.

use super::op::OpKind;
use super::tables::Program;
use crate::base::{ChannelId, OpId};

/// The sends and receives of every channel, in issue order.
#[derive(Debug)]
pub struct Messages {
    sends: Queues,
    receives: Queues,
}

/// One queue of ops for each channel: queue i is `ops[ends[i - 1]..ends[i]]`.
#[derive(Debug)]
struct Queues {
    ends: Vec<u32>,
    ops: Vec<OpId>,
}

impl Messages {
    /// Collects them.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        let mut sends = Queues { ends: vec![0; program.channels.len()], ops: Vec::new() };
        let mut receives = Queues { ends: sends.ends.clone(), ops: Vec::new() };
        let all = || program.order.iter().flat_map(|order| order.iter().copied());
        for op in all() {
            match program.kind(op) {
                OpKind::Send(channel) => sends.ends[channel.index()] += 1,
                OpKind::Recv(channel) | OpKind::RecvReduce(channel) => receives.ends[channel.index()] += 1,
                OpKind::Run(_) | OpKind::Collective(_) | OpKind::Skipped(_) => {}
            }
        }
        sends.make_room();
        receives.make_room();
        for op in all() {
            match program.kind(op) {
                OpKind::Send(channel) => sends.push(channel, op),
                OpKind::Recv(channel) | OpKind::RecvReduce(channel) => receives.push(channel, op),
                OpKind::Run(_) | OpKind::Collective(_) | OpKind::Skipped(_) => {}
            }
        }
        Self { sends, receives }
    }

    /// The sends of `channel`.
    #[must_use]
    pub fn sends(&self, channel: ChannelId) -> &[OpId] {
        self.sends.get(channel)
    }

    /// The receives of `channel`.
    #[must_use]
    pub fn receives(&self, channel: ChannelId) -> &[OpId] {
        self.receives.get(channel)
    }
}

impl Queues {
    /// Turns the number of each queue's ops into the place where it starts; pushes move that on to where it ends.
    fn make_room(&mut self) {
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.ops = vec![OpId(0); start as usize];
    }

    fn push(&mut self, channel: ChannelId, op: OpId) {
        let end = &mut self.ends[channel.index()];
        self.ops[*end as usize] = op;
        *end += 1;
    }

    fn get(&self, channel: ChannelId) -> &[OpId] {
        let start = channel.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ops[start as usize..self.ends[channel.index()] as usize]
    }
}
