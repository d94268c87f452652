//! The sequence axis: which tokens of a sequence a context-parallel rank holds, and how much attention there is between two ranks' tokens.

use std::cmp::Ordering;

use super::settings::{AttentionBug, AttentionTensor, Dtype, Placement};
use super::units::{Bytes, gcd};

/// An attention layer whose sequence is cut into slices: what its kernels must know beside their operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Tokens of each.
    pub sequence: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides the query heads.
    pub kv_heads: usize,
    /// Size of a head.
    pub head_size: usize,
    /// A query sees no key behind it.
    pub causal: bool,
    /// Pieces of the sequence.
    pub slices: usize,
    /// Which tokens belong to which slice.
    pub placement: Placement,
    /// What the given queries and keys are multiplied by: scores grow with its square.
    pub sharpness: f64,
    /// What is wrong with the implementation.
    pub bug: Option<AttentionBug>,
}

/// [`Attention::pairs`] of all blocks, counted once: what the mask leaves of one depends on the order of its two slices alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    earlier: u64,
    same: u64,
    later: u64,
}

impl Pairs {
    /// Those of queries of one slice and keys of another.
    #[must_use]
    pub fn of(self, queries: usize, keys: usize) -> u64 {
        match queries.cmp(&keys) {
            Ordering::Less => self.earlier,
            Ordering::Equal => self.same,
            Ordering::Greater => self.later,
        }
    }
}

/// How many of a layer's heads a tensor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeadShare {
    /// All of them.
    All,
    /// Those of one of the ranks, which hold equally many.
    One,
}

impl Attention {
    /// The positions of a slice's tokens.
    #[must_use]
    pub fn positions(&self, slice: usize) -> Vec<u32> {
        self.placement.positions(self.sequence, self.slices, slice)
    }

    /// Tokens of a slice.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.sequence / self.slices
    }

    /// The positions of two slices' tokens as the causal mask between them compares them.
    #[must_use]
    pub fn compared(&self, queries: usize, keys: usize) -> [Vec<u32>; 2] {
        let own = || (0..u32::try_from(self.tokens()).expect("a checked length of a sequence")).map(|row| 2 * row);
        match self.bug {
            Some(AttentionBug::LocalMask) => [own().collect(), own().collect()],
            Some(AttentionBug::SwappedStripes) => {
                let strict = u32::from(keys <= queries);
                [own().collect(), own().map(|row| row + strict).collect()]
            }
            _ => [self.positions(queries), self.positions(keys)],
        }
    }

    /// Pairs of a query of one slice and a key of another that are not masked.
    #[must_use]
    pub fn pairs(&self, queries: usize, keys: usize) -> u64 {
        if !self.causal {
            return self.slot();
        }
        let [queries, keys] = self.compared(queries, keys);
        causal_pairs(&queries, &keys)
    }

    /// Pairs of a block that masks nothing: under unit costs they take a slot.
    #[must_use]
    pub fn slot(&self) -> u64 {
        (self.tokens() as u64).pow(2)
    }

    /// The pairs of all blocks.
    #[must_use]
    pub fn all_pairs(&self) -> Pairs {
        let other = 1.min(self.slices - 1);
        Pairs { earlier: self.pairs(0, other), same: self.pairs(0, 0), later: self.pairs(other, 0) }
    }

    /// The most pairs of which every block has a whole number: the grain of unit costs.
    #[must_use]
    pub fn grain(&self) -> u64 {
        let Pairs { earlier, same, later } = self.all_pairs();
        [earlier, same, later].into_iter().fold(self.slot(), gcd)
    }

    /// Multiplications and additions of one pair, forward: its score, and its share of the output.
    #[must_use]
    pub fn flops_per_pair(&self) -> u64 {
        4 * (self.batch * self.heads * self.head_size) as u64
    }

    /// The parts of a tensor of one slice: name and shape.
    #[must_use]
    pub fn parts(&self, tensor: AttentionTensor, share: HeadShare) -> Vec<(&'static str, Vec<usize>)> {
        let (t, d) = (self.tokens(), self.head_size);
        let ranks = if share == HeadShare::All { 1 } else { self.slices };
        let (heads, kv_heads) = (self.heads / ranks, self.kv_heads / ranks);
        let queries = vec![self.batch, t, heads, d];
        let statistics = vec![self.batch, heads, t];
        match tensor {
            AttentionTensor::Query | AttentionTensor::QueryGradient | AttentionTensor::OutputGradient => vec![("", queries)],
            AttentionTensor::KeyValue | AttentionTensor::KeyValueGradient | AttentionTensor::KeyValuePart => {
                vec![("", vec![2, self.batch, t, kv_heads, d])]
            }
            AttentionTensor::State => vec![("m", statistics.clone()), ("l", statistics), ("O", queries)],
            AttentionTensor::Output => vec![("o", queries), ("lse", statistics)],
        }
    }

    /// Memory of a tensor of one slice.
    #[must_use]
    pub fn bytes(&self, tensor: AttentionTensor, dtype: Dtype) -> Bytes {
        let elements = self.parts(tensor, HeadShare::All).into_iter().map(|(_, dims)| dims.into_iter().product::<usize>() as u64);
        Bytes(elements.sum::<u64>() * dtype.size())
    }

    /// A given number: row `[head]`'s element `column` of the token at `position`, different everywhere.
    ///
    /// Waves, so that anybody can compute them: with one head of 4 and 16 tokens they are the inputs of a published vector of results.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "positions and sizes")]
    pub fn given(&self, of: Given, position: u32, head: usize, column: usize) -> f64 {
        let (i, d, phase) = (f64::from(position), column as f64, 0.83 * head as f64);
        match of {
            Given::Query => self.sharpness * (0.7 * i + 1.3 * d + 0.1 + phase).sin(),
            Given::Key => self.sharpness * (0.5 * i - 0.9 * d + 0.2 + phase).cos(),
            Given::Value => (0.3 * i * d + 0.4 * d + 0.05 * i + phase).sin(),
            Given::OutputGradient => (0.2 * i + 0.6 * d + phase).cos(),
        }
    }
}

