//! The attention of a block of queries to one block of keys and values, tile by tile.

use std::ops::Range;

use super::super::float::{Float, exp, vectorised};
use super::super::memory::filled;
use super::super::product::{Matrix, Output, Write, multiply};
use super::super::reduce::{maximum, scale, sum};
use super::{Dropped, Head, KEY_TILE, Mask, QUERY_TILE, Shape, tiles};

/// m and l `[b,n,t]`, and O `[b,t,n,d]`.
pub(super) fn attend<T: Float>(
    shape: Shape,
    q: &[T],
    (k, v): (&[T], &[T]),
    mask: &Mask,
    dropped: Option<Dropped<T>>,
) -> [Vec<T>; 3] {
    let statistics = shape.statistics().iter().product();
    let mut scores = vec![T::zero(); QUERY_TILE.min(shape.queries) * KEY_TILE.min(shape.keys)];
    filled([statistics, statistics, q.len()], |[most, total, output]| {
        for head in shape.heads() {
            for rows in tiles(0..shape.queries, QUERY_TILE) {
                let own = head.statistics + rows.start..head.statistics + rows.end;
                let running = Running { most: &mut most[own.clone()], total: &mut total[own], output };
                attend_tile(shape, (&head, &rows), (q, k, v), (mask, dropped), &mut scores, running);
            }
        }
    })
}

/// What is written of a tile's queries: m and l of its rows, and O of all queries.
struct Running<'a, T> {
    most: &'a mut [T],
    total: &'a mut [T],
    output: &'a mut [T],
}

/// The attention of one tile of queries, `rows` of `head`, to all keys that it sees.
fn attend_tile<T: Float>(
    shape: Shape,
    (head, rows): (&Head, &Range<usize>),
    (q, k, v): (&[T], &[T], &[T]),
    (mask, dropped): (&Mask, Option<Dropped<T>>),
    scores: &mut [T],
    running: Running<T>,
) {
    let Running { most, total, output } = running;
    most.fill(T::NEGATIVE_INFINITY);
    total.fill(T::zero());
    let span = mask.span(rows, shape.keys);
    if span.is_empty() {
        rows.clone().for_each(|row| output[shape.q_row(head, row)..][..shape.d].fill(T::zero()));
    }
    let first = span.start;
    for columns in tiles(span, KEY_TILE) {
        let (width, is_first) = (columns.len(), columns.start == first);
        let keys = shape.kv_rows(head, k, &columns).transposed();
        multiply(Output::strided(scores, rows.len(), width, width), Write::New, shape.scale(), shape.q_rows(head, q, rows), keys);
        let cuts = mask.cuts(rows, &columns);
        vectorised!({
            for (i, row) in scores.chunks_exact_mut(width).take(rows.len()).enumerate() {
                if cuts {
                    mask.hide(rows.start + i, &columns, row);
                }
                let output = &mut output[shape.q_row(head, rows.start + i)..][..shape.d];
                step(row, &mut most[i], &mut total[i], if is_first { &mut [] } else { output });
                if let Some(dropped) = dropped {
                    dropped.apply(shape, (head, rows.start + i), &columns, row);
                }
            }
        });
        let weights = Matrix::strided(scores, rows.len(), width, width);
        let write = Write::adding_if(!is_first);
        multiply(shape.q_rows_mut(head, output, rows), write, T::one(), weights, shape.kv_rows(head, v, &columns));
    }
    vectorised!({
        for (i, &total) in total.iter().enumerate() {
            // A query that sees nothing has no weights, and keeps an output of 0. A NaN goes on.
            if total != T::zero() {
                scale(&mut output[shape.q_row(head, rows.start + i)..][..shape.d], T::one() / total);
            }
        }
    });
}

/// Makes weights e^(s - m) of a query's scores of one tile, and goes on with m and l; `output` is what the earlier tiles gave, and is
/// brought to the new maximum.
#[inline(always)]
fn step<T: Float>(scores: &mut [T], most: &mut T, total: &mut T, output: &mut [T]) {
    let tile = maximum(scores);
    let new = if tile > *most { tile } else { *most };
    // Where nothing is seen yet every score is negative infinity, and any finite number makes weights of 0.
    let shift = if new == T::NEGATIVE_INFINITY { T::zero() } else { new };
    for score in scores.iter_mut() {
        *score = exp(*score - shift);
    }
    if new > *most {
        let factor = exp(*most - shift);
        *total *= factor;
        scale(output, factor);
        *most = new;
    }
    *total += sum(scores);
}
