//! Loss and gradients against candle's autograd, and against finite differences.

use std::collections::BTreeMap;

use candle_core::{DType, Result, Tensor};
use ranklab::base::model::{Model, Positions};
use ranklab::base::saved::{self, SavedTensor};
use ranklab::engine::kernels::cpu::dropout::{Draw, RandomState};
use ranklab::engine::kernels::cpu::{Dims, block, data, embedding, head};

use super::cases::{self, GPT, LLAMA, distance, elements, parameters};
use super::oracle;

#[test]
fn f64_equals_autograd() -> Result<()> {
    cases::all().iter().try_for_each(|(name, dims)| check_against_autograd(name, dims, DType::F64, 1e-10))
}

#[test]
fn f32_is_near_autograd_in_f64() -> Result<()> {
    cases::all().iter().try_for_each(|(name, dims)| check_against_autograd(name, dims, DType::F32, 1e-5))
}

/// Scores and logits around +-1000: the softmaxes are one-hot, and nothing overflows.
#[test]
fn extreme_scores_stay_finite() -> Result<()> {
    for model in [GPT, LLAMA] {
        let dims = Dims { model, micro_batch_size: 2, grid: None, half: false };
        for dtype in [DType::F64, DType::F32] {
            let mut values = parameters(&dims.model, dtype)?;
            for (name, value) in &mut values {
                if name.contains("attn.q") || name.contains("attn.k") || name.contains("logits") {
                    *value = (&*value * if name.contains("qkv") { 60.0 } else { 600.0 })?;
                }
            }
            let outcome = cases::run(&dims, &values, 0)?;
            let loss = outcome.loss.to_dtype(DType::F64)?.to_scalar::<f64>()?;
            assert!(loss > 100.0 && loss.is_finite(), "loss {loss}");
            for (name, gradient) in &outcome.gradients {
                assert!(elements(gradient)?.iter().all(|x| x.is_finite()), "{name} of {dtype:?}");
            }
            if dtype == DType::F64 {
                check(&dims, &values, 1e-8)?;
            }
        }
    }
    Ok(())
}

/// A number that went wrong shows in the loss; it isn't hidden by a maximum or an exponential.
#[test]
fn a_nan_reaches_the_loss() -> Result<()> {
    let dims = Dims { model: GPT, micro_batch_size: 1, grid: None, half: false };
    let whole = parameters(&GPT, DType::F32)?;
    for parameter in GPT.parameters() {
        let mut values = whole.clone();
        let poisoned = (&values[&parameter.name] * f64::NAN)?;
        values.insert(parameter.name.clone(), poisoned);
        let loss = cases::run(&dims, &values, 0)?.loss.to_scalar::<f32>()?;
        assert!(loss.is_nan(), "{}: {loss}", parameter.name);
    }
    Ok(())
}

#[test]
fn every_parameter_has_a_gradient() -> Result<()> {
    for (name, dims) in cases::all() {
        if dims.model.sequence == 1 {
            continue; // one token attends to itself alone: q and k have no influence
        }
        let outcome = cases::run(&dims, &parameters(&dims.model, DType::F64)?, 0)?;
        for parameter in dims.model.parameters() {
            // Without rotary positions the keys' bias adds the same to all scores of a query, and softmax doesn't see it.
            let unseen = parameter.name.ends_with("attn.k.bias") && dims.model.positions == Positions::Learned;
            let largest = distance(&outcome.gradients[&parameter.name], &outcome.gradients[&parameter.name])?.1;
            assert!(largest > 1e-6 || unseen, "{name}: {} has {largest}", parameter.name);
        }
    }
    Ok(())
}

#[test]
fn finite_differences_agree() -> Result<()> {
    for model in [GPT, LLAMA, Model { dropout: 0.3, ..LLAMA }] {
        let dims = Dims { model, micro_batch_size: 2, grid: None, half: false };
        let values = parameters(&dims.model, DType::F64)?;
        let gradients = cases::run(&dims, &values, 3)?.gradients;
        for parameter in dims.model.parameters() {
            for element in [0, parameter.elements() / 3, parameter.elements() - 1] {
                let slope = slope(&dims, &values, &parameter.name, element)?;
                let gradient = elements(&gradients[&parameter.name])?[element];
                assert!((slope - gradient).abs() < 1e-8, "{} [{element}]: {slope} is not {gradient}", parameter.name);
            }
        }
    }
    Ok(())
}

