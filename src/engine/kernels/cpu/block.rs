//! One transformer block: x2 = x + attention(norm1(x)), y = x2 + feed-forward(norm2(x2)). With dropout behind the softmax, and on what is
//! added to x and x2.

use candle_core::{Result, Tensor};

use super::dropout::{self, Draw, Mask, Place, dropped};
use super::float::Float;
use super::gradients::Gradients;
use super::linear::{self, Linear};
use super::memory::{Slice, tensor};
use super::norm::{self, NormLayer};
use super::rotary::{self, Turn};
use super::{Dims, activation, attention, by_dtype, check, elementwise};
use crate::base::model::{Model, Parameter, Part, Positions};
use crate::base::saved::{block_deferred, block_masks, block_saved};

/// y `[b,t,h]` from x `[b,t,h]`, and what [`block_saved`] lists.
///
/// # Errors
/// When a shape or dtype is not the model's.
pub fn forward(dims: &Dims, draw: Draw, x: &Tensor, parameters: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    dims.check_stream("block input", x)?;
    dims.check_parameters(Part::Block(0), parameters)?;
    by_dtype!(x, forward_of(dims, draw, x, parameters))
}

/// I: the gradient of x `[b,t,h]` from that of y, and what [`block_deferred`] lists.
///
/// # Errors
/// As [`forward`].
pub fn backward_input(dims: &Dims, d_y: &Tensor, parameters: &[Tensor], saved: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    dims.check_stream("gradient of the block", d_y)?;
    dims.check_parameters(Part::Block(0), parameters)?;
    dims.check_saved("saved by the block", saved, block_saved)?;
    by_dtype!(d_y, backward_input_of(dims, d_y, parameters, saved))
}

/// W: the gradients of the block's parameters, added to those in `earlier`.
///
/// # Errors
/// As [`forward`].
pub fn backward_weight(dims: &Dims, saved: &[Tensor], deferred: &[Tensor], earlier: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
    dims.check_saved("saved by the block", saved, block_saved)?;
    dims.check_saved("deferred by the block", deferred, block_deferred)?;
    by_dtype!(saved[0], backward_weight_of(dims, saved, deferred, earlier))
}

/// What [`block_saved`] lists of the attention core, once more: the same bits as [`forward`] had. From q, k and v as it saved them.
///
/// # Errors
/// As [`forward`].
pub fn core(dims: &Dims, draw: Draw, qkv: &Tensor) -> Result<Vec<Tensor>> {
    dims.check_model()?;
    let layout = block_saved(&dims.model, dims.micro_batch_size);
    check::shape("q, k and v", qkv, &layout[2].dims)?;
    by_dtype!(qkv, core_of(dims, draw, qkv, &layout[3].dims))
}

/// The block's layers, as indices into its parameters.
struct Layers {
    parameters: Vec<Parameter>,
    norm1: NormLayer,
    qkv: Vec<Linear>,
    projection: Linear,
    norm2: NormLayer,
    ffn_in: Vec<Linear>,
    ffn_out: Linear,
}

impl Layers {
    fn of(model: &Model) -> Layers {
        let parameters = model.parameters_of(Part::Block(0));
        let linears =
            |names: &[&str]| -> Vec<Linear> { names.iter().filter_map(|name| Linear::find(&parameters, name)).collect() };
        Layers {
            norm1: NormLayer::find(&parameters, "norm1", model.norm),
            qkv: linears(&["attn.qkv", "attn.q", "attn.k", "attn.v"]),
            projection: linears(&["attn.proj"])[0],
            norm2: NormLayer::find(&parameters, "norm2", model.norm),
            ffn_in: linears(&["mlp.fc1", "mlp.gate", "mlp.up"]),
            ffn_out: linears(&["mlp.fc2", "mlp.down"])[0],
            parameters,
        }
    }
}

/// The masks of a block's three places; none without dropout.
struct Masks(Option<[Vec<u8>; 3]>);

impl Masks {
    const PLACES: [Place; 3] = [Place::Softmax, Place::Attention, Place::FeedForward];

    fn draw(dims: &Dims, draw: Draw) -> Masks {
        Masks((dims.model.dropout > 0.0).then(|| Self::PLACES.map(|place| dropout::mask(dims, draw, place))))
    }

    fn of<T: Float>(&self, dims: &Dims) -> [Option<Mask<'_, T>>; 3] {
        match &self.0 {
            Some(masks) => masks.each_ref().map(|mask| Some(Mask::new(mask, dims.model.dropout))),
            None => [None; 3],
        }
    }

