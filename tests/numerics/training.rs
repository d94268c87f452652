//! The data, and that the loss falls on it.

use std::collections::BTreeMap;

use candle_core::{DType, Result, Tensor};
use ranklab::base::model::Model;
use ranklab::engine::kernels::cpu::data::{CORPUS, batch};
use ranklab::engine::kernels::cpu::optimizer::{AdamState, AdamW, adamw};
use ranklab::engine::kernels::cpu::{Dims, init};

use super::cases::{self, GPT, LLAMA};

const SETTINGS: AdamW = AdamW { lr: 1e-2, beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.01 };

#[test]
fn the_loss_falls() -> Result<()> {
    for model in [Model { vocab: 256, ..GPT }, Model { vocab: 300, tied: true, ..LLAMA }] {
        let losses = train(&Dims { model, micro_batch_size: 4, grid: None, half: false }, 40)?;
        assert!((losses[0] - 5.6).abs() < 0.2, "a model that knows nothing has about ln 256 to ln 300, not {}", losses[0]);
        let last = losses[30..].iter().sum::<f32>() / 10.0;
        assert!(last < 3.6, "letters' frequencies alone give about 3, not {last}");
    }
    Ok(())
}

#[test]
fn targets_are_the_next_bytes() -> Result<()> {
    let dims = Dims { model: Model { vocab: 256, ..GPT }, micro_batch_size: 3, grid: None, half: false };
    let (tokens, targets) = batch(11, &dims, 7)?;
    let (tokens, targets) = (tokens.to_vec2::<u32>()?, targets.to_vec2::<u32>()?);
    for (tokens, targets) in tokens.iter().zip(&targets) {
        assert_eq!(tokens[1..], targets[..6]);
        let text: Vec<u8> = tokens.iter().chain(&targets[6..]).map(|&byte| byte as u8).collect();
        let twice = [CORPUS, CORPUS].concat();
        assert!(twice.windows(8).any(|window| window == text), "{text:?} is not in the text");
    }
    assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2]);
    Ok(())
}

/// Ranks that take a part of the batch take the samples one device would.
#[test]
fn a_sample_depends_on_its_number_and_the_seed_alone() -> Result<()> {
    let dims = |micro_batch_size| Dims { model: GPT, micro_batch_size, grid: None, half: false };
    let whole = batch(4, &dims(5), 1)?;
    for sample in 0..5 {
        let own = batch(4 + sample as u64, &dims(1), 1)?;
        assert_eq!(whole.0.narrow(0, sample, 1)?.to_vec2::<u32>()?, own.0.to_vec2::<u32>()?);
        assert_eq!(whole.1.narrow(0, sample, 1)?.to_vec2::<u32>()?, own.1.to_vec2::<u32>()?);
    }
    assert_ne!(whole.0.to_vec2::<u32>()?, batch(4, &dims(5), 2)?.0.to_vec2::<u32>()?);
    Ok(())
}

#[test]
fn tokens_stay_below_a_small_vocabulary_and_long_samples_go_round() -> Result<()> {
    let dims =
        Dims { model: Model { vocab: 29, sequence: CORPUS.len() + 5, ..GPT }, micro_batch_size: 1, grid: None, half: false };
    let tokens = batch(0, &dims, 0)?.0.flatten_all()?.to_vec1::<u32>()?;
    assert!(tokens.iter().all(|&token| token < 29));
    assert_eq!(tokens[..5], tokens[CORPUS.len()..]);
    Ok(())
}

/// The losses of `steps` steps from the parameters' first values.
fn train(dims: &Dims, steps: u32) -> Result<Vec<f32>> {
    let mut states = BTreeMap::new();
    for parameter in dims.model.parameters() {
        let value = init::parameter(&parameter, 0, DType::F32)?;
        let zero = value.zeros_like()?;
        states.insert(parameter.name, AdamState { parameter: value, m: zero.clone(), v: zero });
    }
    let mut losses = Vec::new();
    for step in 1..=steps {
        let values: BTreeMap<String, Tensor> =
            states.iter().map(|(name, state): (&String, &AdamState)| (name.clone(), state.parameter.clone())).collect();
        let outcome = cases::run(dims, &values, u64::from(4 * step))?;
        for (name, state) in &mut states {
            *state = adamw(SETTINGS, step, state, &outcome.gradients[name])?;
        }
        losses.push(outcome.loss.to_scalar::<f32>()?);
    }
    Ok(losses)
}
