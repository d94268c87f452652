//! Checkpoints: worlds on the way through a run, from which a position is reached by replay.
//!
//! A checkpoint shares its tensors with the world, but keeps them alive. So there is a budget: when the checkpoints hold too much, every
//! second one goes and the distance between them doubles.

use super::value::Values;
use super::world::World;
use crate::base::{Bytes, Rank};

/// Worlds in the order of their events; the first is the start.
pub(super) struct Checkpoints {
    worlds: Vec<World>,
    /// Events between two of them.
    every: usize,
    /// What they keep alive, shared tensors counted again in each.
    held: Vec<Bytes>,
}

/// A step back replays at least one part in so many of the run.
const MOST: usize = 64;

/// Events that are replayed faster than a world is copied.
const FEW: usize = 8;

/// What all checkpoints together may keep alive.
const BUDGET: Bytes = Bytes(512 << 20);

impl Checkpoints {
    /// The start of a run.
    pub(super) fn new(start: &World) -> Self {
        let every = (start.machine.program.ops() / MOST).max(FEW);
        Self { worlds: vec![start.clone()], every, held: vec![weight(start)] }
    }

    /// Keeps `world` if it is far enough from the one before.
    pub(super) fn pass(&mut self, world: &World) {
        if !world.events.is_multiple_of(self.every) {
            return;
        }
        self.worlds.push(world.clone());
        self.held.push(weight(world));
        while self.held.iter().copied().sum::<Bytes>() > BUDGET && self.worlds.len() > 1 {
            self.every *= 2;
            let every = self.every;
            let keep: Vec<bool> = self.worlds.iter().map(|world| world.events.is_multiple_of(every)).collect();
            let (mut worlds, mut held) = (keep.iter(), keep.iter());
            self.worlds.retain(|_| worlds.next().copied().unwrap_or(true));
            self.held.retain(|_| held.next().copied().unwrap_or(true));
        }
    }

    /// The last one at or before `position`.
    pub(super) fn nearest(&self, position: usize) -> &World {
        let behind = self.worlds.partition_point(|world| world.events <= position);
        &self.worlds[behind - 1]
    }
}

/// What a copy of `world` keeps alive: a few words for each op, and the tensors.
fn weight(world: &World) -> Bytes {
    let tables = Bytes(world.machine.program.ops() as u64 * 24);
    match (&world.values, &world.memory) {
        (Values::Real { .. }, Some(memory)) => {
            let ranks = (0..world.machine.program.ranks()).map(Rank::new);
            tables + ranks.map(|rank| memory.holding(rank).total).sum()
        }
        _ => tables,
    }
}
