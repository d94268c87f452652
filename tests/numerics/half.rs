//! bf16: the rounding of numbers, and a run of the kernels that stores in it against autograd in f64.

use candle_core::{DType, Device, Result, Tensor};
use ranklab::engine::kernels::cpu::Dims;
use ranklab::engine::kernels::cpu::float::Float;

use super::cases::{self, GPT, LLAMA, distance, elements, parameters};
use super::oracle;

/// Ties, neighbours, both zeros, subnormal numbers, infinities and what rounds to them: as candle converts.
#[test]
fn rounding_is_that_of_a_conversion() -> Result<()> {
    let mut values: Vec<f32> =
        [0u32, 1, 0x7fff, 0x8000, 0x8001, 0x0001_8000, 0x3f80_7fff, 0x3f80_8000, 0x3f81_8000, 0x7f7f_ffff, 0x7f80_0000]
            .into_iter()
            .flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)])
            .collect();
    values.extend((0..100_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).filter(|x| !x.is_nan()));
    let converted =
        Tensor::new(values.as_slice(), &Device::Cpu)?.to_dtype(DType::BF16)?.to_dtype(DType::F32)?.to_vec1::<f32>()?;
    for (value, converted) in values.iter().zip(converted) {
        assert_eq!(value.half().to_bits(), converted.to_bits(), "{value}");
    }
    assert!(f32::NAN.half().is_nan());
    Ok(())
}

/// Every layer's output is rounded, so an error of 2^-9 enters at each: the gradients of two layers are off by some times as much.
#[test]
fn gradients_are_near_autograd() -> Result<()> {
    for model in [GPT, LLAMA] {
        let dims = Dims { model, micro_batch_size: 2, grid: None, half: true };
        let rounded = |value: &Tensor| value.to_dtype(DType::BF16)?.to_dtype(DType::F32);
        let values = parameters(&dims.model, DType::F32)?
            .iter()
            .map(|(name, value)| Ok((name.clone(), rounded(value)?)))
            .collect::<Result<_>>()?;
        let outcome = cases::run(&dims, &values, 9)?;
        let exact = values.iter().map(|(name, value)| Ok((name.clone(), value.to_dtype(DType::F64)?))).collect::<Result<_>>()?;
        let (tokens, targets) = ranklab::engine::kernels::cpu::data::batch(9, &dims, cases::SEED)?;
        let expected = oracle::run(&dims.model, &exact, &cases::masks(&dims, 9)?, &tokens, &targets)?;
        let (error, size) = distance(&outcome.loss, &expected.loss)?;
        assert!(error <= 0.01 * size && error > 1e-6 * size, "loss is off by {error} of {size}");
        for (name, gradient) in &outcome.gradients {
            let norm = |values: Vec<f64>| values.iter().map(|x| x * x).sum::<f64>().sqrt();
            let expected = &expected.gradients[name];
            let off = norm(elements(&(gradient.to_dtype(DType::F64)? - expected)?)?);
            assert!(off <= 0.05 * norm(elements(expected)?), "{name} is off by {off} of {}", norm(elements(expected)?));
        }
    }
    Ok(())
}
