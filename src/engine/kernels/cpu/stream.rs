//! The residual stream between modules: what is added to it, behind dropout.

use candle_core::{Result, Tensor, bail};

use super::dropout::Mask;
use super::float::{Float, vectorised};
use super::memory::{Slice, filled};
use super::module::{Cut, check_rows};
use crate::base::module::Module;

/// x + dropout(y + bias) of a sum; dropout(x + positions) behind the embedding.
pub(super) fn forward<T: Float>(cut: Cut, values: &[Tensor], parameters: &[Slice<T>], mask: Option<&[u8]>) -> Result<Vec<T>> {
    let h = cut.dims.model.hidden;
    check_rows("residual stream", &values[0], h, &values[0])?;
    let (x, parameter) = (Slice::<T>::of(&values[0])?, parameters.first().map(|parameter| &parameter[..]));
    match (cut.module, values) {
        (Module::Add1 | Module::Add2, [_, added]) => {
            check_rows("what is added", added, h, &values[0])?;
            let added = Slice::<T>::of(added)?;
            Ok(match mask {
                None => add(&x, &added, parameter),
                Some(mask) => {
                    let added = parameter.map_or_else(|| added.to_vec(), |bias| behind_bias(&added, bias));
                    add(&x, &dropped(cut, added, mask), None)
                }
            })
        }
        (Module::Positions, [_]) => {
            let y = match parameter {
                Some(positions) => {
                    let rows = cut.positions(&values[0]).flat_map(|position| positions[position * h..][..h].iter().copied());
                    add(&x, &rows.take(x.len()).collect::<Vec<T>>(), None)
                }
                None => x.to_vec(),
            };
            Ok(match mask {
                None => y,
                Some(mask) => dropped(cut, y, mask),
            })
        }
        (module, values) => bail!("{module} adds nothing to a stream, and takes no {} values", values.len()),
    }
}

/// The values behind the module's dropout. Forward and backward are the same.
pub(super) fn dropped<T: Float>(cut: Cut, mut values: Vec<T>, mask: &[u8]) -> Vec<T> {
    Mask::new(mask, cut.dims.model.dropout).apply(&mut values);
    values
}

/// y + bias, row by row.
pub(super) fn behind_bias<T: Float>(y: &[T], bias: &[T]) -> Vec<T> {
    y.chunks_exact(bias.len()).flat_map(|y| y.iter().zip(bias).map(|(&y, &bias)| y + bias)).collect()
}

/// x + bias + y, row by row.
fn add<T: Float>(x: &[T], y: &[T], bias: Option<&[T]>) -> Vec<T> {
    let [sum] = filled([x.len()], |[sum]| match bias {
        Some(bias) => vectorised!({
            let h = bias.len();
            for ((sum, x), y) in sum.chunks_exact_mut(h).zip(x.chunks_exact(h)).zip(y.chunks_exact(h)) {
                for (((sum, &x), &y), &bias) in sum.iter_mut().zip(x).zip(y).zip(bias) {
                    *sum = x + bias + y;
                }
            }
        }),
        None => vectorised!(for ((sum, &x), &y) in sum.iter_mut().zip(x).zip(y) {
            *sum = x + y;
        }),
    });
    sum
}
