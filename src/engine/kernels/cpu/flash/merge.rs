//! Two states as one, and the log-sum-exp of a state.

use super::super::float::{Float, exp, vectorised};
use super::super::memory::{Slice, filled};
use super::Shape;

/// How two states become one. All rules but the first are mistakes that are to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeRule {
    /// `m' = max(m, mb)`, `l' = e^(m-m') l + e^(mb-m') lb`, `O' = (e^(m-m') l O + e^(mb-m') lb Ob) / l'`.
    Exact,
    /// O keeps its weight 1.
    NoRescale,
    /// `O' = (O + Ob) / 2`.
    Average,
    /// The larger weight stands for the sum of both.
    MaxLse,
    /// The log-sum-exp as a + log(1 + e^(b-a)), in the type of the tensors.
    NaiveLse,
}

/// m, l and O of all queries.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    most: &'a [T],
    total: &'a [T],
    output: &'a [T],
}

impl<'a, T: Float> Rows<'a, T> {
    pub(super) fn of(parts: &'a [Slice<T>]) -> Self {
        let [most, total, output] = parts else { unreachable!("a state has three parts") };
        Self { most, total, output }
    }

    /// m and l of a query. Memory that was never written reads as zeros: l = 0 says that nothing was seen yet, whatever m is.
    #[inline(always)]
    fn seen(&self, query: usize) -> (T, T) {
        let total = self.total[query];
        (if total == T::zero() { T::NEGATIVE_INFINITY } else { self.most[query] }, total)
    }
}

/// m', l' and O' of all queries.
pub(super) fn merge<T: Float>(shape: Shape, a: Rows<T>, b: Rows<T>, rule: MergeRule) -> [Vec<T>; 3] {
    filled([a.most.len(), a.total.len(), a.output.len()], |[most, total, output]| {
        for head in shape.heads() {
            vectorised!({
                for row in 0..shape.queries {
                    let query = head.statistics + row;
                    let own = shape.q_row(&head, row)..shape.q_row(&head, row) + shape.d;
                    let (a_share, b_share);
                    (most[query], total[query], a_share, b_share) = shares(rule, a.seen(query), b.seen(query));
                    let pairs = a.output[own.clone()].iter().zip(&b.output[own.clone()]);
                    for (output, (&a, &b)) in output[own].iter_mut().zip(pairs) {
                        *output = a_share.mul_add(a, b_share * b);
                    }
                }
            });
        }
    })
}

/// m', l', and the shares of the two outputs in the new one.
#[inline(always)]
fn shares<T: Float>(rule: MergeRule, (a_most, a_total): (T, T), (b_most, b_total): (T, T)) -> (T, T, T, T) {
    let most = if b_most > a_most { b_most } else { a_most };
    if most == T::NEGATIVE_INFINITY {
        return (most, T::zero(), T::zero(), T::zero());
    }
    let (a_weight, b_weight) = (exp(a_most - most) * a_total, exp(b_most - most) * b_total);
    let total = a_weight + b_weight;
    let both_seen = a_total != T::zero() && b_total != T::zero();
    match rule {
        MergeRule::NoRescale => (most, total, T::one(), b_weight / total),
        MergeRule::Average if both_seen => (most, total, T::of(0.5), T::of(0.5)),
        MergeRule::MaxLse => {
            let larger = if a_weight > b_weight { a_weight } else { b_weight };
            (most, larger, a_weight / larger, b_weight / larger)
        }
        MergeRule::NaiveLse if both_seen => naive(log_of(a_most, a_total), log_of(b_most, b_total)),
        _ => (most, total, a_weight / total, b_weight / total),
    }
}

/// The merge of two log-sum-exps by the formula that overflows. As m' stands lse' itself, and l' is 1.
#[inline(never)]
fn naive<T: Float>(a: f64, b: f64) -> (T, T, T, T) {
    // Through the tensors' type, whose largest number is far below f64's.
    let rounded = |x: f64| T::of(x).to_f64();
    let lse = rounded(a + rounded((1.0 + rounded((b - a).exp())).ln()));
    (T::of(lse), T::one(), T::of((a - lse).exp()), T::of((b - lse).exp()))
}

fn log_of<T: Float>(most: T, total: T) -> f64 {
    most.to_f64() + total.to_f64().ln()
}

/// m + ln l; negative infinity where nothing was seen.
pub(super) fn log_sum_exp<T: Float>(most: &[T], total: &[T]) -> Vec<T> {
    let one = |(&most, &total): (&T, &T)| {
        if total == T::zero() { T::NEGATIVE_INFINITY } else { T::of(log_of(most, total)) }
    };
    most.iter().zip(total).map(one).collect()
}
