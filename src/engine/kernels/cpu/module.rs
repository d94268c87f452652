//! The modules of a block by themselves, on a rank that holds slices of its tensors: what [`super::block`] does in one go, cut where ranks
//! meet. Widths are the rank's own; all else is the same code.
//!
//! | module | forward | I | W |
//! |---|---|---|---|
//! | norms | x -> y | dy, dx of the residual stream -> dx | (kept by I) |
//! | qkv | x -> q k v | d q k v -> dx | x, d q k v |
//! | attention | q k v -> o | do, q k v, o -> d q k v | |
//! | projection | o -> y | dy -> do | o, dy |
//! | adds | x, y -> x + y + bias | | d (x + y) |
//! | up | x -> u | du -> dx | x, du |
//! | down | u -> y | dy, u -> du | dy (and kept by I) |
//! | tokens | ids -> y | | ids, dy |
//! | positions | x -> x + positions | | dx |
//! | logits | x, targets -> what the loss needs | d logits -> dx | x, d logits |
//! | loss | what it needs of all ranks, logits, targets -> loss | | |
//!
//! Behind these values stand what the module saved, and its parameters. Norms, sums and positions work on any of a micro-batch's tokens:
//! where each rank has its own, an equal stretch of them behind each other.

use candle_core::{Result, Tensor, bail};

use super::dropout::{self, Draw, Mask, Place};
use super::embedding::scatter;
use super::float::Float;
use super::gradients::Gradients;
use super::linear::{self, Linear};
use super::memory::{Slice, tensor};
use super::norm::{self, NormLayer};
use super::rotary::{self, Turn};
use super::{Dims, attention, by_dtype, check, feed_forward, stream, vocabulary};
use crate::base::context::Attention;
use crate::base::model::{Parameter, Positions};
use crate::base::module::Module;
use crate::base::split::Split;

/// A module on one of several ranks.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    /// The model.
    pub dims: &'a Dims,
    /// Which of the ranks that share its tensors.
    pub split: Split,
    /// The module.
    pub module: Module,
    /// As a fault, a product takes the bias that belongs behind the ranks' sum.
    pub bias_before_sum: bool,
    /// Which random numbers it draws.
    pub draw: Draw,
    /// The slice of each sequence that the rank has, where it does not have all of it.
    pub slice: Option<(Attention, usize)>,
}

