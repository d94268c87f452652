//! Modules: the pieces of a layer between which tensor-parallel ranks meet, and the slices of the parameters that each of them holds.
//!
//! Megatron's cut: the first product of each half is cut by its outputs (column parallel), the second by its inputs (row parallel), so
//! that a half needs one sum over the ranks forward and one backward. Attention is cut by heads: its core needs no other rank.
//! Source: Shoeybi et al. 2019, "Megatron-LM: training multi-billion parameter language models using model parallelism", arXiv 1909.08053.

use std::fmt;

use super::model::{Model, Parameter, Part};

/// A piece of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Module {
    /// The norm before attention.
    Norm1,
    /// Queries, keys and values, turned where positions are rotary.
    Qkv,
    /// Scores, softmax, and the weighted sum of values.
    Attention,
    /// The product behind attention.
    Projection,
    /// Adds the projection and its bias to the residual stream.
    Add1,
    /// The norm before the feed-forward.
    Norm2,
    /// The feed-forward's first product; gate and up for `SwiGLU`.
    Up,
    /// The non-linearity and the feed-forward's second product.
    Down,
    /// Adds the feed-forward and its bias to the residual stream.
    Add2,
}

/// How tensor-parallel ranks cut a tensor: what each holds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Everybody holds all of it.
    Whole,
    /// Along this dim, an equal share of the query heads.
    Heads(usize),
    /// Along this dim, an equal share of the key and value heads; several ranks hold the same one where there are more ranks.
    KvHeads(usize),
    /// Along this dim, an equal share.
    Even(usize),
}

/// A linear layer or norm: its name, the modules of its weight and of its bias, and how they are cut.
type Rule = (&'static str, [Module; 2], [Cut; 2]);

const RULES: [Rule; 11] = [
    ("norm1", [Module::Norm1; 2], [Cut::Whole; 2]),
    ("attn.q", [Module::Qkv; 2], [Cut::Heads(0); 2]),
    ("attn.k", [Module::Qkv; 2], [Cut::KvHeads(0); 2]),
    ("attn.v", [Module::Qkv; 2], [Cut::KvHeads(0); 2]),
    ("attn.proj", [Module::Projection, Module::Add1], [Cut::Heads(1), Cut::Whole]),
    ("norm2", [Module::Norm2; 2], [Cut::Whole; 2]),
    ("mlp.fc1", [Module::Up; 2], [Cut::Even(0); 2]),
    ("mlp.gate", [Module::Up; 2], [Cut::Even(0); 2]),
    ("mlp.up", [Module::Up; 2], [Cut::Even(0); 2]),
    ("mlp.fc2", [Module::Down, Module::Add2], [Cut::Even(1), Cut::Whole]),
    ("mlp.down", [Module::Down, Module::Add2], [Cut::Even(1), Cut::Whole]),
];

/// One of several ranks that share the tensors of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// How many they are.
    pub ranks: usize,
    /// The place of this one.
    pub place: usize,
}

/// Which elements of a whole tensor a parameter is: `dims[dim]` of them along `dim`, from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    /// The dim that is cut.
    pub dim: usize,
    /// Where it begins.
    pub start: usize,
    /// How long the whole is.
    pub of: usize,
}

impl Module {
    /// All modules, in forward order.
    pub const ALL: [Self; 9] =
        [Self::Norm1, Self::Qkv, Self::Attention, Self::Projection, Self::Add1, Self::Norm2, Self::Up, Self::Down, Self::Add2];

    /// How many of them are products.
    pub const PRODUCTS: u32 = 4;

