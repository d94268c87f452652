//! Optimizer steps on one parameter: a single pass that reads parameter, gradient and state and writes new ones.

use candle_core::{Result, Tensor};

use super::float::{Float, vectorised};
use super::memory::{Slice, filled, tensor};
use super::{by_dtype, check};

/// `AdamW`'s settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// How much of the first moment stays.
    pub beta1: f64,
    /// How much of the second moment stays.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay: the parameter loses this share times the learning rate.
    pub weight_decay: f64,
}

/// A parameter and its moments.
#[derive(Clone, Debug)]
pub struct AdamState {
    /// The parameter.
    pub parameter: Tensor,
    /// First moment.
    pub m: Tensor,
    /// Second moment.
    pub v: Tensor,
}

/// The state after step number `step` (from 1), as `torch.optim.AdamW` computes it.
///
/// # Errors
/// When shapes or dtypes differ.
pub fn adamw(settings: AdamW, step: u32, state: &AdamState, gradient: &Tensor) -> Result<AdamState> {
    let AdamState { parameter, m, v } = state;
    for (what, tensor) in [("gradient", gradient), ("first moment", m), ("second moment", v)] {
        check::shape(what, tensor, parameter.dims())?;
    }
    by_dtype!(parameter, adamw_of(settings, step, state, gradient))
}

/// parameter - lr gradient
///
/// # Errors
/// When shapes or dtypes differ.
pub fn sgd(lr: f64, parameter: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    check::shape("gradient", gradient, parameter.dims())?;
    by_dtype!(parameter, sgd_of(lr, parameter, gradient))
}

fn adamw_of<T: Float>(settings: AdamW, step: u32, state: &AdamState, gradient: &Tensor) -> Result<AdamState> {
    let dims = gradient.dims();
    let (p, g) = (Slice::<T>::of(&state.parameter)?, Slice::<T>::of(gradient)?);
    let (m, v) = (Slice::<T>::of(&state.m)?, Slice::<T>::of(&state.v)?);
    let rule = Rule::<T>::at_step(settings, step);
    let [new_p, new_m, new_v] = filled([p.len(); 3], |[new_p, new_m, new_v]| {
        vectorised!({
            let old = p.iter().zip(&*g).zip(m.iter().zip(&*v));
            let new = new_p.iter_mut().zip(new_m.iter_mut().zip(new_v.iter_mut()));
            for (((&p, &g), (&m, &v)), (new_p, (new_m, new_v))) in old.zip(new) {
                (*new_p, *new_m, *new_v) = rule.apply(p, g, m, v);
            }
        });
    });
    Ok(AdamState { parameter: tensor(new_p, dims)?, m: tensor(new_m, dims)?, v: tensor(new_v, dims)? })
}

fn sgd_of<T: Float>(lr: f64, parameter: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    let (p, g) = (Slice::<T>::of(parameter)?, Slice::<T>::of(gradient)?);
    let lr = T::of(-lr);
    let [new] = filled([p.len()], |[new]| {
        vectorised!(for ((new, &p), &g) in new.iter_mut().zip(&*p).zip(&*g) {
            *new = g.mul_add(lr, p);
        });
    });
    tensor(new, parameter.dims())
}

/// `AdamW` at one step, all that can be computed once.
struct Rule<T> {
    keep: T,
    beta1: T,
    one_less_beta1: T,
    beta2: T,
    one_less_beta2: T,
    /// -lr / (1 - beta1^step)
    rate: T,
    /// 1 / sqrt(1 - beta2^step)
    correction: T,
    eps: T,
}

impl<T: Float> Rule<T> {
    fn at_step(settings: AdamW, step: u32) -> Rule<T> {
        let AdamW { lr, beta1, beta2, eps, weight_decay } = settings;
        let step = f64::from(step);
        Rule {
            keep: T::of(1.0 - lr * weight_decay),
            beta1: T::of(beta1),
            one_less_beta1: T::of(1.0 - beta1),
            beta2: T::of(beta2),
            one_less_beta2: T::of(1.0 - beta2),
            rate: T::of(-lr / (1.0 - beta1.powf(step))),
            correction: T::of(1.0 / (1.0 - beta2.powf(step)).sqrt()),
            eps: T::of(eps),
        }
    }

    #[inline(always)]
    fn apply(&self, p: T, g: T, m: T, v: T) -> (T, T, T) {
        let m = m.mul_add(self.beta1, g * self.one_less_beta1);
        let v = v.mul_add(self.beta2, g * g * self.one_less_beta2);
        let update = m / v.sqrt().mul_add(self.correction, self.eps);
        (update.mul_add(self.rate, p * self.keep), m, v)
    }
}
