//! Local search: cells of a plan change places in their rows, one after the other, and what makes the plan no longer stays. At first a
//! little longer will do, too, so that the search does not end in the first hollow. Half of the moves bring a cell forward that the end
//! of the step waits for; the others are taken at random, always the same ones.
//!
//! No bound is proven: what is found is good, not best.

use super::list::{Listed, Work, kind};
use crate::program::plan::{Cell, Pass, Plan, Slot};

/// How far a cell moves at most.
const FARTHEST: u64 = 4;
/// How much longer than the best a plan may be at first, in passes.
const SLACK: u64 = 3;

/// What a plan costs, by the times of its work: the shorter is the better, and of equals the one that holds less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    makespan: u64,
    /// The most chunks that a rank holds from F to W.
    peak: u32,
}

impl Work {
    /// `plan` made shorter within the room; about `budget` slots are timed. Whole backwards are cut in two first. `None` if the plan does
    /// not fit the work: it holds more, or has pairs that run as one.
    #[must_use]
    pub fn improve(&self, plan: &Plan, budget: usize) -> Option<Listed> {
        let rows = plan.rows.iter().map(|row| slots(row)).collect::<Option<Vec<_>>>()?;
        let tries = (budget / rows.iter().map(Vec::len).sum::<usize>().max(1)) as u64;
        let mut climb = Climb::new(self, rows)?;
        for left in (0..tries).rev() {
            climb.step(SLACK * left / tries);
        }
        let (best, cost) = climb.best;
        let row = |row: Vec<Slot>| row.into_iter().map(Cell::One).collect();
        Some(Listed { plan: Plan { rows: best.into_iter().map(row).collect() }, makespan: cost.makespan })
    }
}

/// The slots of a row, backwards cut in two.
fn slots(row: &[Cell]) -> Option<Vec<Slot>> {
    let mut slots = Vec::with_capacity(row.len() * 2);
    for cell in row {
        match *cell {
            Cell::One(slot) if slot.pass == Pass::B => slots.extend([Pass::I, Pass::W].map(|pass| Slot { pass, ..slot })),
            Cell::One(slot) => slots.push(slot),
            Cell::Overlap(..) => return None,
        }
    }
    Some(slots)
}

/// A plan under way.
struct Climb<'a> {
    rows: Vec<Vec<Slot>>,
    cost: Cost,
    /// The times of the rows, and those of what is tried.
    now: Times<'a>,
    tried: Times<'a>,
    best: (Vec<Vec<Slot>>, Cost),
    /// The length of the shortest pass.
    unit: u64,
    random: u64,
}

impl<'a> Climb<'a> {
    fn new(work: &'a Work, rows: Vec<Vec<Slot>>) -> Option<Self> {
        let (mut now, tried) = (Times::new(work), Times::new(work));
        let cost = now.run(&rows)?;
        let unit = work.times.iter().flatten().copied().filter(|&time| time > 0).min().unwrap_or(1);
        Some(Self { best: (rows.clone(), cost), rows, cost, now, tried, unit, random: 0 })
    }

    /// Tries a move; the plan may be so many units longer than the best.
    fn step(&mut self, slack: u64) {
        let Some((row, from, to)) = self.choose().filter(|(_, from, to)| from != to) else { return };
        shift(&mut self.rows[row], from, to);
        let most = (self.best.1.makespan + slack * self.unit).min(self.cost.makespan + self.unit);
        match self.tried.run(&self.rows) {
            Some(cost) if cost.makespan <= most => {
                std::mem::swap(&mut self.now, &mut self.tried);
                self.cost = cost;
                if cost < self.best.1 {
                    self.best = (self.rows.clone(), cost);
                }
            }
            _ => shift(&mut self.rows[row], to, from),
        }
    }

    /// A row, a place in it, and a place to move to.
    fn choose(&mut self) -> Option<(usize, usize, usize)> {
        if self.below(2) == 0 {
            let critical = self.now.critical(&self.rows);
            let &(row, from) = critical.get(self.below(critical.len() as u64))?;
            return Some((row, from, from.saturating_sub(1 + self.below(FARTHEST))));
        }
        let row = self.below(self.rows.len() as u64);
        let from = self.below(self.rows[row].len() as u64);
        let to = (from + self.below(2 * FARTHEST + 1)).saturating_sub(self.below(2 * FARTHEST + 1));
        Some((row, from, to.min(self.rows[row].len().checked_sub(1)?)))
    }

    /// The next of a sequence of numbers below `end`, evenly spread: `SplitMix64` of Steele et al. 2014.
    #[expect(clippy::cast_possible_truncation, reason = "below a number of cells")]
    fn below(&mut self, end: u64) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1)) as usize
    }
}

fn shift(row: &mut [Slot], from: usize, to: usize) {
    if from < to { row[from..=to].rotate_left(1) } else { row[to..=from].rotate_right(1) }
}

/// When the slots of rows run.
struct Times<'a> {
    work: &'a Work,
    /// Per stage, its rank.
    homes: Vec<usize>,
    /// Per pass, stage and micro-batch, its end; [`NEVER`] until it has run.
    ends: Vec<u64>,
    /// The same, its place in its row.
    places: Vec<usize>,
}

