//! Blockwise attention (`FlashAttention`): a block of queries against a block of keys and values, without a matrix of all scores.
//!
//! What softmax needs to go on with the next block is a [`State`] per query: the largest score m, the denominator l, and the output O so
//! far. So the blocks of a sequence may come one by one, in any order, from other ranks. Backward takes the final output and log-sum-exp,
//! and again one block at a time. Which pairs are masked follows from positions, so that a rank may hold any tokens.
//!
//! Dropout meets the weights behind the softmax: l counts all of them, O those that stay. So D = dO O holds as without it.
//!
//! Recurrences: Milakov and Gimelshein 2018 (online softmax), Dao 2023 (`FlashAttention` 2), Liu et al. 2023 (ring attention).
//!
//! Shapes: q and O `[b,t,n,d]`, k and v `[b,u,kv,d]`, m, l and lse `[b,n,t]`; t queries, u keys.

mod backward;
mod forward;
mod mask;
mod merge;

use std::ops::Range;

use candle_core::{DType, Result, Tensor, bail};

use super::float::Float;
use super::memory::{Slice, tensor};
use super::product::{Matrix, Output};
use super::{by_dtype, check, dropout};

pub use mask::Mask;
pub use merge::MergeRule;

/// Queries of a tile: fewer make the products small and slow, more compute more of what is masked.
const QUERY_TILE: usize = 256;
/// Keys of a tile: two tiles of scores stay in the second-level cache.
const KEY_TILE: usize = 512;

/// What is known of the attention of some queries after some of the keys.
#[derive(Clone, Debug)]
pub struct State {
    /// The largest score of each query, m `[b,n,t]`; negative infinity where all was masked.
    pub most: Tensor,
    /// The sum of e^(score - m), l `[b,n,t]`.
    pub total: Tensor,
    /// The mean of the values under those weights, O `[b,t,n,d]`.
    pub output: Tensor,
}

/// A block of keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// `[b,u,kv,d]`
    pub k: &'a Tensor,
    /// `[b,u,kv,d]`
    pub v: &'a Tensor,
    /// What is dropped of the queries' weights on them.
    pub drops: Option<Drops<'a>>,
}

/// Dropout of weights, behind the softmax.
#[derive(Clone, Copy, Debug)]
pub struct Drops<'a> {
    /// `[b,n,t,u]`: 1 where a weight stays, 0 where it is dropped.
    pub keep: &'a [u8],
    /// How likely a weight is to be dropped.
    pub probability: f64,
}

/// What backward knows of the forward pass and of the loss.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The final output O `[b,t,n,d]`.
    pub output: &'a Tensor,
    /// The final log-sum-exp of the scores `[b,n,t]`.
    pub lse: &'a Tensor,
    /// The gradient of O.
    pub gradient: &'a Tensor,
}

/// The attention of q to one block of keys and values alone.
///
/// # Errors
/// When shapes, types or the mask's positions do not fit each other.
pub fn attend(q: &Tensor, block: Block, mask: &Mask) -> Result<State> {
    let shape = Shape::of(q, block, mask)?;
    by_dtype!(q, attend_of(shape, q, block, mask))
}

/// Two blocks' states as one: of the same queries, and keys that are in only one of them.
///
/// # Errors
/// When shapes or types differ.
pub fn merge(earlier: &State, block: &State, rule: MergeRule) -> Result<State> {
    check::shapes("block's state", &block.parts(), earlier.parts().iter().map(Tensor::dims))?;
    let shape = Shape::of_state(earlier)?;
    by_dtype!(earlier.output, merge_of(shape, earlier, block, rule))
}

/// The output `[b,t,n,d]` and the log-sum-exp `[b,n,t]` after the last block.
///
/// # Errors
/// When the state's types differ.
pub fn finish(state: &State) -> Result<[Tensor; 2]> {
    by_dtype!(state.output, finish_of(state))
}

