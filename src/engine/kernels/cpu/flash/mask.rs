//! Which keys a query may see.

use std::ops::Range;

use super::super::float::Float;

/// Which keys a query may see.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a> {
    /// All of the block.
    Full,
    /// Those that stand at or before it in the sequence.
    Causal {
        /// The positions of the block's queries, in any order.
        queries: &'a [u32],
        /// The positions of its keys, in any order.
        keys: &'a [u32],
    },
}

impl Mask<'_> {
    /// Whether it is one of so many queries and keys.
    pub(super) fn fits(&self, queries: usize, keys: usize) -> bool {
        match self {
            Self::Full => true,
            Self::Causal { queries: of_queries, keys: of_keys } => (of_queries.len(), of_keys.len()) == (queries, keys),
        }
    }

    /// From the first to the last of `keys` that any of the rows sees: what lies outside needs no computation.
    pub(super) fn span(&self, rows: &Range<usize>, keys: usize) -> Range<usize> {
        let Self::Causal { queries, keys: positions } = self else { return 0..keys };
        let latest = queries[rows.clone()].iter().max();
        let is_seen = |key: &u32| latest.is_some_and(|latest| key <= latest);
        let start = positions.iter().position(is_seen).unwrap_or(0);
        start..positions.iter().rposition(is_seen).map_or(start, |last| last + 1)
    }

    /// Whether it hides any pair of the tile.
    pub(super) fn cuts(&self, rows: &Range<usize>, columns: &Range<usize>) -> bool {
        let Self::Causal { queries, keys } = self else { return false };
        queries[rows.clone()].iter().min() < keys[columns.clone()].iter().max()
    }

    /// Makes negative infinity of a row's scores of the keys `columns` that it does not see.
    #[inline(always)]
    pub(super) fn hide<T: Float>(&self, row: usize, columns: &Range<usize>, scores: &mut [T]) {
        let Self::Causal { queries, keys } = self else { return };
        let query = queries[row];
        for (score, &key) in scores.iter_mut().zip(&keys[columns.clone()]) {
            *score = if key <= query { *score } else { T::NEGATIVE_INFINITY };
        }
    }
}
