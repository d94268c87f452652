//! The feed-forward's non-linearities, forward and backward, over rows of the first layer's output.
//!
//! GELU in its tanh form is x logistic(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3), since (1 + tanh u) / 2 = logistic(2 u):
//! one exponential, and no cancellation where tanh comes near -1. SwiGLU is gate logistic(gate) up.

use super::float::{Float, logistic, vectorised};
use super::memory::filled;
use crate::base::model::Activation;

/// 2 sqrt(2/pi): the slope of 2 u at 0.
const SLOPE: f64 = 1.595_769_121_605_730_7;
/// The cubic term of GELU's tanh form.
const CUBIC: f64 = 0.044_715;

/// a `[rows,f]` of the first layer's output: `[rows,f]` for GELU, gate and up `[rows,2f]` for SwiGLU.
pub(super) fn forward<T: Float>(activation: Activation, f: usize, input: &[T]) -> Vec<T> {
    let rows = input.len() / width(activation, f);
    let [output] = filled([rows * f], |[output]| match activation {
        Activation::Gelu => vectorised!(for (a, &x) in output.iter_mut().zip(input) {
            *a = x * gelu_gate(x).0;
        }),
        Activation::Swiglu => vectorised!({
            for (a, input) in output.chunks_exact_mut(f).zip(input.chunks_exact(2 * f)) {
                let (gate, up) = input.split_at(f);
                for ((a, &gate), &up) in a.iter_mut().zip(gate).zip(up) {
                    *a = gate * logistic(gate) * up;
                }
            }
        }),
    });
    output
}

/// The gradient of the input, from the gradient of the output `[rows,f]`; and the output again, for the next layer's W.
pub(super) fn backward<T: Float>(activation: Activation, f: usize, input: &[T], gradient: &[T]) -> [Vec<T>; 2] {
    filled([input.len(), gradient.len()], |[input_gradient, output]| match activation {
        Activation::Gelu => vectorised!({
            let pairs = input.iter().zip(gradient);
            for ((dx, a), (&x, &da)) in input_gradient.iter_mut().zip(output.iter_mut()).zip(pairs) {
                (*dx, *a) = gelu_backward(x, da);
            }
        }),
        Activation::Swiglu => vectorised!({
            let rows = input.chunks_exact(2 * f).zip(gradient.chunks_exact(f));
            for ((dx, a), (x, da)) in input_gradient.chunks_exact_mut(2 * f).zip(output.chunks_exact_mut(f)).zip(rows) {
                swiglu_backward(x, da, dx, a);
            }
        }),
    })
}

/// Columns of the first layer's output.
fn width(activation: Activation, f: usize) -> usize {
    if activation == Activation::Gelu { f } else { 2 * f }
}

/// logistic(2 u), and x times the derivative of 2 u.
#[inline(always)]
fn gelu_gate<T: Float>(x: T) -> (T, T) {
    let (slope, cubic) = (T::of(SLOPE), T::of(SLOPE * CUBIC));
    let square = x * x;
    let gate = logistic(x * cubic.mul_add(square, slope));
    (gate, x * T::of(3.0 * SLOPE * CUBIC).mul_add(square, slope))
}

/// (dx, a) with a = x s: dx = da (s + x s' ), s' = s (1 - s) (2 u)'.
#[inline(always)]
fn gelu_backward<T: Float>(x: T, da: T) -> (T, T) {
    let (gate, rise) = gelu_gate(x);
    (da * gate * rise.mul_add(T::one() - gate, T::one()), x * gate)
}

/// With s = logistic(gate): d gate = da up s (1 + gate (1 - s)), d up = da gate s.
#[inline(always)]
fn swiglu_backward<T: Float>(input: &[T], gradient: &[T], input_gradient: &mut [T], output: &mut [T]) {
    let f = gradient.len();
    let (gate, up) = input.split_at(f);
    let (d_gate, d_up) = input_gradient.split_at_mut(f);
    let inputs = gate.iter().zip(up).zip(gradient);
    let outputs = d_gate.iter_mut().zip(d_up).zip(output);
    for (((&gate, &up), &da), ((d_gate, d_up), a)) in inputs.zip(outputs) {
        let s = logistic(gate);
        *d_gate = da * up * s * gate.mul_add(T::one() - s, T::one());
        *d_up = da * gate * s;
        *a = gate * s * up;
    }
}
