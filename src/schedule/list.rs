//! List scheduling: whenever a rank is free, it takes the best of what it can do. With backward cut in two, W is what it does when there is
//! nothing better, and what it must do when its memory is full.
//!
//! A rule of thumb finds no best schedule, but many rules of thumb find good ones; `ranklab search` tries all of [`Rule::all`], and
//! [`Work::improve`] goes on from them.

use std::collections::VecDeque;

use super::{Placement, Size};
use crate::program::plan::{Cell, Pass, Plan, Slot};

/// What is to be scheduled: a V, a loop or a line of stages with the times of their passes.
#[derive(Clone, Debug)]
pub struct Work {
    /// Ranks, chunks and micro-batches.
    pub size: Size,
    /// Which stages a rank holds; each stage on one rank.
    pub placement: Placement,
    /// Per stage, the times of F, I and W.
    pub times: Vec<[u64; 3]>,
    /// Per stage, how long its activation is on its way to the next; and back, the gradient.
    pub hops: Vec<u64>,
    /// The most chunks that a rank may hold from F to W.
    pub room: u32,
}

/// What is better where a rank has a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Chunks under way, from F to I, that a rank may have for every rank from it to the last.
    pub lead: u32,
    /// Until it has so many, a rank rather goes forward than back.
    pub forward_first: bool,
    /// W comes right behind its I, unless another I is there.
    pub eager: bool,
    /// Room that the first chunk leaves free for the others.
    pub reserve: u32,
}

/// A plan, and how long it takes by the times it was made for.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The plan.
    pub plan: Plan,
    /// Its length.
    pub makespan: u64,
}

impl Rule {
    /// Every rule that is worth a try.
    pub fn all() -> impl Iterator<Item = Self> {
        let choices = (1..=4).flat_map(|lead| [false, true].map(|forward_first| (lead, forward_first)));
        choices.flat_map(|(lead, forward_first)| {
            let rest = [false, true].into_iter().flat_map(|eager| (0..4).map(move |reserve| (eager, reserve)));
            rest.map(move |(eager, reserve)| Self { lead, forward_first, eager, reserve })
        })
    }
}

impl Work {
    /// The plan that `rule` makes; `None` if ranks run out of room in a way that nobody can go on.
    #[must_use]
    pub fn plan(&self, rule: Rule) -> Option<Listed> {
        Game::new(self, rule).play()
    }
}

/// The place of a pass among the times of its stage.
pub(super) fn kind(pass: Pass) -> usize {
    match pass {
        Pass::F => 0,
        Pass::W => 2,
        Pass::I | Pass::B => 1,
    }
}

/// The rule at play.
struct Game<'a> {
    work: &'a Work,
    rule: Rule,
    /// Per stage and pass (F, I): from when the next micro-batches can run, in order.
    ready: Vec<[VecDeque<u64>; 2]>,
    ranks: Vec<Rank>,
}

/// How far a rank is.
struct Rank {
    stages: Vec<u32>,
    /// From when it is free.
    free: u64,
    /// Chunks from F to W, and from F to I.
    held: u32,
    under_way: u32,
    /// I passes whose W is still to come, oldest first.
    owed: VecDeque<Slot>,
    /// Per chunk, the next micro-batch of F and I.
    next: Vec<[u32; 2]>,
    row: Vec<Cell>,
}

/// Something that a rank can do from some time on; the smaller the rank of the choice, the better.
type Choice = (u64, u32, Slot);

impl<'a> Game<'a> {
    fn new(work: &'a Work, rule: Rule) -> Self {
        let size = work.size;
        let mut ready: Vec<[VecDeque<u64>; 2]> = vec![Default::default(); size.stages() as usize];
        ready[0][0] = vec![0; size.micro_batches as usize].into();
        let rank = |rank| {
            let stages = work.placement.stages(size, rank);
            let next = vec![[0; 2]; stages.len()];
            Rank { stages, free: 0, held: 0, under_way: 0, owed: VecDeque::new(), next, row: Vec::new() }
        };
        Self { work, rule, ready, ranks: (0..size.ranks).map(rank).collect() }
    }

