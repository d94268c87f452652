//! Trouble: the faults that a scenario asks for, as data. The first rule that fits an op applies.

use crate::base::Rank;

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// What goes wrong.
    pub kind: TroubleKind,
    /// The rank it meets; `None` meets all ranks.
    pub rank: Option<Rank>,
    /// The ops it meets, as a prefix of an op's head in the program's text syntax (`all-reduce bucket0`, `F3`); empty meets all.
    pub op: String,
    /// The step it meets, from 0; `None` meets all steps.
    pub step: Option<u32>,
    /// How many times longer ops or messages take (slow-rank, slow-link).
    pub factor: f64,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// Compute ops of the rank take `factor` times as long.
    SlowRank,
    /// Messages from the rank take `factor` times as long.
    SlowLink,
    /// The op is left out; what it would have written stays as it was (zeros, if it was never written).
    SkipOp,
    /// The op changes places with the next op of its stream.
    SwapOps,
    /// Tensor-parallel ranks start their slices from the same random numbers: all have the first one's.
    SameSeed,
    /// The one matrix of queries, keys and values is cut by rows, as they lie, and not by heads.
    RowsOfQkv,
    /// The bias behind a row-parallel product is added on every rank, before the sum: it counts as often as there are ranks.
    BiasBeforeSum,
}

impl TroubleKind {
    /// All kinds with their names in scenarios and what they do.
    pub const ALL: [(Self, &'static str, &'static str); 7] = [
        (Self::SlowRank, "slow-rank", "compute ops of the rank take `factor` times as long"),
        (Self::SlowLink, "slow-link", "messages sent by the rank take `factor` times as long"),
        (Self::SkipOp, "skip-op", "the op is left out"),
        (Self::SwapOps, "swap-ops", "the op changes places with the next one of its stream"),
        (Self::SameSeed, "same-seed", "tensor-parallel ranks start their slices alike: shards are copies"),
        (Self::RowsOfQkv, "rows-of-qkv", "the fused matrix of queries, keys and values is cut as its rows lie, not by heads"),
        (Self::BiasBeforeSum, "bias-before-sum", "tensor-parallel ranks each add the bias that belongs behind their sum"),
    ];

    /// Whether it is about how tensors are cut, and meets no op.
    #[must_use]
    pub fn is_of_slices(self) -> bool {
        matches!(self, Self::SameSeed | Self::RowsOfQkv | Self::BiasBeforeSum)
    }

    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }
}