impl Cut<'_> {
    /// The output, and what forward saves beside it: `values` are what flows in, then come the parameters.
    ///
    /// # Errors
    /// When a shape or dtype is not the module's.
    pub fn forward(self, operands: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let count = match self.module {
            Module::Add1 | Module::Add2 | Module::Logits => 2,
            Module::Loss => 3,
            _ => 1,
        };
        let (values, parameters) = self.operands(operands, count)?;
        if self.module == Module::Tokens {
            return vocabulary::embedding(self, &values[0], parameters).map(|output| (output, Vec::new()));
        }
        by_dtype!(values[0], forward_of(self, values, parameters))
    }

    /// The norm's output once more, from what it saved.
    ///
    /// # Errors
    /// As [`Cut::forward`].
    pub fn norm_again(self, saved: &[Tensor], parameters: &[Tensor]) -> Result<Tensor> {
        self.check_parameters(parameters)?;
        let [normalised, _] = saved else { bail!("{} saves two tensors, not {}", self.module, saved.len()) };
        by_dtype!(normalised, norm_again_of(self, normalised, parameters))
    }

    /// The mask of what is added to the stream `x` once more; nothing without dropout.
    ///
    /// # Errors
    /// As [`Cut::forward`].
    pub fn mask_again(self, x: &Tensor) -> Result<Vec<Tensor>> {
        self.dims.check_model()?;
        check_rows("residual stream", x, self.dims.model.hidden, x)?;
        self.mask(x).into_iter().map(|mask| tensor(mask, x.dims())).collect()
    }

    /// I: the gradient of the input, and what W needs of it. Operands as forward's; `saved` is what forward saved.
    ///
    /// # Errors
    /// As [`Cut::forward`].
    pub fn backward_input(self, operands: &[Tensor], saved: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let count = match self.module {
            Module::Norm1 | Module::Norm2 | Module::Down => 2,
            Module::Attention => 3,
            Module::Qkv | Module::Projection | Module::Up | Module::FinalNorm | Module::Logits => 1,
            // Behind dropout alone: a sum passes its gradient on as it is.
            Module::Add1 | Module::Add2 | Module::Positions => return self.before_dropout(operands, saved),
            _ => bail!("no gradient is made of what {} takes", self.module),
        };
        let (values, parameters) = self.operands(operands, count)?;
        by_dtype!(values[0], backward_input_of(self, values, parameters, saved))
    }

    fn before_dropout(self, operands: &[Tensor], saved: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        self.dims.check_model()?;
        let [gradient] = operands else { bail!("{} takes one gradient, not {}", self.module, operands.len()) };
        by_dtype!(gradient, backward_input_of(self, operands, &[], saved))
    }

    /// W: the gradients of the module's parameters, added to those in `earlier`.
    ///
    /// # Errors
    /// As [`Cut::forward`].
    pub fn backward_weight(self, values: &[Tensor], earlier: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
        self.dims.check_model()?;
        match values.last() {
            Some(gradient) => by_dtype!(gradient, backward_weight_of(self, values, earlier)),
            None => bail!("{} has no gradient to work on", self.module),
        }
    }

    /// The first `count` operands, and the parameters behind them.
    fn operands(self, operands: &[Tensor], count: usize) -> Result<(&[Tensor], &[Tensor])> {
        self.dims.check_model()?;
        if operands.len() < count {
            bail!("{} takes {count} values and its parameters, not {} tensors", self.module, operands.len());
        }
        let (values, parameters) = operands.split_at(count);
        self.check_parameters(parameters)?;
        Ok((values, parameters))
    }

    fn parameters(self) -> Vec<Parameter> {
        self.dims.model.taken_by(0, self.module, self.split, self.bias_before_sum)
    }

    fn check_parameters(self, parameters: &[Tensor]) -> Result<()> {
        let model = &self.dims.model;
        let ranks = self.split.ranks;
        if !model.heads.is_multiple_of(ranks) || !model.ffn.is_multiple_of(ranks) {
            bail!("{ranks} ranks do not divide {} heads and {} columns", model.heads, model.ffn);
        }
        check::shapes("parameters", parameters, self.parameters().iter().map(|parameter| &parameter.dims))
    }

    pub(super) fn width(self, module: Module) -> usize {
        self.split.width(&self.dims.model, module)
    }

    fn attention(self) -> attention::Shape {
        let Dims { model, micro_batch_size, .. } = self.dims;
        attention::Shape {
            b: *micro_batch_size,
            t: model.sequence,
            heads: model.heads / self.split.ranks,
            kv_heads: self.split.kv_heads(model),
            d: model.head_size(),
            half: self.dims.half,
        }
    }

    fn norm(self) -> NormLayer {
        NormLayer::find(&self.parameters(), self.module.name(), self.dims.model.norm)
    }

    /// How many biases of the product before it the module adds: they stand before its own weight.
    pub(super) fn biases_before(self) -> usize {
        if self.module == Module::Down {
            self.parameters().iter().take_while(|parameter| parameter.dims.len() == 1).count()
        } else {
            0
        }
    }

    /// The module's linear layers: weights have two dims, biases one, both in the same order.
    pub(super) fn linears(self) -> Vec<Linear> {
        let parameters = self.parameters();
        let of_dims = |dims: usize| (0..parameters.len()).filter(|&i| parameters[i].dims.len() == dims).collect::<Vec<_>>();
        let (weights, biases) = (of_dims(2), of_dims(1).split_off(self.biases_before()));
        let linear = |(number, &weight): (usize, &usize)| {
            let [outputs, inputs] = [parameters[weight].dims[0], parameters[weight].dims[1]];
            Linear { weight, bias: biases.get(number).copied(), inputs, outputs }
        };
        weights.iter().enumerate().map(linear).collect()
    }

    /// The number of the first token in rows of the residual stream, among those of the rank's slices: all of them, or its own stretch.
    fn first_token(self, x: &Tensor) -> usize {
        let own = x.elem_count() / self.dims.model.hidden;
        let all = self.dims.micro_batch_size * self.dims.tokens();
        if own < all { self.split.place * own } else { 0 }
    }

    /// Where it drops elements.
    fn place(self) -> Place {
        match self.module {
            Module::Attention => Place::Softmax,
            Module::Add1 => Place::Attention,
            Module::Add2 => Place::FeedForward,
            _ => Place::Embedding,
        }
    }

    /// The mask of the rank's heads, or of its tokens of the stream `x`; `None` without dropout.
    fn mask(self, x: &Tensor) -> Option<Vec<u8>> {
        let Dims { model, micro_batch_size, .. } = self.dims;
        if model.dropout == 0.0 {
            return None;
        }
        let (square, own) = (model.sequence * model.sequence, model.heads / self.split.ranks);
        Some(if self.module == Module::Attention {
            let first = move |sequence: usize| (sequence * model.heads + self.split.place * own) * square;
            let heads = (0..*micro_batch_size).map(move |sequence| first(sequence)..first(sequence) + own * square);
            dropout::mask_of(self.dims, self.draw, self.place(), heads)
        } else {
            let (h, own) = (model.hidden, x.elem_count() / model.hidden);
            let rows = self.tokens(x).take(own).map(|token| token * h..(token + 1) * h);
            dropout::mask_of(self.dims, self.draw, self.place(), rows)
        })
    }

    /// The numbers in the micro-batch of the tokens in rows of the residual stream, without end.
    fn tokens(self, x: &Tensor) -> impl Iterator<Item = usize> {
        let (first, own, all) = (self.first_token(x), self.own_positions(), self.dims.model.sequence);
        (first..).map(move |token| token / own.len() * all + own[token % own.len()])
    }

    /// Their positions.
    pub(super) fn positions(self, x: &Tensor) -> impl Iterator<Item = usize> {
        let all = self.dims.model.sequence;
        self.tokens(x).map(move |token| token % all)
    }

    /// The positions of a sequence's tokens that the rank has.
    fn own_positions(self) -> Vec<usize> {
        match self.slice {
            None => (0..self.dims.model.sequence).collect(),
            Some((attention, slice)) => attention.positions(slice).into_iter().map(|position| position as usize).collect(),
        }
    }

    /// The gradient of q, k and v before they were turned.
    ///
    /// # Errors
    /// As [`Cut::forward`].
    pub fn turned_back(self, gradient: &Tensor) -> Result<Tensor> {
        check_tokens(self, "gradient of q k v", gradient, self.width(Module::Qkv))?;
        by_dtype!(gradient, turned_back_of(self, gradient))
    }

    /// Rotary positions: turns the rank's heads of q and k, which stand before those of v.
    fn turn<T: Float>(self, turn: Turn, qkv: &mut [T]) {
        let (model, shape) = (&self.dims.model, self.attention());
        if model.positions == Positions::Rotary {
            rotary::turn_at(turn, qkv, shape.width(), &self.own_positions(), (shape.heads + shape.kv_heads, shape.d));
        }
    }
}

