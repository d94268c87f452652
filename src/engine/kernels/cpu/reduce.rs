//! Reductions in an order that is the same on every machine: along a row in 16 lanes, down columns in blocks of rows.

use super::float::{Float, exp};

/// Running results per reduction: two AVX-512 registers of f64, four SSE registers of f32.
const LANES: usize = 16;
/// Rows that are added up before they join the total: rounding errors grow with this and with the number of blocks.
const ROWS_PER_BLOCK: usize = 32;

/// Sum of the elements.
#[inline(always)]
pub(super) fn sum<T: Float>(x: &[T]) -> T {
    fold(x, x, T::zero(), |total, x, _| total + x, |a, b| a + b)
}

/// Sum of the products of the elements.
#[inline(always)]
pub(super) fn dot<T: Float>(x: &[T], y: &[T]) -> T {
    fold(x, y, T::zero(), |total, x, y| x.mul_add(y, total), |a, b| a + b)
}

/// Replaces each element by e^(x - maximum), so that the largest becomes 1; returns the maximum and the sum.
#[inline(always)]
pub(super) fn exponentials<T: Float>(row: &mut [T]) -> (T, T) {
    let most = maximum(row);
    for x in row.iter_mut() {
        *x = exp(*x - most);
    }
    (most, sum(row))
}

/// Multiplies each element.
#[inline(always)]
pub(super) fn scale<T: Float>(row: &mut [T], factor: T) {
    for x in row {
        *x *= factor;
    }
}

/// The largest element, NaNs left out; negative infinity of none.
#[inline(always)]
pub(super) fn maximum<T: Float>(x: &[T]) -> T {
    let larger = |a, b| if b > a { b } else { a };
    fold(x, x, T::NEGATIVE_INFINITY, |most, x, _| larger(most, x), larger)
}

/// Folds pairs of elements in `LANES` interleaved lanes, the lanes pairwise, then the rest one by one.
#[inline(always)]
fn fold<T: Float>(x: &[T], y: &[T], start: T, step: impl Fn(T, T, T) -> T, join: impl Fn(T, T) -> T) -> T {
    let (x_chunks, y_chunks) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let (x_rest, y_rest) = (x_chunks.remainder(), y_chunks.remainder());
    let mut lanes = [start; LANES];
    for (x, y) in x_chunks.zip(y_chunks) {
        for lane in 0..LANES {
            lanes[lane] = step(lanes[lane], x[lane], y[lane]);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    x_rest.iter().zip(y_rest).fold(lanes[0], |total, (&x, &y)| step(total, x, y))
}

/// Sums down the columns of rows that come one by one.
pub(super) struct ColumnSums<T> {
    block: Vec<T>,
    rows_in_block: usize,
    total: Vec<T>,
}

impl<T: Float> ColumnSums<T> {
    /// Sums that start at zero.
    pub(super) fn new(columns: usize) -> ColumnSums<T> {
        ColumnSums { block: vec![T::zero(); columns], rows_in_block: 0, total: vec![T::zero(); columns] }
    }

    /// Adds a row.
    #[inline(always)]
    pub(super) fn add(&mut self, row: &[T]) {
        for (sum, &x) in self.block.iter_mut().zip(row) {
            *sum += x;
        }
        self.count_row();
    }

    /// Adds the products of two rows' elements.
    #[inline(always)]
    pub(super) fn add_product(&mut self, row: &[T], other: &[T]) {
        for ((sum, &x), &y) in self.block.iter_mut().zip(row).zip(other) {
            *sum = x.mul_add(y, *sum);
        }
        self.count_row();
    }

    /// The sums.
    pub(super) fn total(mut self) -> Vec<T> {
        self.flush();
        self.total
    }

    #[inline(always)]
    fn count_row(&mut self) {
        self.rows_in_block += 1;
        if self.rows_in_block == ROWS_PER_BLOCK {
            self.flush();
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.rows_in_block = 0;
        for (total, block) in self.total.iter_mut().zip(&mut self.block) {
            *total += *block;
            *block = T::zero();
        }
    }
}
