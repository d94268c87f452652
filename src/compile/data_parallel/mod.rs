//! Data parallelism: what the ranks that see different data keep whole, and what they share out among themselves.
//!
//! The table in [`crate::base::sharing`] is all that the strategies are. The rest follows from its three columns:
//!
//! - What is **shared out** is cut into as many shards as there are ranks, and each rank keeps one (`state`).
//! - Shared **parameters** are gathered before a unit computes and freed behind it, forward and backward (`gather`).
//! - Whole gradients are all-reduced once a step. Shared **gradients** are reduce-scattered every micro-batch, as no rank has room to wait
//!   for the next (`reduce`); FSDP's stages have, and add up whole ones over a step.
//! - With a shared **optimizer** every rank updates its shard; where parameters are whole, they are gathered once behind it (`optimizer`).

pub(super) mod gather;
pub(super) mod reduce;
mod state;

use std::collections::BTreeSet;

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::sharing::Sharing as Row;
use crate::base::{Bytes, Dtype, ParameterId, Rank};
use crate::program::tables::{Fold, Group};
use crate::program::{Program, Unit};
use crate::scenario::{Reshard, Training};

use super::buckets;
use super::homes::Homes;
use super::slices::Slices;
pub(super) use state::{Copies, Held, add as add_state};

/// A strategy on a mesh and a model: which ranks share which units.
pub(super) struct Sharing {
    pub row: &'static Row,
    /// Ranks that see different data and hold the same parameters: replicas, and both homes of a stage that stands twice.
    pub data: usize,
    /// Ranks that share one copy; fewer than `data` in hybrid sharding.
    pub shards: usize,
    /// Gradients are summed every micro-batch, not once a step.
    pub every_micro_batch: bool,
    /// Per seat, the units of its stages: what is cut up, gathered and reduced together.
    pub units: Vec<Vec<Unit>>,
    /// Per seat, the parameters of its stages, in order.
    pub parameters: Vec<Vec<ParameterId>>,
    /// Pipeline ranks that share a tied embedding and nothing else; empty where it stands with its head.
    pub tied: Vec<usize>,
    /// Per pipeline rank, those that hold the same stages.
    alike: Vec<Vec<usize>>,
}

impl Sharing {
    /// Cuts the parameters of every seat into units; `sums_once` leaves whole gradients to the end of a step. One rank shares with nobody: there
    /// all strategies are the same.
    pub(super) fn new(program: &Program, (training, sums_once): (&Training, bool), homes: &Homes, slices: &Slices) -> Self {
        let alike: Vec<Vec<usize>> = (0..homes.of_row.len()).map(|row| homes.alike(row)).collect();
        let data = training.data_ranks() * alike.first().map_or(1, Vec::len);
        let (row, shards) = training.sharing();
        let places = training.mesh.size(Axis::Tensor);
        let takes_tied = |stages: &[usize]| !parameters(training, slices, 0, stages, true).is_empty();
        let tied: Vec<usize> = (0..homes.of_row.len()).filter(|&row| takes_tied(&homes.of_row[row])).collect();
        let tied = if training.splits_embedding() { tied } else { Vec::new() };
        let (mut units, mut all) = (Vec::new(), Vec::new());
        for stages in &homes.of_row {
            for place in 0..places {
                let own = parameters(training, slices, place, stages, false);
                units.push(match row.parameters {
                    _ if data == 1 => Vec::new(),
                    true => stages.iter().flat_map(|&stage| wrapped(training, slices, (place, shards), stage)).collect(),
                    // What is tied is summed apart.
                    false if tied.is_empty() => bucketed(program, training, shards, &own, None),
                    false => bucketed(program, training, shards, &own, Some(slices.tied(place))),
                });
                all.push(own);
            }
        }
        // Who shares gradients has no room to wait for the next, but for stages.
        let waits = sums_once && (!row.gradients || training.accumulates_whole());
        let every_micro_batch = data > 1 && !waits;
        Self { row, data, shards, every_micro_batch, units, parameters: all, tied, alike }
    }

    /// The number in names of the first unit of a seat.
    pub(super) fn first_unit(&self, seat: usize) -> u32 {
        u32::try_from(self.units[..seat].iter().map(Vec::len).sum::<usize>()).expect("fewer units than parameters")
    }

    /// Whether several copies of the shards exist.
    pub(super) fn is_hybrid(&self) -> bool {
        self.row.optimizer && self.shards < self.data
    }

    /// The place of the shard that `rank` keeps.
    pub(super) fn place(&self, training: &Training, rank: Rank) -> usize {
        training.data_place(rank) % self.shards
    }