/// A tensor with the tokens of `like`, and rows of `width`.
fn rows<T: Float>(values: Vec<T>, like: &Tensor, width: usize) -> Result<Tensor> {
    let mut dims = like.dims().to_vec();
    if let Some(last) = dims.last_mut() {
        *last = width;
    }
    tensor(values, &dims)
}

/// An error where the rows of `tensor` are not `width` wide, or fewer or more than those of `first`.
pub(super) fn check_rows(what: &str, tensor: &Tensor, width: usize, first: &Tensor) -> Result<()> {
    let count = |tensor: &Tensor| tensor.dims().split_last().map(|(_, rows)| rows.iter().product::<usize>());
    if tensor.dims().last() != Some(&width) || count(tensor) != count(first) {
        bail!("{what}: shape {:?} has not the tokens of {:?} in rows of {width}", tensor.dims(), first.dims());
    }
    Ok(())
}

/// An error where `tensor` has not all tokens of a micro-batch in rows of `width`.
pub(super) fn check_tokens(cut: Cut, what: &str, tensor: &Tensor, width: usize) -> Result<()> {
    check::shape(what, tensor, &[cut.dims.micro_batch_size, cut.dims.tokens(), width])
}

fn forward_of<T: Float>(cut: Cut, values: &[Tensor], parameters: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    let (model, width) = (&cut.dims.model, cut.width(cut.module));
    match (cut.module, values) {
        (Module::Logits, [x, targets]) => {
            check_tokens(cut, "input of the logits", x, model.hidden)?;
            return vocabulary::logits::<T>(cut, x, targets, parameters).map(|(told, logits)| (told, vec![logits]));
        }
        (Module::Loss, [told, logits, targets]) => {
            return vocabulary::loss::<T>(cut, told, logits, targets).map(|(loss, gradient)| (loss, vec![gradient]));
        }
        _ => {}
    }
    let bound = Slice::<T>::all(parameters)?;
    let x = Slice::<T>::of(&values[0])?;
    let mut saved = Vec::new();
    let output = match cut.module {
        Module::Norm1 | Module::Norm2 | Module::FinalNorm => {
            check_rows("input of the norm", &values[0], model.hidden, &values[0])?;
            let norm = norm::forward(cut.norm().bind(&bound), &x);
            saved.push(rows(norm.normalised, &values[0], model.hidden)?);
            saved.push(tensor(norm.reciprocal, &values[0].dims()[..values[0].dims().len() - 1])?);
            norm.output
        }
        Module::Qkv => {
            check_tokens(cut, "input of q k v", &values[0], model.hidden)?;
            let mut qkv = linear::forward(&cut.linears(), &bound, &x, None);
            cut.turn(Turn::Forward, &mut qkv);
            qkv
        }
        Module::Attention => {
            check_tokens(cut, "q k v", &values[0], cut.width(Module::Qkv))?;
            let (shape, mask) = (cut.attention(), cut.mask(&values[0]));
            let dropout = mask.as_ref().map(|mask| Mask::new(mask, model.dropout));
            let [probabilities, attended] = attention::forward(shape, &x, dropout);
            let dims = [shape.b, shape.heads, shape.t, shape.t];
            saved.push(tensor(probabilities, &dims)?);
            saved.extend(mask.map(|mask| tensor(mask, &dims)).transpose()?);
            attended
        }
        Module::Projection => {
            check_tokens(cut, "input of the projection", &values[0], cut.width(Module::Attention))?;
            linear::forward(&cut.linears(), &bound, &x, None)
        }
        Module::Add1 | Module::Add2 | Module::Positions => {
            let mask = cut.mask(&values[0]);
            let sum = stream::forward(cut, values, &bound, mask.as_deref())?;
            saved.extend(mask.map(|mask| tensor(mask, values[0].dims())).transpose()?);
            sum
        }
        Module::Up | Module::Down => feed_forward::forward(cut, &values[0], &bound)?,
        Module::Tokens | Module::Logits | Module::Loss => bail!("{} is computed apart", cut.module),
        Module::Route | Module::Dispatch | Module::Experts | Module::Combine => bail!("{} is of experts", cut.module),
    };
    Ok((rows(output, &values[0], width)?, saved))
}

