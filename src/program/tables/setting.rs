//! What the kernels of a program need to know beside their operands.

use crate::base::Rank;
use crate::base::context::Attention;
use crate::base::experts::Experts;
use crate::base::folding::Folding;
use crate::base::mesh::{Line, place_on};
use crate::base::mixture::Groups;
use crate::base::model::{Model, Segment};
use crate::base::settings::{Dtype, FeedForwardSplit, Optimizer};
use crate::base::split::Split;

/// What the kernels need to know beside their operands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// The model; `None` for a bare piece.
    pub model: Option<Model>,
    /// The attention layer that stands alone, if one does; with a model that of each layer on ranks that have slices of the sequences.
    pub attention: Option<Attention>,
    /// The mixture of experts that stands alone, if one does.
    pub experts: Option<Experts>,
    /// Sequences in a micro-batch.
    pub micro_batch_size: usize,
    /// Sequences of each micro-batch of a rank's step, where they differ; else empty.
    pub micro_batch_sizes: Vec<u32>,
    /// Micro-batches of different sizes count alike: the mean of means, which is not the mean.
    pub mean_of_means: bool,
    /// Segments that sequences are cut into; 0 where they are whole. Micro-batches are counted in segments then.
    pub segments: u32,
    /// Micro-batches of a step over all data-parallel ranks: what gradients are averaged over.
    pub micro_batches_per_step: u32,
    /// Training steps.
    pub steps: u32,
    /// Steps that were done before the first: a run that goes on from a checkpoint.
    pub first_step: u32,
    /// Micro-batches of which some tokens do not count.
    pub padded: Option<Padded>,
    /// Type of parameters, gradients and activations.
    pub dtype: Dtype,
    /// Exact mode: gradients are rounded to multiples of 2^-grid before they are summed, so that sums do not depend on their order.
    pub grid: Option<i32>,
    /// Precision at which parameters start: an f64 run starts where the f32 run that it judges does.
    pub initial: Dtype,
    /// Seed of parameters and data.
    pub seed: u64,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The ranks that share a layer's tensors. Lines are of all ranks, those that are folded each for itself.
    pub tensor: Line,
    /// How they cut the feed-forward's matrices.
    pub feed_forward: FeedForwardSplit,
    /// The ranks that have slices of every sequence; which is told by `attention`.
    pub context: Line,
    /// Replicas.
    pub data: Line,
    /// As a fault, all of those that share tensors start with the first one's slices.
    pub same_seed: bool,
    /// As a fault, each of them adds the bias that belongs behind their sum.
    pub bias_before_sum: bool,
    /// Which ranks do the same at the same time, and are followed as one.
    pub folding: Folding,
}

impl Setting {
    /// What `rank` has of the tensors of a layer.
    #[must_use]
    pub fn split(&self, rank: Rank) -> Split {
        Split { ranks: self.tensor.ranks, place: self.tensor.place(rank), feed_forward: self.feed_forward }
    }

    /// The one of a micro-batch's groups of tokens that `rank` routes, where it does not route all.
    #[must_use]
    pub fn own_group(&self, rank: Rank, groups: Groups) -> usize {
        groups.number(self.context.place(rank), self.tensor.place(rank) % groups.stretches.max(1))
    }

    /// Sequences of a micro-batch of the run, and what its mean loss weighs beside that of an average one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of sequences")]
    pub fn size_and_weight(&self, micro_batch: u32) -> (usize, f64) {
        let sizes = &self.micro_batch_sizes;
        let Some(&size) = sizes.get(micro_batch as usize % sizes.len().max(1)) else { return (self.micro_batch_size, 1.0) };
        let all: u32 = sizes.iter().sum();
        let weight = f64::from(size) * sizes.len() as f64 / f64::from(all);
        (size as usize, if self.mean_of_means { 1.0 } else { weight })
    }

    /// The place of `rank`, one of all, among those that hold the same parameters and see different data: replicas, and within each those that
    /// have slices of its sequences.
    #[must_use]
    pub fn data_place(&self, rank: Rank) -> usize {
        place_on([self.data, self.context], rank)
    }

    /// The number of the first sequence of a micro-batch of the run.
    #[must_use]
    pub fn first_sample(&self, micro_batch: u32) -> u64 {
        let sizes = &self.micro_batch_sizes;
        if sizes.is_empty() {
            return u64::from(micro_batch) * self.micro_batch_size as u64;
        }
        let (rounds, place) = (micro_batch as usize / sizes.len(), micro_batch as usize % sizes.len());
        let sum = |sizes: &[u32]| sizes.iter().copied().map(u64::from).sum::<u64>();
        rounds as u64 * sum(sizes) + sum(&sizes[..place])
    }
}

/// Padding in the data of one data-parallel rank: of its sequences only the first tokens count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padded {
    /// The first micro-batch of the run.
    pub first: u32,
    /// Micro-batches that a rank takes behind each other.
    pub each: u32,
    /// Ranks that take turns; at least 1.
    pub ranks: u32,
    /// Which of them has the padded ones.
    pub place: u32,
    /// Tokens of a sequence that count.
    pub tokens: usize,
    /// A micro-batch counts by its tokens; otherwise as much as any other.
    pub weighted: bool,
}

impl Padded {
    /// Whether the data of `micro_batch` is padded.
    #[must_use]
    pub fn meets(&self, micro_batch: u32) -> bool {
        micro_batch.saturating_sub(self.first) / self.each.max(1) % self.ranks.max(1) == self.place
    }

    /// By how much the mean loss of a segment of `micro_batch` counts, where an average one counts 1; `sequence` is what a full sequence
    /// has. The segments of a micro-batch count by their tokens in any case.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
    pub fn weight(&self, micro_batch: u32, sequence: usize, segment: Segment) -> f64 {
        let tokens = if self.meets(micro_batch) { self.tokens } else { sequence };
        let own = sequence / segment.of;
        let in_segment = tokens.saturating_sub(segment.place * own).min(own);
        let share = (in_segment * segment.of) as f64 / tokens as f64;
        if !self.weighted {
            return share;
        }
        let others = f64::from(self.ranks) - 1.0;
        let mean = (others * sequence as f64 + self.tokens as f64) / f64::from(self.ranks);
        share * tokens as f64 / mean
    }
}
