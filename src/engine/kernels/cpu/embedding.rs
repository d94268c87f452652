//! Token embedding, plus the learned positions where the model has them.

use candle_core::{Result, Tensor, bail};

use super::dropout::{self, Draw, Mask, Place, RandomState, dropped};
use super::elementwise::add_to;
use super::float::Float;
use super::gradients::Gradients;
use super::memory::{Slice, filled, tensor};
use super::product::Write;
use super::{Dims, by_dtype, check};
use crate::base::model::Part;
use crate::base::saved::embedding_saved;

/// y `[b,t,h]`: the token's row plus the position's, behind dropout. And what [`embedding_saved`] lists.
///
/// # Errors
/// When a shape or dtype is not the model's, or a token is not below the vocabulary's size.
pub fn forward(dims: &Dims, random: RandomState, tokens: &Tensor, parameters: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    dims.check_parameters(Part::Embedding, parameters)?;
    by_dtype!(parameters[0], forward_of(dims, random, tokens, parameters))
}

/// Gradients of the tokens' (and positions') weight from the gradient of y, added to those in `earlier`.
///
/// # Errors
/// As [`forward`].
pub fn backward_weight(
    dims: &Dims,
    tokens: &Tensor,
    d_y: &Tensor,
    saved: &[Tensor],
    earlier: Option<&[Tensor]>,
) -> Result<Vec<Tensor>> {
    dims.check_stream("gradient of the embedding", d_y)?;
    dims.check_saved("saved by the embedding", saved, embedding_saved)?;
    by_dtype!(d_y, backward_weight_of(dims, tokens, d_y, saved, earlier))
}

fn forward_of<T: Float>(
    dims: &Dims,
    random: RandomState,
    tokens: &Tensor,
    parameters: &[Tensor],
) -> Result<(Tensor, Vec<Tensor>)> {
    let (h, t) = (dims.model.hidden, dims.tokens());
    let first = dims.segment.before(&dims.model);
    let tokens = read_ids(dims, tokens, None)?;
    let parameters = Slice::<T>::all(parameters)?;
    let [mut y] = filled([tokens.len() * h], |[y]| {
        for (row, (y, &token)) in y.chunks_exact_mut(h).zip(tokens.iter()).enumerate() {
            y.copy_from_slice(&parameters[0][token as usize * h..][..h]);
            if let Some(positions) = parameters.get(1) {
                add_to(y, &positions[(first + row % t) * h..][..h]);
            }
        }
    });
    let probability = dims.model.dropout;
    let draw = Draw { part: Part::Embedding, random };
    let mask = (probability > 0.0).then(|| dropout::mask(dims, draw, Place::Embedding));
    mask.iter().for_each(|mask| Mask::new(mask, probability).apply(&mut y));
    let saved = mask.into_iter().map(|mask| tensor(mask, &dims.stream())).collect::<Result<_>>()?;
    Ok((tensor(dims.stored(y), &dims.stream())?, saved))
}

fn backward_weight_of<T: Float>(
    dims: &Dims,
    tokens: &Tensor,
    d_y: &Tensor,
    saved: &[Tensor],
    earlier: Option<&[Tensor]>,
) -> Result<Vec<Tensor>> {
    let (h, t) = (dims.model.hidden, dims.tokens());
    let first = dims.segment.before(&dims.model);
    let tokens = read_ids(dims, tokens, None)?;
    let (d_y, masks) = (Slice::<T>::of(d_y)?, Slice::<u8>::all(saved)?);
    let d_y = dropped(&d_y, masks.first().map(|mask| Mask::new(mask, dims.model.dropout)));
    let parameters = dims.parameters_of(Part::Embedding);
    let mut gradients = Gradients::<T>::new(&parameters, earlier, dims.grid)?;
    gradients.put(0, |weight, write| scatter(&d_y, h, tokens.iter().map(|&token| token as usize), weight, write))?;
    if parameters.len() > 1 {
        gradients.put(1, |weight, write| scatter(&d_y, h, (0..tokens.len()).map(|row| first + row % t), weight, write))?;
    }
    Ok(gradients.finish())
}

/// Adds each row of `d_y` to the row of the weight that it came from.
pub(super) fn scatter<T: Float>(d_y: &[T], h: usize, rows: impl Iterator<Item = usize>, weight: &mut [T], write: Write) {
    if write == Write::New {
        weight.fill(T::zero());
    }
    for (d_y, row) in d_y.chunks_exact(h).zip(rows) {
        add_to(&mut weight[row * h..][..h], d_y);
    }
}

/// Token ids `[b,t]`, each below the vocabulary's size, or the one that is `allowed` beside those.
pub(super) fn read_ids<'a>(dims: &Dims, tokens: &'a Tensor, allowed: Option<u32>) -> Result<Slice<'a, u32>> {
    check::shape("tokens", tokens, &[dims.micro_batch_size, dims.tokens()])?;
    let ids = Slice::<u32>::of(tokens)?;
    match ids.iter().find(|&&id| Some(id) != allowed && id as usize >= dims.model.vocab) {
        Some(id) => bail!("token {id} is not in a vocabulary of {}", dims.model.vocab),
        None => Ok(ids),
    }
}
