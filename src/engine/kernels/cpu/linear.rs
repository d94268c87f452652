//! Linear layers y = x W^T + bias, side by side: several layers of one input write one matrix, a range of columns each.
//!
//! So a fused QKV matrix and three separate ones, or SwiGLU's gate and up, are one case for everything around them.

use candle_core::Result;

use super::float::{Float, vectorised};
use super::gradients::Gradients;
use super::memory::{Slice, filled};
use super::product::{Matrix, Output, Write, multiply};
use super::reduce::ColumnSums;
use crate::base::model::Parameter;

/// A linear layer: where its parameters stand in the part's list, and its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    /// Index of W `[outputs,inputs]`.
    pub(super) weight: usize,
    /// Index of the bias `[outputs]`.
    pub(super) bias: Option<usize>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl Linear {
    /// The layer called `name` among a part's parameters.
    pub(super) fn find(parameters: &[Parameter], name: &str) -> Option<Linear> {
        let weight = index_of(parameters, name, "weight")?;
        let dims = &parameters[weight].dims;
        Some(Linear { weight, bias: index_of(parameters, name, "bias"), inputs: dims[1], outputs: dims[0] })
    }
}

/// The index of the parameter whose name ends in `.layer.kind`.
pub(super) fn index_of(parameters: &[Parameter], layer: &str, kind: &str) -> Option<usize> {
    let is_it = |name: &str| {
        let rest = name.strip_suffix(kind).and_then(|rest| rest.strip_suffix('.')).and_then(|rest| rest.strip_suffix(layer));
        rest.is_some_and(|rest| rest.ends_with('.'))
    };
    parameters.iter().position(|parameter| is_it(&parameter.name))
}

/// y `[rows,outputs of all]` = x W^T + bias, plus the residual stream's `residual`.
pub(super) fn forward<T: Float>(layers: &[Linear], parameters: &[Slice<T>], x: &[T], residual: Option<&[T]>) -> Vec<T> {
    let width = width(layers);
    let rows = x.len() / layers[0].inputs;
    let [y] = filled([rows * width], |[y]| {
        let write = Write::adding_if(start(layers, parameters, residual, y));
        for (layer, first) in side_by_side(layers) {
            let out = Output::strided(&mut y[first..], rows, layer.outputs, width);
            let w = Matrix::packed(&parameters[layer.weight], layer.inputs);
            multiply(out, write, T::one(), Matrix::packed(x, layer.inputs), w.transposed());
        }
    });
    y
}

/// Gradient of x `[rows,inputs]` from the gradient of y `[rows,outputs of all]`.
pub(super) fn backward_input<T: Float>(layers: &[Linear], parameters: &[Slice<T>], dy: &[T]) -> Vec<T> {
    let (width, inputs) = (width(layers), layers[0].inputs);
    let rows = dy.len() / width;
    let [dx] = filled([rows * inputs], |[dx]| {
        for (layer, first) in side_by_side(layers) {
            let out = Output::strided(dx, rows, inputs, inputs);
            let dy = Matrix::strided(&dy[first..], rows, layer.outputs, width);
            multiply(out, Write::adding_if(first > 0), T::one(), dy, Matrix::packed(&parameters[layer.weight], inputs));
        }
    });
    dx
}

/// Puts the gradients of the layers' weights and biases, dy^T x and the column sums of dy, into the list.
pub(super) fn backward_weight<T: Float>(layers: &[Linear], x: &[T], dy: &[T], gradients: &mut Gradients<T>) -> Result<()> {
    let width = width(layers);
    for (layer, first) in side_by_side(layers) {
        let own = Matrix::strided(&dy[first..], dy.len() / width, layer.outputs, width);
        gradients.product(layer.weight, own.transposed(), Matrix::packed(x, layer.inputs))?;
        if let Some(bias) = layer.bias {
            let mut sums = ColumnSums::new(layer.outputs);
            vectorised!(for row in dy.chunks_exact(width) {
                sums.add(&row[first..first + layer.outputs]);
            });
            gradients.values(bias, &sums.total())?;
        }
    }
    Ok(())
}

/// The sum of each column of `rows`, which are so wide: the gradient of a bias.
pub(super) fn column_sums<T: Float>(rows: &[T], width: usize) -> Vec<T> {
    let mut sums = ColumnSums::new(width);
    vectorised!(for row in rows.chunks_exact(width) {
        sums.add(row);
    });
    sums.total()
}

/// Outputs of all layers together.
fn width(layers: &[Linear]) -> usize {
    layers.iter().map(|layer| layer.outputs).sum()
}

/// Each layer and the first of its columns in their common output.
fn side_by_side(layers: &[Linear]) -> impl Iterator<Item = (&Linear, usize)> {
    layers.iter().scan(0, |next, layer| {
        let first = *next;
        *next += layer.outputs;
        Some((layer, first))
    })
}

/// Writes what the products are added to, bias and residual; false where there is neither and nothing was written.
fn start<T: Float>(layers: &[Linear], parameters: &[Slice<T>], residual: Option<&[T]>, y: &mut [T]) -> bool {
    let biases = layers.iter().filter_map(|layer| layer.bias).flat_map(|bias| parameters[bias].iter().copied());
    let bias: Vec<T> = biases.collect();
    match residual {
        None if bias.is_empty() => return false,
        None => {
            for row in y.chunks_exact_mut(bias.len()) {
                row.copy_from_slice(&bias);
            }
        }
        Some(residual) if bias.is_empty() => y.copy_from_slice(residual),
        Some(residual) => vectorised!({
            for (row, residual) in y.chunks_exact_mut(bias.len()).zip(residual.chunks_exact(bias.len())) {
                for ((y, &residual), &bias) in row.iter_mut().zip(residual).zip(&bias) {
                    *y = residual + bias;
                }
            }
        }),
    }
    true
}