/// What a bare attention layer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// q.
    Query,
    /// k.
    Key,
    /// v.
    Value,
    /// The gradient of the output.
    OutputGradient,
}

impl AttentionTensor {
    /// Whether a layer that stands alone is given it; other tensors are made.
    #[must_use]
    pub fn is_given(self) -> bool {
        matches!(self, Self::Query | Self::KeyValue | Self::OutputGradient)
    }
}

impl Placement {
    /// The positions that the `rank`-th of `ranks` holds, in the order in which it holds them. They ascend.
    ///
    /// `sequence` must be a multiple of the [divisor](Self::divisor).
    #[must_use]
    pub fn positions(self, sequence: usize, ranks: usize, rank: usize) -> Vec<u32> {
        let number = |position: usize| u32::try_from(position).expect("a checked length of a sequence");
        let own = sequence / ranks;
        match self {
            // Alone, it holds all of them.
            _ if ranks == 1 => (0..sequence).map(number).collect(),
            Self::Contiguous => (rank * own..(rank + 1) * own).map(number).collect(),
            Self::Striped => (0..own).map(|row| number(row * ranks + rank)).collect(),
            Self::Zigzag => {
                let half = own / 2;
                let chunk = |chunk: usize| chunk * half..(chunk + 1) * half;
                chunk(rank).chain(chunk(2 * ranks - 1 - rank)).map(number).collect()
            }
        }
    }

    /// What the length of a sequence must be a multiple of, for so many ranks.
    #[must_use]
    pub fn divisor(self, ranks: usize) -> usize {
        if self == Self::Zigzag && ranks > 1 { 2 * ranks } else { ranks }
    }
}

/// How many pairs of a query and a key there are that causal attention does not mask: the key stands at or before the query.
#[must_use]
pub fn causal_pairs(queries: &[u32], keys: &[u32]) -> u64 {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    queries.iter().map(|&query| keys.partition_point(|&key| key <= query) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs per rank of 16 tokens over 4 ranks, summed over all blocks of keys.
    fn work(placement: Placement, sequence: usize, ranks: usize) -> Vec<u64> {
        let held: Vec<Vec<u32>> = (0..ranks).map(|rank| placement.positions(sequence, ranks, rank)).collect();
        held.iter().map(|queries| held.iter().map(|keys| causal_pairs(queries, keys)).sum()).collect()
    }

    #[test]
    fn pairs_per_rank_are_the_published_ones() {
        assert_eq!(work(Placement::Contiguous, 16, 4), [10, 26, 42, 58]);
        assert_eq!(work(Placement::Zigzag, 16, 4), [34; 4]);
        assert_eq!(work(Placement::Striped, 16, 4), [28, 32, 36, 40]);
    }

    #[test]
    fn every_block_is_whole_grains() {
        for &placement in Placement::ALL {
            for (slices, pieces) in [(1, 3), (2, 5), (3, 4), (5, 2), (8, 1)] {
                let sequence = pieces * placement.divisor(slices);
                let (heads, kv_heads, head_size, sharpness) = (1, 1, 4, 1.0);
                let layer = Attention {
                    batch: 1,
                    sequence,
                    heads,
                    kv_heads,
                    head_size,
                    causal: true,
                    slices,
                    placement,
                    sharpness,
                    bug: None,
                };
                for (queries, keys) in (0..slices).flat_map(|queries| (0..slices).map(move |keys| (queries, keys))) {
                    let pairs = layer.pairs(queries, keys);
                    assert!(pairs.is_multiple_of(layer.grain()), "{layer:?}: {queries}, {keys}");
                    assert_eq!(pairs, layer.all_pairs().of(queries, keys), "{layer:?}: {queries}, {keys}");
                }
            }
        }
    }

    #[test]
    fn every_token_stands_once() {
        for &placement in Placement::ALL {
            assert_eq!(placement.positions(7, 1, 0), [0, 1, 2, 3, 4, 5, 6]);
            for ranks in [1, 2, 3, 5, 8] {
                let sequence = 3 * placement.divisor(ranks);
                let mut all: Vec<u32> = (0..ranks).flat_map(|rank| placement.positions(sequence, ranks, rank)).collect();
                all.sort_unstable();
                assert!(all.iter().enumerate().all(|(place, &position)| place == position as usize), "{placement} {ranks}");
                assert_eq!(all.len(), sequence);
            }
        }
    }
}
