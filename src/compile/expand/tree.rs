//! Tree all-reduce: the payload is reduced up a binary tree and the sum goes down again, whole, unpipelined: 2 log2 N messages deep.

use super::Member;

/// Issues the messages of one member. Place 0 is the root; place i hangs below (i-1)/2.
pub(super) fn issue(member: &mut Member) {
    let n = member.ranks.len();
    let r = member.place;
    let stream = member.stream("");
    let children = [2 * r + 1, 2 * r + 2].into_iter().filter(move |&child| child < n);
    for chunk in 0..member.chunks.len() {
        let chunk = chunk..chunk + 1;
        for child in children.clone() {
            member.receive_reduce(stream, child, chunk.clone());
        }
        if r > 0 {
            let parent = (r - 1) / 2;
            member.send(stream, parent, chunk.clone());
            member.receive(stream, parent, chunk.clone());
        }
        for child in children.clone() {
            member.send(stream, child, chunk.clone());
        }
    }
}
