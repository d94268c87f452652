//! The head: final norm, logits, and the mean cross-entropy over the micro-batch's tokens.

use candle_core::{Result, Tensor, bail};

use super::embedding::read_ids;
use super::float::{Float, vectorised};
use super::gradients::Gradients;
use super::linear::{self, Linear};
use super::memory::{Slice, tensor};
use super::norm::{self, NormLayer};
use super::reduce::{exponentials, scale};
use super::{Dims, by_dtype};
use crate::base::model::{Parameter, Part};
use crate::base::saved::{head_deferred, head_saved};

/// The loss `[]`, a mean over b t tokens, and what [`head_saved`] lists.
///
/// # Errors
/// When a shape or dtype is not the model's, or a target is not below the vocabulary's size.
pub fn forward(dims: &Dims, x: &Tensor, targets: &Tensor, parameters: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    dims.check_stream("head input", x)?;
    dims.check_parameters(Part::Head, parameters)?;
    by_dtype!(x, forward_of(dims, x, targets, parameters))
}

/// I: the gradient of x `[b,t,h]` for a loss whose own gradient is 1, and what [`head_deferred`] lists.
///
/// # Errors
/// As [`forward`].
pub fn backward_input(dims: &Dims, parameters: &[Tensor], saved: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    dims.check_parameters(Part::Head, parameters)?;
    dims.check_saved("saved by the head", saved, head_saved)?;
    by_dtype!(saved[0], backward_input_of(dims, parameters, saved))
}

/// W: the gradients of the head's parameters (the tied token embedding's last), added to those in `earlier`.
///
/// # Errors
/// As [`forward`].
pub fn backward_weight(dims: &Dims, saved: &[Tensor], deferred: &[Tensor], earlier: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
    dims.check_saved("saved by the head", saved, head_saved)?;
    dims.check_saved("deferred by the head", deferred, head_deferred)?;
    by_dtype!(saved[0], backward_weight_of(dims, saved, deferred, earlier))
}

/// The head's layers, as indices into its parameters.
struct Layers {
    parameters: Vec<Parameter>,
    norm: NormLayer,
    logits: Linear,
}

impl Layers {
    fn of(dims: &Dims) -> Layers {
        let parameters = dims.parameters_of(Part::Head);
        let name = if dims.model.tied { "tokens" } else { "logits" };
        let logits = Linear::find(&parameters, name).expect("the head has a weight for the logits");
        Layers { norm: NormLayer::find(&parameters, "norm", dims.model.norm), logits, parameters }
    }
}

fn forward_of<T: Float>(dims: &Dims, x: &Tensor, targets: &Tensor, parameters: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    let layers = Layers::of(dims);
    let parameters = Slice::<T>::all(parameters)?;
    let targets = read_targets(dims, targets)?;
    let norm = norm::forward(layers.norm.bind(&parameters), &Slice::<T>::of(x)?);
    let mut logits = dims.stored(linear::forward(&[layers.logits], &parameters, &dims.stored(norm.output), None));
    let loss = cross_entropy(&mut logits, &targets, dims.model.vocab);
    let saved = [norm.normalised, norm.reciprocal, logits].into_iter().zip(dims.layout(head_saved));
    let saved = saved.map(|(values, saved)| tensor(values, &saved.dims)).collect::<Result<_>>()?;
    Ok((tensor(vec![loss], &[])?, saved))
}

fn backward_input_of<T: Float>(dims: &Dims, parameters: &[Tensor], saved: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    let layers = Layers::of(dims);
    let parameters = Slice::<T>::all(parameters)?;
    let saved = Slice::<T>::all(saved)?;
    let d_output = dims.stored(linear::backward_input(&[layers.logits], &parameters, &saved[2]));
    let norm = norm::backward(layers.norm.bind(&parameters), &d_output, &saved[0], &saved[1], None);
    let mut deferred = vec![norm.output, norm.weight_gradient];
    deferred.extend(norm.bias_gradient);
    let deferred = deferred.into_iter().zip(dims.layout(head_deferred));
    let deferred = deferred.map(|(values, saved)| tensor(values, &saved.dims)).collect::<Result<_>>()?;
    Ok((tensor(norm.input_gradient, &dims.stream())?, deferred))
}

fn backward_weight_of<T: Float>(
    dims: &Dims,
    saved: &[Tensor],
    deferred: &[Tensor],
    earlier: Option<&[Tensor]>,
) -> Result<Vec<Tensor>> {
    let layers = Layers::of(dims);
    let d_logits = Slice::<T>::of(&saved[2])?;
    let deferred = Slice::<T>::all(deferred)?;
    let mut gradients = Gradients::new(&layers.parameters, earlier, dims.grid)?;
    linear::backward_weight(&[layers.logits], &deferred[0], &d_logits, &mut gradients)?;
    layers.norm.indices().zip(&deferred[1..]).try_for_each(|(index, gradient)| gradients.values(index, gradient))?;
    Ok(gradients.finish())
}

/// A target that does not count, as -100 does in PyTorch.
pub const IGNORED: u32 = u32::MAX;

/// Targets `[b,t]`, each below the vocabulary's size or [`IGNORED`]; at least one counts.
pub(super) fn read_targets<'a>(dims: &Dims, targets: &'a Tensor) -> Result<Slice<'a, u32>> {
    let ids = read_ids(dims, targets, Some(IGNORED))?;
    if ids.iter().all(|&id| id == IGNORED) {
        bail!("no target counts");
    }
    Ok(ids)
}

/// The mean loss over the targets that count; each row of logits `[b*t,v]` becomes its gradient: (softmax - one-hot) / targets that count.
#[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
fn cross_entropy<T: Float>(logits: &mut [T], targets: &[u32], vocab: usize) -> T {
    let per_token = 1.0 / targets.iter().filter(|&&target| target != IGNORED).count() as f64;
    let mut total = 0.0;
    vectorised!({
        for (row, &target) in logits.chunks_exact_mut(vocab).zip(targets) {
            if target == IGNORED {
                row.fill(T::zero());
                continue;
            }
            let target = target as usize;
            let target_logit = row[target];
            let (most, denominator) = exponentials(row);
            scale(row, T::of(per_token) / denominator);
            row[target] -= T::of(per_token);
            total += denominator.to_f64().ln() - (target_logit - most).to_f64();
        }
    });
    T::of(total * per_token)
}
