//! What a block keeps from forward for backward: names and shapes.
#![allow(missing_docs)]
use super::model::{Model, Part};
use super::settings::Dtype;

#[derive(Clone, Debug, PartialEq)]
pub struct SavedTensor {
    pub name: &'static str,
    pub dims: Vec<usize>,
    pub dtype: Option<Dtype>,
}
pub fn saved(model: &Model, micro_batch_size: usize, part: Part) -> Vec<SavedTensor> {
    let _ = part;
    vec![SavedTensor { name: "x", dims: vec![micro_batch_size, model.sequence, model.hidden], dtype: None }]
}
pub fn deferred(model: &Model, micro_batch_size: usize, part: Part) -> Vec<SavedTensor> {
    saved(model, micro_batch_size, part)
}
