//! Causal self-attention with grouped queries: softmax(q k^T / sqrt(d)) v per head, forward and backward.
//!
//! q, k and v stand side by side in one matrix `[b*t,(n + 2 kv) d]` and are read and written there through strides; nothing is
//! transposed or gathered. Rows go in blocks, and a block's products end at its last position: what the mask hides is
//! computed only inside the blocks on the diagonal.

use std::ops::Range;

use super::dropout::{Mask, dropped};
use super::float::{Float, vectorised};
use super::memory::filled;
use super::product::{Matrix, Output, Write, multiply};
use super::reduce::{dot, exponentials, scale};

/// Rows per block: less makes the products small and slow, more computes more of what is masked.
const BLOCK: usize = 64;

/// Sizes of an attention layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Sequences.
    pub(super) b: usize,
    /// Tokens of a sequence.
    pub(super) t: usize,
    /// Query heads.
    pub(super) heads: usize,
    /// Key and value heads.
    pub(super) kv_heads: usize,
    /// Size of a head.
    pub(super) d: usize,
    /// Probabilities are stored in bf16.
    pub(super) half: bool,
}

/// Where one head of one sequence begins.
struct Head {
    /// In the matrix of q, k and v.
    q: usize,
    k: usize,
    v: usize,
    /// In the output `[b*t,heads d]`.
    output: usize,
    /// Whether it is the first query head of its key and value head.
    first_of_group: bool,
}

/// The probabilities `[b,heads,t,t]` before dropout, 0 where the future is hidden, and the output `[b*t,heads d]`.
pub(super) fn forward<T: Float>(shape: Shape, qkv: &[T], dropout: Option<Mask<T>>) -> [Vec<T>; 2] {
    let Shape { b, t, heads, d, .. } = shape;
    let (width, out_width) = (shape.width(), heads * d);
    filled([b * heads * t * t, b * t * out_width], |[probabilities, output]| {
        for (number, (head, p)) in shape.heads().zip(probabilities.chunks_exact_mut(t * t)).enumerate() {
            let dropout = dropout.map(|mask| mask.over(number * t * t..(number + 1) * t * t));
            for Range { start, end } in blocks(t) {
                let q = rows(qkv, head.q, start..end, d, width);
                let k = rows(qkv, head.k, 0..end, d, width);
                let v = rows(qkv, head.v, 0..end, d, width);
                let p = &mut p[start * t..end * t];
                multiply(Output::strided(p, end - start, end, t), Write::New, shape.scale(), q, k.transposed());
                vectorised!(for (i, row) in p.chunks_exact_mut(t).enumerate() {
                    softmax(row, start + i + 1, end);
                    if shape.half {
                        row.iter_mut().for_each(|p| *p = p.half());
                    }
                });
                let p = dropped(p, dropout.map(|mask| mask.over(start * t..end * t)));
                let p = Matrix::strided(&p, end - start, end, t);
                multiply(rows_mut(output, head.output, start..end, d, out_width), Write::New, T::one(), p, v);
            }
        }
    })
}

/// Gradient of q, k and v `[b*t,(n + 2 kv) d]` from the output's gradient and what [`forward`] read and made.
pub(super) fn backward<T: Float>(
    shape: Shape,
    d_output: &[T],
    (qkv, probabilities, output): (&[T], &[T], &[T]),
    dropout: Option<Mask<T>>,
) -> Vec<T> {
    let (t, square) = (shape.t, shape.t * shape.t);
    let mut d_scores = vec![T::zero(); square];
    let [gradient] = filled([qkv.len()], |[gradient]| {
        for (number, (head, p)) in shape.heads().zip(probabilities.chunks_exact(square)).enumerate() {
            let dropout = dropout.map(|mask| mask.over(number * square..(number + 1) * square));
            for block in blocks(t) {
                score_gradient(shape, &head, block.clone(), (d_output, qkv, p, output), dropout, &mut d_scores);
                query_gradient(shape, &head, block, (qkv, &d_scores), gradient);
            }
            let p = dropped(p, dropout);
            for block in blocks(t) {
                key_value_gradient(shape, &head, block, (d_output, qkv, &p, &d_scores), gradient);
            }
        }
    });
    gradient
}

impl Shape {
    /// Columns of q, k and v together.
    pub(super) fn width(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.d
    }

    /// All heads of all sequences, in the order of the probabilities.
    fn heads(self) -> impl Iterator<Item = Head> {
        let Shape { b, t, heads, kv_heads, d, .. } = self;
        let group = heads / kv_heads;
        let pairs = (0..b).flat_map(move |sequence| (0..heads).map(move |head| (sequence * t, head)));
        pairs.map(move |(row, head)| {
            let start = row * self.width();
            Head {
                q: start + head * d,
                k: start + (heads + head / group) * d,
                v: start + (heads + kv_heads + head / group) * d,
                output: row * heads * d + head * d,
                first_of_group: head % group == 0,
            }
        })
    }

