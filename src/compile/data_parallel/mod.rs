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

use std::collections::{BTreeMap, BTreeSet};

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::sharing::Sharing as Row;
use crate::base::{Bytes, Dtype, ParameterId, Rank};
use crate::program::tables::Group;
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
    /// Per seat, the numbers of its units in the program. Ranks that share out experts hold the same units but for their experts'.
    numbers: Vec<Vec<u32>>,
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
        let takes_tied = |stages: &[usize]| !parameters(training, slices, 0, stages, true).is_empty();
        let tied: Vec<usize> = (0..homes.of_row.len()).filter(|&row| takes_tied(&homes.of_row[row])).collect();
        let tied = if training.splits_embedding() { tied } else { Vec::new() };
        let (mut units, mut all) = (Vec::new(), Vec::new());
        for stages in &homes.of_row {
            for place in 0..training.places() {
                let own = parameters(training, slices, place, stages, false);
                let is_shared_out = |id: &ParameterId| training.expert > 1 && program.parameters[id.index()].expert().is_some();
                let cut = |of_experts: bool, shards: usize| match row.parameters {
                    _ if data == 1 => Vec::new(),
                    true => {
                        let units = stages.iter().flat_map(|&stage| wrapped(training, slices, (place, shards), stage));
                        units.filter_map(|unit| only(unit, |id| is_shared_out(id) == of_experts)).collect()
                    }
                    false => {
                        // What is tied is summed apart.
                        let apart = (!tied.is_empty()).then(|| slices.tied(place));
                        let own: Vec<ParameterId> = own.iter().copied().filter(|id| is_shared_out(id) == of_experts).collect();
                        bucketed(program, training, shards, &own, apart)
                    }
                };
                let mut own_units = cut(false, shards);
                let of_experts = if training.expert > 1 { cut(true, (shards / training.expert).max(1)) } else { Vec::new() };
                own_units.extend(of_experts.into_iter().map(|unit| {
                    let label = format!("experts.{}", unit.label);
                    Unit { label, apart: training.expert, ..unit }
                }));
                units.push(own_units);
                all.push(own);
            }
        }
        // Who shares gradients has no room to wait for the next, but for stages.
        let waits = sums_once && (!row.gradients || training.accumulates_whole());
        let every_micro_batch = data > 1 && !waits;
        let numbers = numbers(training, &units);
        Self { row, data, shards, every_micro_batch, units, numbers, parameters: all, tied, alike }
    }

    /// The number in the program of a seat's unit.
    pub(super) fn number(&self, seat: usize, place: usize) -> u32 {
        self.numbers[seat][place]
    }

    /// All units of the program.
    pub(super) fn all_units(&self) -> Vec<Unit> {
        let all = self.numbers.iter().flatten().zip(self.units.iter().flatten());
        all.map(|(&number, unit)| (number, unit)).collect::<BTreeMap<u32, &Unit>>().into_values().cloned().collect()
    }

    /// Who shares a seat's unit: of experts only those replicas that have the same ones, every so many along the data axis.
    pub(super) fn replicas(&self, seat: usize, place: usize) -> Replicas {
        let apart = self.units[seat][place].apart;
        Replicas { data: self.data / apart, shards: (self.shards / apart).max(1), apart }
    }

    /// Whether several copies of the shards exist.
    pub(super) fn is_hybrid(&self) -> bool {
        self.row.optimizer && self.shards < self.data
    }

    /// The place of the shard that `rank`, one of all, keeps of its unit at `place`.
    pub(super) fn place(&self, training: &Training, rank: Rank, place: usize) -> usize {
        let Replicas { shards, apart, .. } = self.replicas(training.seat(rank), place);
        training.data_place(rank) / apart % shards
    }

    /// The number of ranks among which parameters are cut between forward and backward, where those are fewer than share a copy.
    pub(super) fn near(&self, training: &Training) -> Option<usize> {
        match training.fsdp.reshard_after_forward {
            Reshard::To(ranks) if self.row.parameters && ranks < self.shards => Some(ranks),
            _ => None,
        }
    }

    /// Those, among all ranks, whom `rank` meets for its unit at `unit`, itself among them.
    pub(super) fn members(&self, training: &Training, (rank, unit): (Rank, usize), meeting: Meeting) -> Vec<Rank> {
        let rank = training.folding.unfold(rank, 0);
        let rows = &self.alike[training.mesh.coordinate(rank, Axis::Pipeline)];
        let Replicas { data, shards, apart } = self.replicas(training.seat(rank), unit);
        let place = training.data_place(rank) / apart;
        let (first, size, stride) = match meeting {
            Meeting::Copy if self.is_hybrid() => (place / shards * shards, shards, 1),
            Meeting::Replicas => (place % shards, data / shards, shards),
            Meeting::Near(size) => (place / size * size, size, 1),
            Meeting::All | Meeting::Copy => (0, data, 1),
        };
        let all = rows.iter().flat_map(|&row| training.data_group(training.mesh.with(rank, Axis::Pipeline, row)));
        let has_the_same = |other: &Rank| apart == 1 || training.expert_place(*other) == training.expert_place(rank);
        all.filter(has_the_same).skip(first).step_by(stride).take(size).collect()
    }

    /// The group of these members, which meet for the first one's unit at `unit`.
    pub(super) fn group(&self, training: &Training, (all, unit): (&[Rank], usize), meeting: Meeting) -> Group {
        let Replicas { data, shards, apart } = self.replicas(training.seat(all[0]), unit);
        // Who has the same experts as others is told apart from whoever else has them.
        let of = if apart == 1 { "" } else { "e" };
        let is_copy = meeting == Meeting::Copy && self.is_hybrid();
        let kind = match meeting {
            Meeting::Copy if is_copy => "fsdp",
            Meeting::Replicas => "rep",
            Meeting::Near(_) => "near",
            Meeting::All | Meeting::Copy => "dp",
        };
        let number = |rank: Rank| {
            let row = self.alike[training.mesh.coordinate(rank, Axis::Pipeline)][0];
            let first = training.mesh.with(rank, Axis::Pipeline, row);
            let seat = if apart == 1 { dense_seat(training, first) } else { training.seat(first) };
            let place = training.data_place(rank) / apart;
            match meeting {
                Meeting::Copy if is_copy => (seat * data + place) / shards,
                Meeting::Replicas => seat * shards + place % shards,
                Meeting::Near(size) => (seat * data + place) / size,
                Meeting::All | Meeting::Copy => seat,
            }
        };
        Group::new(&training.folding, &format!("{of}{kind}"), Some(&number), all)
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

/// The replicas that share a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replicas {
    /// How many they are.
    pub data: usize,
    /// How many of them share one copy.
    pub shards: usize,
    /// How far apart they stand along the data axis.
    pub apart: usize,
}

