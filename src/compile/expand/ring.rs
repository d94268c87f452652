//! Rings: N-1 steps to reduce and scatter, N-1 steps to gather, and an all-reduce is the one behind the other. In each step every member
//! sends 1/N of the payload to its right. Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms".

use super::Member;
use crate::base::{OpId, StreamId};

/// Every member ends with the sum of all chunks. It owns chunk r+1 in between, so that what it sends first is its own number.
pub(super) fn all_reduce(member: &mut Member) {
    let mut ring = Ring::new(member);
    ring.reduce_scatter(1);
    ring.all_gather(1);
}

/// Member r ends with the sum of chunk r.
pub(super) fn reduce_scatter(member: &mut Member) {
    Ring::new(member).reduce_scatter(0);
}

/// Member r starts with chunk r, and ends with all.
pub(super) fn all_gather(member: &mut Member) {
    Ring::new(member).all_gather(0);
}

/// One member's place in the ring; chunks are as many as members.
struct Ring<'a, 'program> {
    member: &'a mut Member<'program>,
    n: usize,
    /// Streams of its sends and of its receives.
    streams: [StreamId; 2],
    /// The send and the receive of the step before.
    previous: Option<(OpId, OpId)>,
}

impl<'a, 'program> Ring<'a, 'program> {
    fn new(member: &'a mut Member<'program>) -> Self {
        let n = member.ranks.len();
        let streams = if n == 1 { [StreamId(0); 2] } else { [member.stream(".out"), member.stream(".in")] };
        Self { member, n, streams, previous: None }
    }

    /// In step k the member passes on the chunk that it added to in step k-1; the chunk that it adds to last is r + `ahead`.
    fn reduce_scatter(&mut self, ahead: usize) {
        for step in 0..self.n - 1 {
            self.step(self.chunk(ahead, step + 1), Member::receive_reduce);
        }
    }

    /// In step k the member passes on the chunk that came in step k-1; it begins with r + `ahead`.
    fn all_gather(&mut self, ahead: usize) {
        for step in 0..self.n - 1 {
            self.step(self.chunk(ahead, step), Member::receive);
        }
    }

    /// The chunk `back` places behind r + `ahead`.
    fn chunk(&self, ahead: usize, back: usize) -> usize {
        (self.member.place + ahead + self.n - back) % self.n
    }

    /// Sends `outgoing` to the right, and receives the chunk before it from the left.
    fn step(&mut self, outgoing: usize, receive: fn(&mut Member<'program>, StreamId, usize, usize) -> OpId) {
        let (n, r, member) = (self.n, self.member.place, &mut *self.member);
        let [out, into] = self.streams;
        let send = member.send(out, (r + 1) % n, outgoing);
        let receive = receive(member, into, (r + n - 1) % n, (outgoing + n - 1) % n);
        // One step after the other, as a fused receive-reduce-send loop does.
        if let Some((last_send, last_receive)) = self.previous {
            member.program.wait(send, last_receive);
            member.program.wait(receive, last_send);
        }
        self.previous = Some((send, receive));
    }
}
