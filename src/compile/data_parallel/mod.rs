//! Data parallelism: what the ranks that see different data keep whole, and what they share out among themselves.
//!
//! [`TABLE`] is all that the strategies are. The rest follows from its three columns:
//!
//! - What is **shared out** is cut into as many shards as there are ranks, and each rank keeps one (`state`).
//! - Shared **parameters** are gathered before a unit computes and freed behind it, forward and backward (`gather`).
//! - Whole gradients are all-reduced once a step. Shared **gradients** are reduce-scattered every micro-batch, as no rank has room to wait
//!   for the next (`reduce`).
//! - With a shared **optimizer** every rank updates its shard; where parameters are whole, they are gathered once behind it (`optimizer`).
//!
//! Source: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models", arXiv 1910.02054.

pub(super) mod gather;
pub(super) mod reduce;
mod state;

use std::ops::Range;

use crate::base::mesh::Axis;
use crate::base::{Bytes, Dtype, ParameterId, Rank, Strategy};
use crate::program::tables::{Fold, Group};
use crate::program::{Program, Unit};
use crate::scenario::Training;

use super::buckets;
pub(super) use state::{Copies, Held, add as add_state};

/// A row of the table: what a strategy shares out.
#[derive(Debug)]
pub(super) struct Row {
    pub strategy: Strategy,
    pub optimizer: bool,
    pub gradients: bool,
    pub parameters: bool,
}

/// Every strategy.
const TABLE: [Row; 5] = [
    Row { strategy: Strategy::Ddp, optimizer: false, gradients: false, parameters: false },
    Row { strategy: Strategy::Zero1, optimizer: true, gradients: false, parameters: false },
    Row { strategy: Strategy::Zero2, optimizer: true, gradients: true, parameters: false },
    Row { strategy: Strategy::Zero3, optimizer: true, gradients: true, parameters: true },
    Row { strategy: Strategy::Fsdp, optimizer: true, gradients: true, parameters: true },
];

/// A strategy on a mesh and a model: which ranks share which units.
pub(super) struct Sharing {
    pub row: &'static Row,
    /// Data-parallel ranks.
    pub data: usize,
    /// Ranks that share one copy; fewer than `data` in hybrid sharding.
    pub shards: usize,
    /// Gradients are summed every micro-batch, not once a step.
    pub every_micro_batch: bool,
    /// Per stage, its units: what is cut up, gathered and reduced together.
    pub units: Vec<Vec<Unit>>,
    /// Per stage, the parameters that it has.
    pub parameters: Vec<Range<usize>>,
}

impl Sharing {
    /// Cuts the parameters of every stage into units. One rank shares with nobody: there all strategies are the same.
    pub(super) fn new(program: &Program, training: &Training) -> Self {
        let data = training.mesh.size(Axis::Data) * training.fold;
        let strategy = training.data_parallel.strategy;
        let row = TABLE.iter().find(|row| row.strategy == strategy).expect("a row for each strategy");
        let shards = if row.parameters { training.fsdp.shard_size.min(data) } else { data };
        let (row, shards) = if shards == 1 || !row.optimizer { (&TABLE[0], 1) } else { (row, shards) };
        let parameters: Vec<Range<usize>> = (0..training.stages()).map(|stage| parameters(program, training, stage)).collect();
        let units = |(stage, own): (usize, &Range<usize>)| match row.parameters {
            _ if data == 1 => Vec::new(),
            true => wrapped(program, training, shards, stage),
            false => bucketed(program, training, shards, own.clone()),
        };
        let units = parameters.iter().enumerate().map(units).collect();
        let every_micro_batch = data > 1 && (row.gradients || !training.data_parallel.no_sync);
        Self { row, data, shards, every_micro_batch, units, parameters }
    }

    /// The number in names of the first unit of `stage`.
    pub(super) fn first_unit(&self, stage: usize) -> u32 {
        u32::try_from(self.units[..stage].iter().map(Vec::len).sum::<usize>()).expect("fewer units than parameters")
    }

    /// Whether several copies of the shards exist.
    pub(super) fn is_hybrid(&self) -> bool {
        self.row.optimizer && self.shards < self.data
    }

    /// The place of the shard that `rank` keeps.
    pub(super) fn place(&self, training: &Training, rank: Rank) -> usize {
        training.mesh.coordinate(rank, Axis::Data) % self.shards
    }

    /// The group in which `rank` meets others. Folded ranks meet whom they stand for.
    pub(super) fn group(&self, training: &Training, rank: Rank, meeting: Meeting) -> Group {
        let (stage, place) = (training.mesh.coordinate(rank, Axis::Pipeline), training.mesh.coordinate(rank, Axis::Data));
        let (name, first, size, stride) = match meeting {
            Meeting::Copy if self.is_hybrid() => {
                (format!("fsdp{}", (stage * self.data + place) / self.shards), place / self.shards * self.shards, self.shards, 1)
            }
            Meeting::Replicas => {
                let first = place % self.shards;
                (format!("rep{}", stage * self.shards + first), first, self.data / self.shards, self.shards)
            }
            Meeting::All | Meeting::Copy => (format!("dp{stage}"), 0, self.data, 1),
        };
        if training.fold > 1 {
            return Group { name, ranks: vec![rank], fold: Fold { size, stride } };
        }
        let ranks = training.mesh.group(rank, Axis::Data).into_iter().skip(first).step_by(stride).take(size).collect();
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
}

/// Bytes of so many elements.
pub(super) fn bytes(elements: usize, dtype: Dtype) -> Bytes {
    Bytes(elements as u64 * dtype.size())
}

/// Numbers of the parameters of `stage`.
fn parameters(program: &Program, training: &Training, stage: usize) -> Range<usize> {
    let parts = training.parts(stage);
    let is_own = |parameter: &crate::base::model::Parameter| parts.contains(&parameter.part);
    let first = program.parameters.iter().position(is_own).unwrap_or(0);
    first..first + program.parameters[first..].iter().take_while(|parameter| is_own(parameter)).count()
}

/// Units of shared parameters: layers, as the scenario wraps them.
fn wrapped(program: &Program, training: &Training, shards: usize, stage: usize) -> Vec<Unit> {
    let unit = |parts: Vec<crate::base::model::Part>| {
        let own = (0..).zip(&program.parameters).filter(|(_, parameter)| parts.contains(&parameter.part));
        let label = match parts.as_slice() {
            [first, .., last] => format!("{first}..{last}"),
            [only] => only.to_string(),
            [] => String::new(),
        };
        Unit { label, parameters: own.map(|(number, _)| ParameterId(number)).collect(), shards }
    };
    training.wrapped(stage).into_iter().map(unit).collect()
}

/// Units of whole parameters: buckets of gradients, in the order in which backward makes them, which is registration order reversed.
fn bucketed(program: &Program, training: &Training, shards: usize, own: Range<usize>) -> Vec<Unit> {
    let parameters: Vec<ParameterId> = own.rev().map(ParameterId::new).collect();
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
