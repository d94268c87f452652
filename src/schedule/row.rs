//! A row under construction: it numbers the micro-batches of each chunk, so that a schedule says only which chunk is next.

use std::collections::VecDeque;

use super::size::{Placement, Size};
use crate::program::plan::{Cell, Pass, Slot};

/// The cells of one rank so far.
pub(super) struct Row {
    chunks: Vec<Chunk>,
    cells: Vec<Cell>,
    /// I passes whose W is still to come, oldest first.
    owed: VecDeque<Slot>,
}

/// One of the rank's stages: the next micro-batch to go forward, and the next to go backward.
struct Chunk {
    stage: u32,
    forward: u32,
    backward: u32,
}

impl Row {
    /// The empty row of `rank`. On a two-way placement the direction that enters at the rank's far end takes the second half of
    /// the micro-batches.
    pub fn new(size: Size, placement: Placement, rank: u32) -> Self {
        let chunk = |stage| {
            let is_second = placement == Placement::TwoWay && stage != rank;
            let first = if is_second { size.micro_batches / 2 } else { 0 };
            Chunk { stage, forward: first, backward: first }
        };
        let chunks: Vec<Chunk> = placement.stages(size, rank).into_iter().map(chunk).collect();
        let cells = Vec::with_capacity(2 * chunks.len() * size.micro_batches as usize);
        Self { chunks, cells, owed: VecDeque::new() }
    }

    /// F of the chunk's next micro-batch.
    pub fn forward(&mut self, chunk: u32) {
        let slot = self.next_forward(chunk);
        self.cells.push(Cell::One(slot));
    }

    /// B of a micro-batch out of turn.
    pub fn backward_of(&mut self, chunk: u32, micro_batch: u32) {
        let stage = self.chunks[chunk as usize].stage;
        self.cells.push(Cell::One(Slot::new(stage, Pass::B, micro_batch)));
    }

    /// B of the chunk's next micro-batch.
    pub fn backward(&mut self, chunk: u32) {
        let slot = self.next_backward(chunk, Pass::B);
        self.cells.push(Cell::One(slot));
    }

    /// I of the chunk's next micro-batch; its W is owed.
    pub fn input(&mut self, chunk: u32) {
        let slot = self.next_backward(chunk, Pass::I);
        self.cells.push(Cell::One(slot));
        self.owed.push_back(slot);
    }

    /// The oldest W that is owed.
    pub fn weight(&mut self) {
        let owed = self.owed.pop_front();
        self.cells.extend(owed.map(weight_of));
    }

    /// The oldest W of the chunk that is owed.
    pub fn weight_of_chunk(&mut self, chunk: u32) {
        let stage = self.chunks[chunk as usize].stage;
        let place = self.owed.iter().position(|slot| slot.stage == stage);
        let owed = place.and_then(|place| self.owed.remove(place));
        self.cells.extend(owed.map(weight_of));
    }

    /// F of one chunk and B of another as one.
    pub fn overlap(&mut self, forward: u32, backward: u32) {
        let pair = Cell::Overlap(self.next_forward(forward), self.next_backward(backward, Pass::B));
        self.cells.push(pair);
    }

    /// The finished row: what is owed comes last.
    pub fn finish(mut self) -> Vec<Cell> {
        self.cells.extend(self.owed.into_iter().map(weight_of));
        self.cells
    }

    fn next_forward(&mut self, chunk: u32) -> Slot {
        let chunk = &mut self.chunks[chunk as usize];
        chunk.forward += 1;
        Slot::new(chunk.stage, Pass::F, chunk.forward - 1)
    }

    fn next_backward(&mut self, chunk: u32, pass: Pass) -> Slot {
        let chunk = &mut self.chunks[chunk as usize];
        chunk.backward += 1;
        Slot::new(chunk.stage, pass, chunk.backward - 1)
    }
}

fn weight_of(input: Slot) -> Cell {
    Cell::One(Slot { pass: Pass::W, ..input })
}
