//! The experts of a rank inside a training step: forward, I and W.
//!
//! An expert works on the rows of one micro-batch at a time, wherever those come from: so it makes the bits that one device makes, which has the
//! micro-batches one after the other. Parts come in the order of the micro-batches, and in each in the order of the rank's experts.

use candle_core::{Result, Tensor, bail};

use super::float::Float;
use super::gradients::Gradients;
use super::linear::{self, Linear};
use super::memory::{Slice, tensor};
use super::{Dims, activation, by_dtype, check};
use crate::base::mixture::Mixture;
use crate::base::model::{Parameter, Part};
use crate::base::module::Module;
use crate::base::split::Split;

/// The experts of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Experts<'a> {
    /// The model.
    pub dims: &'a Dims,
    /// Which of the ranks that share their matrices.
    pub split: Split,
}

impl Experts<'_> {
    /// What the experts make of the rows `[n,h]` of each part, and what their first matrices did.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn forward(self, rows: &[Tensor], matrices: &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        self.check(rows, matrices)?;
        by_dtype!(matrices[0], forward_of(self, rows, matrices))
    }

    /// I: the gradients of the rows, and what W needs: the gradients behind the first matrices, then what the second ones were given.
    ///
    /// # Errors
    /// As [`Experts::forward`].
    pub fn backward_input(
        self,
        gradients: &[Tensor],
        hidden: &[Tensor],
        matrices: &[Tensor],
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        self.check(gradients, matrices)?;
        let inner = self.inner();
        check::shapes("what the experts kept", hidden, gradients.iter().map(|part| [part.dims()[0], inner]))?;
        by_dtype!(matrices[0], backward_input_of(self, gradients, hidden, matrices))
    }

    /// W: the gradients of the matrices, added to those in `earlier`.
    ///
    /// # Errors
    /// As [`Experts::forward`].
    pub fn backward_weight(
        self,
        rows: &[Tensor],
        (deferred, gradients): (&[Tensor], &[Tensor]),
        (experts, earlier): (usize, Option<&[Tensor]>),
    ) -> Result<Vec<Tensor>> {
        let n = rows.len();
        if experts == 0 || !n.is_multiple_of(experts) || deferred.len() != 2 * n {
            bail!("{n} parts for {experts} experts come with {} tensors that I left", deferred.len());
        }
        let (h, f) = (self.dims.model.hidden, self.width());
        let counts: Vec<usize> = rows.iter().map(|part| part.dim(0)).collect::<Result<_>>()?;
        check::shapes("rows of experts", rows, counts.iter().map(|&n| [n, h]))?;
        check::shapes("gradients of results", gradients, counts.iter().map(|&n| [n, h]))?;
        check::shapes("gradients of hidden rows", &deferred[..n], counts.iter().map(|&n| [n, self.inner()]))?;
        check::shapes("hidden rows", &deferred[n..], counts.iter().map(|&n| [n, f]))?;
        let Some(first) = rows.first() else { bail!("no rows") };
        by_dtype!(first, backward_weight_of(self, rows, deferred.split_at(n), gradients, (experts, earlier)))
    }

    /// How many matrices an expert has.
    fn each(self) -> usize {
        Mixture::matrices(self.dims.model.activation)
    }

    /// Columns of an expert that this rank has.
    fn width(self) -> usize {
        self.dims.model.ffn / self.split.ranks
    }

    /// Columns behind its first matrices.
    fn inner(self) -> usize {
        self.width() * (self.each() - 1)
    }

    /// The matrices of one expert, as indices into a list: those side by side, and the last one.
    fn layers(self) -> (Vec<Linear>, Linear) {
        let (h, f) = (self.dims.model.hidden, self.width());
        let first = (0..self.each() - 1).map(|weight| Linear { weight, bias: None, inputs: h, outputs: f });
        (first.collect(), Linear { weight: self.each() - 1, bias: None, inputs: f, outputs: h })
    }

    /// The parameters of one expert: all have the same shapes.
    fn parameters(self) -> Vec<Parameter> {
        let mut all = self.dims.model.slices_of(Part::Module(0, Module::Experts), self.split);
        all.truncate(self.each());
        all
    }

    fn check(self, rows: &[Tensor], matrices: &[Tensor]) -> Result<()> {
        self.dims.check_model()?;
        let each = self.parameters();
        if each.is_empty() || matrices.is_empty() || !matrices.len().is_multiple_of(each.len()) {
            bail!("{} matrices are no experts of this model", matrices.len());
        }
        let experts = matrices.len() / each.len();
        check::shapes("matrices of experts", matrices, (0..experts).flat_map(|_| each.iter().map(|one| &one.dims)))?;
        if !rows.len().is_multiple_of(experts) {
            bail!("{} parts are not for {experts} experts", rows.len());
        }
        for part in rows {
            let (n, _) = part.dims2()?;
            check::shape("rows of an expert", part, &[n, self.dims.model.hidden])?;
        }
        Ok(())
    }
}

