//! Trouble: the faults that a scenario asks for, as data. The first rule that fits an op applies.

use crate::base::{AttentionBug, Rank};

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
    /// A mistake in the implementation of attention, on all ranks and in all ops.
    Attention(AttentionBug),
}

/// A row of [`TroubleKind::ALL`].
const fn attention(bug: AttentionBug, meaning: &'static str) -> (TroubleKind, &'static str, &'static str) {
    (TroubleKind::Attention(bug), AttentionBug::NAMES[bug as usize], meaning)
}

impl TroubleKind {
    /// All kinds with their names in scenarios and what they do.
    pub const ALL: [(Self, &'static str, &'static str); 15] = [
        (Self::SlowRank, "slow-rank", "compute ops of the rank take `factor` times as long"),
        (Self::SlowLink, "slow-link", "messages sent by the rank take `factor` times as long"),
        (Self::SkipOp, "skip-op", "the op is left out"),
        (Self::SwapOps, "swap-ops", "the op changes places with the next one of its stream"),
        attention(AttentionBug::NoRescale, "[layer]: the output so far is not rescaled when a block joins it"),
        attention(AttentionBug::AverageMerge, "[layer]: blocks' outputs are averaged, whatever their weights"),
        attention(AttentionBug::MaxLse, "[layer]: the log-sum-exp of two blocks is the larger one"),
        attention(AttentionBug::Bf16Blocks, "[layer]: a block's output is rounded to bf16"),
        attention(AttentionBug::LocalMask, "[layer]: the causal mask compares places inside the slices"),
        attention(AttentionBug::WrongNeighbour, "[layer]: forward, blocks come from the wrong neighbour of the ring"),
        attention(AttentionBug::NoDelta, "[layer]: backward leaves out D = rowsum(dO O)"),
        attention(AttentionBug::BlockLse, "[layer]: backward takes each block's log-sum-exp, not the final one"),
        attention(AttentionBug::ShortHop, "[layer]: the gradients of k and v stop one hop before home"),
        attention(AttentionBug::SwappedStripes, "[layer]: striped, with strict and inclusive masks swapped"),
        attention(AttentionBug::NaiveLse, "[layer]: the log-sum-exp as a + log(1 + e^(b-a)), which overflows"),
    ];

    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }
}
