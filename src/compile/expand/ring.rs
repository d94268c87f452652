//! Ring all-reduce: reduce-scatter, then all-gather, N-1 steps each. Every member sends 2(N-1)/N of the payload.
//!
//! In step k of the reduce-scatter the member at place r sends chunk r-k to its right and adds the chunk r-k-1 that comes from its left;
//! in the all-gather it passes on the chunks that are complete. Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms".

use super::Member;

/// Issues the messages of one member; chunks are as many as members.
pub(super) fn issue(member: &mut Member) {
    let n = member.ranks.len();
    if n == 1 {
        return;
    }
    let r = member.place;
    let (right, left) = ((r + 1) % n, (r + n - 1) % n);
    let (out, into) = (member.stream(".out"), member.stream(".in"));
    let mut previous = None;
    for step in 0..2 * (n - 1) {
        let reducing = step < n - 1;
        // Chunk indices step back around the ring; 2n keeps them positive.
        let outgoing = if reducing { (r + 2 * n - step) % n } else { (r + 1 + 2 * n - (step - (n - 1))) % n };
        let incoming = (outgoing + n - 1) % n;
        let send = member.send(out, right, outgoing);
        let receive = if reducing { member.receive_reduce(into, left, incoming) } else { member.receive(into, left, incoming) };
        // One step after the other, as a fused receive-reduce-send loop does.
        if let Some((last_send, last_receive)) = previous {
            member.program.wait(send, last_receive);
            member.program.wait(receive, last_send);
        }
        previous = Some((send, receive));
    }
}