#[test]
fn saved_tensors_are_those_of_the_layout() -> Result<()> {
    for (name, dims) in cases::all() {
        let b = dims.micro_batch_size;
        let values = parameters(&dims.model, DType::F32)?;
        let of =
            |part| -> Vec<Tensor> { dims.parameters_of(part).iter().map(|parameter| values[&parameter.name].clone()).collect() };
        let parts: Vec<_> = dims.model.parts().collect();
        let (tokens, targets) = data::batch(0, &dims, 0)?;
        let random = RandomState { seed: 0, sample: 0 };
        let (x, saved) = embedding::forward(&dims, random, &tokens, &of(parts[0]))?;
        check_layout(name, &saved, &saved::embedding_saved(&dims.model, b));
        let (y, saved) = block::forward(&dims, Draw { part: parts[1], random }, &x, &of(parts[1]))?;
        check_layout(name, &saved, &saved::block_saved(&dims.model, b));
        let (_, deferred) = block::backward_input(&dims, &y, &of(parts[1]), &saved)?;
        check_layout(name, &deferred, &saved::block_deferred(&dims.model, b));
        let (_, saved) = head::forward(&dims, &y, &targets, &of(parts[parts.len() - 1]))?;
        check_layout(name, &saved, &saved::head_saved(&dims.model, b));
        let (_, deferred) = head::backward_input(&dims, &of(parts[parts.len() - 1]), &saved)?;
        check_layout(name, &deferred, &saved::head_deferred(&dims.model, b));
    }
    Ok(())
}

#[test]
fn a_block_saves_as_much_as_its_documentation_says() {
    let model = Model { hidden: 12, ffn: 48, ..GPT };
    let elements: usize = saved::block_saved(&model, 5).iter().map(SavedTensor::elements).sum();
    let tokens = 5 * model.sequence;
    assert_eq!(elements, tokens * (10 * model.hidden + model.heads * model.sequence + 2));
    let with_masks = saved::block_saved(&Model { dropout: 0.1, ..model.clone() }, 5);
    let masks: usize = with_masks.iter().filter(|saved| saved.mask).map(SavedTensor::elements).sum();
    assert_eq!(masks, tokens * (2 * model.hidden + model.heads * model.sequence));
}

fn check_layout(name: &str, tensors: &[Tensor], layout: &[SavedTensor]) {
    let dims: Vec<&[usize]> = tensors.iter().map(Tensor::dims).collect();
    let expected: Vec<&[usize]> = layout.iter().map(|saved| &saved.dims[..]).collect();
    assert_eq!(dims, expected, "{name}");
}

fn check_against_autograd(name: &str, dims: &Dims, dtype: DType, tolerance: f64) -> Result<()> {
    println!("{name}");
    check(dims, &parameters(&dims.model, dtype)?, tolerance)
}

/// Loss and gradients are those of the oracle in f64, up to `tolerance` times the largest element of the gradient, or a hundredth of
/// the largest of all, since a gradient may be zero but for rounding errors of larger numbers.
fn check(dims: &Dims, values: &BTreeMap<String, Tensor>, tolerance: f64) -> Result<()> {
    let exact = values.iter().map(|(name, value)| Ok((name.clone(), value.to_dtype(DType::F64)?))).collect::<Result<_>>()?;
    let (tokens, targets) = data::batch(9, dims, cases::SEED)?;
    let expected = oracle::run(&dims.model, &exact, &cases::masks(dims, 9)?, &tokens, &targets)?;
    let outcome = cases::run(dims, values, 9)?;
    let (error, size) = distance(&outcome.loss, &expected.loss)?;
    assert!(error <= tolerance * size, "loss is off by {error}");
    assert_eq!(outcome.gradients.len(), expected.gradients.len());
    let sizes = expected.gradients.values().map(|gradient| Ok(distance(gradient, gradient)?.1)).collect::<Result<Vec<_>>>()?;
    let least_size = sizes.into_iter().fold(0.0, f64::max) / 100.0;
    for (name, gradient) in &outcome.gradients {
        let (error, size) = distance(gradient, &expected.gradients[name])?;
        assert!(error <= tolerance * size.max(least_size), "{name} is off by {error}, its largest element is {size}");
    }
    Ok(())
}

/// The loss' slope along one element of a parameter, by a central difference.
fn slope(dims: &Dims, values: &BTreeMap<String, Tensor>, name: &str, element: usize) -> Result<f64> {
    const STEP: f64 = 1e-5;
    let loss_at = |shift: f64| -> Result<f64> {
        let mut moved = elements(&values[name])?;
        moved[element] += shift;
        let mut values = values.clone();
        values.insert(name.to_owned(), Tensor::from_vec(moved, values[name].shape(), values[name].device())?);
        cases::run(dims, &values, 3)?.loss.to_scalar::<f64>()
    };
    Ok((loss_at(STEP)? - loss_at(-STEP)?) / (2.0 * STEP))
}
