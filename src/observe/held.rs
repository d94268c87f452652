//! Held: which buffers a rank's memory holds at any event, and who gives them back.

use super::ledger::Ledger;
use super::replay::replay_memory;
use super::run::Run;
use crate::base::{BufferId, OpId, Rank};

/// The lives of all buffers.
#[derive(Clone, Debug)]
pub struct Lives {
    /// Per rank, its buffers' lives by their starts.
    ranks: Vec<Vec<Life>>,
    /// Per event, the moments up to and with it.
    moments: Vec<u32>,
    /// Per rank, the moment behind which it holds the most.
    peaks: Vec<u32>,
}

/// One stretch in which a buffer has memory, counted in starts and ends of ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The buffer.
    pub buffer: BufferId,
    /// The op whose end gives its memory back; `None` if none does.
    pub freed_by: Option<OpId>,
    from: u32,
    until: u32,
}

impl Lives {
    /// Follows the run once. Linear in its ops.
    #[must_use]
    pub fn new(run: &Run, ledger: &Ledger) -> Self {
        let program = run.program;
        let mut ranks: Vec<Vec<Life>> = vec![Vec::new(); program.ranks()];
        let mut open: Vec<Option<u32>> = vec![None; program.buffers.len()];
        let rank_of = |buffer: BufferId| program.buffers[buffer.index()].rank.index();
        let take = |ranks: &mut Vec<Vec<Life>>, open: &mut Vec<Option<u32>>, buffer: BufferId, from: u32| {
            let lives = &mut ranks[rank_of(buffer)];
            if open[buffer.index()].is_none() {
                open[buffer.index()] = u32::try_from(lives.len()).ok();
                lives.push(Life { buffer, freed_by: None, from, until: u32::MAX });
            }
        };
        for (index, entry) in program.buffers.iter().enumerate() {
            if entry.lives_from_start() {
                take(&mut ranks, &mut open, BufferId::new(index), 0);
            }
        }
        let mut moments = vec![0; run.trace.events.len() + 1];
        let mut peaks = vec![0; program.ranks()];
        let mut now = 0_u32;
        replay_memory(run, |moment| {
            now += 1;
            moments[moment.event as usize] = now;
            if moment.starts {
                program.op(moment.op).writes.iter().for_each(|&buffer| take(&mut ranks, &mut open, buffer, now));
                let rank = program.rank_of(moment.op);
                // A peak is a start: ends only give back.
                if ledger.rank(rank).peak().op == Some(moment.op) {
                    peaks[rank.index()] = now;
                }
                return;
            }
            for buffer in program.frees(moment.op) {
                if let Some(place) = open[buffer.index()].take() {
                    let life = &mut ranks[rank_of(buffer)][place as usize];
                    (life.until, life.freed_by) = (now, Some(moment.op));
                }
            }
        });
        Self { ranks, moments, peaks }
    }

    /// What `rank` holds behind `event` events.
    pub fn at(&self, rank: Rank, event: usize) -> impl Iterator<Item = Life> + '_ {
        let last = self.moments.len().saturating_sub(1);
        self.behind(rank, self.moments.get(event.min(last)).copied().unwrap_or(0))
    }

    /// What `rank` holds at its peak.
    pub fn at_peak(&self, rank: Rank) -> impl Iterator<Item = Life> + '_ {
        self.behind(rank, self.peaks[rank.index()])
    }

    fn behind(&self, rank: Rank, moment: u32) -> impl Iterator<Item = Life> + '_ {
        let lives = &self.ranks[rank.index()];
        let begun = lives.partition_point(|life| life.from <= moment);
        lives[..begun].iter().copied().filter(move |life| life.until > moment)
    }
}