    /// Its name in ops and parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["norm1", "attn.qkv", "attn.core", "attn.proj", "add1", "norm2", "mlp.up", "mlp.down", "add2"][self as usize]
    }

    /// The module of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|module| module.name() == name)
    }

    /// Whether it is a product with a weight: the four of them share a layer's time under unit costs.
    #[must_use]
    pub fn is_product(self) -> bool {
        matches!(self, Self::Qkv | Self::Projection | Self::Up | Self::Down)
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Split {
    /// A rank that shares nothing.
    pub const NONE: Self = Self { ranks: 1, place: 0 };

    /// All places of so many ranks.
    pub fn all(ranks: usize) -> impl Iterator<Item = Self> {
        (0..ranks).map(move |place| Self { ranks, place })
    }

    /// Key and value heads of each rank.
    #[must_use]
    pub fn kv_heads(self, model: &Model) -> usize {
        (model.kv_heads / self.ranks).max(1)
    }

    /// Columns of what `module` makes on this rank.
    #[must_use]
    pub fn width(self, model: &Model, module: Module) -> usize {
        let (heads, d) = (model.heads / self.ranks, model.head_size());
        match module {
            Module::Qkv => (heads + 2 * self.kv_heads(model)) * d,
            Module::Attention => heads * d,
            Module::Up => super::saved::ffn_input_width(model) / self.ranks,
            _ => model.hidden,
        }
    }

    /// Where the share of this rank begins among `whole` of something, and how long it is. Several ranks share one where there are fewer.
    fn share(self, whole: usize) -> (usize, usize) {
        ((self.place * whole) / self.ranks, (whole / self.ranks).max(1))
    }
}

impl Model {
    /// What the rank at `split` holds of the parameters of `part`, in registration order. A fused matrix of queries, keys and values is three
    /// slices: each has its own heads.
    #[must_use]
    pub fn slices_of(&self, part: Part, split: Split) -> Vec<Parameter> {
        if let Part::Module(layer, module) = part {
            let mut all = self.slices_of(Part::Block(layer), split);
            all.retain(|parameter| self.module_of(parameter) == Some(module));
            return all;
        }
        let all = self.parameters_of(part);
        if split.ranks == 1 {
            return all;
        }
        all.into_iter().flat_map(|parameter| self.cut(parameter, split)).collect()
    }

    /// The module that takes `parameter`; `None` outside of layers.
    #[must_use]
    pub fn module_of(&self, parameter: &Parameter) -> Option<Module> {
        if parameter.layer_and_kind().is_some_and(|(layer, _)| layer == FUSED) {
            return Some(Module::Qkv);
        }
        rule(parameter).map(|((_, modules, _), place)| modules[place])
    }

    fn cut(&self, parameter: Parameter, split: Split) -> Vec<Parameter> {
        let d = self.head_size();
        if parameter.layer_and_kind().is_some_and(|(layer, _)| layer == FUSED) {
            let cuts = [(0, Cut::Heads(0)), (self.heads, Cut::KvHeads(0)), (self.heads + self.kv_heads, Cut::KvHeads(0))];
            return cuts.into_iter().map(|(heads, cut)| self.slice(parameter.clone(), cut, heads * d, split)).collect();
        }
        let cut = rule(&parameter).map_or(Cut::Whole, |((.., cuts), place)| cuts[place]);
        vec![self.slice(parameter, cut, 0, split)]
    }

    /// What `split` holds of `parameter`, or of its part from `first` on.
    fn slice(&self, parameter: Parameter, cut: Cut, first: usize, split: Split) -> Parameter {
        let d = self.head_size();
        let (dim, start, length) = match cut {
            Cut::Whole => return parameter,
            Cut::Heads(dim) => {
                let (start, length) = split.share(self.heads);
                (dim, start * d, length * d)
            }
            Cut::KvHeads(dim) => {
                let (start, length) = split.share(self.kv_heads);
                (dim, start * d, length * d)
            }
            Cut::Even(dim) => {
                let (start, length) = split.share(parameter.dims[dim]);
                (dim, start, length)
            }
        };
        let mut dims = parameter.dims.clone();
        let of = std::mem::replace(&mut dims[dim], length);
        Parameter { dims, slice: Some(Slice { dim, start: first + start, of }), ..parameter }
    }
}

/// The name of the one matrix that makes queries, keys and values.
const FUSED: &str = "attn.qkv";

/// The rule of a parameter, and whether it is the weight, 0, or the bias, 1.
fn rule(parameter: &Parameter) -> Option<(&'static Rule, usize)> {
    let (layer, kind) = parameter.layer_and_kind()?;
    RULES.iter().find(|(name, ..)| *name == layer).map(|rule| (rule, usize::from(kind == "bias")))
}

impl Parameter {
    /// The layer of a block that it belongs to, `attn.proj`, and what it is there: `weight` or `bias`.
    fn layer_and_kind(&self) -> Option<(&str, &str)> {
        let inside = self.name.strip_prefix("blocks.")?;
        let (_, inside) = inside.split_once('.')?;
        inside.rsplit_once('.')
    }

    /// Shape of the whole tensor that it is, or that it is a slice of.
    #[must_use]
    pub fn whole_dims(&self) -> Vec<usize> {
        let mut dims = self.dims.clone();
        if let Some(Slice { dim, of, .. }) = self.slice {
            dims[dim] = of;
        }
        dims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::settings::{Activation, Bias, Norm, Positions};

    const MODEL: Model = Model {
        layers: 2,
        hidden: 24,
        heads: 6,
        kv_heads: 6,
        sequence: 5,
        vocab: 11,
        ffn: 30,
        activation: Activation::Gelu,
        norm: Norm::Layer,
        positions: Positions::Learned,
        bias: Bias::All,
        fused_qkv: true,
        tied: false,
        dropout: 0.0,
    };

    /// How often the slices of all ranks cover each element of every parameter of a block.
    fn check(model: &Model, ranks: usize, expected: impl Fn(&str) -> usize) {
        for whole in model.parameters_of(Part::Block(1)) {
            let mut covered = vec![0; whole.elements()];
            for split in Split::all(ranks) {
                for slice in model.slices_of(Part::Block(1), split).iter().filter(|slice| slice.name == whole.name) {
                    assert_eq!(slice.whole_dims(), whole.dims);
                    let Slice { dim, start, .. } = slice.slice.unwrap_or(Slice { dim: 0, start: 0, of: whole.dims[0] });
                    let columns = whole.dims.get(1).copied().unwrap_or(1);
                    for (element, covered) in covered.iter_mut().enumerate() {
                        let along = if dim == 0 { element / columns } else { element % columns };
                        *covered += usize::from((start..start + slice.dims[dim]).contains(&along));
                    }
                }
            }
            assert!(covered.iter().all(|&times| times == expected(&whole.name)), "{} on {ranks}: {covered:?}", whole.name);
        }
    }

    #[test]
    fn slices_cover_every_tensor() {
        let whole = |name: &str| name.contains("norm") || name.ends_with("proj.bias") || name.ends_with("fc2.bias");
        for ranks in [2, 3, 6] {
            check(&MODEL, ranks, |name| if whole(name) { ranks } else { 1 });
        }
        let grouped = Model { kv_heads: 2, fused_qkv: false, activation: Activation::Swiglu, bias: Bias::None, ..MODEL };
        let is_kv = |name: &str| name.contains("attn.k") || name.contains("attn.v");
        check(&grouped, 6, |name| {
            if whole(name) {
                6
            } else if is_kv(name) {
                3
            } else {
                1
            }
        });
        check(&grouped, 2, |name| if whole(name) { 2 } else { 1 });
    }

    #[test]
    fn every_parameter_of_a_block_has_a_module() {
        for model in [MODEL, Model { fused_qkv: false, activation: Activation::Swiglu, ..MODEL }] {
            for ranks in [1, 3] {
                let split = Split { ranks, place: ranks - 1 };
                let by_module: usize =
                    Module::ALL.iter().map(|&module| model.slices_of(Part::Module(0, module), split).len()).sum();
                assert_eq!(by_module, model.slices_of(Part::Block(0), split).len());
            }
        }
    }
}