    /// 1 / sqrt(d)
    #[expect(clippy::cast_precision_loss, reason = "the size of a head")]
    fn scale<T: Float>(self) -> T {
        T::of(1.0 / (self.d as f64).sqrt())
    }
}

/// Softmax of the first `visible` elements; the others become 0. Those up to `computed` go through the same loops as e^-infinity.
#[inline(always)]
fn softmax<T: Float>(row: &mut [T], visible: usize, computed: usize) {
    let (row, masked) = row.split_at_mut(computed);
    masked.fill(T::zero());
    row[visible..].fill(T::NEGATIVE_INFINITY);
    let (_, denominator) = exponentials(row);
    scale(row, T::one() / denominator);
}

/// dS = P (dP - D) with dP = dO v^T behind dropout, and D the sum over a row of P dP, which is that of O dO.
fn score_gradient<T: Float>(
    shape: Shape,
    head: &Head,
    block: Range<usize>,
    (d_output, qkv, p, output): (&[T], &[T], &[T], &[T]),
    dropout: Option<Mask<T>>,
    d_scores: &mut [T],
) {
    let Shape { t, heads, d, .. } = shape;
    let Range { start, end } = block;
    let d_o = rows(d_output, head.output, start..end, d, heads * d);
    let v = rows(qkv, head.v, 0..end, d, shape.width());
    multiply(Output::strided(&mut d_scores[start * t..], end - start, end, t), Write::New, T::one(), d_o, v.transposed());
    if let Some(mask) = dropout {
        // Columns behind the block hold what earlier rows left: they are not read.
        mask.over(start * t..end * t).apply(&mut d_scores[start * t..end * t]);
    }
    vectorised!({
        for i in start..end {
            let own = head.output + i * heads * d..head.output + i * heads * d + d;
            let mean = dot(&d_output[own.clone()], &output[own]);
            let row = i * t..i * t + end;
            for (ds, &p) in d_scores[row.clone()].iter_mut().zip(&p[row]) {
                *ds = p * (*ds - mean);
            }
        }
    });
}

/// dq = dS k / sqrt(d)
fn query_gradient<T: Float>(shape: Shape, head: &Head, block: Range<usize>, (qkv, d_scores): (&[T], &[T]), gradient: &mut [T]) {
    let (d, width) = (shape.d, shape.width());
    let ds = rows(d_scores, 0, block.clone(), block.end, shape.t);
    let k = rows(qkv, head.k, 0..block.end, d, width);
    multiply(rows_mut(gradient, head.q, block, d, width), Write::New, shape.scale(), ds, k);
}

/// dk = dS^T q / sqrt(d) and dv = P^T dO with P behind dropout, from the rows at or after the block; summed over the query heads of a group.
fn key_value_gradient<T: Float>(
    shape: Shape,
    head: &Head,
    block: Range<usize>,
    (d_output, qkv, p, d_scores): (&[T], &[T], &[T], &[T]),
    gradient: &mut [T],
) {
    let Shape { t, heads, d, .. } = shape;
    let (width, later) = (shape.width(), block.start..t);
    let write = Write::adding_if(!head.first_of_group);
    let ds = rows(d_scores, block.start, later.clone(), block.len(), t);
    let q = rows(qkv, head.q, later.clone(), d, width);
    multiply(rows_mut(gradient, head.k, block.clone(), d, width), write, shape.scale(), ds.transposed(), q);
    let p = rows(p, block.start, later.clone(), block.len(), t);
    let d_o = rows(d_output, head.output, later, d, heads * d);
    multiply(rows_mut(gradient, head.v, block, d, width), write, T::one(), p.transposed(), d_o);
}

fn blocks(t: usize) -> impl Iterator<Item = Range<usize>> {
    (0..t).step_by(BLOCK).map(move |start| start..t.min(start + BLOCK))
}

fn rows<T>(data: &[T], start: usize, rows: Range<usize>, columns: usize, row_stride: usize) -> Matrix<'_, T> {
    Matrix::strided(&data[start + rows.start * row_stride..], rows.len(), columns, row_stride)
}

fn rows_mut<T>(data: &mut [T], start: usize, rows: Range<usize>, columns: usize, row_stride: usize) -> Output<'_, T> {
    Output::strided(&mut data[start + rows.start * row_stride..], rows.len(), columns, row_stride)
}
