//! The vectorised functions' errors, first values, and the optimizers' arithmetic.

use candle_core::{DType, Device, Result, Tensor};
use ranklab::base::model::{Init, Parameter, Part};
use ranklab::engine::kernels::cpu::float::{exp, logistic};
use ranklab::engine::kernels::cpu::optimizer::{AdamState, AdamW, adamw, sgd};
use ranklab::engine::kernels::cpu::{elementwise, init};

use super::cases::elements;

#[test]
fn exp_is_within_its_error_bound() {
    let largest = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
    let points = || (0..2_000_003).map(|i| f64::from(i) / 1_000_001.5 - 1.0);
    let f32_points = points().map(|x| (x * 87.0) as f32);
    let f32_error = largest(&mut f32_points.map(|x| (f64::from(exp(x)) / f64::from(x).exp() - 1.0).abs()));
    let f64_error = largest(&mut points().map(|x| x * 700.0).map(|x| (exp(x) / x.exp() - 1.0).abs()));
    assert!(f32_error <= 1.0 * f64::from(f32::EPSILON), "{f32_error:e}");
    assert!(f64_error <= 1.5 * f64::EPSILON, "{f64_error:e}");
}

#[test]
fn exp_at_its_limits() {
    assert_eq!((exp(0.0f32), exp(0.0f64)), (1.0, 1.0));
    assert_eq!((exp(-88.0f32), exp(f32::NEG_INFINITY), exp(-1e300f64)), (0.0, 0.0, 0.0));
    assert!(exp(1e30f32).is_finite() && exp(f64::INFINITY).is_finite());
    assert!(exp(f32::NAN).is_nan() && exp(f64::NAN).is_nan());
}

/// GELU's tanh form is made of this: (1 + tanh u) / 2 = logistic(2 u).
#[test]
fn logistic_is_within_its_error_bound() {
    for i in -20_000..=20_000 {
        let u = f64::from(i) / 2_000.0;
        let expected = 0.5 * (1.0 + u.tanh());
        assert!((logistic(2.0 * u) - expected).abs() <= 4e-16, "{u}");
        assert!((f64::from(logistic(2.0 * u as f32)) - expected).abs() <= 2e-7, "{u}");
    }
    assert_eq!((logistic(1000.0f32), logistic(-1000.0f32) < 1e-37), (1.0, true));
}

#[test]
fn first_values_depend_on_seed_name_and_index_alone() -> Result<()> {
    let start = |name: &str, dims: &[usize], seed| {
        let parameter =
            Parameter { name: name.into(), part: Part::Head, dims: dims.to_vec(), init: Init::Normal(0.02), slice: None };
        elements(&init::parameter(&parameter, seed, DType::F64)?)
    };
    let whole = start("a", &[60, 50], 3)?;
    assert_eq!(whole[..300], start("a", &[300], 3)?);
    assert_ne!(whole, start("b", &[60, 50], 3)?);
    assert_ne!(whole, start("a", &[60, 50], 4)?);
    Ok(())
}

#[test]
fn first_values_are_normal() -> Result<()> {
    let parameter = Parameter { name: "x".into(), part: Part::Head, dims: vec![200, 500], init: Init::Normal(0.02), slice: None };
    let values = elements(&init::parameter(&parameter, 1, DType::F32)?)?;
    let moment = |power| values.iter().map(|x| (x / 0.02).powi(power)).sum::<f64>() / values.len() as f64;
    for (power, expected) in [(1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)] {
        assert!((moment(power) - expected).abs() < 0.015 * 3f64.powi(power), "moment {power} is {}", moment(power));
    }
    let neighbours = values.windows(2).map(|pair| pair[0] * pair[1] / 4e-4).sum::<f64>() / values.len() as f64;
    assert!(neighbours.abs() < 0.02, "{neighbours}");
    Ok(())
}

#[test]
fn adamw_is_torch_s() -> Result<()> {
    let settings = AdamW { lr: 0.1, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.3 };
    let row = |values: &[f64]| Tensor::new(values, &Device::Cpu);
    let zero = row(&[0.0; 19])?;
    let start: Vec<f64> = (0..19).map(|i| f64::from(i) - 8.5).collect();
    let mut state = AdamState { parameter: row(&start)?, m: zero.clone(), v: zero };
    let (mut p, mut m, mut v) = (start, [0.0; 19], [0.0; 19]);
    for step in 1..=5 {
        let gradient: Vec<f64> = (0..19).map(|i| (f64::from(i) * 0.7 + f64::from(step)).sin()).collect();
        state = adamw(settings, step as u32, &state, &row(&gradient)?)?;
        for i in 0..19 {
            p[i] *= 1.0 - 0.1 * 0.3;
            m[i] += (gradient[i] - m[i]) * (1.0 - 0.9);
            v[i] = 0.95 * v[i] + (1.0 - 0.95) * gradient[i] * gradient[i];
            let denominator = v[i].sqrt() / (1.0 - 0.95f64.powi(step)).sqrt() + 1e-8;
            p[i] -= 0.1 / (1.0 - 0.9f64.powi(step)) * m[i] / denominator;
        }
        for (ours, expected) in [(&state.parameter, &p[..]), (&state.m, &m[..]), (&state.v, &v[..])] {
            for (ours, expected) in elements(ours)?.iter().zip(expected) {
                assert!((ours - expected).abs() < 1e-13, "step {step}: {ours} is not {expected}");
            }
        }
    }
    Ok(())
}

#[test]
fn sgd_add_and_scale() -> Result<()> {
    let (a, b) = (Tensor::new(&[1.5f32, -2.0, 8.0], &Device::Cpu)?, Tensor::new(&[0.25f32, 4.0, -1.0], &Device::Cpu)?);
    assert_eq!(elements(&sgd(0.5, &a, &b)?)?, [1.375, -4.0, 8.5]);
    assert_eq!(elements(&elementwise::add(&a, &b)?)?, [1.75, 2.0, 7.0]);
    assert_eq!(elements(&elementwise::scale(&a, 0.5)?)?, [0.75, -1.0, 4.0]);
    Ok(())
}
