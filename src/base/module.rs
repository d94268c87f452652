//! Modules: the pieces of the model between which tensor-parallel ranks meet, and the slices of the parameters that each of them holds.
//!
//! Megatron's cut of a layer: the first product of each half is cut by its outputs (column parallel), the second by its inputs (row parallel), so
//! that a half needs one sum over the ranks forward and one backward. Attention is cut by heads: its core needs no other rank.
//! Source: Shoeybi et al. 2019, "Megatron-LM: training multi-billion parameter language models using model parallelism", arXiv 1909.08053.

use std::fmt;

use super::model::{Model, Parameter, Part};

/// A piece of the model.
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
    /// The router, in the feed-forward's place: which experts a token goes to, and what their results weigh.
    Route,
    /// Sorts tokens by the experts that they go to.
    Dispatch,
    /// The experts, each on its tokens.
    Experts,
    /// Brings what the experts made back into the order of the tokens, and adds it up.
    Combine,
    /// Adds the feed-forward and its bias to the residual stream.
    Add2,
    /// Looks tokens up in the embedding.
    Tokens,
    /// Adds what tells the tokens' places.
    Positions,
    /// The norm before the logits.
    FinalNorm,
    /// Logits, and for each token what the loss needs of them.
    Logits,
    /// The cross-entropy over all logits.
    Loss,
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
    /// Along the first dim, a share of the vocabulary; the last ranks' may reach beyond its end.
    Vocabulary,
}

/// A linear layer or norm: its name, the modules of its weight and of its bias, and how they are cut.
type Rule = (&'static str, [Module; 2], [Cut; 2]);

const RULES: [Rule; 21] = [
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
    ("router", [Module::Route; 2], [Cut::Whole; 2]),
    ("experts.fc1", [Module::Experts; 2], [Cut::Even(0); 2]),
    ("experts.gate", [Module::Experts; 2], [Cut::Even(0); 2]),
    ("experts.up", [Module::Experts; 2], [Cut::Even(0); 2]),
    ("experts.fc2", [Module::Experts; 2], [Cut::Even(1); 2]),
    ("experts.down", [Module::Experts; 2], [Cut::Even(1); 2]),
    ("embedding.tokens", [Module::Tokens; 2], [Cut::Vocabulary; 2]),
    ("embedding.positions", [Module::Positions; 2], [Cut::Whole; 2]),
    ("head.norm", [Module::FinalNorm; 2], [Cut::Whole; 2]),
    ("head.logits", [Module::Logits; 2], [Cut::Vocabulary; 2]),
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
    /// All modules: those of a layer in forward order, of the embedding, of the head.
    pub const ALL: [Self; 18] = [
        Self::Norm1,
        Self::Qkv,
        Self::Attention,
        Self::Projection,
        Self::Add1,
        Self::Norm2,
        Self::Up,
        Self::Down,
        Self::Route,
        Self::Dispatch,
        Self::Experts,
        Self::Combine,
        Self::Add2,
        Self::Tokens,
        Self::Positions,
        Self::FinalNorm,
        Self::Logits,
        Self::Loss,
    ];

    /// How many of them are products.
    pub const PRODUCTS: u32 = 4;

    /// Its name in ops and parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; Module::ALL.len()] = [
            "norm1",
            "attn.qkv",
            "attn.core",
            "attn.proj",
            "add1",
            "norm2",
            "mlp.up",
            "mlp.down",
            "router",
            "dispatch",
            "experts",
            "combine",
            "add2",
            "tokens",
            "positions",
            "norm",
            "logits",
            "loss",
        ];
        NAMES[self as usize]
    }

    /// The module of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|module| module.name() == name)
    }

    /// The module that adds the bias of this one's product, behind the ranks' sum.
    #[must_use]
    pub fn adds_its_bias(self) -> Option<Self> {
        match self {
            Self::Projection => Some(Self::Add1),
            Self::Down => Some(Self::Add2),
            _ => None,
        }
    }

    /// The part that it is a piece of; of those of a layer, the block `layer`.
    #[must_use]
    pub fn part(self, layer: u32) -> Part {
        match self {
            Self::Tokens | Self::Positions => Part::Embedding,
            Self::FinalNorm | Self::Logits | Self::Loss => Part::Head,
            _ => Part::Block(layer),
        }
    }

    /// Whether it is of a mixture of experts.
    #[must_use]
    pub fn is_of_experts(self) -> bool {
        matches!(self, Self::Route | Self::Dispatch | Self::Experts | Self::Combine)
    }

    /// Whether it is of the feed-forward that all tokens go through.
    #[must_use]
    pub fn is_of_feed_forward(self) -> bool {
        matches!(self, Self::Up | Self::Down)
    }

    /// Whether it normalises rows.
    #[must_use]
    pub fn is_norm(self) -> bool {
        matches!(self, Self::Norm1 | Self::Norm2 | Self::FinalNorm)
    }

    /// Whether it works on the residual stream, token by token, where every rank has all columns.
    #[must_use]
    pub fn is_of_stream(self) -> bool {
        self.is_norm() || matches!(self, Self::Add1 | Self::Add2 | Self::Positions)
    }

    /// Whether it is a product with a weight: the four of them share a layer's time under unit costs.
    #[must_use]
    pub fn is_product(self) -> bool {
        matches!(self, Self::Qkv | Self::Projection | Self::Up | Self::Down)
    }
}

