//! Models that together take every choice, with odd sizes, and a run of the kernels over one.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor};
use ranklab::base::model::{Activation, Bias, Init, Model, Norm, Parameter, Part, Positions};
use ranklab::engine::kernels::cpu::dropout::{self, Draw, Place, RandomState};
use ranklab::engine::kernels::cpu::{Dims, block, data, elementwise, embedding, head, init};

/// GPT-2's choices in a size that is odd everywhere.
pub const GPT: Model = Model {
    layers: 2,
    hidden: 15,
    heads: 3,
    kv_heads: 3,
    sequence: 7,
    vocab: 29,
    ffn: 22,
    activation: Activation::Gelu,
    norm: Norm::Layer,
    positions: Positions::Learned,
    bias: Bias::All,
    fused_qkv: true,
    tied: false,
    dropout: 0.0,
    experts: None,
};

/// LLaMA's choices, three query heads to a key and value head.
pub const LLAMA: Model = Model {
    hidden: 36,
    heads: 6,
    kv_heads: 2,
    activation: Activation::Swiglu,
    norm: Norm::Rms,
    positions: Positions::Rotary,
    bias: Bias::None,
    fused_qkv: false,
    ..GPT
};

/// Every case: what it is for, the model, and the micro-batch size.
pub fn all() -> Vec<(&'static str, Dims)> {
    let case = |name, model, micro_batch_size| {
        (name, Dims { model, micro_batch_size, grid: None, half: false, segment: ranklab::base::model::Segment::WHOLE })
    };
    vec![
        case("gpt", GPT, 2),
        case("llama", LLAMA, 3),
        case("tied, no qkv bias", Model { tied: true, bias: Bias::NoQkv, ..GPT }, 1),
        case("fused grouped rotary", Model { fused_qkv: true, positions: Positions::Rotary, bias: Bias::All, ..LLAMA }, 2),
        case("separate, biases, tied", Model { fused_qkv: false, kv_heads: 1, tied: true, ..GPT }, 2),
        case("rms with biases, swiglu", Model { norm: Norm::Rms, activation: Activation::Swiglu, ..GPT }, 2),
        case("layer norm without bias", Model { norm: Norm::Layer, ..LLAMA }, 1),
        case("three blocks of rows", Model { layers: 1, sequence: 131, ..GPT }, 1),
        case("whole blocks of rows", Model { layers: 1, sequence: 128, ..LLAMA }, 2),
        case("one of everything", Model { layers: 1, hidden: 2, heads: 1, kv_heads: 1, sequence: 1, vocab: 2, ffn: 1, ..GPT }, 1),
        case("gpt with dropout", Model { dropout: 0.25, ..GPT }, 3),
        case("llama with dropout", Model { dropout: 0.5, ..LLAMA }, 2),
        case("three blocks of rows with dropout", Model { layers: 1, sequence: 131, dropout: 0.1, tied: true, ..GPT }, 1),
        case("five layers", Model { layers: 5, hidden: 8, heads: 2, kv_heads: 2, ..GPT }, 5),
    ]
}

/// Parameters of which no element is special: biases aren't 0 and norms' weights aren't 1.
pub fn parameters(model: &Model, dtype: DType) -> Result<BTreeMap<String, Tensor>> {
    let value = |parameter: &Parameter| {
        let random = init::parameter(&Parameter { init: Init::Normal(0.25), ..parameter.clone() }, 17, DType::F32)?;
        let start = if parameter.init == Init::Ones { 1.0 } else { 0.0 };
        (random + start)?.to_dtype(dtype)
    };
    model.parameters().iter().map(|parameter| Ok((parameter.name.clone(), value(parameter)?))).collect()
}

/// What one micro-batch gives.
pub struct Outcome {
    pub loss: Tensor,
    /// Per parameter of the model; a tied embedding's two gradients are added.
    pub gradients: BTreeMap<String, Tensor>,
}