    fn tensors(self, dims: &Dims) -> impl Iterator<Item = Result<Tensor>> {
        let layout = block_masks(&dims.model, dims.micro_batch_size);
        self.0.into_iter().flatten().zip(layout).map(|(mask, saved)| tensor(mask, &saved.dims))
    }
}

/// Numbers that a block saves; masks come behind them.
const NUMBERS: usize = 8;

/// The masks among what a block saved.
fn masks_of<'a, T: Float>(dims: &Dims, masks: &'a [Slice<u8>]) -> [Option<Mask<'a, T>>; 3] {
    std::array::from_fn(|place| masks.get(place).map(|mask| Mask::new(mask, dims.model.dropout)))
}

fn forward_of<T: Float>(dims: &Dims, draw: Draw, x: &Tensor, parameters: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    let model = &dims.model;
    let layers = Layers::of(model);
    let parameters = Slice::<T>::all(parameters)?;
    let x = Slice::<T>::of(x)?;
    let drawn = Masks::draw(dims, draw);
    let [softmax_mask, attention_mask, ffn_mask] = drawn.of::<T>(dims);

    let norm1 = norm::forward(layers.norm1.bind(&parameters), &x);
    let mut qkv = linear::forward(&layers.qkv, &parameters, &dims.stored(norm1.output), None);
    turn_heads(model, Turn::Forward, &mut qkv);
    let qkv = dims.stored(qkv);
    let [probabilities, attended] = attention::forward(attention_shape(dims), &qkv, softmax_mask);
    let attended = dims.stored(attended);
    let x2 = dims.stored(onto_residual(layers.projection, &parameters, &attended, attention_mask, &x));

    let norm2 = norm::forward(layers.norm2.bind(&parameters), &x2);
    let ffn_input = dims.stored(linear::forward(&layers.ffn_in, &parameters, &dims.stored(norm2.output), None));
    let activated = dims.stored(activation::forward(model.activation, model.ffn, &ffn_input));
    let y = dims.stored(onto_residual(layers.ffn_out, &parameters, &activated, ffn_mask, &x2));

    let saved = [norm1.normalised, norm1.reciprocal, qkv, probabilities, attended, norm2.normalised, norm2.reciprocal, ffn_input];
    let layout = block_saved(model, dims.micro_batch_size);
    let saved = saved.into_iter().zip(layout).map(|(values, saved)| tensor(values, &saved.dims));
    let saved = saved.chain(drawn.tensors(dims)).collect::<Result<_>>()?;
    Ok((tensor(y, &dims.stream())?, saved))
}

/// A layer's output behind dropout, added to the residual stream.
fn onto_residual<T: Float>(layer: Linear, parameters: &[Slice<T>], input: &[T], mask: Option<Mask<T>>, residual: &[T]) -> Vec<T> {
    let Some(mask) = mask else { return linear::forward(&[layer], parameters, input, Some(residual)) };
    let mut output = linear::forward(&[layer], parameters, input, None);
    mask.apply(&mut output);
    elementwise::add_to(&mut output, residual);
    output
}

fn core_of<T: Float>(dims: &Dims, draw: Draw, qkv: &Tensor, shape: &[usize]) -> Result<Vec<Tensor>> {
    let drawn = Masks::draw(dims, draw);
    let [softmax_mask, ..] = drawn.of::<T>(dims);
    let [probabilities, _] = attention::forward(attention_shape(dims), &Slice::<T>::of(qkv)?, softmax_mask);
    std::iter::once(tensor(probabilities, shape)).chain(drawn.tensors(dims).take(1)).collect()
}

