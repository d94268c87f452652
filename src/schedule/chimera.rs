//! Chimera: two 1F1B pipelines in opposite directions over the same ranks, each filling the other's bubbles.
//!
//! The published figures follow one rule: in slots of one length, a rank does what it can do, backward before forward and an earlier
//! micro-batch before a later one. So the plan is made by playing that rule.

use super::{Illegal, Measure, Placement, Schedule, Size, Theory};
use crate::program::plan::{Cell, Pass, Plan, Slot};

pub(super) const SCHEDULE: Schedule = Schedule {
    name: "chimera",
    title: "Chimera",
    meaning: "two pipelines in opposite directions over the same ranks, each with half of the micro-batches, fill each other's bubbles; \
              parameters stand twice",
    theory: Theory {
        idle: "(p-2) B",
        makespan: "mt + (p-2) B",
        fraction: "(p-2)B/(mt+(p-2)B)",
        ratio: "(p-2)B/(mt)",
        value: |size, t| {
            let is_known = size.micro_batches == size.ranks && t.backward() >= t.forward;
            is_known.then(|| (size.p() - 2.0) * t.backward())
        },
    },
    source: "Li and Hoefler 2021, arXiv 2107.06925, figure 3",
    placement: Placement::TwoWay,
    takes,
    plan: |size| Game::new(size).play(),
    ..Schedule::PLAIN
};

fn takes(size: Size) -> Result<(), Illegal> {
    let (p, m) = (size.ranks, size.micro_batches);
    if m.is_multiple_of(p) {
        return Ok(());
    }
    let nearest = ((m + p / 2) / p).max(1) * p;
    Err(Illegal::new(Measure::MicroBatches, nearest, format!("takes micro-batches in units of p = {p}, which {m} do not fill")))
}

/// The rule at play.
struct Game {
    size: Size,
    /// Per stage and direction, the passes done.
    done: Vec<[Progress; 2]>,
    plan: Plan,
}

/// How far a stage has come with the micro-batches of one direction.
#[derive(Clone, Copy, Default)]
struct Progress {
    forward: u32,
    backward: u32,
}

impl Game {
    fn new(size: Size) -> Self {
        let rows = vec![Vec::new(); size.ranks as usize];
        Self { size, done: vec![Default::default(); size.ranks as usize], plan: Plan { rows } }
    }

    fn play(mut self) -> Plan {
        let is_over = |game: &Self| game.plan.rows.iter().all(|row| row.len() == 2 * game.size.micro_batches as usize);
        while !is_over(&self) {
            // All ranks move at once: each sees what was done before.
            let before = self.done.clone();
            for rank in 0..self.size.ranks {
                if let Some((direction, slot)) = self.choose(&before, rank) {
                    self.take(rank, direction, slot);
                }
            }
        }
        self.plan
    }

    /// What `rank` does next, if it can do anything.
    fn choose(&self, before: &[[Progress; 2]], rank: u32) -> Option<(u32, Slot)> {
        let last = self.size.ranks - 1;
        let possible = (0..2).flat_map(|direction| {
            let stage = if direction == 0 { rank } else { last - rank };
            let at = |stage: u32| before[stage as usize][direction as usize];
            let here = at(stage);
            let entered = if stage == 0 { self.size.micro_batches / 2 } else { at(stage - 1).forward };
            let returned = if stage == last { here.forward } else { at(stage + 1).backward };
            let forward = (here.forward < entered && self.has_room(before, rank)).then_some((1, here.forward, Pass::F));
            let backward = (here.backward < returned).then_some((0, here.backward, Pass::B));
            forward.into_iter().chain(backward).map(move |(order, local, pass)| ((order, local, direction), stage, pass))
        });
        possible.min_by_key(|&(key, ..)| key).map(|((_, local, direction), stage, pass)| {
            (direction, Slot::new(stage, pass, local + direction * (self.size.micro_batches / 2)))
        })
    }

    /// A rank holds at most p micro-batches, as the first rank of 1F1B.
    fn has_room(&self, before: &[[Progress; 2]], rank: u32) -> bool {
        let held = |stage: u32, direction: usize| {
            let progress = before[stage as usize][direction];
            progress.forward - progress.backward
        };
        held(rank, 0) + held(self.size.ranks - 1 - rank, 1) < self.size.ranks
    }

    fn take(&mut self, rank: u32, direction: u32, slot: Slot) {
        let progress = &mut self.done[slot.stage as usize][direction as usize];
        *(if slot.pass == Pass::F { &mut progress.forward } else { &mut progress.backward }) += 1;
        self.plan.rows[rank as usize].push(Cell::One(slot));
    }
}
