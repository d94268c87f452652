//! The gradients of one part's parameters: added to those of earlier micro-batches, rounded first in exact mode.

use candle_core::{Result, Tensor};

use super::check;
use super::elementwise::add_to;
use super::float::{Float, vectorised};
use super::memory::{Slice, filled, tensor};
use super::product::{Matrix, Output, Write, multiply};
use crate::base::model::Parameter;

/// A list of gradients in the making.
pub(super) struct Gradients<'a, T> {
    parameters: &'a [Parameter],
    earlier: Option<Vec<Slice<'a, T>>>,
    grid: Option<i32>,
    done: Vec<Option<Tensor>>,
}

impl<'a, T: Float> Gradients<'a, T> {
    /// None yet. `earlier` are those of the micro-batches before, in the parameters' order; `grid` is exact mode's.
    pub(super) fn new(parameters: &'a [Parameter], earlier: Option<&'a [Tensor]>, grid: Option<i32>) -> Result<Gradients<'a, T>> {
        if let Some(earlier) = earlier {
            check::shapes("gradients to add to", earlier, parameters.iter().map(|parameter| &parameter.dims[..]))?;
        }
        let earlier = earlier.map(Slice::all).transpose()?;
        Ok(Gradients { parameters, earlier, grid, done: vec![None; parameters.len()] })
    }

    /// The gradient of parameter `index` is a b.
    pub(super) fn product(&mut self, index: usize, a: Matrix<T>, b: Matrix<T>) -> Result<()> {
        let dims = &self.parameters[index].dims;
        let (rows, columns) = (dims[0], dims[1]);
        self.put(index, |out, write| multiply(Output::strided(out, rows, columns, columns), write, T::one(), a, b))
    }

    /// The gradient of parameter `index` is this.
    pub(super) fn values(&mut self, index: usize, values: &[T]) -> Result<()> {
        self.put(index, |out, write| match write {
            Write::New => out.copy_from_slice(values),
            Write::Add => add_to(out, values),
        })
    }

    /// Parameter `index` has the gradient that `compute` writes, or adds to what stands there.
    pub(super) fn put(&mut self, index: usize, compute: impl FnOnce(&mut [T], Write)) -> Result<()> {
        let parameter = &self.parameters[index];
        let earlier = self.earlier.as_ref().map(|earlier| &earlier[index]);
        let gradient = match (earlier, self.grid) {
            (Some(earlier), None) => {
                let mut sum = earlier.to_vec();
                compute(&mut sum, Write::Add);
                sum
            }
            (earlier, grid) => {
                let [mut own] = filled([parameter.elements()], |[own]| compute(own, Write::New));
                if let Some(grid) = grid {
                    round_to_grid(&mut own, grid);
                }
                if let Some(earlier) = earlier {
                    add_to(&mut own, earlier);
                }
                own
            }
        };
        self.done[index] = Some(tensor(gradient, &parameter.dims)?);
        Ok(())
    }

    /// All of them, in the parameters' order.
    pub(super) fn finish(self) -> Vec<Tensor> {
        self.done.into_iter().map(|gradient| gradient.expect("every parameter has a gradient")).collect()
    }
}

/// Rounds to multiples of 2^-grid. Sums of such numbers are exact, and so independent of order, while they stay below
/// 2^(digits - grid), with 24 digits in f32 and 53 in f64.
fn round_to_grid<T: Float>(values: &mut [T], grid: i32) {
    let (up, down) = (T::of(2f64.powi(grid)), T::of(2f64.powi(-grid)));
    vectorised!(for value in values.iter_mut() {
        *value = (*value * up).round() * down;
    });
}
