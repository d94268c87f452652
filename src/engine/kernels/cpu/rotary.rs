//! Rotary position embedding: each pair (i, i + d/2) of a head is turned by position / 10000^(2i/d).

use super::float::{Float, vectorised};

const BASE: f64 = 10_000.0;

/// Which way the pairs are turned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// By the angle: the forward pass.
    Forward,
    /// Back by the angle: the gradient.
    Back,
}

/// Turns the first `heads` heads of `d` elements in each row of `x` `[b*t,width]`, whose position is `first` plus row mod t.
pub(super) fn turn<T: Float>(turn: Turn, x: &mut [T], width: usize, (first, t): (usize, usize), heads: (usize, usize)) {
    turn_at(turn, x, width, &(first..first + t).collect::<Vec<_>>(), heads);
}

/// The same where the rows of a sequence have these positions.
pub(super) fn turn_at<T: Float>(turn: Turn, x: &mut [T], width: usize, positions: &[usize], (heads, d): (usize, usize)) {
    let (angles, t) = (cosines_and_sines(positions, d, turn), positions.len());
    vectorised!({
        for (row, x) in x.chunks_exact_mut(width).enumerate() {
            let (cosines, sines) = angles[row % t * d..][..d].split_at(d / 2);
            for head in x[..heads * d].chunks_exact_mut(d) {
                let (first, second) = head.split_at_mut(d / 2);
                for (((x, y), &cosine), &sine) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                    (*x, *y) = (*x * cosine - *y * sine, *y * cosine + *x * sine);
                }
            }
        }
    });
}

/// `[t,d]`: of each position the cosines of its d/2 angles, then their sines.
#[expect(clippy::cast_precision_loss, reason = "positions and sizes")]
fn cosines_and_sines<T: Float>(positions: &[usize], d: usize, turn: Turn) -> Vec<T> {
    let sign = if turn == Turn::Forward { 1.0 } else { -1.0 };
    let frequencies: Vec<f64> = (0..d / 2).map(|i| BASE.powf(-2.0 * i as f64 / d as f64)).collect();
    let row = |&position: &usize| {
        let angle = move |&frequency: &f64| position as f64 * frequency;
        let cosines = frequencies.iter().map(move |frequency| T::of(angle(frequency).cos()));
        cosines.chain(frequencies.iter().map(move |frequency| T::of(sign * angle(frequency).sin()))).collect::<Vec<T>>()
    };
    positions.iter().flat_map(row).collect()
}