/// The gradients of q, k and v through one block, added to `earlier` ones.
///
/// # Errors
/// When shapes, types or the mask's positions do not fit each other.
pub fn backward(q: &Tensor, block: Block, outcome: Outcome, mask: &Mask, earlier: [Option<&Tensor>; 3]) -> Result<[Tensor; 3]> {
    let shape = Shape::of(q, block, mask)?;
    for (what, tensor) in [("output", outcome.output), ("gradient of the output", outcome.gradient)] {
        check::shape(what, tensor, q.dims())?;
    }
    check::shape("log-sum-exp", outcome.lse, &shape.statistics())?;
    for (earlier, dims) in earlier.iter().zip([q.dims(), block.k.dims(), block.v.dims()]) {
        earlier.map_or(Ok(()), |earlier| check::shape("earlier gradient", earlier, dims))?;
    }
    by_dtype!(q, backward_of(shape, q, block, outcome, mask, earlier))
}

impl<'a> Block<'a> {
    /// Of which nothing is dropped.
    #[must_use]
    pub fn new(k: &'a Tensor, v: &'a Tensor) -> Self {
        Self { k, v, drops: None }
    }
}

impl State {
    fn parts(&self) -> [Tensor; 3] {
        [self.most.clone(), self.total.clone(), self.output.clone()]
    }

    fn dtype(&self) -> DType {
        self.output.dtype()
    }
}

fn attend_of<T: Float>(shape: Shape, q: &Tensor, block: Block, mask: &Mask) -> Result<State> {
    let (q, k, v) = (Slice::<T>::of(q)?, Slice::<T>::of(block.k)?, Slice::<T>::of(block.v)?);
    shape.state(forward::attend(shape, &q, (&k, &v), mask, block.drops.map(Dropped::new)))
}

fn merge_of<T: Float>(shape: Shape, earlier: &State, block: &State, rule: MergeRule) -> Result<State> {
    let (earlier, block) = (earlier.parts(), block.parts());
    let (earlier, block) = (Slice::<T>::all(&earlier)?, Slice::<T>::all(&block)?);
    shape.state(merge::merge(shape, merge::Rows::of(&earlier), merge::Rows::of(&block), rule))
}

fn finish_of<T: Float>(state: &State) -> Result<[Tensor; 2]> {
    let (most, total) = (Slice::<T>::of(&state.most)?, Slice::<T>::of(&state.total)?);
    Ok([state.output.clone(), tensor(merge::log_sum_exp(&most, &total), state.most.dims())?])
}

fn backward_of<T: Float>(
    shape: Shape,
    q: &Tensor,
    block: Block,
    outcome: Outcome,
    mask: &Mask,
    earlier: [Option<&Tensor>; 3],
) -> Result<[Tensor; 3]> {
    let start = |tensor: &Tensor, earlier: Option<&Tensor>| -> Result<Vec<T>> {
        earlier.map_or(Ok(vec![T::zero(); tensor.elem_count()]), |earlier| Slice::of(earlier).map(|slice| slice.to_vec()))
    };
    let mut gradients = [start(q, earlier[0])?, start(block.k, earlier[1])?, start(block.v, earlier[2])?];
    let operands = [q, block.k, block.v, outcome.output, outcome.lse, outcome.gradient].map(Slice::<T>::of);
    let [q_values, k, v, output, lse, d_output] = operands;
    let forward = backward::Forward { q: &q_values?, k: &k?, v: &v?, output: &output?, lse: &lse?, d_output: &d_output? };
    backward::backward(shape, &forward, (mask, block.drops.map(Dropped::new)), &mut gradients);
    let [dq, dk, dv] = gradients;
    Ok([tensor(dq, q.dims())?, tensor(dk, block.k.dims())?, tensor(dv, block.v.dims())?])
}

/// The mask of dropped weights, with what it does to those that stay.
#[derive(Clone, Copy)]
struct Dropped<'a, T>(dropout::Mask<'a, T>);

impl<'a, T: Float> Dropped<'a, T> {
    fn new(drops: Drops<'a>) -> Self {
        Self(dropout::Mask::new(drops.keep, drops.probability))
    }

    /// Drops some of a row's weights on the keys `columns`.
    fn apply(self, shape: Shape, (head, row): (&Head, usize), columns: &Range<usize>, weights: &mut [T]) {
        let first = (head.statistics + row) * shape.keys;
        self.0.over(first + columns.start..first + columns.end).apply(weights);
    }
}

/// Sizes of a block's attention.
#[derive(Clone, Copy, Debug)]
struct Shape {
    b: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    kv_heads: usize,
    d: usize,
}

/// Where one head of one sequence begins.
struct Head {
    /// In q, in O and in their gradients.
    q: usize,
    /// In k and v and in their gradients.
    kv: usize,
    /// In m, l and lse.
    statistics: usize,
}

