//! The feed-forward's two products, and the non-linearity before the second, on a rank that holds slices of their matrices.
//!
//! What is a matrix of all ranks' columns has each rank's gate beside its up; so the non-linearity goes through it share by share. A product
//! whose matrix is cut by its inputs takes its own columns of what all ranks have, and one that is cut by its outputs takes those of the
//! gradient.

use candle_core::{D, Result, Tensor, bail};

use super::activation;
use super::float::Float;
use super::gradients::Gradients;
use super::linear;
use super::memory::Slice;
use super::module::{Cut, check_tokens};
use super::stream::behind_bias;
use crate::base::module::Module;

/// What the product makes of its input.
pub(super) fn forward<T: Float>(cut: Cut, x: &Tensor, parameters: &[Slice<T>]) -> Result<Vec<T>> {
    let (model, linears) = (&cut.dims.model, cut.linears());
    if cut.module == Module::Up {
        check_tokens(cut, "input of the feed-forward", x, model.hidden)?;
        return Ok(linear::forward(&linears, parameters, &Slice::<T>::of(&own(cut, x)?)?, None));
    }
    let (plain, biased) = activation_input(cut, x, parameters)?;
    let activated = activation::forward(model.activation, share(cut), biased.as_deref().unwrap_or(&plain));
    Ok(linear::forward(&linears, parameters, &cut.dims.stored(activated), None))
}

/// The gradient of the product's input; behind it, of the second one the non-linearity's output, for W.
pub(super) fn backward_input<T: Float>(cut: Cut, values: &[Tensor], parameters: &[Slice<T>]) -> Result<(Vec<T>, Option<Vec<T>>)> {
    let (model, linears) = (&cut.dims.model, cut.linears());
    match (cut.module, values) {
        (Module::Up, [d_output]) => {
            check_tokens(cut, "gradient", d_output, cut.width(Module::Up))?;
            Ok((linear::backward_input(&linears, parameters, &Slice::<T>::of(d_output)?), None))
        }
        (Module::Down, [d_output, x]) => {
            check_tokens(cut, "gradient", d_output, model.hidden)?;
            let d_activated = linear::backward_input(&linears, parameters, &Slice::<T>::of(&own(cut, d_output)?)?);
            let (plain, biased) = activation_input(cut, x, parameters)?;
            let x = biased.as_deref().unwrap_or(&plain);
            let [d_x, activated] = activation::backward(model.activation, share(cut), x, &d_activated);
            Ok((d_x, Some(activated)))
        }
        (module, values) => bail!("{module} makes no gradient from {} tensors", values.len()),
    }
}

/// Puts the gradients into the list, from the product's input and the gradient of its output; where the second product adds the bias of the
/// first, the gradient of the non-linearity's input stands behind them.
pub(super) fn backward_weight<T: Float>(cut: Cut, values: &[Tensor], gradients: &mut Gradients<T>) -> Result<()> {
    let [x, d_output, d_input @ ..] = values else { bail!("{} takes more than {} tensors", cut.module, values.len()) };
    let linears = cut.linears();
    let (x, d_output) =
        if cut.module == Module::Up { (own(cut, x)?, d_output.clone()) } else { (x.clone(), own(cut, d_output)?) };
    check_tokens(cut, "input", &x, linears[0].inputs)?;
    check_tokens(cut, "gradient", &d_output, linears.iter().map(|linear| linear.outputs).sum())?;
    linear::backward_weight(&linears, &Slice::<T>::of(&x)?, &Slice::<T>::of(&d_output)?, gradients)?;
    let biases = cut.biases_before();
    let Some(d_input) = d_input.first().filter(|_| biases > 0) else { return Ok(()) };
    let width = cut.split.input_width(&cut.dims.model, Module::Down);
    check_tokens(cut, "gradient of the activation's input", d_input, width)?;
    let sums = linear::column_sums(&Slice::<T>::of(d_input)?, width);
    sums.chunks_exact(width / biases).enumerate().try_for_each(|(bias, sums)| gradients.values(bias, sums))
}

/// What the non-linearity is applied to: what the first product made; and that with its biases, where they stand behind a sum.
fn activation_input<'x, T: Float>(cut: Cut, x: &'x Tensor, parameters: &[Slice<T>]) -> Result<(Slice<'x, T>, Option<Vec<T>>)> {
    check_tokens(cut, "input of the activation", x, cut.split.input_width(&cut.dims.model, Module::Down))?;
    let bias: Vec<T> = parameters[..cut.biases_before()].iter().flat_map(|bias| bias.iter().copied()).collect();
    let x = Slice::<T>::of(x)?;
    let biased = (!bias.is_empty()).then(|| cut.dims.stored(behind_bias(&x, &bias)));
    Ok((x, biased))
}

/// Columns of the non-linearity's output that lie side by side as one device has them.
fn share(cut: Cut) -> usize {
    cut.split.activated(&cut.dims.model)[1]
}

/// The rank's own columns, where the product takes those alone.
fn own(cut: Cut, whole: &Tensor) -> Result<Tensor> {
    if !cut.split.takes_columns(cut.module) || cut.split.ranks == 1 {
        return Ok(whole.clone());
    }
    let width = whole.dim(D::Minus1)? / cut.split.ranks;
    whole.narrow(D::Minus1, cut.split.place * width, width)?.contiguous()
}
