//! The wait-for graph: who waits for whom, and in which circles. Made from one function that says what an op waits for.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::Program;
use super::trace::{WaitEdge, WaitGraph};
use super::wait::Wait;
use crate::base::{OpId, Rank};

impl WaitGraph {
    /// The graph of the ops `waiting`, none of which is done: one edge for each that waits for another rank, and the circles.
    ///
    /// A circle within one rank (ops that were swapped, say) has no such edge: its own ops stand among the edges instead.
    #[must_use]
    pub fn new(program: &Program, waiting: &[OpId], wait: impl Fn(OpId) -> Option<Wait>) -> Self {
        let mut edges: Vec<WaitEdge> =
            waiting.iter().filter_map(|&op| edge(program, op, wait(op)?)).filter(|edge| !edge.is_local()).collect();
        edges.dedup();
        let mut cycles = Vec::new();
        for circle in circles(waiting, &wait) {
            let circle: Vec<WaitEdge> = circle.into_iter().filter_map(|op| edge(program, op, wait(op)?)).collect();
            let mut crossing: Vec<WaitEdge> = circle.iter().copied().filter(|edge| !edge.is_local()).collect();
            if crossing.is_empty() {
                // The order of a stream goes without saying: what is not as it should be are the waits across streams.
                crossing = circle.into_iter().filter(|edge| !matches!(edge.why, Wait::Stream(_))).collect();
                edges.extend_from_slice(&crossing);
            }
            cycles.push(from_smallest(crossing.iter().map(|edge| (edge.rank, edge.op)).collect()));
        }
        cycles.sort();
        Self { edges, cycles }
    }
}

impl WaitGraph {
    /// The ranks that wait for another and stand in no circle: they are only behind. None if there is no circle.
    pub fn behind(&self) -> impl Iterator<Item = Rank> + '_ {
        let waiting: BTreeSet<Rank> = self.edges.iter().map(|edge| edge.rank).collect();
        let circles: BTreeSet<Rank> = self.cycles.iter().flatten().map(|&(rank, _)| rank).collect();
        let waiting = if circles.is_empty() { BTreeSet::new() } else { waiting };
        waiting.into_iter().filter(move |rank| !circles.contains(rank))
    }
}

impl WaitEdge {
    /// Whether both ops stand on one rank.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self.why, Wait::Stream(_) | Wait::Event(_))
    }
}

/// The edge of an op that waits.
fn edge(program: &Program, op: OpId, why: Wait) -> Option<WaitEdge> {
    let (on_rank, on_op) = match why {
        Wait::NoPeer(rank) | Wait::NoMember(rank) => (rank, None),
        _ => (program.rank_of(why.on()?), why.on()),
    };
    Some(WaitEdge { rank: program.rank_of(op), op, on_rank, on_op, why })
}

/// The circles that one meets by following, from each op, what it waits for. Every op is passed once.
fn circles(waiting: &[OpId], wait: &impl Fn(OpId) -> Option<Wait>) -> Vec<Vec<OpId>> {
    let mut walk_of: BTreeMap<OpId, usize> = BTreeMap::new();
    let mut circles = Vec::new();
    for (walk, &start) in waiting.iter().enumerate() {
        let mut path = Vec::new();
        let mut next = Some(start);
        while let Some(op) = next {
            match walk_of.insert(op, walk) {
                None => path.push(op),
                Some(earlier) => {
                    if let Some(begin) = path.iter().position(|&passed| passed == op).filter(|_| earlier == walk) {
                        circles.push(path[begin..].to_vec());
                    }
                    break;
                }
            }
            next = wait(op).and_then(Wait::on);
        }
    }
    circles
}

/// The same circle, from its smallest member on.
fn from_smallest(mut circle: Vec<(Rank, OpId)>) -> Vec<(Rank, OpId)> {
    let smallest = (0..circle.len()).min_by_key(|&place| circle[place]).unwrap_or(0);
    circle.rotate_left(smallest);
    circle
}
