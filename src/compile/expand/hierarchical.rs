//! Two levels of rings: each node reduces and scatters inside, equal members of all nodes all-reduce their share around a ring, each node
//! gathers inside. Every member sends 2(N-1)/N of the payload as around one ring, but of N-1 steps each way only M-1 leave the node.
//! Source: Cho et al. 2019, "`BlueConnect`"; NCCL's and Horovod's hierarchical all-reduce do the same.

use super::Member;
use super::ring::Ring;
use super::steps::Steps;
use crate::base::hardware::members_per_node;

/// Issues the messages of one member. Where the nodes cut the group unevenly, which a checked scenario never does, it is one ring.
pub(super) fn issue(member: &mut Member) {
    let per_node = members_per_node(&member.ranks, member.ranks_per_node).unwrap_or(1);
    let (n, place) = (member.ranks.len(), member.place);
    let nodes = n / per_node;
    let (node, local) = (place / per_node, place % per_node);
    // Of the share that it owns in its node, chunks owned * nodes.. are the pieces of the ring between nodes.
    let owned = (local + 1) % per_node;
    let inside = |steps| Ring { steps, n: per_node, place: local, first: node * per_node, stride: 1, start: 0, width: nodes };
    let mut ring = inside(Steps::new(member));
    ring.reduce_scatter(1);
    let mut ring =
        Ring { steps: ring.steps, n: nodes, place: node, first: local, stride: per_node, start: owned * nodes, width: 1 };
    ring.reduce_scatter(1);
    ring.all_gather(1);
    inside(ring.steps).all_gather(1);
}