const NEVER: u64 = u64::MAX;

impl<'a> Times<'a> {
    fn new(work: &'a Work) -> Self {
        let mut homes = vec![0; work.size.stages() as usize];
        for rank in 0..work.size.ranks {
            work.placement.stages(work.size, rank).into_iter().for_each(|stage| homes[stage as usize] = rank as usize);
        }
        let slots = 3 * homes.len() * work.size.micro_batches as usize;
        Self { work, homes, ends: vec![NEVER; slots], places: vec![0; slots] }
    }

    fn index(&self, slot: Slot) -> usize {
        let (stages, micro_batches) = (self.homes.len(), self.work.size.micro_batches as usize);
        (kind(slot.pass) * stages + slot.stage as usize) * micro_batches + slot.micro_batch as usize
    }

    /// Runs the rows; `None` if they wait for each other, or hold more than they may.
    fn run(&mut self, rows: &[Vec<Slot>]) -> Option<Cost> {
        self.ends.fill(NEVER);
        let mut ranks = vec![Progress::default(); rows.len()];
        let mut cost = Cost { makespan: 0, peak: 0 };
        let mut awake: Vec<usize> = (0..rows.len()).rev().collect();
        while let Some(rank) = awake.pop() {
            while let Some(&slot) = rows[rank].get(ranks[rank].next) {
                let Some(ready) = self.ready(rank, slot) else { break };
                let end = ranks[rank].take(slot, ready, self.work.times[slot.stage as usize][kind(slot.pass)]);
                cost = Cost { makespan: cost.makespan.max(end), peak: cost.peak.max(ranks[rank].held) };
                if cost.peak > self.work.room {
                    return None;
                }
                let index = self.index(slot);
                (self.ends[index], self.places[index]) = (end, ranks[rank].next - 1);
                awake.extend(self.fed_by(slot).map(|stage| self.homes[stage]).filter(|&other| other != rank));
            }
        }
        ranks.iter().zip(rows).all(|(rank, row)| rank.next == row.len()).then_some(cost)
    }

    /// The stage that takes what `slot` makes, if it is another.
    fn fed_by(&self, slot: Slot) -> Option<usize> {
        let stage = slot.stage as usize;
        match slot.pass {
            Pass::F => Some(stage + 1).filter(|&stage| stage < self.homes.len()),
            Pass::B | Pass::I => stage.checked_sub(1),
            Pass::W => None,
        }
    }

    /// What `slot` needs.
    fn needs(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let below = slot.stage.checked_sub(1).map(|stage| Slot { stage, ..slot });
        let above = Some(slot.stage + 1).filter(|&stage| (stage as usize) < self.homes.len());
        let here = |pass| Some(Slot { pass, ..slot });
        let needs = match slot.pass {
            Pass::F => [below, None],
            Pass::B | Pass::I => [here(Pass::F), above.map(|stage| Slot { stage, ..slot })],
            Pass::W => [here(Pass::I), None],
        };
        needs.into_iter().flatten()
    }

    /// When `slot` has what it needs on `rank`; `None` while something has not run.
    fn ready(&self, rank: usize, slot: Slot) -> Option<u64> {
        self.needs(slot).try_fold(0, |ready: u64, needed| Some(ready.max(self.arrival(rank, slot, needed)?)))
    }

    /// When what `needed` made is there for `slot` on `rank`.
    fn arrival(&self, rank: usize, slot: Slot, needed: Slot) -> Option<u64> {
        let end = self.ends[self.index(needed)];
        let is_here = self.homes[needed.stage as usize] == rank;
        let hop = if is_here { 0 } else { self.work.hops[needed.stage.min(slot.stage) as usize] };
        (end != NEVER).then(|| end + hop)
    }

    /// The places on the way to the last end whose slots run right behind the one before them in their row.
    fn critical(&self, rows: &[Vec<Slot>]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let last = rows.iter().enumerate().filter_map(|(rank, row)| Some((self.ends[self.index(*row.last()?)], rank)));
        let Some((_, mut rank)) = last.max() else { return found };
        let mut place = rows[rank].len() - 1;
        loop {
            let slot = rows[rank][place];
            let start = self.ends[self.index(slot)] - self.work.times[slot.stage as usize][kind(slot.pass)];
            if place > 0 && self.ends[self.index(rows[rank][place - 1])] == start {
                found.push((rank, place));
                place -= 1;
                continue;
            }
            let Some(needed) = self.needs(slot).find(|&needed| self.arrival(rank, slot, needed) == Some(start)) else {
                return found;
            };
            (rank, place) = (self.homes[needed.stage as usize], self.places[self.index(needed)]);
        }
    }
}

/// How far a rank is.
#[derive(Clone, Copy, Default)]
struct Progress {
    next: usize,
    free: u64,
    held: u32,
}

impl Progress {
    /// Runs a slot of this length as soon as it is `ready`; its end.
    fn take(&mut self, slot: Slot, ready: u64, length: u64) -> u64 {
        self.next += 1;
        self.free = self.free.max(ready) + length;
        match slot.pass {
            Pass::F => self.held += 1,
            Pass::W => self.held -= 1,
            Pass::B | Pass::I => {}
        }
        self.free
    }
}