impl Shape {
    fn of(q: &Tensor, block: Block, mask: &Mask) -> Result<Self> {
        let (b, queries, heads, d) = q.dims4()?;
        let (_, keys, kv_heads, _) = block.k.dims4()?;
        check::shape("keys", block.k, &[b, keys, kv_heads, d])?;
        check::shape("values", block.v, &[b, keys, kv_heads, d])?;
        if b * queries * keys * kv_heads * d == 0 || !heads.is_multiple_of(kv_heads) {
            bail!("q {:?} does not fit keys {:?}", q.dims(), block.k.dims());
        }
        let pairs = b * heads * queries * keys;
        if !mask.fits(queries, keys) || block.drops.is_some_and(|drops| drops.keep.len() != pairs) {
            bail!("the mask is not one of {queries} queries and {keys} keys");
        }
        Ok(Self { b, queries, keys, heads, kv_heads, d })
    }

    /// Of a state, which has no keys any more.
    fn of_state(state: &State) -> Result<Self> {
        let (b, queries, heads, d) = state.output.dims4()?;
        let shape = Self { b, queries, keys: 0, heads, kv_heads: heads, d };
        check::shape("m", &state.most, &shape.statistics())?;
        check::shape("l", &state.total, &shape.statistics())?;
        if state.most.dtype() != state.dtype() || state.total.dtype() != state.dtype() {
            bail!("m, l and O are of different types");
        }
        Ok(shape)
    }

    /// Shape of m, l and lse.
    fn statistics(&self) -> [usize; 3] {
        [self.b, self.heads, self.queries]
    }

    fn state<T: Float>(self, [most, total, output]: [Vec<T>; 3]) -> Result<State> {
        Ok(State {
            most: tensor(most, &self.statistics())?,
            total: tensor(total, &self.statistics())?,
            output: tensor(output, &[self.b, self.queries, self.heads, self.d])?,
        })
    }

    /// All heads of all sequences.
    fn heads(self) -> impl Iterator<Item = Head> {
        let Self { b, queries, keys, heads, kv_heads, d } = self;
        let group = heads / kv_heads;
        let pairs = (0..b).flat_map(move |sequence| (0..heads).map(move |head| (sequence, head)));
        pairs.map(move |(sequence, head)| Head {
            q: (sequence * queries * heads + head) * d,
            kv: (sequence * keys * kv_heads + head / group) * d,
            statistics: (sequence * heads + head) * queries,
        })
    }

    /// From a token's head to the next token's.
    fn q_stride(self) -> usize {
        self.heads * self.d
    }

    fn kv_stride(self) -> usize {
        self.kv_heads * self.d
    }

    /// The first element of a head's row in q and O.
    fn q_row(self, head: &Head, row: usize) -> usize {
        head.q + row * self.q_stride()
    }

    fn q_rows<'a, T>(self, head: &Head, q: &'a [T], rows: &Range<usize>) -> Matrix<'a, T> {
        Matrix::strided(&q[self.q_row(head, rows.start)..], rows.len(), self.d, self.q_stride())
    }

    fn q_rows_mut<'a, T>(self, head: &Head, q: &'a mut [T], rows: &Range<usize>) -> Output<'a, T> {
        Output::strided(&mut q[self.q_row(head, rows.start)..], rows.len(), self.d, self.q_stride())
    }

    fn kv_rows<'a, T>(self, head: &Head, kv: &'a [T], rows: &Range<usize>) -> Matrix<'a, T> {
        Matrix::strided(&kv[head.kv + rows.start * self.kv_stride()..], rows.len(), self.d, self.kv_stride())
    }

    fn kv_rows_mut<'a, T>(self, head: &Head, kv: &'a mut [T], rows: &Range<usize>) -> Output<'a, T> {
        Output::strided(&mut kv[head.kv + rows.start * self.kv_stride()..], rows.len(), self.d, self.kv_stride())
    }

    /// 1 / sqrt(d)
    #[expect(clippy::cast_precision_loss, reason = "the size of a head")]
    fn scale<T: Float>(self) -> T {
        T::of(1.0 / (self.d as f64).sqrt())
    }
}

/// `range` cut into tiles of at most `size`.
fn tiles(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size).map(move |start| start..end.min(start + size))
}