impl Part {
    /// The embedding, block or head that it is, or is a piece of.
    #[must_use]
    pub fn whole(self) -> Self {
        match self {
            Self::Module(layer, module) => module.part(layer),
            part => part,
        }
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
            Module::Logits => self.vocabulary(model).1,
            _ => model.hidden,
        }
    }

    /// The first token of this rank's share of the vocabulary, and how many it has room for: the last ranks' may reach or lie beyond the end.
    #[must_use]
    pub fn vocabulary(self, model: &Model) -> (usize, usize) {
        let share = model.vocab.div_ceil(self.ranks);
        (self.place * share, share)
    }

    /// Where the share of this rank begins among `whole` of something, and how long it is. Several ranks share one where there are fewer.
    fn share(self, whole: usize) -> (usize, usize) {
        ((self.place * whole) / self.ranks, (whole / self.ranks).max(1))
    }
}

impl Model {
    /// The modules of `part`, in forward order.
    pub fn modules_of(&self, part: Part) -> impl Iterator<Item = Module> + use<> {
        let layer = if let Part::Block(layer) = part { layer } else { 0 };
        let left_out = if self.has_experts() { Module::is_of_feed_forward } else { Module::is_of_experts };
        Module::ALL.into_iter().filter(move |module| module.part(layer) == part && !left_out(*module))
    }

    /// What the rank at `split` holds of the parameters of `part`, in registration order. A fused matrix of queries, keys and values is three
    /// slices: each has its own heads.
    #[must_use]
    pub fn slices_of(&self, part: Part, split: Split) -> Vec<Parameter> {
        if let Part::Module(layer, module) = part {
            // A tied head makes logits with the embedding's weight.
            let module = if module == Module::Logits && self.tied { Module::Tokens } else { module };
            let mut all = self.slices_of(module.part(layer), split);
            all.retain(|parameter| self.module_of(parameter) == Some(module));
            return all;
        }
        let all = self.parameters_of(part);
        if split.ranks == 1 {
            return all;
        }
        all.into_iter().flat_map(|parameter| self.cut(parameter, split)).collect()
    }

    /// What the rank at `split` takes for a module of `layer`. As a fault, `bias_before_sum` gives the bias behind a sum to the product before it.
    #[must_use]
    pub fn taken_by(&self, layer: u32, module: Module, split: Split, bias_before_sum: bool) -> Vec<Parameter> {
        let of = |module| self.slices_of(Part::Module(layer, module), split);
        match module {
            Module::Add1 | Module::Add2 if bias_before_sum => Vec::new(),
            _ => match module.adds_its_bias() {
                Some(add) if bias_before_sum => [of(module), of(add)].concat(),
                _ => of(module),
            },
        }
    }

    /// The module that takes `parameter`.
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
            Cut::Vocabulary => {
                let (start, length) = split.vocabulary(self);
                (0, start, length)
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
    // All experts are cut alike.
    let of_experts = parameter.expert().and_then(|_| layer.rsplit_once('.')).map(|(_, matrix)| format!("experts.{matrix}"));
    let layer = of_experts.as_deref().unwrap_or(layer);
    RULES.iter().find(|(name, ..)| *name == layer).map(|rule| (rule, usize::from(kind == "bias")))
}

impl Parameter {
    /// The layer that it belongs to, `attn.proj` of any block or `head.logits`, and what it is there: `weight` or `bias`.
    fn layer_and_kind(&self) -> Option<(&str, &str)> {
        let name = self.name.as_str();
        let inside = name.strip_prefix("blocks.").map_or(Some(name), |inside| inside.split_once('.').map(|(_, inside)| inside));
        inside?.rsplit_once('.')
    }

    /// Elements of it that lie beyond the end of the tensor that it is a slice of.
    #[must_use]
    pub fn padding(&self) -> usize {
        let Some(Slice { dim, start, of }) = self.slice else { return 0 };
        let beyond = (start + self.dims[dim]).saturating_sub(of).min(self.dims[dim]);
        self.elements() / self.dims[dim].max(1) * beyond
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
pub(in crate::base) mod tests {
    use super::*;
    use crate::base::mixture::tests::mixture;
    use crate::base::settings::{Activation, Bias, Norm, Positions};

    pub(in crate::base) const MODEL: Model = Model {
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
        experts: None,
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
        let experts = mixture(vec![1; 4], 0.0);
        for model in [MODEL, grouped] {
            let model = Model { experts: Some(experts.clone()), kv_heads: 6, ..model };
            check(&model, 2, |name| if whole(name) || name.ends_with("router.weight") { 2 } else { 1 });
        }
    }

    #[test]
    fn every_parameter_has_a_module() {
        let experts = mixture(vec![1; 3], 0.0);
        let separate = Model { fused_qkv: false, activation: Activation::Swiglu, ..MODEL };
        for model in [
            MODEL,
            separate.clone(),
            Model { experts: Some(experts.clone()), ..MODEL },
            Model { experts: Some(experts), ..separate },
        ] {
            for ranks in [1, 3] {
                let split = Split { ranks, place: ranks - 1 };
                for part in [Part::Embedding, Part::Block(0), Part::Head] {
                    let by_module: usize =
                        model.modules_of(part).map(|module| model.slices_of(Part::Module(0, module), split).len()).sum();
                    assert_eq!(by_module, model.slices_of(part, split).len());
                }
            }
        }
    }
}