fn backward_input_of<T: Float>(
    dims: &Dims,
    d_y: &Tensor,
    parameters: &[Tensor],
    saved: &[Tensor],
) -> Result<(Tensor, Vec<Tensor>)> {
    let model = &dims.model;
    let layers = Layers::of(model);
    let parameters = Slice::<T>::all(parameters)?;
    let (saved, masks) = saved.split_at(NUMBERS);
    let (saved, masks) = (Slice::<T>::all(saved)?, Slice::<u8>::all(masks)?);
    let [softmax_mask, attention_mask, ffn_mask] = masks_of::<T>(dims, &masks);
    let [normalised1, reciprocal1, qkv, probabilities, attended, normalised2, reciprocal2, ffn_input] = &saved[..] else {
        unreachable!("checked against the layout")
    };
    let d_y_values = Slice::<T>::of(d_y)?;

    let d_activated = dims.stored(linear::backward_input(&[layers.ffn_out], &parameters, &dropped(&d_y_values, ffn_mask)));
    let [d_ffn_input, activated] = activation::backward(model.activation, model.ffn, ffn_input, &d_activated);
    drop(d_activated);
    let d_ffn_input = dims.stored(d_ffn_input);
    let d_norm2 = dims.stored(linear::backward_input(&layers.ffn_in, &parameters, &d_ffn_input));
    let norm2 = norm::backward(layers.norm2.bind(&parameters), &d_norm2, normalised2, reciprocal2, Some(&d_y_values));
    let d_x2 = dims.stored(norm2.input_gradient);

    let d_projected = dropped(&d_x2, attention_mask);
    let d_attended = dims.stored(linear::backward_input(&[layers.projection], &parameters, &d_projected));
    drop(d_projected);
    let kept = (&qkv[..], &probabilities[..], &attended[..]);
    let mut d_qkv = attention::backward(attention_shape(dims), &d_attended, kept, softmax_mask);
    turn_heads(model, Turn::Back, &mut d_qkv);
    let d_qkv = dims.stored(d_qkv);
    let d_norm1 = dims.stored(linear::backward_input(&layers.qkv, &parameters, &d_qkv));
    let norm1 = norm::backward(layers.norm1.bind(&parameters), &d_norm1, normalised1, reciprocal1, Some(&d_x2));

    let mut deferred = vec![norm1.output, d_qkv, d_x2, norm2.output, d_ffn_input, activated];
    deferred.push(norm1.weight_gradient);
    deferred.extend(norm1.bias_gradient);
    deferred.push(norm2.weight_gradient);
    deferred.extend(norm2.bias_gradient);
    let layout = block_deferred(model, dims.micro_batch_size);
    let deferred = deferred.into_iter().zip(layout).map(|(values, saved)| tensor(values, &saved.dims));
    let deferred = deferred.chain([Ok(d_y.clone())]).collect::<Result<_>>()?;
    Ok((tensor(norm1.input_gradient, &dims.stream())?, deferred))
}

fn backward_weight_of<T: Float>(
    dims: &Dims,
    saved: &[Tensor],
    deferred: &[Tensor],
    earlier: Option<&[Tensor]>,
) -> Result<Vec<Tensor>> {
    let layers = Layers::of(&dims.model);
    let attended = Slice::<T>::of(&saved[4])?;
    let masks = Slice::<u8>::all(&saved[NUMBERS..])?;
    let [_, attention_mask, ffn_mask] = masks_of::<T>(dims, &masks);
    let deferred = Slice::<T>::all(deferred)?;
    let [norm1_output, d_qkv, d_projection, norm2_output, d_ffn_input, activated, norm_gradients @ .., d_y] = &deferred[..]
    else {
        unreachable!("checked against the layout")
    };
    let mut gradients = Gradients::new(&layers.parameters, earlier, dims.grid)?;
    linear::backward_weight(&layers.qkv, norm1_output, d_qkv, &mut gradients)?;
    linear::backward_weight(&[layers.projection], &attended, &dropped(d_projection, attention_mask), &mut gradients)?;
    linear::backward_weight(&layers.ffn_in, norm2_output, d_ffn_input, &mut gradients)?;
    linear::backward_weight(&[layers.ffn_out], activated, &dropped(d_y, ffn_mask), &mut gradients)?;
    let norm_parameters = layers.norm1.indices().chain(layers.norm2.indices());
    norm_parameters.zip(norm_gradients).try_for_each(|(index, gradient)| gradients.values(index, gradient))?;
    Ok(gradients.finish())
}

fn attention_shape(dims: &Dims) -> attention::Shape {
    let model = &dims.model;
    attention::Shape {
        b: dims.micro_batch_size,
        t: model.sequence,
        heads: model.heads,
        kv_heads: model.kv_heads,
        d: model.head_size(),
        half: dims.half,
    }
}

/// Rotary positions: turns the heads of q and k, which stand before those of v.
fn turn_heads<T: Float>(model: &Model, turn: Turn, qkv: &mut [T]) {
    if model.positions == Positions::Rotary {
        let heads = model.heads + model.kv_heads;
        rotary::turn(turn, qkv, model.qkv_rows(), model.sequence, (heads, model.head_size()));
    }
}