    /// The number of ranks among which parameters are cut between forward and backward, where those are fewer than share a copy.
    pub(super) fn near(&self, training: &Training) -> Option<usize> {
        match training.fsdp.reshard_after_forward {
            Reshard::To(ranks) if self.row.parameters && ranks < self.shards => Some(ranks),
            _ => None,
        }
    }

    /// The group in which `rank` meets others. Folded ranks meet whom they stand for.
    pub(super) fn group(&self, training: &Training, rank: Rank, meeting: Meeting) -> Group {
        let rows = &self.alike[training.mesh.coordinate(rank, Axis::Pipeline)];
        let first = training.mesh.with(rank, Axis::Pipeline, rows[0]);
        let (seat, place) = (training.seat(first), training.data_place(rank));
        let (name, first, size, stride) = match meeting {
            Meeting::Copy if self.is_hybrid() => {
                (format!("fsdp{}", (seat * self.data + place) / self.shards), place / self.shards * self.shards, self.shards, 1)
            }
            Meeting::Replicas => {
                let first = place % self.shards;
                (format!("rep{}", seat * self.shards + first), first, self.data / self.shards, self.shards)
            }
            Meeting::Near(size) => (format!("near{}", (seat * self.data + place) / size), place / size * size, size, 1),
            Meeting::All | Meeting::Copy => (format!("dp{seat}"), 0, self.data, 1),
        };
        if training.fold > 1 {
            let stride = stride * training.mesh.stride(Axis::Data);
            return Group { name, ranks: vec![rank], fold: Fold { size, stride } };
        }
        let all = rows.iter().flat_map(|&row| training.data_group(training.mesh.with(rank, Axis::Pipeline, row)));
        let ranks = all.skip(first).step_by(stride).take(size).collect();
        Group { name, ranks, fold: Fold::default() }
    }
}

/// Who meets: `dp0` is all replicas of stage 0, `fsdp0` the ranks that share one copy of the state, `rep0` those that keep the same shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meeting {
    /// All data-parallel ranks.
    All,
    /// The ranks that share one copy.
    Copy,
    /// The ranks that keep the same shard, one in each copy.
    Replicas,
    /// So many neighbours among those that share one copy.
    Near(usize),
}

/// Bytes of so many elements.
pub(super) fn bytes(elements: usize, dtype: Dtype) -> Bytes {
    Bytes(elements as u64 * dtype.size())
}

/// The parameters of `stages` that the rank at `place` holds, in order; or `only_tied`: the embedding's weight, if they look it up or make
/// logits with it.
fn parameters(training: &Training, slices: &Slices, place: usize, stages: &[usize], only_tied: bool) -> Vec<ParameterId> {
    let model = &training.model;
    let parts: BTreeSet<Part> = stages.iter().flat_map(|&stage| training.parts(stage)).collect();
    let mut all: Vec<ParameterId> = parts.into_iter().flat_map(|part| slices.taken(model, place, part)).collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|parameter| !only_tied || *parameter == slices.tied(place));
    all
}

/// Units of shared parameters: layers, as the scenario wraps them.
fn wrapped(training: &Training, slices: &Slices, (place, shards): (usize, usize), stage: usize) -> Vec<Unit> {
    let unit = |parts: Vec<Part>| {
        let own = parts.iter().flat_map(|&part| slices.own(&training.model, place, part)).copied().collect();
        let label = match parts.as_slice() {
            [first, .., last] => format!("{first}..{last}"),
            [only] => only.to_string(),
            [] => String::new(),
        };
        Unit { label, parameters: own, shards }
    };
    training.wrapped(stage).into_iter().map(unit).collect()
}

/// Units of whole parameters: buckets of gradients, in the order in which backward makes them, which is registration order reversed.
/// `apart` is summed by itself.
fn bucketed(program: &Program, training: &Training, shards: usize, own: &[ParameterId], apart: Option<ParameterId>) -> Vec<Unit> {
    let parameters: Vec<ParameterId> = own.iter().rev().copied().filter(|parameter| Some(*parameter) != apart).collect();
    let bytes = |parameter: &ParameterId| {
        Bytes(program.parameters[parameter.index()].elements() as u64 * training.precision.gradient.size())
    };
    let sizes: Vec<Bytes> = parameters.iter().map(bytes).collect();
    let buckets = buckets::assign(&sizes, training.data_parallel.first_bucket, training.data_parallel.bucket);
    let unit = |(number, bucket): (usize, buckets::Bucket)| Unit {
        label: format!("bucket{number}"),
        parameters: bucket.members.into_iter().map(|member| parameters[member]).collect(),
        shards,
    };
    buckets.into_iter().enumerate().map(unit).collect()
}