fn forward_of<T: Float>(experts: Experts, rows: &[Tensor], matrices: &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let (dims, (first, second)) = (experts.dims, experts.layers());
    let matrices = Slice::<T>::all(matrices)?;
    let (mut results, mut kept) = (Vec::new(), Vec::new());
    for (part, own) in rows.iter().zip(matrices.chunks(experts.each()).cycle()) {
        let n = part.dim(0)?;
        let hidden = if n == 0 { Vec::new() } else { dims.stored(linear::forward(&first, own, &Slice::<T>::of(part)?, None)) };
        let activated = dims.stored(activation::forward(dims.model.activation, second.inputs, &hidden));
        let y = if n == 0 { Vec::new() } else { linear::forward(&[second], own, &activated, None) };
        results.push(tensor(y, part.dims())?);
        kept.push(tensor(hidden, &[n, experts.inner()])?);
    }
    Ok((results, kept))
}

fn backward_input_of<T: Float>(
    experts: Experts,
    gradients: &[Tensor],
    hidden: &[Tensor],
    matrices: &[Tensor],
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let (dims, (first, second)) = (experts.dims, experts.layers());
    let matrices = Slice::<T>::all(matrices)?;
    let (mut of_rows, mut of_hidden, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
    for ((part, hidden), own) in gradients.iter().zip(hidden).zip(matrices.chunks(experts.each()).cycle()) {
        let n = part.dim(0)?;
        let (mut d_x, mut d_hidden, mut activated) = (Vec::new(), Vec::new(), Vec::new());
        if n > 0 {
            let d_activated = dims.stored(linear::backward_input(&[second], own, &Slice::<T>::of(part)?));
            let hidden = Slice::<T>::of(hidden)?;
            [d_hidden, activated] = activation::backward(dims.model.activation, second.inputs, &hidden, &d_activated)
                .map(|values| dims.stored(values));
            d_x = linear::backward_input(&first, own, &d_hidden);
        }
        of_rows.push(tensor(d_x, part.dims())?);
        of_hidden.push(tensor(d_hidden, &[n, experts.inner()])?);
        inputs.push(tensor(activated, &[n, second.inputs])?);
    }
    Ok((of_rows, [of_hidden, inputs].concat()))
}

fn backward_weight_of<T: Float>(
    experts: Experts,
    rows: &[Tensor],
    (of_hidden, inputs): (&[Tensor], &[Tensor]),
    gradients: &[Tensor],
    (own, earlier): (usize, Option<&[Tensor]>),
) -> Result<Vec<Tensor>> {
    let (each, (first, second), parameters) = (experts.each(), experts.layers(), experts.parameters());
    let mut done = Vec::with_capacity(own * each);
    for expert in 0..own {
        let mut sums: Option<Vec<Tensor>> = earlier.map(|earlier| earlier[expert * each..][..each].to_vec());
        for place in (expert..rows.len()).step_by(own).filter(|&place| rows[place].elem_count() > 0) {
            let mut added = Gradients::<T>::new(&parameters, sums.as_deref(), experts.dims.grid)?;
            let [x, d_hidden, input, d_y] = [&rows[place], &of_hidden[place], &inputs[place], &gradients[place]];
            linear::backward_weight(&first, &Slice::<T>::of(x)?, &Slice::<T>::of(d_hidden)?, &mut added)?;
            linear::backward_weight(&[second], &Slice::<T>::of(input)?, &Slice::<T>::of(d_y)?, &mut added)?;
            sums = Some(added.finish());
        }
        match sums {
            Some(sums) => done.extend(sums),
            None => {
                for parameter in &parameters {
                    done.push(tensor(vec![T::zero(); parameter.elements()], &parameter.dims)?);
                }
            }
        }
    }
    Ok(done)
}

/// W of the router: the gradient of its matrix `[e,h]` from its tokens `[t,h]` and the gradient of its logits `[t,e]`, added to `earlier`.
///
/// # Errors
/// When shapes or types do not fit.
pub fn router_weight(dims: &Dims, x: &Tensor, d_logits: &Tensor, earlier: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
    dims.check_model()?;
    let parameters = dims.model.slices_of(Part::Module(0, Module::Route), Split::NONE);
    let [router] = parameters.as_slice() else { bail!("the model has no router") };
    let (t, _) = x.dims2()?;
    check::shape("tokens of the router", x, &[t, router.dims[1]])?;
    check::shape("gradient of the logits", d_logits, &[t, router.dims[0]])?;
    by_dtype!(x, router_weight_of(dims, x, d_logits, (&parameters, earlier)))
}

fn router_weight_of<T: Float>(
    dims: &Dims,
    x: &Tensor,
    d_logits: &Tensor,
    (parameters, earlier): (&[Parameter], Option<&[Tensor]>),
) -> Result<Vec<Tensor>> {
    let mut gradients = Gradients::<T>::new(parameters, earlier, dims.grid)?;
    let [outputs, inputs] = [parameters[0].dims[0], parameters[0].dims[1]];
    let layer = Linear { weight: 0, bias: None, inputs, outputs };
    linear::backward_weight(&[layer], &Slice::<T>::of(x)?, &Slice::<T>::of(d_logits)?, &mut gradients)?;
    Ok(gradients.finish())
}
