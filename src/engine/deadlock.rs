//! Deadlock: when nothing can start any more, who waits for whom, and in which circles.

use std::collections::BTreeMap;

use super::world::{World, blocked};
use crate::base::{OpId, Rank};
use crate::program::Wait;
use crate::program::trace::{WaitEdge, WaitGraph};

/// The wait-for graph of a world in which nothing moves: one edge for each rank that waits for another, and its cycles.
#[must_use]
pub fn wait_graph(world: &World) -> WaitGraph {
    let program = &world.machine.program;
    let mut edges: Vec<WaitEdge> = Vec::new();
    for order in &program.order {
        for &op in order {
            if let Some(edge) = edge(world, op).filter(|edge| !edges.contains(edge)) {
                edges.push(edge);
            }
        }
    }
    let cycles = cycles(world, &edges);
    WaitGraph { edges, cycles }
}

/// The edge of an op that waits for another rank, and for nothing of its own.
fn edge(world: &World, op: OpId) -> Option<WaitEdge> {
    if world.is_done(op) {
        return None;
    }
    let program = &world.machine.program;
    let why = blocked(world, op)?;
    let (on_rank, on_op) = match why {
        Wait::Stream(_) | Wait::Event(_) => return None,
        Wait::Peer(other) | Wait::Message(other) | Wait::Member(other) => (program.rank_of(other), Some(other)),
        Wait::NoPeer(rank) | Wait::NoMember(rank) => (rank, None),
    };
    Some(WaitEdge { rank: program.rank_of(op), op, on_rank, on_op, why })
}

/// Follows each edge's chain: from the op that is waited for, through what it waits for on its own rank, to that rank's edge.
fn cycles(world: &World, edges: &[WaitEdge]) -> Vec<Vec<(Rank, OpId)>> {
    let by_op: BTreeMap<OpId, &WaitEdge> = edges.iter().map(|edge| (edge.op, edge)).collect();
    let next = |edge: &WaitEdge| edge.on_op.and_then(|op| root(world, op)).and_then(|op| by_op.get(&op).copied());
    let mut cycles: Vec<Vec<(Rank, OpId)>> = Vec::new();
    for edge in edges {
        let mut path = vec![*edge];
        while let Some(&following) = path.last().and_then(next).as_ref() {
            if let Some(start) = path.iter().position(|earlier| earlier.op == following.op) {
                let mut cycle: Vec<(Rank, OpId)> = path[start..].iter().map(|edge| (edge.rank, edge.op)).collect();
                let smallest = (0..cycle.len()).min_by_key(|&place| cycle[place]).unwrap_or(0);
                cycle.rotate_left(smallest);
                if !cycles.contains(&cycle) {
                    cycles.push(cycle);
                }
                break;
            }
            path.push(*following);
        }
    }
    cycles
}

/// The op of its own rank that `op` is held up by in the end: the one that waits for another rank.
fn root(world: &World, op: OpId) -> Option<OpId> {
    let mut op = op;
    loop {
        match blocked(world, op) {
            Some(Wait::Stream(before) | Wait::Event(before)) => op = before,
            Some(_) => return Some(op),
            None => return None,
        }
    }
}
