//! Star all-reduce: everybody sends to one root, which sends the sum back: the root receives and sends N-1 payloads.

use super::Member;

/// Issues the messages of one member; place 0 is the root.
pub(super) fn issue(member: &mut Member) {
    let n = member.ranks.len();
    let stream = member.stream("");
    for chunk in 0..member.chunks.len() {
        let chunk = chunk..chunk + 1;
        if member.place > 0 {
            member.send(stream, 0, chunk.clone());
            member.receive(stream, 0, chunk.clone());
            continue;
        }
        for peer in 1..n {
            member.receive_reduce(stream, peer, chunk.clone());
        }
        for peer in 1..n {
            member.send(stream, peer, chunk.clone());
        }
    }
}
