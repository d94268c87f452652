//! Rings: N-1 steps to reduce and scatter, N-1 steps to gather, and an all-reduce is the one behind the other. In each step every member
//! sends 1/N of the payload to its right. Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms".

use super::Member;
use super::steps::{Receive, Steps};

/// Every member ends with the sum of all chunks. It owns chunk r+1 in between, so that what it sends first is its own number.
pub(super) fn all_reduce(member: &mut Member) {
    let mut ring = Ring::of_all(member);
    ring.reduce_scatter(1);
    ring.all_gather(1);
}

/// Member r ends with the sum of chunk r.
pub(super) fn reduce_scatter(member: &mut Member) {
    Ring::of_all(member).reduce_scatter(0);
}

/// Member r starts with chunk r, and ends with all.
pub(super) fn all_gather(member: &mut Member) {
    Ring::of_all(member).all_gather(0);
}

/// One member's place in a ring of members that stand `stride` places apart. Its pieces are as many as its members; each is `width`
/// chunks, the first begins at `start`.
pub(super) struct Ring<'a, 'program> {
    pub steps: Steps<'a, 'program>,
    pub n: usize,
    pub place: usize,
    /// The place in the group of the ring's first member.
    pub first: usize,
    pub stride: usize,
    pub start: usize,
    pub width: usize,
}

impl<'a, 'program> Ring<'a, 'program> {
    fn of_all(member: &'a mut Member<'program>) -> Self {
        let (n, place) = (member.ranks.len(), member.place);
        Self { steps: Steps::new(member), n, place, first: 0, stride: 1, start: 0, width: 1 }
    }

    /// In step k the member passes on the piece that it added to in step k-1; the piece that it adds to last is r + `ahead`.
    pub(super) fn reduce_scatter(&mut self, ahead: usize) {
        for step in 1..self.n {
            self.step(self.piece(ahead, step), Member::receive_reduce);
        }
    }

    /// In step k the member passes on the piece that came in step k-1; it begins with r + `ahead`.
    pub(super) fn all_gather(&mut self, ahead: usize) {
        for step in 1..self.n {
            self.step(self.piece(ahead, step - 1), Member::receive);
        }
    }

    /// The piece `back` places behind r + `ahead`.
    fn piece(&self, ahead: usize, back: usize) -> usize {
        (self.place + ahead + self.n - back) % self.n
    }

    /// Sends `outgoing` to the right, and receives the piece before it from the left.
    fn step(&mut self, outgoing: usize, receive: Receive<'program>) {
        let (n, r) = (self.n, self.place);
        let at = |place: usize| self.first + place % n * self.stride;
        let chunks = |piece: usize| {
            let start = self.start + piece % n * self.width;
            start..start + self.width
        };
        let sent = (at(r + 1), chunks(outgoing));
        let received = (at(r + n - 1), chunks(outgoing + n - 1));
        self.steps.both(sent, received, receive);
    }
}
