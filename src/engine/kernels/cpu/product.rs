//! Matrix products: the `gemm` crate behind views that know their bounds. One thread; transposing is a change of strides.

use super::float::Float;

/// A matrix in somebody's memory: element (i, j) stands at `i * strides.0 + j * strides.1`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    strides: (usize, usize),
}

/// A matrix that is written, of rows that are each contiguous.
pub(super) struct Output<'a, T> {
    data: &'a mut [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

/// What a product does with the matrix it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// Replaces it, reading nothing.
    New,
    /// Adds to it.
    Add,
}

impl Write {
    /// `Add` where there is something to add to.
    pub(super) fn adding_if(something: bool) -> Write {
        if something { Write::Add } else { Write::New }
    }
}

impl<'a, T> Matrix<'a, T> {
    /// Rows of `columns` elements, one after the other.
    pub(super) fn packed(data: &'a [T], columns: usize) -> Matrix<'a, T> {
        Matrix::strided(data, data.len() / columns, columns, columns)
    }

    /// Rows of `columns` elements, `row_stride` apart.
    pub(super) fn strided(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Matrix<'a, T> {
        assert_bounds(data.len(), rows, columns, row_stride);
        Matrix { data, rows, columns, strides: (row_stride, 1) }
    }

    /// The same elements, rows as columns.
    pub(super) fn transposed(self) -> Matrix<'a, T> {
        Matrix { rows: self.columns, columns: self.rows, strides: (self.strides.1, self.strides.0), ..self }
    }
}

impl<'a, T> Output<'a, T> {
    /// Rows of `columns` elements, `row_stride` apart.
    pub(super) fn strided(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Output<'a, T> {
        assert_bounds(data.len(), rows, columns, row_stride);
        Output { data, rows, columns, row_stride }
    }
}

/// out = scale a b, or out += scale a b.
pub(super) fn multiply<T: Float>(out: Output<T>, write: Write, scale: T, a: Matrix<T>, b: Matrix<T>) {
    let Output { data, rows, columns, row_stride } = out;
    assert_eq!((rows, columns, a.columns), (a.rows, b.columns, b.rows), "shapes of a product");
    let stride = |stride: usize| isize::try_from(stride).expect("a slice is shorter than isize::MAX");
    // SAFETY: the views were checked against their slices when they were made, `out` is borrowed alone, and with
    // `Write::New` it is written without being read.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            a.columns,
            data.as_mut_ptr(),
            1,
            stride(row_stride),
            write == Write::Add,
            a.data.as_ptr(),
            stride(a.strides.1),
            stride(a.strides.0),
            b.data.as_ptr(),
            stride(b.strides.1),
            stride(b.strides.0),
            T::one(),
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn assert_bounds(length: usize, rows: usize, columns: usize, row_stride: usize) {
    let end = if rows == 0 { 0 } else { (rows - 1) * row_stride + columns };
    assert!(end <= length && columns <= row_stride, "a matrix of {rows} x {columns} in {length} elements");
}
