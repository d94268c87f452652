//! Token embedding, plus the learned positions where the model has them.

use candle_core::{Result, Tensor, bail};

use super::float::{Float, vectorised};
use super::gradients::Gradients;
use super::memory::{Slice, filled, tensor};
use super::product::Write;
use super::{Dims, by_dtype, check};
use crate::base::model::Part;

/// y `[b,t,h]`: the token's row plus the position's.
///
/// # Errors
/// When a shape or dtype is not the model's, or a token is not below the vocabulary's size.
pub fn forward(dims: &Dims, tokens: &Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    dims.check_parameters(Part::Embedding, parameters)?;
    by_dtype!(parameters[0], forward_of(dims, tokens, parameters))
}

/// Gradients of the tokens' (and positions') weight from the gradient of y, added to those in `earlier`.
///
/// # Errors
/// As [`forward`].
pub fn backward_weight(dims: &Dims, tokens: &Tensor, d_y: &Tensor, earlier: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
    dims.check_model()?;
    dims.check_stream("gradient of the embedding", d_y)?;
    by_dtype!(d_y, backward_weight_of(dims, tokens, d_y, earlier))
}

fn forward_of<T: Float>(dims: &Dims, tokens: &Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    let (h, t) = (dims.model.hidden, dims.model.sequence);
    let tokens = read_ids(dims, tokens)?;
    let parameters = Slice::<T>::all(parameters)?;
    let [y] = filled([tokens.len() * h], |[y]| {
        for (row, (y, &token)) in y.chunks_exact_mut(h).zip(tokens.iter()).enumerate() {
            y.copy_from_slice(&parameters[0][token as usize * h..][..h]);
            if let Some(positions) = parameters.get(1) {
                add(y, &positions[row % t * h..][..h]);
            }
        }
    });
    tensor(y, &dims.stream())
}

fn backward_weight_of<T: Float>(dims: &Dims, tokens: &Tensor, d_y: &Tensor, earlier: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
    let (h, t) = (dims.model.hidden, dims.model.sequence);
    let tokens = read_ids(dims, tokens)?;
    let d_y = Slice::<T>::of(d_y)?;
    let parameters = dims.parameters_of(Part::Embedding);
    let mut gradients = Gradients::<T>::new(&parameters, earlier, dims.grid)?;
    gradients.put(0, |weight, write| scatter(&d_y, h, tokens.iter().map(|&token| token as usize), weight, write))?;
    if parameters.len() > 1 {
        gradients.put(1, |weight, write| scatter(&d_y, h, (0..tokens.len()).map(|row| row % t), weight, write))?;
    }
    Ok(gradients.finish())
}

/// Adds each row of `d_y` to the row of the weight that it came from.
pub(super) fn scatter<T: Float>(d_y: &[T], h: usize, rows: impl Iterator<Item = usize>, weight: &mut [T], write: Write) {
    if write == Write::New {
        weight.fill(T::zero());
    }
    for (d_y, row) in d_y.chunks_exact(h).zip(rows) {
        add(&mut weight[row * h..][..h], d_y);
    }
}

fn add<T: Float>(y: &mut [T], x: &[T]) {
    vectorised!(for (y, &x) in y.iter_mut().zip(x) {
        *y += x;
    });
}

/// Token ids `[b,t]`, each below the vocabulary's size.
pub(super) fn read_ids<'a>(dims: &Dims, tokens: &'a Tensor) -> Result<Slice<'a, u32>> {
    check::shape("tokens", tokens, &[dims.micro_batch_size, dims.model.sequence])?;
    let ids = Slice::<u32>::of(tokens)?;
    match ids.iter().find(|&&id| id as usize >= dims.model.vocab) {
        Some(id) => bail!("token {id} is not in a vocabulary of {}", dims.model.vocab),
        None => Ok(ids),
    }
}