    fn play(mut self) -> Option<Listed> {
        let all = self.work.size.stages() as usize * self.work.size.micro_batches as usize * 3;
        for _ in 0..all {
            let choices = (0..self.ranks.len()).filter_map(|rank| Some((self.choose(rank)?, rank)));
            let ((start, _, slot), rank) = choices.min_by_key(|&((start, ..), rank)| (start, rank))?;
            self.take(rank, start, slot);
        }
        let makespan = self.ranks.iter().map(|rank| rank.free).max().unwrap_or(0);
        Some(Listed { plan: Plan { rows: self.ranks.into_iter().map(|rank| rank.row).collect() }, makespan })
    }

    /// The best of what `rank` can do first.
    fn choose(&self, rank: usize) -> Option<Choice> {
        self.choices(rank).min_by_key(|&(start, order, slot)| (start, order, slot.micro_batch))
    }

    /// What `rank` can do at all, as things stand.
    fn choices(&self, place: usize) -> impl Iterator<Item = Choice> + '_ {
        let rank = &self.ranks[place];
        let distance = u32::try_from(self.ranks.len() - place).unwrap_or(u32::MAX);
        let chunks = u32::try_from(rank.stages.len()).unwrap_or(u32::MAX);
        let depth = self.rule.lead * distance * chunks;
        let forward_first = self.rule.forward_first && rank.under_way < depth;
        let passes = rank.stages.iter().enumerate().flat_map(move |(chunk, &stage)| {
            let slot = |pass, side: usize| {
                let ready = self.ready[stage as usize][side].front()?;
                Some((rank.free.max(*ready), Slot::new(stage, pass, rank.next[chunk][side])))
            };
            // The further a micro-batch has come, the better.
            let far = chunks - 1 - u32::try_from(chunk).unwrap_or(0);
            let reserve = if far == 0 { 0 } else { self.rule.reserve * far };
            let is_room = rank.held + reserve < self.work.room && (rank.under_way < depth || far == 0);
            let forward = slot(Pass::F, 0).filter(|_| is_room);
            let order = if forward_first { 0 } else { 20 } + far;
            let forward = forward.map(|(start, slot)| (start, order, slot));
            let input = slot(Pass::I, 1).map(|(start, slot)| (start, 10 + far, slot));
            forward.into_iter().chain(input)
        });
        let order = if self.rule.eager { 15 } else { 30 };
        let weight = rank.owed.front().map(move |&slot| (rank.free, order, slot));
        passes.chain(weight)
    }

    fn take(&mut self, place: usize, start: u64, slot: Slot) {
        let stage = slot.stage as usize;
        let kind = kind(slot.pass);
        let end = start + self.work.times[stage][kind];
        let rank = &mut self.ranks[place];
        rank.free = end;
        rank.row.push(Cell::One(slot));
        match slot.pass {
            Pass::F => (rank.held, rank.under_way) = (rank.held + 1, rank.under_way + 1),
            Pass::W => {
                rank.held -= 1;
                rank.owed.pop_front();
                return;
            }
            Pass::I | Pass::B => {
                rank.under_way -= 1;
                rank.owed.push_back(Slot { pass: Pass::W, ..slot });
            }
        }
        let chunk = rank.stages.iter().position(|&other| other == slot.stage).unwrap_or(0);
        rank.next[chunk][kind] += 1;
        self.ready[stage][kind].pop_front();
        self.hand_on(place, slot, end);
    }

    /// What a pass makes is there for the next stage after a hop, if that stage stands on another rank.
    fn hand_on(&mut self, place: usize, slot: Slot, end: u64) {
        let stage = slot.stage as usize;
        let arrives = |game: &Self, to: usize, hop: usize| {
            let is_here = game.ranks[place].stages.contains(&u32::try_from(to).unwrap_or(u32::MAX));
            end + if is_here { 0 } else { game.work.hops[hop] }
        };
        let last = self.ready.len() - 1;
        match slot.pass {
            Pass::F if stage == last => self.ready[stage][1].push_back(end),
            Pass::F => {
                let time = arrives(self, stage + 1, stage);
                self.ready[stage + 1][0].push_back(time);
            }
            Pass::I | Pass::B if stage > 0 => {
                let time = arrives(self, stage - 1, stage - 1);
                self.ready[stage - 1][1].push_back(time);
            }
            _ => {}
        }
    }
}
