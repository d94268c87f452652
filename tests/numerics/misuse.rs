//! Tensors that don't fit are refused with a message; nothing panics.

use candle_core::{DType, Device, Result, Tensor};
use ranklab::base::model::{Model, Part, Positions};
use ranklab::engine::kernels::cpu::dropout::{Draw, RandomState};
use ranklab::engine::kernels::cpu::{Dims, block, data, elementwise, embedding, head};

use super::cases::{GPT, parameters};

const START: RandomState = RandomState { seed: 0, sample: 0 };

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let dims = Dims { model: GPT, micro_batch_size: 2, grid: None, half: false };
    let values = parameters(&GPT, DType::F32)?;
    let of = |part| -> Vec<Tensor> { dims.parameters_of(part).iter().map(|parameter| values[&parameter.name].clone()).collect() };
    let (tokens, targets) = data::batch(0, &dims, 0)?;
    let zeros = |dims: &[usize], dtype| Tensor::zeros(dims, dtype, &Device::Cpu);
    let x = zeros(&[2, 7, 15], DType::F32)?;
    let draw = Draw { part: Part::Block(0), random: START };
    let (_, saved) = block::forward(&dims, draw, &x, &of(Part::Block(0)))?;
    let big = Tensor::full(29u32, (2, 7), &Device::Cpu)?;
    let crossed = zeros(&[2, 15, 7], DType::F32)?.transpose(1, 2)?;

    let refused = [
        (embedding::forward(&dims, START, &big, &of(Part::Embedding)).err(), "token 29 is not in a vocabulary of 29"),
        (embedding::forward(&dims, START, &tokens.to_dtype(DType::I64)?, &of(Part::Embedding)).err(), "unexpected dtype"),
        (
            embedding::forward(&dims, START, &tokens.narrow(0, 0, 1)?, &of(Part::Embedding)).err(),
            "tensor 0 has shape [1, 7], not [2, 7]",
        ),
        (block::forward(&dims, draw, &zeros(&[2, 7, 14], DType::F32)?, &of(Part::Block(0))).err(), "block input"),
        (block::forward(&dims, draw, &zeros(&[2, 7, 15], DType::F64)?, &of(Part::Block(0))).err(), "unexpected dtype"),
        (block::forward(&dims, draw, &zeros(&[2, 7, 15], DType::BF16)?, &of(Part::Block(0))).err(), "f32 and f64, not in BF16"),
        (block::forward(&dims, draw, &crossed, &of(Part::Block(0))).err(), "contiguous"),
        (block::forward(&dims, draw, &x, &of(Part::Block(0))[1..]).err(), "parameters: tensor 1 has shape"),
        (block::backward_input(&dims, &x, &of(Part::Block(0)), &saved[..7]).err(), "saved by the block: one of shape"),
        (block::backward_weight(&dims, &saved, &saved, None).err(), "deferred by the block"),
        (head::forward(&dims, &x, &big, &of(Part::Head)).err(), "token 29"),
        (head::forward(&dims, &x, &targets, &of(Part::Block(0))).err(), "parameters"),
        (elementwise::add(&x, &tokens).err(), "second summand"),
        (elementwise::scale(&tokens, 2.0).err(), "f32 and f64, not in U32"),
    ];
    for (error, expected) in refused {
        let message = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
    }
    Ok(())
}

#[test]
fn a_model_that_cannot_be_computed_is_refused() -> Result<()> {
    let tokens = Tensor::zeros((1, 7), DType::U32, &Device::Cpu)?;
    let cases = [
        (Model { hidden: 0, ..GPT }, "is 0"),
        (Model { vocab: 0, ..GPT }, "is 0"),
        (Model { kv_heads: 0, ..GPT }, "is 0"),
        (Model { heads: 4, ..GPT }, "15 hidden, 4 heads and 3 key and value heads"),
        (Model { kv_heads: 2, ..GPT }, "15 hidden, 3 heads and 2 key and value heads"),
        (Model { positions: Positions::Rotary, ..GPT }, "a head can't have 5 elements"),
        (Model { dropout: 1.0, ..GPT }, "dropout is a probability below 1, not 1"),
        (Model { dropout: -0.1, ..GPT }, "dropout is a probability below 1, not -0.1"),
    ];
    for (model, expected) in cases {
        let dims = Dims { model, micro_batch_size: 1, grid: None, half: false };
        let message = embedding::forward(&dims, START, &tokens, &[]).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        assert!(block::backward_weight(&dims, &[], &[], None).is_err());
        assert!(head::backward_input(&dims, &[], &[]).is_err());
    }
    Ok(())
}
