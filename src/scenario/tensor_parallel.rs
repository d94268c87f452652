//! `[tensor_parallel]`, and what the ranks that share a layer's tensors must divide.

use super::keys::{Key, model, parallel, tensor_parallel};
use super::problem::Problem;
use super::written::Written;
use super::{Numerics, TensorParallel, Training, Values};
use crate::base::mesh::Axis;
use crate::base::model::Model;
use crate::base::words::grouped;

/// How ranks share the matrices of each layer.
pub(super) fn read(written: &Written) -> Option<TensorParallel> {
    Some(TensorParallel { sequence_parallel: written.flag(&tensor_parallel::SEQUENCE_PARALLEL)? })
}

/// Refuses numbers of ranks that cut a head, a key and value head, or a column.
pub(super) fn check(written: &mut Written, training: &Training, numerics: Option<Numerics>) {
    let ranks = training.mesh.size(Axis::Tensor);
    let is_real = numerics.is_some_and(|numerics| numerics.values == Values::Real);
    if is_real && ranks > 1 && (training.model.dropout > 0.0 || training.precision.parameter.size() == 2) {
        let problem = Problem::new("ranks that share tensors compute without dropout, in f32 or f64");
        let problem = problem.hint("values = \"shape\" follows sizes and times of any");
        written.refuse(&[&parallel::TENSOR, &model::DROPOUT, &model::PARAMETER_DTYPE], problem);
    }
    if let Some((what, size, key)) = obstacle(&training.model, ranks) {
        let message = format!("tensor = {} does not divide {what}, {}", grouped(ranks as i128), grouped(size as i128));
        let problem = Problem::new(message).allowed(allowed(key)).hint(hint(&training.model, ranks));
        written.refuse(&[&parallel::TENSOR, key, &model::PRESET], problem);
    }
    let (sequence, shares_tokens) = (training.model.sequence, training.tensor_parallel.sequence_parallel);
    if shares_tokens && !sequence.is_multiple_of(ranks) {
        let whole = [sequence / ranks * ranks, sequence.next_multiple_of(ranks)];
        let near: Vec<String> = whole.iter().filter(|sequence| **sequence > 0).map(|&near| grouped(near as i128)).collect();
        let message = format!("{} ranks cannot share {} tokens evenly", grouped(ranks as i128), grouped(sequence as i128));
        let problem = Problem::new(message).allowed("a sequence that `tensor` divides");
        let keys = [&tensor_parallel::SEQUENCE_PARALLEL, &model::SEQUENCE, &parallel::TENSOR];
        written.refuse(&keys, problem.hint(format!("sequence = {} would do", near.join(" or "))));
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
