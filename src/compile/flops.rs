//! FLOPs and bytes of the model's parts: closed forms over its shape, a multiply-add counted as two.
//!
//! A linear layer of `[out, in]` over n tokens costs 2 n out in FLOPs forward, as many for the input's gradient and as many for the
//! weight's (Narayanan et al. 2021, arXiv 2104.04473, appendix). Attention's two products over full t x t scores cost 4 n t h forward and
//! twice that backward, all of it for the input: it has no weights.

use crate::base::model::{Model, Parameter, Part, Segment};
use crate::program::Kernel;

/// FLOPs of `kernel` on one micro-batch of `size` sequences, or on a segment of it: that looks at the tokens up to its end.
pub(super) fn flops(model: &Model, size: usize, segment: Segment, kernel: Kernel) -> u64 {
    let tokens = (size * segment.tokens(model)) as u64;
    let attention = 4 * tokens * (segment.end(model) * model.heads * model.head_size()) as u64;
    let is_block = |part| matches!(part, Part::Block(_));
    match kernel {
        Kernel::RecomputeAttention(_) => attention,
        Kernel::Forward(part) | Kernel::Recompute(part) => {
            linear(model, tokens, part) + if is_block(part) { attention } else { 0 }
        }
        Kernel::BackwardInput(part) => linear(model, tokens, part) + if is_block(part) { 2 * attention } else { 0 },
        Kernel::BackwardWeight(part) => linear(model, tokens, part),
        Kernel::Average(part) => parameters(model, part),
        // Adam: two moving averages, a root, a division, the update.
        Kernel::Optimizer(part) => 12 * parameters(model, part),
        // What moves data costs bytes; what works on shards is counted where they are cut.
        _ => 0,
    }
}

/// FLOPs of the matrix products with the weights of `part`.
fn linear(model: &Model, tokens: u64, part: Part) -> u64 {
    match part {
        Part::Embedding => 0,
        Part::Block(_) => {
            let matrices = model.parameters_of(part).into_iter().filter(|parameter| parameter.dims.len() == 2);
            2 * tokens * matrices.map(|matrix| matrix.elements() as u64).sum::<u64>()
        }
        Part::Head => 2 * tokens * (model.vocab * model.hidden) as u64,
    }
}

fn parameters(model: &Model, part: Part) -> u64 {
    model.parameters_of(part).iter().map(|parameter: &Parameter| parameter.elements() as u64).sum()
}
