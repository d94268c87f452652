//! The tiny transformer on the CPU: forward, I (backward for the input) and W (backward for the weights) of each part.
//!
//! Values are candle tensors in f32 or f64, in f32 with the digits of bf16 where the run stores that, tokens u32; every function returns new tensors and changes none. Backward passes are
//! analytic and fused. One thread; the order of all sums is fixed, so equal inputs give equal bits.
//! What passes from forward to I to W is listed in [`crate::base::saved`].
//!
//! Shape letters: b micro-batch size, t sequence, h hidden, n heads, d head size, f feed-forward, v vocabulary.

#![expect(clippy::inline_always, reason = "what is not inlined into a vectorised loop is not compiled for its instruction set")]

pub mod allocator;
pub mod block;
pub mod data;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod experts;
mod feed_forward;
pub mod flash;
pub mod float;
pub mod head;
pub mod init;
pub mod mixture;
pub mod module;
pub mod optimizer;

mod activation;
mod attention;
mod check;
mod counter;
mod gradients;
mod linear;
pub(in crate::engine) mod memory;
mod norm;
mod product;
mod reduce;
mod rotary;
mod rows;
mod stream;
mod vocabulary;

use crate::base::model::{Model, Parameter, Part, Segment};
use crate::base::saved::{self, SavedTensor};
use float::{Float, vectorised};

/// What a kernel must know beside its tensors.
#[derive(Clone, Debug)]
pub struct Dims {
    /// The model.
    pub model: Model,
    /// Sequences of one micro-batch (b).
    pub micro_batch_size: usize,
    /// Exact mode: W rounds each micro-batch's gradient to multiples of 2^-grid before it adds it to the others.
    pub grid: Option<i32>,
    /// The tokens of each sequence that the kernels take: mostly all.
    pub segment: Segment,
    /// Values are stored in bf16: what a layer makes is rounded to it, and comes as f32.
    pub half: bool,
}

impl Dims {
    /// The parameters that a part's kernels take, in order: the model's list; for a tied head the token embedding's weight, too.
    #[must_use]
    pub fn parameters_of(&self, part: Part) -> Vec<Parameter> {
        let mut list = self.model.parameters_of(part);
        if part == Part::Head && self.model.tied {
            list.push(self.model.parameters_of(Part::Embedding).swap_remove(0));
        }
        list
    }

    /// What a layer made, as the run stores it.
    fn stored<T: Float>(&self, mut values: Vec<T>) -> Vec<T> {
        if self.half {
            vectorised!(for value in &mut values {
                *value = value.half();
            });
        }
        values
    }

    /// Shape of the residual stream: `[b,t,h]`, t the tokens of the segment.
    fn stream(&self) -> Vec<usize> {
        vec![self.micro_batch_size, self.tokens(), self.model.hidden]
    }

    /// Tokens of the segment.
    fn tokens(&self) -> usize {
        self.segment.tokens(&self.model)
    }

    /// The tensors of a layout, for the segment.
    fn layout(&self, list: fn(&Model, usize) -> Vec<SavedTensor>) -> Vec<SavedTensor> {
        saved::of_segment(list, &self.model, self.micro_batch_size, self.segment)
    }
}

/// Calls a function that is generic over [`float::Float`] with the type of a tensor.
macro_rules! by_dtype {
    ($tensor:expr, $function:ident($($argument:expr),*)) => {
        match $tensor.dtype() {
            candle_core::DType::F32 => $function::<f32>($($argument),*),
            candle_core::DType::F64 => $function::<f64>($($argument),*),
            other => candle_core::bail!("the CPU kernels compute in f32 and f64, not in {other:?}"),
        }
    };
}
use by_dtype;
