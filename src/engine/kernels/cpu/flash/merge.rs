//! Two states as one, and the log-sum-exp of a state.

use super::super::float::{Float, exp, vectorised};
use super::super::memory::{Slice, filled};
use super::Shape;

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

/// m' = max(m, m_b), l' = e^(m-m') l + e^(m_b-m') l_b, O' = (e^(m-m') l O + e^(m_b-m') l_b O_b) / l'.
pub(super) fn merge<T: Float>(shape: Shape, a: Rows<T>, b: Rows<T>) -> [Vec<T>; 3] {
    filled([a.most.len(), a.total.len(), a.output.len()], |[most, total, output]| {
        for head in shape.heads() {
            vectorised!({
                for row in 0..shape.queries {
                    let query = head.statistics + row;
                    let own = shape.q_row(&head, row)..shape.q_row(&head, row) + shape.d;
                    let (a_share, b_share);
                    (most[query], total[query], a_share, b_share) = shares(a.seen(query), b.seen(query));
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
fn shares<T: Float>((a_most, a_total): (T, T), (b_most, b_total): (T, T)) -> (T, T, T, T) {
    let most = if b_most > a_most { b_most } else { a_most };
    if most == T::NEGATIVE_INFINITY {
        return (most, T::zero(), T::zero(), T::zero());
    }
    let (a_weight, b_weight) = (exp(a_most - most) * a_total, exp(b_most - most) * b_total);
    let total = a_weight + b_weight;
    (most, total, a_weight / total, b_weight / total)
}

/// m + ln l; negative infinity where nothing was seen.
pub(super) fn log_sum_exp<T: Float>(most: &[T], total: &[T]) -> Vec<T> {
    let one = |(&most, &total): (&T, &T)| {
        if total == T::zero() { T::NEGATIVE_INFINITY } else { T::of(most.to_f64() + total.to_f64().ln()) }
    };
    most.iter().zip(total).map(one).collect()
}
