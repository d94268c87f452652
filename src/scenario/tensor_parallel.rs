//! `[tensor_parallel]`, and what the ranks that share a layer's tensors must divide.

use super::keys::{Key, batch, experts, model, parallel, pipeline, recompute, tensor_parallel};
use super::problem::Problem;
use super::written::Written;
use super::{Recompute, TensorParallel, Training};
use crate::base::mesh::Axis;
use crate::base::model::Model;
use crate::base::settings::FeedForwardSplit;
use crate::base::split::Split;
use crate::base::words::grouped;

/// How ranks share the matrices of each layer.
pub(super) fn read(written: &Written) -> Option<TensorParallel> {
    Some(TensorParallel {
        sequence_parallel: written.flag(&tensor_parallel::SEQUENCE_PARALLEL)?,
        feed_forward: written.choice(&tensor_parallel::SPLIT, FeedForwardSplit::find)?,
    })
}

impl Training {
    /// The first of the ranks that share a layer's tensors.
    #[must_use]
    pub fn split(&self) -> Split {
        let ranks = self.mesh.size(Axis::Tensor);
        if ranks == 1 { Split::NONE } else { Split { ranks, place: 0, feed_forward: self.tensor_parallel.feed_forward } }
    }
}

/// Refuses numbers of ranks that cut a head, a key and value head, or a column.
pub(super) fn check(written: &mut Written, training: &Training) {
    let ranks = training.mesh.size(Axis::Tensor);
    if ranks > 1 {
        refuse_others(written, training);
    }
    if let Some((what, size, key)) = obstacle(&training.model, ranks) {
        let message = format!("tensor = {} does not divide {what}, {}", grouped(ranks as i128), grouped(size as i128));
        let problem = Problem::new(message).allowed(allowed(key)).hint(hint(&training.model, ranks));
        written.refuse(&[&parallel::TENSOR, key, &model::PRESET], problem);
    }
    let (sequence, shares_tokens) = (training.model.sequence, training.tensor_parallel.sequence_parallel);
    // Of slices it is the slice that is shared out.
    if shares_tokens && training.mesh.size(Axis::Context) == 1 && !sequence.is_multiple_of(ranks) {
        let whole = [sequence / ranks * ranks, sequence.next_multiple_of(ranks)];
        let near: Vec<String> = whole.iter().filter(|sequence| **sequence > 0).map(|&near| grouped(near as i128)).collect();
        let message = format!("{} ranks cannot share {} tokens evenly", grouped(ranks as i128), grouped(sequence as i128));
        let problem = Problem::new(message).allowed("a sequence that `tensor` divides");
        let keys = [&tensor_parallel::SEQUENCE_PARALLEL, &model::SEQUENCE, &parallel::TENSOR];
        written.refuse(&keys, problem.hint(format!("sequence = {} would do", near.join(" or "))));
    }
}

/// What ranks that share tensors do not do.
fn refuse_others(written: &mut Written, training: &Training) {
    refuse_splits(written, training);
    refuse_forgotten(written, training, ("ranks that share tensors", &parallel::TENSOR), "tensor = 1");
    if training.pipeline.segments > 1 {
        let problem = Problem::new("segments of sequences and ranks that share tensors are not computed together");
        written.refuse(&[&pipeline::SEGMENTS, &pipeline::SCHEDULE, &parallel::TENSOR], problem.hint("tensor = 1, or 1f1b"));
    }
    if !training.batch.sizes.is_empty() {
        let problem = Problem::new("micro-batches of different sizes and ranks that share tensors are not computed together");
        let problem = problem.hint("tensor = 1, or one micro_batch_size for all");
        written.refuse(&[&batch::MICRO_BATCH_SIZES, &parallel::TENSOR], problem);
    }
}

/// Other cuts of the feed-forward than Megatron's leave no sum behind it whose tokens could be shared out; and there are none of experts.
fn refuse_splits(written: &mut Written, training: &Training) {
    let split = training.tensor_parallel.feed_forward;
    let obstacles = [
        (
            training.tensor_parallel.sequence_parallel,
            &tensor_parallel::SEQUENCE_PARALLEL,
            "sequence parallelism scatters the sum behind the feed-forward",
        ),
        (training.model.has_experts(), &experts::COUNT, "experts are cut by columns and then by rows"),
    ];
    for (_, key, why) in obstacles.into_iter().filter(|(is_there, ..)| *is_there && split != FeedForwardSplit::ColRow) {
        let problem = Problem::new(format!("{why}, and `split = \"{split}\"` has none"));
        written.refuse(&[&tensor_parallel::SPLIT, key], problem.allowed("split = \"col-row\""));
    }
}

/// Whoever computes modules counts: nothing can be forgotten.
pub(super) fn refuse_forgotten(written: &mut Written, training: &Training, (who, key): (&str, &'static Key), hint: &str) {
    let is_forgotten = training.recompute.mode != Recompute::None && !training.recompute.preserve_rng_state;
    if training.model.dropout > 0.0 && is_forgotten {
        let problem = Problem::new(format!("{who} count their random numbers by place, and need no state of them"));
        let problem = problem.allowed("preserve_rng_state = true").hint(format!("{hint} forgets where they stood"));
        written.refuse(&[&recompute::PRESERVE_RNG_STATE, key], problem);
    }
}

/// What so many ranks cannot share evenly: in words, its size, and its key.
fn obstacle(model: &Model, ranks: usize) -> Option<(&'static str, usize, &'static Key)> {
    let Model { heads, kv_heads, ffn, .. } = *model;
    let shares_kv = kv_heads.is_multiple_of(ranks) || ranks.is_multiple_of(kv_heads);
    match () {
        () if !heads.is_multiple_of(ranks) => Some(("the heads", heads, &model::HEADS)),
        () if !shares_kv => Some(("the key and value heads", kv_heads, &model::KV_HEADS)),
        () if !ffn.is_multiple_of(ranks) => Some(("the columns of the feed-forward", ffn, &model::FFN)),
        () => None,
    }
}

fn allowed(key: &Key) -> String {
    let exception = if key.name == model::KV_HEADS.name { ", or a multiple of it" } else { "" };
    format!("a divisor of `{}`{exception}", key.name)
}

/// The nearest numbers of ranks, below and above, that the model can be cut for.
fn hint(model: &Model, ranks: usize) -> String {
    let is_legal = |ranks: &usize| obstacle(model, *ranks).is_none();
    let below = (1..ranks).rev().find(is_legal);
    let above = (ranks + 1..=model.heads).find(is_legal);
    let near: Vec<String> = below.into_iter().chain(above).map(|ranks| ranks.to_string()).collect();
    format!("tensor = {} would do", near.join(" or "))
}
