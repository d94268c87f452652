//! Segments of sequences: taken one after the other, they give what whole sequences give.

use std::collections::BTreeMap;

use candle_core::{DType, Result, Tensor};
use ranklab::base::model::{Model, Part, Segment};
use ranklab::engine::kernels::cpu::dropout::{Draw, RandomState};
use ranklab::engine::kernels::cpu::{Dims, block, data, embedding, head};

use super::cases::{self, GPT, LLAMA};

/// Nothing is dropped.
const RANDOM: RandomState = RandomState { seed: 0, sample: 0 };

/// Loss and gradients, segment by segment: forward in order, backward in reverse order.
fn run(dims: &Dims, values: &BTreeMap<String, Tensor>, of: usize) -> Result<(f64, BTreeMap<String, Tensor>)> {
    let parameters =
        |part| -> Vec<Tensor> { dims.parameters_of(part).iter().map(|parameter| values[&parameter.name].clone()).collect() };
    let blocks: Vec<Part> = dims.model.parts().filter(|part| matches!(part, Part::Block(_))).collect();
    let (tokens, targets) = data::batch(0, dims, 5)?;
    let mut saved: Vec<Vec<Vec<Tensor>>> = vec![Vec::new(); blocks.len()];
    let mut heads = Vec::new();
    let mut loss = 0.0;
    for place in 0..of {
        let dims = at(dims, place, of);
        let (before, own) = (dims.segment.before(&dims.model), dims.segment.tokens(&dims.model));
        let cut = |tensor: &Tensor| tensor.narrow(1, before, own)?.contiguous();
        let (mut x, _) = embedding::forward(&dims, RANDOM, &cut(&tokens)?, &parameters(Part::Embedding))?;
        for (block, saved) in blocks.iter().zip(&mut saved) {
            let earlier: Vec<Tensor> = saved.iter().map(|of_segment| of_segment[2].clone()).collect();
            let (y, kept) =
                block::forward_behind(&dims, Draw { part: *block, random: RANDOM }, &x, &parameters(*block), &earlier)?;
            saved.push(kept);
            x = y;
        }
        let (of_segment, kept) = head::forward(&dims, &x, &cut(&targets)?, &parameters(Part::Head))?;
        loss += of_segment.to_scalar::<f64>()? / of as f64;
        heads.push(kept);
    }
    let mut sums: BTreeMap<String, Tensor> = BTreeMap::new();
    let mut later: Vec<Option<Tensor>> = vec![None; blocks.len()];
    for place in (0..of).rev() {
        let dims = at(dims, place, of);
        let mut add = |part, gradients: Vec<Tensor>| -> Result<()> {
            for (parameter, gradient) in dims.parameters_of(part).into_iter().zip(gradients) {
                let gradient = (gradient / of as f64)?;
                let sum = match sums.remove(&parameter.name) {
                    Some(sum) => (sum + gradient)?,
                    None => gradient,
                };
                sums.insert(parameter.name, sum);
            }
            Ok(())
        };
        let (mut d_x, deferred) = head::backward_input(&dims, &parameters(Part::Head), &heads[place])?;
        add(Part::Head, head::backward_weight(&dims, &heads[place], &deferred, None)?)?;
        for (layer, &block) in blocks.iter().enumerate().rev() {
            let earlier: Vec<Tensor> = saved[layer][..place].iter().map(|of_segment| of_segment[2].clone()).collect();
            let others = (earlier.as_slice(), later[layer].as_ref());
            let kept = &saved[layer][place];
            let (dx, deferred, left) = block::backward_input_behind(&dims, &d_x, &parameters(block), kept, others)?;
            add(block, block::backward_weight(&dims, kept, &deferred, None)?)?;
            later[layer] = left;
            d_x = dx;
        }
        let (before, own) = (dims.segment.before(&dims.model), dims.segment.tokens(&dims.model));
        let tokens = tokens.narrow(1, before, own)?.contiguous()?;
        add(Part::Embedding, embedding::backward_weight(&dims, &tokens, &d_x, &[], None)?)?;
    }
    Ok((loss, sums))
}

fn at(dims: &Dims, place: usize, of: usize) -> Dims {
    Dims { segment: Segment { place, of }, ..dims.clone() }
}

#[test]
fn segments_give_what_whole_sequences_give() -> Result<()> {
    for (model, of) in [
        (Model { sequence: 6, ..GPT }, 2),
        (Model { sequence: 6, ..GPT }, 3),
        (Model { sequence: 6, tied: true, ..GPT }, 6),
        (Model { sequence: 10, ..LLAMA }, 2),
        (Model { sequence: 15, ..LLAMA }, 5),
        (Model { sequence: 132, layers: 1, ..LLAMA }, 2),
    ] {
        let dims = Dims { model, micro_batch_size: 3, grid: None, half: false, segment: Segment::WHOLE };
        let values = cases::parameters(&dims.model, DType::F64)?;
        let whole = cases::run(&dims, &values, 0)?;
        let (loss, gradients) = run(&dims, &values, of)?;
        assert!((loss - whole.loss.to_scalar::<f64>()?).abs() < 1e-13, "{of} segments: {loss}");
        for (name, expected) in &whole.gradients {
            let difference = (&gradients[name] - expected)?.abs()?.max_all()?.to_scalar::<f64>()?;
            let size = expected.abs()?.max_all()?.to_scalar::<f64>()?;
            assert!(difference <= 1e-12 * size.max(1e-3), "{of} segments: {name} is {difference} off, of {size}");
        }
    }
    Ok(())
}

#[test]
fn a_segment_that_is_none_is_refused() -> Result<()> {
    let dims = Dims { model: GPT, micro_batch_size: 1, grid: None, half: false, segment: Segment { place: 1, of: 2 } };
    let values = cases::parameters(&dims.model, DType::F64)?;
    let parameters: Vec<Tensor> = dims.parameters_of(Part::Block(0)).iter().map(|p| values[&p.name].clone()).collect();
    let x = Tensor::zeros((1, 3, GPT.hidden), DType::F64, &candle_core::Device::Cpu)?;
    assert!(
        block::forward(&dims, Draw { part: Part::Block(0), random: RANDOM }, &x, &parameters).is_err(),
        "7 tokens have no halves"
    );
    let dims = Dims { model: Model { sequence: 6, ..GPT }, ..dims };
    assert!(
        block::forward(&dims, Draw { part: Part::Block(0), random: RANDOM }, &x, &parameters).is_err(),
        "the segment before is missing"
    );
    Ok(())
}
