//! Rows of several sequences, `[n,rows,width]`: put behind each other, and cut out.

use super::elementwise::add_to;
use super::float::Float;

/// Pieces `[n,rows,width]` of the same n and width, each sequence's rows behind each other; a piece without values is zeros.
pub(super) fn join<T: Float>(n: usize, width: usize, pieces: &[(usize, Option<&[T]>)]) -> Vec<T> {
    let rows: usize = pieces.iter().map(|(rows, _)| rows).sum();
    let mut joined = Vec::with_capacity(n * rows * width);
    for sequence in 0..n {
        for &(rows, piece) in pieces {
            let size = rows * width;
            match piece {
                Some(values) => joined.extend_from_slice(&values[sequence * size..][..size]),
                None => joined.resize(joined.len() + size, T::zero()),
            }
        }
    }
    joined
}

/// Of `[n,rows,width]`, so many rows of each sequence from `first` on.
pub(super) fn cut<T: Float>(n: usize, (rows, width): (usize, usize), (first, count): (usize, usize), values: &[T]) -> Vec<T> {
    let sequence = |sequence: usize| values[(sequence * rows + first) * width..][..count * width].iter().copied();
    (0..n).flat_map(sequence).collect()
}

/// Of rows of `width`, the columns from `first` on.
pub(super) fn columns<T: Float>(width: usize, first: usize, values: &[T]) -> Vec<T> {
    values.chunks_exact(width).flat_map(|row| row[first..].iter().copied()).collect()
}

/// Adds rows to the columns from `first` on of other rows of `width`.
pub(super) fn add_to_columns<T: Float>(width: usize, first: usize, sum: &mut [T], more: &[T]) {
    for (row, more) in sum.chunks_exact_mut(width).zip(more.chunks_exact(width - first)) {
        add_to(&mut row[first..], more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "small whole numbers")]
    fn rows_are_joined_sequence_by_sequence_and_cut_again() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
        let joined = join(2, 2, &[(1, Some(&a)), (2, Some(&b)), (1, None)]);
        assert_eq!(joined, [1.0, 2.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 3.0, 4.0, 9.0, 10.0, 11.0, 12.0, 0.0, 0.0]);
        assert_eq!(cut(2, (4, 2), (1, 2), &joined), b);
        assert_eq!(columns(4, 1, &b), [6.0, 7.0, 8.0, 10.0, 11.0, 12.0]);
        let mut sum = b;
        add_to_columns(4, 2, &mut sum, &a);
        assert_eq!(sum, [5.0, 6.0, 8.0, 10.0, 9.0, 10.0, 14.0, 16.0]);
    }
}
