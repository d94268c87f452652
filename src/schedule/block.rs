//! Building blocks: schedules on a V that are made of one micro-batch's timetable, repeated as often as a rank can work it off.
//!
//! A micro-batch goes down the ranks and up again, and its backward does the same. The block says how many slots each of these four ways
//! takes per rank: short ways free memory early. A rank has six slots of work for every micro-batch, so the block repeats every six slots,
//! and the passes of a rank must fall on different ones.
//!
//! A step also has a beginning and an end, where the repeated block leaves gaps. So the timetable is played: in slots of one length every
//! rank takes the pass that is due first, as soon as it can; where it cannot, it takes a W that it owes, or what is due later.

use std::collections::VecDeque;

use super::Size;
use crate::program::plan::{Cell, Pass, Plan, Slot};

/// A timetable, and the memory that it needs.
pub(super) struct Block {
    /// Slots per rank of the four ways: down and up forward, down and up backward.
    pub hops: [u32; WAYS],
    /// The most chunks that a rank holds, from F to W.
    pub room: u32,
}

/// A micro-batch passes every rank four times.
const WAYS: usize = 4;
/// Slots of work that a rank has for a micro-batch: F, I and W of two chunks.
const PERIOD: u32 = 6;
/// Room that a forward leaves free when it comes before its time: for the passes that are due.
const RESERVE: u32 = 3;

impl Block {
    /// The plan of a step.
    pub fn plan(&self, size: Size) -> Plan {
        Game::new(self, size).play()
    }

    /// Per rank, the slots in which it passes micro-batch 0. The turn from forward to backward takes as long as it must to keep the
    /// passes of every rank apart.
    fn times(&self, ranks: usize) -> Vec<[u32; WAYS]> {
        let apart = |times: &[u32; WAYS]| {
            let slots = times.map(|time| time % PERIOD);
            (0..WAYS).all(|way| !slots[..way].contains(&slots[way]))
        };
        let blocks = (1..=PERIOD).map(|turn| self.block(ranks, turn));
        blocks.into_iter().find(|times| times.iter().all(apart)).unwrap_or_else(|| self.block(ranks, 1))
    }

    fn block(&self, ranks: usize, turn: u32) -> Vec<[u32; WAYS]> {
        let mut times = vec![[0; WAYS]; ranks];
        let mut time = 0;
        for (way, &hop) in self.hops.iter().enumerate() {
            for place in 0..ranks {
                let rank = if way.is_multiple_of(2) { place } else { ranks - 1 - place };
                time += if place > 0 { hop } else { [0, 1, turn, 1][way] };
                times[rank][way] = time;
            }
        }
        times
    }
}

/// The timetable at play.
struct Game {
    size: Size,
    times: Vec<[u32; WAYS]>,
    room: u32,
    ranks: Vec<Rank>,
}

/// How far a rank is.
#[derive(Clone, Default)]
struct Rank {
    /// Per way, the micro-batches that have passed.
    passed: [u32; WAYS],
    /// I passes whose W is still to come, oldest first.
    owed: VecDeque<Slot>,
    /// Chunks from F to W.
    held: u32,
    row: Vec<Cell>,
}

impl Game {
    fn new(block: &Block, size: Size) -> Self {
        let ranks = size.ranks as usize;
        Self { size, times: block.times(ranks), room: block.room, ranks: vec![Rank::default(); ranks] }
    }

    fn play(mut self) -> Plan {
        let whole = (PERIOD * self.size.micro_batches) as usize;
        while self.ranks.iter().any(|rank| rank.row.len() < whole) {
            // All ranks move at once: each sees what was done before.
            let before: Vec<[u32; WAYS]> = self.ranks.iter().map(|rank| rank.passed).collect();
            let moves: Vec<Option<Move>> = (0..before.len()).map(|rank| self.choose(&before, rank)).collect();
            if moves.iter().all(Option::is_none) {
                // Nobody can move for want of room: rather more of it than no end.
                self.room += 1;
            }
            for (rank, chosen) in moves.into_iter().enumerate() {
                self.take(rank, chosen);
            }
        }
        Plan { rows: self.ranks.into_iter().map(|rank| rank.row).collect() }
    }

    fn choose(&self, before: &[[u32; WAYS]], rank: usize) -> Option<Move> {
        let passed = &self.ranks[rank].passed;
        let mut due: Vec<usize> = (0..WAYS).filter(|&way| passed[way] < self.size.micro_batches).collect();
        due.sort_by_key(|&way| self.times[rank][way] + PERIOD * passed[way]);
        let first = due.first().copied().filter(|&way| self.is_possible(before, rank, way, 0));
        let owes = !self.ranks[rank].owed.is_empty();
        let later = || due.iter().copied().find(|&way| self.is_possible(before, rank, way, if way == 0 { RESERVE } else { 0 }));
        match first {
            Some(way) => Some(Move::Pass(way)),
            None if owes => Some(Move::Weight),
            None => later().map(Move::Pass),
        }
    }

    /// Whether the next micro-batch of a way has come to `rank`, and what it brings finds room beside a reserve.
    fn is_possible(&self, before: &[[u32; WAYS]], rank: usize, way: usize, reserve: u32) -> bool {
        let last = before.len() - 1;
        let (is_down, is_forward) = (way.is_multiple_of(2), way < 2);
        let come = match (is_down, rank) {
            (true, 0) if way == 0 => self.size.micro_batches,
            (true, 0) => before[rank][way - 1],
            (false, rank) if rank == last => before[rank][way - 1],
            (true, rank) => before[rank - 1][way],
            (false, rank) => before[rank + 1][way],
        };
        come > before[rank][way] && (!is_forward || self.ranks[rank].held + reserve < self.room)
    }

    fn take(&mut self, rank: usize, chosen: Option<Move>) {
        let here = u32::try_from(rank).unwrap_or(u32::MAX);
        let mirror = 2 * self.size.ranks - 1 - here;
        let rank = &mut self.ranks[rank];
        let slot = match chosen {
            None => return,
            Some(Move::Weight) => {
                rank.held -= 1;
                rank.owed.pop_front()
            }
            Some(Move::Pass(way)) => {
                let (stage, pass) = [(here, Pass::F), (mirror, Pass::F), (mirror, Pass::I), (here, Pass::I)][way];
                let slot = Slot::new(stage, pass, rank.passed[way]);
                rank.passed[way] += 1;
                if pass == Pass::F {
                    rank.held += 1;
                } else {
                    rank.owed.push_back(Slot { pass: Pass::W, ..slot });
                }
                Some(slot)
            }
        };
        rank.row.extend(slot.map(Cell::One));
    }
}

/// What a rank does next.
#[derive(Clone, Copy)]
enum Move {
    /// The next micro-batch of a way.
    Pass(usize),
    /// The oldest W that it owes.
    Weight,
}