/// Runs the kernels forward and backward over the corpus' samples from `first_sample` on, adding to `earlier`.
pub fn run(dims: &Dims, values: &BTreeMap<String, Tensor>, first_sample: u64) -> Result<Outcome> {
    let (loss, lists) = run_parts(dims, values, first_sample, None)?;
    let mut gradients = BTreeMap::new();
    for (part, list) in dims.model.parts().zip(lists) {
        for (parameter, gradient) in dims.parameters_of(part).into_iter().zip(list) {
            let sum = match gradients.get(&parameter.name) {
                Some(earlier) => elementwise::add(earlier, &gradient)?,
                None => gradient,
            };
            gradients.insert(parameter.name, sum);
        }
    }
    Ok(Outcome { loss, gradients })
}

/// The loss, and for each part in forward order the list of its gradients, added to `earlier`.
pub fn run_parts(
    dims: &Dims,
    values: &BTreeMap<String, Tensor>,
    first_sample: u64,
    earlier: Option<&[Vec<Tensor>]>,
) -> Result<(Tensor, Vec<Vec<Tensor>>)> {
    let of = |part| -> Vec<Tensor> { dims.parameters_of(part).iter().map(|parameter| values[&parameter.name].clone()).collect() };
    let earlier = |part: usize| earlier.map(|earlier| &earlier[part][..]);
    let blocks: Vec<Vec<Tensor>> = dims.model.parts().filter(|part| matches!(part, Part::Block(_))).map(of).collect();
    let (tokens, targets) = data::batch(first_sample, dims, SEED)?;

    let random = RandomState { seed: SEED, sample: first_sample };
    let (mut x, masks) = embedding::forward(dims, random, &tokens, &of(Part::Embedding))?;
    let mut saved = Vec::new();
    for (layer, parameters) in (0..).zip(&blocks) {
        let (y, kept) = block::forward(dims, Draw { part: Part::Block(layer), random }, &x, parameters)?;
        saved.push(kept);
        x = y;
    }
    let (loss, kept) = head::forward(dims, &x, &targets, &of(Part::Head))?;

    let (mut d_x, deferred) = head::backward_input(dims, &of(Part::Head), &kept)?;
    let mut lists = vec![head::backward_weight(dims, &kept, &deferred, earlier(blocks.len() + 1))?];
    for (layer, (parameters, kept)) in blocks.iter().zip(&saved).enumerate().rev() {
        let (dx, deferred) = block::backward_input(dims, &d_x, parameters, kept)?;
        lists.push(block::backward_weight(dims, kept, &deferred, earlier(layer + 1))?);
        d_x = dx;
    }
    lists.push(embedding::backward_weight(dims, &tokens, &d_x, &masks, earlier(0))?);
    lists.reverse();
    Ok((loss, lists))
}

/// The seed of data and dropout.
pub const SEED: u64 = 5;

/// Every mask of the micro-batch from `first_sample` on, 1 where an element stays, by the place's name in the oracle; none without dropout.
pub fn masks(dims: &Dims, first_sample: u64) -> Result<BTreeMap<String, Tensor>> {
    let (b, t, h, n) = (dims.micro_batch_size, dims.model.sequence, dims.model.hidden, dims.model.heads);
    let random = RandomState { seed: SEED, sample: first_sample };
    let mut masks = BTreeMap::new();
    for part in dims.model.parts().filter(|part| *part != Part::Head && dims.model.dropout > 0.0) {
        let places: &[(Place, &str)] = match part {
            Part::Block(_) => {
                &[(Place::Softmax, "softmax"), (Place::Attention, "attention"), (Place::FeedForward, "feed-forward")]
            }
            _ => &[(Place::Embedding, "embedding")],
        };
        for &(place, name) in places {
            let shape = if place == Place::Softmax { vec![b, n, t, t] } else { vec![b, t, h] };
            let mask = Tensor::from_vec(dropout::mask(dims, Draw { part, random }, place), shape, &Device::Cpu)?;
            masks.insert(format!("{part}.{name}"), mask);
        }
    }
    Ok(masks)
}

/// The elements as f64.
pub fn elements(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()
}

/// The largest distance of two tensors' elements, and the largest element of the second.
pub fn distance(a: &Tensor, b: &Tensor) -> Result<(f64, f64)> {
    let (a, b) = (elements(a)?, elements(b)?);
    assert_eq!(a.len(), b.len());
    let largest =
        |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |most: f64, x| if x > most || x.is_nan() { x } else { most });
    Ok((largest(&mut a.iter().zip(&b).map(|(a, b)| (a - b).abs())), largest(&mut b.iter().map(|b| b.abs()))))
}
