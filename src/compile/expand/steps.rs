//! Lockstep: in each step a member sends and receives at once, and no step starts before the one before it is over on both sides, as in a
//! fused receive-reduce-send loop.

use std::ops::Range;

use super::Member;
use crate::base::{OpId, StreamId};

/// One member's steps so far.
pub(super) struct Steps<'a, 'program> {
    pub member: &'a mut Member<'program>,
    /// Streams of its sends and of its receives.
    streams: [StreamId; 2],
    /// The latest send and the latest receive.
    latest: [Option<OpId>; 2],
}

/// What is done with what arrives: [`Member::receive`] or [`Member::receive_reduce`].
pub(super) type Receive<'program> = fn(&mut Member<'program>, StreamId, usize, Range<usize>) -> OpId;

impl<'a, 'program> Steps<'a, 'program> {
    pub(super) fn new(member: &'a mut Member<'program>) -> Self {
        let streams = if member.ranks.len() == 1 { [StreamId(0); 2] } else { [member.stream(".out"), member.stream(".in")] };
        Self { member, streams, latest: [None; 2] }
    }

    /// Sends chunks to one member, and receives others from one.
    pub(super) fn both(
        &mut self,
        (to, outgoing): (usize, Range<usize>),
        (from, incoming): (usize, Range<usize>),
        receive: Receive<'program>,
    ) {
        let [out, into] = self.streams;
        let send = self.member.send(out, to, outgoing);
        let receive = receive(self.member, into, from, incoming);
        let [last_send, last_receive] = self.latest;
        self.follow(send, last_receive);
        self.follow(receive, last_send);
        self.latest = [Some(send), Some(receive)];
    }

    /// Sends chunks, and receives nothing meanwhile.
    pub(super) fn send(&mut self, to: usize, outgoing: Range<usize>) {
        let send = self.member.send(self.streams[0], to, outgoing);
        self.follow(send, self.latest[1]);
        self.latest[0] = Some(send);
    }

    /// Receives chunks, and sends nothing meanwhile.
    pub(super) fn receive(&mut self, from: usize, incoming: Range<usize>, receive: Receive<'program>) {
        let receive = receive(self.member, self.streams[1], from, incoming);
        self.follow(receive, self.latest[0]);
        self.latest[1] = Some(receive);
    }

    fn follow(&mut self, op: OpId, on: Option<OpId>) {
        if let Some(on) = on {
            self.member.program.wait(op, on);
        }
    }
}
