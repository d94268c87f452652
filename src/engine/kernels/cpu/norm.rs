//! Layer norm and RMS norm over the last dim, forward and backward.
//!
//! Saved are the normalised rows x' and 1/sigma. The output y = x' weight + bias isn't: it costs one multiplication to
//! have it again in the backward pass, where the next layer's W needs it.

use super::float::{Float, vectorised};
use super::linear::index_of;
use super::memory::{Slice, filled};
use super::reduce::{ColumnSums, dot, sum};
use crate::base::model::{Norm, Parameter};

const EPSILON: f64 = 1e-5;

/// A norm: where its parameters stand in the part's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormLayer {
    kind: Norm,
    weight: usize,
    bias: Option<usize>,
}

impl NormLayer {
    /// The norm called `name`, which every part that asks for it has.
    pub(super) fn find(parameters: &[Parameter], name: &str, kind: Norm) -> NormLayer {
        let weight = index_of(parameters, name, "weight").expect("a norm has a weight");
        NormLayer { kind, weight, bias: index_of(parameters, name, "bias") }
    }

    /// The norm with the parameters' values.
    pub(super) fn bind<'a, T: Float>(self, parameters: &'a [Slice<T>]) -> Bound<'a, T> {
        Bound { kind: self.kind, weight: &parameters[self.weight], bias: self.bias.map(|bias| &parameters[bias][..]) }
    }

    /// Weight, and bias where there is one.
    pub(super) fn indices(self) -> impl Iterator<Item = usize> {
        std::iter::once(self.weight).chain(self.bias)
    }
}

/// A norm with its parameters' values.
#[derive(Clone, Copy)]
pub(super) struct Bound<'a, T> {
    kind: Norm,
    /// `[h]`
    weight: &'a [T],
    /// `[h]`
    bias: Option<&'a [T]>,
}

/// What the forward pass makes: the first two are saved.
pub(super) struct Forward<T> {
    /// x' `[rows,h]`
    pub(super) normalised: Vec<T>,
    /// 1/sigma `[rows]`
    pub(super) reciprocal: Vec<T>,
    /// y `[rows,h]`
    pub(super) output: Vec<T>,
}

/// What the backward pass makes.
pub(super) struct Backward<T> {
    /// Gradient of the norm's input, plus `residual` `[rows,h]`
    pub(super) input_gradient: Vec<T>,
    /// y again `[rows,h]`
    pub(super) output: Vec<T>,
    /// `[h]`
    pub(super) weight_gradient: Vec<T>,
    /// `[h]`, where the norm has a bias.
    pub(super) bias_gradient: Option<Vec<T>>,
}

/// Normalises the rows of x `[rows,h]`.
pub(super) fn forward<T: Float>(norm: Bound<T>, x: &[T]) -> Forward<T> {
    let h = norm.weight.len();
    let [normalised, reciprocal, output] = filled([x.len(), x.len() / h, x.len()], |[normalised, reciprocal, output]| {
        vectorised!({
            let rows = normalised.chunks_exact_mut(h).zip(output.chunks_exact_mut(h));
            for ((x, (normalised, output)), reciprocal) in x.chunks_exact(h).zip(rows).zip(reciprocal.iter_mut()) {
                *reciprocal = normalise(norm.kind, x, normalised);
                affine(norm, normalised, output);
            }
        });
    });
    Forward { normalised, reciprocal, output }
}

/// y once more, from what [`forward`] saved.
pub(super) fn again<T: Float>(norm: Bound<T>, normalised: &[T]) -> Vec<T> {
    let h = norm.weight.len();
    let [output] = filled([normalised.len()], |[output]| {
        vectorised!(for (normalised, output) in normalised.chunks_exact(h).zip(output.chunks_exact_mut(h)) {
            affine(norm, normalised, output);
        });
    });
    output
}

/// From the gradient of y, what [`forward`] saved, and the gradient that reaches x by the residual connection.
pub(super) fn backward<T: Float>(
    norm: Bound<T>,
    gradient: &[T],
    normalised: &[T],
    reciprocal: &[T],
    residual: Option<&[T]>,
) -> Backward<T> {
    let h = norm.weight.len();
    let (mut weight, mut bias) = (ColumnSums::new(h), norm.bias.map(|bias| ColumnSums::new(bias.len())));
    let [input_gradient, output] = filled([gradient.len(), gradient.len()], |[input_gradient, output]| {
        vectorised!({
            for (row, &reciprocal) in reciprocal.iter().enumerate() {
                let at = row * h..(row + 1) * h;
                let (dy, normalised, dx) = (&gradient[at.clone()], &normalised[at.clone()], &mut input_gradient[at.clone()]);
                weight.add_product(dy, normalised);
                if let Some(bias) = &mut bias {
                    bias.add(dy);
                }
                affine(norm, normalised, &mut output[at.clone()]);
                input_row(norm, dy, normalised, reciprocal, dx);
                if let Some(residual) = residual {
                    for (dx, &residual) in dx.iter_mut().zip(&residual[at]) {
                        *dx += residual;
                    }
                }
            }
        });
    });
    Backward { input_gradient, output, weight_gradient: weight.total(), bias_gradient: bias.map(ColumnSums::total) }
}

/// Writes (x - mean) / sigma and returns 1 / sigma; the RMS norm's mean is 0 by definition.
#[inline(always)]
fn normalise<T: Float>(kind: Norm, x: &[T], normalised: &mut [T]) -> T {
    let per_element = T::one() / T::of(count(x));
    let mean = if kind == Norm::Layer { sum(x) * per_element } else { T::zero() };
    for (normalised, &x) in normalised.iter_mut().zip(x) {
        *normalised = x - mean;
    }
    let variance = dot(normalised, normalised) * per_element;
    let reciprocal = T::one() / (variance + T::of(EPSILON)).sqrt();
    for normalised in normalised.iter_mut() {
        *normalised *= reciprocal;
    }
    reciprocal
}

/// y = x' weight + bias
#[inline(always)]
fn affine<T: Float>(norm: Bound<T>, normalised: &[T], output: &mut [T]) {
    let columns = output.iter_mut().zip(normalised).zip(norm.weight);
    match norm.bias {
        Some(bias) => {
            for (((y, &x), &weight), &bias) in columns.zip(bias) {
                *y = x.mul_add(weight, bias);
            }
        }
        None => {
            for ((y, &x), &weight) in columns {
                *y = x * weight;
            }
        }
    }
}

/// dx = (g - mean(g) - x' mean(g x')) / sigma with g = dy weight; without mean(g) for the RMS norm.
#[inline(always)]
fn input_row<T: Float>(norm: Bound<T>, dy: &[T], normalised: &[T], reciprocal: T, dx: &mut [T]) {
    let per_element = T::one() / T::of(count(dy));
    for ((g, &dy), &weight) in dx.iter_mut().zip(dy).zip(norm.weight) {
        *g = dy * weight;
    }
    let mean = if norm.kind == Norm::Layer { sum(dx) * per_element } else { T::zero() };
    let slope = dot(dx, normalised) * per_element;
    for (g, &x) in dx.iter_mut().zip(normalised) {
        *g = (*g - mean - x * slope) * reciprocal;
    }
}

#[expect(clippy::cast_precision_loss, reason = "the width of a row")]
fn count<T>(row: &[T]) -> f64 {
    row.len() as f64
}