fn turned_back_of<T: Float>(cut: Cut, gradient: &Tensor) -> Result<Tensor> {
    let mut turned = Slice::<T>::of(gradient)?.to_vec();
    cut.turn(Turn::Back, &mut turned);
    tensor(turned, gradient.dims())
}

fn norm_again_of<T: Float>(cut: Cut, normalised: &Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    check_rows("saved by the norm", normalised, cut.dims.model.hidden, normalised)?;
    let bound = Slice::<T>::all(parameters)?;
    let output = norm::again(cut.norm().bind(&bound), &Slice::<T>::of(normalised)?);
    rows(output, normalised, cut.dims.model.hidden)
}

fn backward_input_of<T: Float>(
    cut: Cut,
    values: &[Tensor],
    parameters: &[Tensor],
    saved: &[Tensor],
) -> Result<(Tensor, Vec<Tensor>)> {
    let model = &cut.dims.model;
    let bound = Slice::<T>::all(parameters)?;
    let d_output = Slice::<T>::of(&values[0])?;
    let full = |what, width| check_tokens(cut, what, &values[0], width);
    let mut deferred = Vec::new();
    let (gradient, width) = match cut.module {
        Module::Norm1 | Module::Norm2 | Module::FinalNorm => {
            let [normalised, reciprocal] = saved else { bail!("{} saves two tensors, not {}", cut.module, saved.len()) };
            for tensor in values {
                check_rows("gradient", tensor, model.hidden, normalised)?;
            }
            let (normalised, reciprocal) = (Slice::<T>::of(normalised)?, Slice::<T>::of(reciprocal)?);
            let residual = values.get(1).map(Slice::<T>::of).transpose()?;
            let norm = norm::backward(cut.norm().bind(&bound), &d_output, &normalised, &reciprocal, residual.as_deref());
            for gradient in std::iter::once(norm.weight_gradient).chain(norm.bias_gradient) {
                deferred.push(tensor(gradient, &[model.hidden])?);
            }
            (norm.input_gradient, model.hidden)
        }
        Module::Qkv | Module::Logits => {
            full("gradient", cut.width(cut.module))?;
            (linear::backward_input(&cut.linears(), &bound, &d_output), model.hidden)
        }
        Module::Attention => {
            full("gradient", cut.width(Module::Attention))?;
            check_tokens(cut, "q k v", &values[1], cut.width(Module::Qkv))?;
            check_tokens(cut, "attention output", &values[2], cut.width(Module::Attention))?;
            let shape = cut.attention();
            let square = [shape.b, shape.heads, shape.t, shape.t];
            check::shapes("attention probabilities", saved, (0..=usize::from(model.dropout > 0.0)).map(|_| square))?;
            let [qkv, output] = [Slice::<T>::of(&values[1])?, Slice::<T>::of(&values[2])?];
            let (probabilities, masks) = (Slice::<T>::of(&saved[0])?, Slice::<u8>::all(&saved[1..])?);
            let mask = masks.first().map(|mask| Mask::new(mask, model.dropout));
            let mut gradient = attention::backward(shape, &d_output, (&qkv[..], &probabilities[..], &output[..]), mask);
            cut.turn(Turn::Back, &mut gradient);
            (gradient, cut.width(Module::Qkv))
        }
        Module::Projection => {
            full("gradient", model.hidden)?;
            (linear::backward_input(&cut.linears(), &bound, &d_output), cut.width(Module::Attention))
        }
        Module::Up | Module::Down => {
            let (d_input, activated) = feed_forward::backward_input(cut, values, &bound)?;
            let activated = activated.map(|activated| rows(activated, &values[0], cut.split.activated(model)[0]));
            deferred.extend(activated.transpose()?);
            (d_input, cut.split.input_width(model, cut.module))
        }
        Module::Add1 | Module::Add2 | Module::Positions => {
            check_rows("gradient", &values[0], model.hidden, &values[0])?;
            check::shapes("dropout mask", saved, [values[0].dims()])?;
            (stream::dropped(cut, d_output.to_vec(), &Slice::<u8>::of(&saved[0])?), model.hidden)
        }
        _ => bail!("no gradient is made of what {} takes", cut.module),
    };
    Ok((rows(gradient, &values[0], width)?, deferred))
}

