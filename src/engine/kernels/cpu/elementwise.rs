//! Sums and scalings of whole tensors: what reductions between ranks are made of.

use candle_core::{Result, Tensor};

use super::float::{Float, vectorised};
use super::memory::{Slice, filled, tensor};
use super::{by_dtype, check};

/// a + b, element by element.
///
/// # Errors
/// When their shapes or dtypes differ.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    check::shape("second summand", b, a.dims())?;
    by_dtype!(a, add_of(a, b))
}

/// x times a number, such as 1/n for the average of a sum of n gradients.
///
/// # Errors
/// When the dtype is neither f32 nor f64.
pub fn scale(x: &Tensor, factor: f64) -> Result<Tensor> {
    by_dtype!(x, scale_of(x, factor))
}

/// Adds `values` to `sum`.
pub(super) fn add_to<T: Float>(sum: &mut [T], values: &[T]) {
    vectorised!(for (sum, &value) in sum.iter_mut().zip(values) {
        *sum += value;
    });
}

fn add_of<T: Float>(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (a_values, b_values) = (Slice::<T>::of(a)?, Slice::<T>::of(b)?);
    let [sum] = filled([a_values.len()], |[sum]| {
        vectorised!(for ((sum, &a), &b) in sum.iter_mut().zip(&*a_values).zip(&*b_values) {
            *sum = a + b;
        });
    });
    tensor(sum, a.dims())
}

fn scale_of<T: Float>(x: &Tensor, factor: f64) -> Result<Tensor> {
    let (values, factor) = (Slice::<T>::of(x)?, T::of(factor));
    let [scaled] = filled([values.len()], |[scaled]| {
        vectorised!(for (scaled, &x) in scaled.iter_mut().zip(&*values) {
            *scaled = x * factor;
        });
    });
    tensor(scaled, x.dims())
}
