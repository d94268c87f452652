//! Embedding and head of a rank that holds a share of the vocabulary.
//!
//! Each rank looks up the tokens of its share and leaves zeros for the others, so that the ranks' sum is the embedding. Of the logits it has
//! its columns; for the loss the ranks tell each other three numbers a token: their largest logit, the sum of exponentials below it, and the
//! target's logit if it is theirs. From those of all ranks each has the same loss, and the gradient of its own columns. (Megatron sends the
//! three one after the other, in three all-reduces.)

use candle_core::{Result, Tensor};

use super::embedding::read_ids;
use super::float::{Float, vectorised};
use super::gradients::Gradients;
use super::head::{IGNORED, read_targets};
use super::linear;
use super::memory::{Slice, filled, tensor};
use super::module::Cut;
use super::product::Write;
use super::reduce::exponentials;
use super::{by_dtype, check};
use crate::engine::compare::larger;

/// Numbers that a rank tells the others of each token.
const STATISTICS: usize = 3;

/// y `[b,t,h]`: the row of each token of the rank's share; zeros for the others.
pub(super) fn look_up<T: Float>(cut: Cut, tokens: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (h, own) = (cut.dims.model.hidden, Own::of(cut));
    let (ids, weight) = (read_ids(cut.dims, tokens, None)?, Slice::<T>::of(weight)?);
    let [y] = filled([ids.len() * h], |[y]| {
        for (y, &id) in y.chunks_exact_mut(h).zip(ids.iter()) {
            match own.place(id) {
                Some(row) => y.copy_from_slice(&weight[row * h..][..h]),
                None => y.fill(T::zero()),
            }
        }
    });
    tensor(y, &cut.dims.stream())
}

/// Adds each row of the gradient `[b,t,h]` to the row of the weight that it came from, if that is the rank's.
pub(super) fn scatter<T: Float>(cut: Cut, tokens: &Tensor, d_y: &Tensor, gradients: &mut Gradients<T>) -> Result<()> {
    let (h, own) = (cut.dims.model.hidden, Own::of(cut));
    check::shape("gradient of the embedding", d_y, &cut.dims.stream())?;
    let (ids, d_y) = (read_ids(cut.dims, tokens, None)?, Slice::<T>::of(d_y)?);
    gradients.put(0, |weight, write| {
        if write == Write::New {
            weight.fill(T::zero());
        }
        for (d_y, &id) in d_y.chunks_exact(h).zip(ids.iter()) {
            if let Some(row) = own.place(id) {
                let weight = &mut weight[row * h..][..h];
                vectorised!(for (sum, &d) in weight.iter_mut().zip(d_y) {
                    *sum += d;
                });
            }
        }
    })
}

/// What the rank tells the others `[b,t,3]`, and its logits `[b,t,share]`; those beyond the vocabulary's end are minus infinity.
pub(super) fn logits<T: Float>(cut: Cut, x: &Tensor, targets: &Tensor, parameters: &[Tensor]) -> Result<(Tensor, Tensor)> {
    let own = Own::of(cut);
    let targets = read_targets(cut.dims, targets)?;
    let parameters = Slice::<T>::all(parameters)?;
    let mut logits = linear::forward(&cut.linears(), &parameters, &Slice::<T>::of(x)?, None);
    let mut statistics = Vec::with_capacity(targets.len() * STATISTICS);
    for (row, &target) in logits.chunks_exact_mut(own.room).zip(targets.iter()) {
        row[own.there..].fill(T::NEGATIVE_INFINITY);
        let target = own.place(target).map_or(T::zero(), |place| row[place]);
        statistics.extend(summary(&row[..own.there]));
        statistics.push(target);
    }
    let [b, t] = [cut.dims.micro_batch_size, cut.dims.tokens()];
    Ok((tensor(statistics, &[b, t, STATISTICS])?, tensor(logits, &[b, t, own.room])?))
}

/// The loss `[]`, a mean over b t tokens, from what all ranks told, and the gradient of the rank's logits.
pub(super) fn loss<T: Float>(cut: Cut, told: &Tensor, logits: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)> {
    let (own, ranks) = (Own::of(cut), cut.split.ranks);
    let [b, t] = [cut.dims.micro_batch_size, cut.dims.tokens()];
    // A rank by itself is told what it told.
    let told = &told.reshape((told.elem_count() / (b * t * STATISTICS), b, t, STATISTICS))?;
    check::shape("what the ranks told", told, &[ranks, b, t, STATISTICS])?;
    check::shape("logits", logits, &[b, t, own.room])?;
    let targets = read_targets(cut.dims, targets)?;
    let (told, mut gradient) = (Slice::<T>::of(told)?, Slice::<T>::of(logits)?.to_vec());
    let per_token = 1.0 / count(targets.iter().filter(|&&target| target != IGNORED).count().max(1));
    let mut total = 0.0;
    for (token, (row, &target)) in gradient.chunks_exact_mut(own.room).zip(targets.iter()).enumerate() {
        if target == IGNORED {
            row.fill(T::zero());
            continue;
        }
        let of_rank = |rank: usize| {
            let start = (rank * targets.len() + token) * STATISTICS;
            [told[start].to_f64(), told[start + 1].to_f64(), told[start + 2].to_f64()]
        };
        let largest = (0..ranks).map(|rank| of_rank(rank)[0]).fold(f64::NEG_INFINITY, larger);
        let below = |[most, sum, _]: [f64; 3]| if sum == 0.0 { 0.0 } else { sum * (most - largest).exp() };
        let denominator: f64 = (0..ranks).map(|rank| below(of_rank(rank))).sum();
        let target_logit: f64 = (0..ranks).map(|rank| of_rank(rank)[2]).sum();
        total += denominator.ln() - (target_logit - largest);
        for logit in row.iter_mut() {
            *logit = T::of((logit.to_f64() - largest).exp() / denominator * per_token);
        }
        if let Some(place) = own.place(target) {
            row[place] -= T::of(per_token);
        }
    }
    Ok((tensor(vec![T::of(total * per_token)], &[])?, tensor(gradient, &[b, t, own.room])?))
}

/// The largest element, and the sum of exponentials of the others below it; of nothing, minus infinity and 0.
fn summary<T: Float>(row: &[T]) -> [T; 2] {
    if row.is_empty() {
        return [T::NEGATIVE_INFINITY, T::zero()];
    }
    let mut row = row.to_vec();
    let mut summary = [T::zero(); 2];
    vectorised!({
        let (most, sum) = exponentials(&mut row);
        summary = [most, sum];
    });
    summary
}

/// A rank's share of the vocabulary.
#[derive(Clone, Copy)]
struct Own {
    start: usize,
    /// How many tokens there are.
    there: usize,
    /// How many there is room for.
    room: usize,
}

impl Own {
    fn of(cut: Cut) -> Self {
        let (start, room) = cut.split.vocabulary(&cut.dims.model);
        Self { start, there: room.min(cut.dims.model.vocab.saturating_sub(start)), room }
    }

    /// The place of a token, if it is in the share.
    fn place(self, token: u32) -> Option<usize> {
        (token as usize).checked_sub(self.start).filter(|place| *place < self.there)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
fn count(tokens: usize) -> f64 {
    tokens as f64
}

/// Looks tokens up in the type of the weight.
pub(super) fn embedding(cut: Cut, tokens: &Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    by_dtype!(parameters[0], look_up(cut, tokens, &parameters[0]))
}
