//! The gradients of one block's attention, tile by tile: weights are computed again from the scores and the final log-sum-exp.

use std::ops::Range;

use super::super::float::{Float, exp, vectorised};
use super::super::product::{Matrix, Output, Write, multiply};
use super::super::reduce::dot;
use super::{Dropped, Head, KEY_TILE, Mask, QUERY_TILE, Shape, tiles};

/// What the forward pass read and made, and the gradient of what it made.
pub(super) struct Forward<'a, T> {
    pub(super) q: &'a [T],
    pub(super) k: &'a [T],
    pub(super) v: &'a [T],
    pub(super) output: &'a [T],
    pub(super) lse: &'a [T],
    pub(super) d_output: &'a [T],
}

/// Two tiles: weights, and what becomes the gradient of the scores.
struct Scratch<T> {
    weights: Vec<T>,
    d_scores: Vec<T>,
}

/// Adds to dq, dk and dv.
pub(super) fn backward<T: Float>(
    shape: Shape,
    forward: &Forward<T>,
    (mask, dropped): (&Mask, Option<Dropped<T>>),
    gradients: &mut [Vec<T>; 3],
) {
    let tile = vec![T::zero(); QUERY_TILE.min(shape.queries) * KEY_TILE.min(shape.keys)];
    let mut scratch = Scratch { d_scores: tile.clone(), weights: tile };
    for head in shape.heads() {
        for rows in tiles(0..shape.queries, QUERY_TILE) {
            for columns in tiles(mask.span(&rows, shape.keys), KEY_TILE) {
                score_gradient(shape, &head, (&rows, &columns), forward, (mask, dropped), &mut scratch);
                spread(shape, &head, (&rows, &columns), forward, &scratch, gradients);
            }
        }
    }
}

/// P = e^(s - lse) and dS = P (dP - D) with dP = dO v^T and D = dO O; of P and dP is left what is not dropped.
fn score_gradient<T: Float>(
    shape: Shape,
    head: &Head,
    (rows, columns): (&Range<usize>, &Range<usize>),
    forward: &Forward<T>,
    (mask, dropped): (&Mask, Option<Dropped<T>>),
    scratch: &mut Scratch<T>,
) {
    let (height, width) = (rows.len(), columns.len());
    let Scratch { weights, d_scores } = scratch;
    let (q, d_output) = (shape.q_rows(head, forward.q, rows), shape.q_rows(head, forward.d_output, rows));
    let (k, v) = (shape.kv_rows(head, forward.k, columns), shape.kv_rows(head, forward.v, columns));
    multiply(Output::strided(weights, height, width, width), Write::New, shape.scale(), q, k.transposed());
    multiply(Output::strided(d_scores, height, width, width), Write::New, T::one(), d_output, v.transposed());
    let cuts = mask.cuts(rows, columns);
    vectorised!({
        let tiles = weights.chunks_exact_mut(width).zip(d_scores.chunks_exact_mut(width));
        for (row, (weights, d_scores)) in rows.clone().zip(tiles) {
            if cuts {
                mask.hide(row, columns, weights);
            }
            let lse = forward.lse[head.statistics + row];
            // A query that saw nothing has no weights.
            let lse = if lse == T::NEGATIVE_INFINITY { -lse } else { lse };
            let own = shape.q_row(head, row)..shape.q_row(head, row) + shape.d;
            let mean = dot(&forward.d_output[own.clone()], &forward.output[own]);
            if let Some(dropped) = dropped {
                dropped.apply(shape, (head, row), columns, d_scores);
            }
            for (weight, d_score) in weights.iter_mut().zip(d_scores) {
                *weight = exp(*weight - lse);
                *d_score = *weight * (*d_score - mean);
            }
            if let Some(dropped) = dropped {
                dropped.apply(shape, (head, row), columns, weights);
            }
        }
    });
}

/// dv += P^T dO, dk += dS^T q / sqrt(d), dq += dS k / sqrt(d).
fn spread<T: Float>(
    shape: Shape,
    head: &Head,
    (rows, columns): (&Range<usize>, &Range<usize>),
    forward: &Forward<T>,
    scratch: &Scratch<T>,
    [dq, dk, dv]: &mut [Vec<T>; 3],
) {
    let [weights, d_scores] =
        [&scratch.weights, &scratch.d_scores].map(|tile| Matrix::strided(tile, rows.len(), columns.len(), columns.len()));
    let add = |out: Output<T>, scale: T, a: Matrix<T>, b: Matrix<T>| multiply(out, Write::Add, scale, a, b);
    let (q, d_output) = (shape.q_rows(head, forward.q, rows), shape.q_rows(head, forward.d_output, rows));
    add(shape.kv_rows_mut(head, dv, columns), T::one(), weights.transposed(), d_output);
    add(shape.kv_rows_mut(head, dk, columns), shape.scale(), d_scores.transposed(), q);
    let k = shape.kv_rows(head, forward.k, columns);
    add(shape.q_rows_mut(head, dq, rows), shape.scale(), d_scores, k);
}