/// The seat of a rank as far as all but its experts are concerned.
fn dense_seat(training: &Training, rank: Rank) -> usize {
    let tensor = training.mesh.size(Axis::Tensor);
    training.mesh.coordinate(rank, Axis::Pipeline) * tensor + training.mesh.coordinate(rank, Axis::Tensor)
}

/// Per seat, the numbers of its units: those that ranks with other experts share come first, and have one number.
fn numbers(training: &Training, units: &[Vec<Unit>]) -> Vec<Vec<u32>> {
    let (places, tensor) = (training.places(), training.mesh.size(Axis::Tensor));
    let mut numbers: Vec<Vec<u32>> = Vec::with_capacity(units.len());
    let mut next = 0..;
    for (seat, units) in units.iter().enumerate() {
        let place = seat % places;
        let dense = units.iter().take_while(|unit| unit.apart == 1).count();
        let known = if place < tensor { Vec::new() } else { numbers[seat - place + place % tensor][..dense].to_vec() };
        let fresh = units.len() - known.len();
        numbers.push(known.into_iter().chain(next.by_ref().take(fresh)).collect());
    }
    numbers
}

/// What of a unit is to be kept, if anything is.
fn only(unit: Unit, is_kept: impl Fn(&ParameterId) -> bool) -> Option<Unit> {
    let parameters: Vec<ParameterId> = unit.parameters.into_iter().filter(is_kept).collect();
    (!parameters.is_empty()).then_some(Unit { parameters, ..unit })
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
        Unit { label, parameters: own, shards, apart: 1 }
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
        apart: 1,
    };
    buckets.into_iter().enumerate().map(unit).collect()
}
