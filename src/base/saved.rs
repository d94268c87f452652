//! What the forward pass saves for the backward pass, and what I leaves for W: names and shapes, known before anything runs.
//!
//! All of it has the dtype of the values, but for masks, which take a byte for an element. One block saves 10 h + n t + 2 elements per
//! token where f = 4h, n = kv and the activation is GELU: normalised inputs (2h), q k v (3h), probabilities (n t), attention output (h),
//! first layer's output (4h), and two 1/sigma. Neither the norms' outputs nor the activation's are saved: I makes them again on its way,
//! at the price of a multiplication, and leaves them for W. With dropout come masks of 2h + n t bytes.
//!
//! Shape letters as in [`super::model`].

use super::model::{Activation, Bias, Model, Norm, Segment};
use super::module::Module;
use super::split::Split;

/// A tensor that one op leaves for a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedTensor {
    /// What it is.
    pub name: &'static str,
    /// Shape.
    pub dims: Vec<usize>,
    /// It belongs to the attention core: selective recomputation computes it again.
    pub core: bool,
    /// It holds bits in bytes, not numbers.
    pub mask: bool,
}

impl SavedTensor {
    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

/// What a block's forward pass saves: read by I and by W.
#[must_use]
pub fn block_saved(model: &Model, b: usize) -> Vec<SavedTensor> {
    let (t, h, n) = (model.sequence, model.hidden, model.heads);
    let mut list = vec![
        saved("norm1 normalised", &[b, t, h]),
        saved("norm1 1/sigma", &[b, t]),
        saved("q k v", &[b, t, model.qkv_rows()]),
        SavedTensor { core: true, ..saved("attention probabilities", &[b, n, t, t]) },
        saved("attention output", &[b, t, n * model.head_size()]),
        saved("norm2 normalised", &[b, t, h]),
        saved("norm2 1/sigma", &[b, t]),
        saved("feed-forward input", &[b, t, ffn_input_width(model)]),
    ];
    if model.dropout > 0.0 {
        list.extend(block_masks(model, b));
    }
    list
}

/// The masks of a block's dropout, in the order in which it draws them: those that Megatron draws, too.
#[must_use]
pub fn block_masks(model: &Model, b: usize) -> [SavedTensor; 3] {
    let (t, h, n) = (model.sequence, model.hidden, model.heads);
    [
        SavedTensor { core: true, ..mask("softmax dropout mask", &[b, n, t, t]) },
        mask("attention dropout mask", &[b, t, h]),
        mask("feed-forward dropout mask", &[b, t, h]),
    ]
}

/// What a list of saved tensors is for a segment of a sequence; `list` makes it for whole sequences of a model. The attention core has as many
/// columns as there are tokens up to the segment's end.
#[must_use]
pub fn of_segment(list: fn(&Model, usize) -> Vec<SavedTensor>, model: &Model, b: usize, segment: Segment) -> Vec<SavedTensor> {
    let mut list = list(&segment.cut(model), b);
    for tensor in list.iter_mut().filter(|tensor| tensor.core) {
        tensor.dims[3] = segment.end(model);
    }
    list
}

/// What the embedding's forward pass saves: its mask, with dropout.
#[must_use]
pub fn embedding_saved(model: &Model, b: usize) -> Vec<SavedTensor> {
    let list = [mask("embedding dropout mask", &[b, model.sequence, model.hidden])];
    list.into_iter().filter(|_| model.dropout > 0.0).collect()
}

/// What a block's forward pass saves in Megatron without flash attention, dropout on. In half precision that is sbh (34 + 5 a s / h) bytes
/// where f = 4h and n = kv (Korthikanti et al. 2022, arXiv 2205.05198, section 4.1), the layer's input among them.
#[must_use]
pub fn block_saved_by_megatron(model: &Model, b: usize) -> Vec<SavedTensor> {
    let (t, h, n) = (model.sequence, model.hidden, model.heads);
    let core = |tensor| SavedTensor { core: true, ..tensor };
    let mut list = vec![
        saved("norm1 input", &[b, t, h]),
        saved("norm1 output", &[b, t, h]),
        saved("q k v", &[b, t, model.qkv_rows()]),
        core(saved("softmax output", &[b, n, t, t])),
        core(saved("softmax dropout output", &[b, n, t, t])),
        saved("attention output", &[b, t, n * model.head_size()]),
        saved("norm2 input", &[b, t, h]),
        saved("norm2 output", &[b, t, h]),
        saved("feed-forward input", &[b, t, ffn_input_width(model)]),
        saved("activation output", &[b, t, model.ffn]),
    ];
    list.extend(block_masks(model, b));
    list
}

/// What a block's I leaves for its W, besides what the forward pass saved.
/// The last one is the gradient that I was given: the same memory, not a copy.
#[must_use]
pub fn block_deferred(model: &Model, b: usize) -> Vec<SavedTensor> {
    let (t, h, f) = (model.sequence, model.hidden, model.ffn);
    let mut list = vec![
        saved("norm1 output", &[b, t, h]),
        saved("gradient of q k v", &[b, t, model.qkv_rows()]),
        saved("gradient of attention projection", &[b, t, h]),
        saved("norm2 output", &[b, t, h]),
        saved("gradient of feed-forward input", &[b, t, ffn_input_width(model)]),
        saved("activation output", &[b, t, f]),
    ];
    list.extend(norm_gradients(model, "gradient of norm1 weight", "gradient of norm1 bias"));
    list.extend(norm_gradients(model, "gradient of norm2 weight", "gradient of norm2 bias"));
    list.push(saved("gradient of block output", &[b, t, h]));
    list
}

/// What a module's forward pass saves beside its output, where a layer is cut into modules. `tokens` is the shape of the tokens that norms
/// and sums work on.
#[must_use]
pub fn module_saved(model: &Model, b: usize, split: Split, tokens: &[usize], module: Module) -> Vec<SavedTensor> {
    let (t, n) = (model.sequence, model.heads / split.ranks);
    let drops = |tensor: SavedTensor| Some(tensor).filter(|_| model.dropout > 0.0);
    match module {
        Module::Norm1 | Module::Norm2 | Module::FinalNorm => {
            vec![saved("normalised", &[tokens, &[model.hidden]].concat()), saved("1/sigma", tokens)]
        }
        Module::Attention => {
            let core = |tensor| SavedTensor { core: true, ..tensor };
            let mask = drops(core(mask("softmax dropout mask", &[b, n, t, t])));
            std::iter::once(core(saved("attention probabilities", &[b, n, t, t]))).chain(mask).collect()
        }
        Module::Add1 | Module::Add2 | Module::Positions => {
            drops(mask("dropout mask", &[tokens, &[model.hidden]].concat())).into_iter().collect()
        }
        Module::Logits => vec![saved("logits", &[b, t, split.vocabulary(model).1])],
        Module::Loss => vec![saved("gradient of logits", &[b, t, split.vocabulary(model).1])],
        _ => Vec::new(),
    }
}

/// What a module saves in Megatron beside its output: together [`block_saved_by_megatron`].
#[must_use]
pub fn module_saved_by_megatron(model: &Model, b: usize, split: Split, tokens: &[usize], module: Module) -> Vec<SavedTensor> {
    let (t, h, n) = (model.sequence, model.hidden, model.heads / split.ranks);
    let core = |tensor| SavedTensor { core: true, ..tensor };
    let stream = [tokens, &[h]].concat();
    match module {
        Module::Norm1 | Module::Norm2 => vec![saved("input", &stream), saved("output", &stream)],
        Module::Attention => vec![
            core(saved("softmax output", &[b, n, t, t])),
            core(mask("softmax dropout mask", &[b, n, t, t])),
            core(saved("softmax dropout output", &[b, n, t, t])),
        ],
        Module::Add1 | Module::Add2 => vec![mask("dropout mask", &stream)],
        Module::Down => vec![saved("activation output", &[b, t, split.activated(model)[0]])],
        // The head is not a layer's: what it saves is the lab's own.
        _ => module_saved(model, b, split, tokens, module),
    }
}

/// What a module's I leaves for its W, besides gradients that others read, too. `tokens` as in [`module_saved`].
#[must_use]
pub fn module_deferred(model: &Model, b: usize, split: Split, tokens: &[usize], module: Module) -> Vec<SavedTensor> {
    match module {
        Module::Add1 | Module::Add2 | Module::Positions if model.dropout > 0.0 => {
            vec![saved("gradient behind dropout", &[tokens, &[model.hidden]].concat())]
        }
        Module::Norm1 | Module::Norm2 | Module::FinalNorm => norm_gradients(model, "gradient of weight", "gradient of bias"),
        Module::Down => vec![saved("activation output", &[b, model.sequence, split.activated(model)[0]])],
        _ => Vec::new(),
    }
}

/// What the head's forward pass saves. The gradient of the logits stands where the logits would: it needs nothing but them and the targets.
#[must_use]
pub fn head_saved(model: &Model, b: usize) -> Vec<SavedTensor> {
    let (t, h) = (model.sequence, model.hidden);
    vec![saved("norm normalised", &[b, t, h]), saved("norm 1/sigma", &[b, t]), saved("gradient of logits", &[b, t, model.vocab])]
}

/// What the head's I leaves for its W, besides what the forward pass saved.
#[must_use]
pub fn head_deferred(model: &Model, b: usize) -> Vec<SavedTensor> {
    let mut list = vec![saved("norm output", &[b, model.sequence, model.hidden])];
    list.extend(norm_gradients(model, "gradient of norm weight", "gradient of norm bias"));
    list
}

/// Columns of the feed-forward's first layer: f, or gate and up side by side.
pub(super) fn ffn_input_width(model: &Model) -> usize {
    match model.activation {
        Activation::Gelu => model.ffn,
        Activation::Swiglu => 2 * model.ffn,
    }
}

/// A norm's gradients are complete when I is: they are sums over what it computes anyway.
fn norm_gradients(model: &Model, weight: &'static str, bias: &'static str) -> Vec<SavedTensor> {
    let mut list = vec![saved(weight, &[model.hidden])];
    if model.norm == Norm::Layer && model.bias != Bias::None {
        list.push(saved(bias, &[model.hidden]));
    }
    list
}

fn saved(name: &'static str, dims: &[usize]) -> SavedTensor {
    SavedTensor { name, dims: dims.to_vec(), core: false, mask: false }
}

fn mask(name: &'static str, dims: &[usize]) -> SavedTensor {
    SavedTensor { mask: true, ..saved(name, dims) }
}