fn backward_weight_of<T: Float>(cut: Cut, values: &[Tensor], earlier: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
    let parameters = cut.parameters();
    let mut gradients = Gradients::new(&parameters, earlier, cut.dims.grid)?;
    if let (Module::Tokens, [tokens, d_y]) = (cut.module, values) {
        vocabulary::scatter::<T>(cut, tokens, d_y, &mut gradients)?;
        return Ok(gradients.finish());
    }
    if matches!(cut.module, Module::Up | Module::Down) {
        feed_forward::backward_weight(cut, values, &mut gradients)?;
        return Ok(gradients.finish());
    }
    let slices = Slice::<T>::all(values)?;
    match (cut.module, &slices[..]) {
        (Module::Positions, [d_y]) => {
            let h = cut.dims.model.hidden;
            check_rows("gradient", &values[0], h, &values[0])?;
            gradients.put(0, |weight, write| scatter(d_y, h, cut.positions(&values[0]), weight, write))?;
        }
        (Module::Norm1 | Module::Norm2 | Module::FinalNorm, sums) => {
            check::shapes("gradients kept by I", values, parameters.iter().map(|parameter| &parameter.dims))?;
            cut.norm().indices().zip(sums).try_for_each(|(index, sum)| gradients.values(index, sum))?;
        }
        (Module::Add1 | Module::Add2, [d_output]) => {
            check_rows("gradient", &values[0], cut.dims.model.hidden, &values[0])?;
            let sums = linear::column_sums(d_output, cut.dims.model.hidden);
            (0..parameters.len()).try_for_each(|bias| gradients.values(bias, &sums))?;
        }
        (Module::Qkv | Module::Projection | Module::Logits, [x, d_output]) => {
            let linears = cut.linears();
            let outputs = linears.iter().map(|linear| linear.outputs).sum();
            check_tokens(cut, "input", &values[0], linears[0].inputs)?;
            check_tokens(cut, "gradient", &values[1], outputs)?;
            linear::backward_weight(&linears, x, d_output, &mut gradients)?;
        }
        (module, values) => bail!("{module} does not make its gradients from {} tensors", values.len()),
    }
    Ok(gradients.finish())
}
