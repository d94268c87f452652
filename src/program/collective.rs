//! Collectives: what a group of ranks does together, and the units of state that they do it to.

use super::tables::Program;
use crate::base::mesh::Line;
use crate::base::settings::Dtype;
use crate::base::{Bytes, GroupId, ParameterId, Rank};

/// A group of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name, such as `dp0` or `world`.
    pub name: String,
    /// Its members, in order.
    pub ranks: Vec<Rank>,
    /// Whom each of them stands for.
    pub fold: Fold,
}

/// Whom a member of a group stands for: ranks of the folded whole, `stride` apart, the member's own the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// How many they are.
    pub size: usize,
    /// How far apart they are.
    pub stride: usize,
}

impl Default for Fold {
    /// A rank stands for itself.
    fn default() -> Self {
        Self { size: 1, stride: 1 }
    }
}

impl Group {
    /// How many ranks meet: all that the members stand for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ranks.len() * self.fold.size
    }
}

/// One collective operation of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The group.
    pub group: GroupId,
    /// What is done.
    pub kind: CollectiveKind,
    /// What it is done to: `bucket3`, `payload`, `step`.
    pub label: String,
    /// The step that it belongs to.
    pub step: u32,
    /// Payload of one rank: what an all-reduce sums, what a reduce-scatter cuts up, what an all-gather puts together.
    pub bytes: Bytes,
    /// Type of the payload's elements.
    pub dtype: Dtype,
    /// What was added to the payload so that every member has an equal share.
    pub padding: Bytes,
    /// The payload is one shard of so many, which have the padding together; 1 where it is whole.
    pub shards: usize,
}

impl Collective {
    /// Elements of the payload without padding; of a shard, their mean over all shards.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "elements of a checked model")]
    pub fn payload(&self) -> f64 {
        let shards = self.shards.max(1) as u64;
        (self.bytes.0 * shards - self.padding.0) as f64 / (shards * self.dtype.size()) as f64
    }
}

/// A unit of sharded state: parameters that are cut up, gathered and reduced together. Their tensors lie flat behind each other, zeros
/// make up the length, and every one of `shards` ranks has an equal piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name: `blocks.3`, `bucket0`.
    pub label: String,
    /// Its parameters, in the order in which they lie.
    pub parameters: Vec<ParameterId>,
    /// Into how many pieces it is cut.
    pub shards: usize,
}

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Every member's buffers become the sum over the members.
    AllReduce,
    /// Every member gets its N-th of the sum over the members.
    ReduceScatter,
    /// Every member gets the N-ths of all members.
    AllGather,
    /// The members meet.
    Barrier,
    /// Every member cuts what it has along its heads and sends a piece to each, or puts such pieces together again.
    AllToAll,
}

impl CollectiveKind {
    /// All kinds with their names in program texts.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::AllReduce, "all-reduce"),
        (Self::ReduceScatter, "reduce-scatter"),
        (Self::AllGather, "all-gather"),
        (Self::Barrier, "barrier"),
        (Self::AllToAll, "all-to-all"),
    ];

    /// Its name in program texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether it is made of the messages of an algorithm, where messages are followed: sums and gathers.
    #[must_use]
    pub fn is_expanded(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::AllGather)
    }

    /// How often the payload passes a member: an all-reduce is a reduce-scatter and an all-gather.
    #[must_use]
    pub fn rounds(self) -> u64 {
        [2, 1, 1, 0, 1][self as usize]
    }

    /// How many messages stand one behind the other among so many members: a ring's; one where they only meet.
    #[must_use]
    pub fn latencies(self, members: u64) -> u64 {
        if self == Self::Barrier { 1 } else { self.rounds() * members.saturating_sub(1) }
    }
}

impl Unit {
    /// Elements of its parameters.
    #[must_use]
    pub fn elements(&self, program: &Program) -> usize {
        self.parameters.iter().map(|parameter| program.parameters[parameter.index()].elements()).sum()
    }

    /// Elements of one shard: the last ones may hold zeros beside parameters, or nothing else.
    #[must_use]
    pub fn shard_elements(&self, program: &Program) -> usize {
        self.elements(program).div_ceil(self.shards.max(1))
    }

    /// Zeros in the shard at `place`.
    #[must_use]
    pub fn padding(&self, program: &Program, place: usize) -> usize {
        let (all, shard) = (self.elements(program), self.shard_elements(program));
        shard - all.saturating_sub(place * shard).min(shard)
    }
}

impl Program {
    /// How many ranks each rank stands for.
    #[must_use]
    pub fn fold(&self) -> usize {
        self.setting.fold.ranks
    }

    /// The number, among all ranks, of the `folded`-th that `rank` stands for.
    #[must_use]
    pub fn unfolded(&self, rank: Rank, folded: usize) -> usize {
        let Line { ranks, stride } = self.setting.fold;
        rank.index() / stride * stride * ranks + folded * stride + rank.index() % stride
    }
}
