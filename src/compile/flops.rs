//! FLOPs and bytes of the model's parts: closed forms over its shape, a multiply-add counted as two.
//!
//! A linear layer of `[out, in]` over n tokens costs 2 n out in FLOPs forward, as many for the input's gradient and as many for the
//! weight's (Narayanan et al. 2021, arXiv 2104.04473, appendix). Attention's two products over full t x t scores cost 4 n t h forward and
//! twice that backward, all of it for the input: it has no weights.

use crate::base::model::{Model, Part, Segment};
use crate::base::module::Module;
use crate::base::split::Split;
use crate::program::Kernel;

/// FLOPs of `kernel` on one micro-batch of `size` sequences, or on a segment of it: that looks at the tokens up to its end. Of a module,
/// those of one of the ranks that share it.
pub(super) fn flops(model: &Model, (size, split): (usize, Split), segment: Segment, kernel: Kernel) -> u64 {
    if let Some(Part::Module(layer, module)) = kernel.words().1 {
        return of_module(model, (size, split), kernel, Part::Module(layer, module));
    }
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
        // What moves data costs bytes; what works on parameters and shards is counted where they are known.
        _ => 0,
    }
}

/// A module has one product with its slice of a weight, or attention's two with each other; or none, as where tokens are looked up.
fn of_module(model: &Model, (size, split): (usize, Split), kernel: Kernel, part: Part) -> u64 {
    let tokens = (size * model.sequence) as u64;
    if let Part::Module(_, Module::Attention) = part {
        let attention = 4 * tokens * (model.sequence * model.heads * model.head_size() / split.ranks) as u64;
        return match kernel {
            Kernel::BackwardInput(_) => 2 * attention,
            Kernel::BackwardWeight(_) => 0,
            _ => attention,
        };
    }
    let has_product = matches!(part, Part::Module(_, module) if module.is_product() || module == Module::Logits);
    let slices = if has_product { model.slices_of(part, split) } else { Vec::new() };
    2 * tokens * slices.iter().filter(|slice| slice.dims.len() == 2).map(|slice| slice.elements() as u64).sum::<u64>()
}

/// FLOPs of the matrix products with the weights of `part`.
fn linear(model: &Model, tokens: u64, part: Part) -> u64 {
    match part {
        Part::Embedding => 0,
        Part::Block(_) | Part::Module(..) => {
            let matrices = model.parameters_of(part).into_iter().filter(|parameter| parameter.dims.len() == 2);
            2 * tokens * matrices.map(|matrix| matrix.elements() as u64).sum::<u64>()
        }
        Part::Head => 2 * tokens * (model.vocab * model.hidden) as u64,
    }
}
