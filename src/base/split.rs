//! Splits: the slices of a layer's parameters that each of the ranks that share it holds, and what they owe each other.
//!
//! Megatron's cut of a layer: the first product of each half is cut by its outputs (column parallel), the second by its inputs (row parallel), so
//! that a half needs one sum over the ranks forward and one backward. Attention is cut by heads: its core needs no other rank.
//! Source: Shoeybi et al. 2019, "Megatron-LM: training multi-billion parameter language models using model parallelism", arXiv 1909.08053.
//!
//! The feed-forward's matrices may be cut otherwise. A matrix that is cut by its outputs makes columns, and parts of the sum that its input's
//! gradient is; one that is cut by its inputs makes parts of a sum, and columns of that gradient. What has to happen follows from what there
//! is and what is needed next ([`Seam`]).

use super::model::{Model, Parameter, Part};
use super::module::Module;
use super::saved;
use super::settings::FeedForwardSplit;

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
type Rule = (&'static str, Place);

/// Where a weight and its bias belong, and how they are cut.
type Place = ([Module; 2], [Cut; 2]);

const RULES: [Rule; 16] = [
    ("norm1", ([Module::Norm1; 2], [Cut::Whole; 2])),
    ("attn.q", ([Module::Qkv; 2], [Cut::Heads(0); 2])),
    ("attn.k", ([Module::Qkv; 2], [Cut::KvHeads(0); 2])),
    ("attn.v", ([Module::Qkv; 2], [Cut::KvHeads(0); 2])),
    ("attn.proj", ([Module::Projection, Module::Add1], [Cut::Heads(1), Cut::Whole])),
    ("norm2", ([Module::Norm2; 2], [Cut::Whole; 2])),
    ("router", ([Module::Route; 2], [Cut::Whole; 2])),
    ("experts.fc1", ([Module::Experts; 2], [Cut::Even(0); 2])),
    ("experts.gate", ([Module::Experts; 2], [Cut::Even(0); 2])),
    ("experts.up", ([Module::Experts; 2], [Cut::Even(0); 2])),
    ("experts.fc2", ([Module::Experts; 2], [Cut::Even(1); 2])),
    ("experts.down", ([Module::Experts; 2], [Cut::Even(1); 2])),
    ("embedding.tokens", ([Module::Tokens; 2], [Cut::Vocabulary; 2])),
    ("embedding.positions", ([Module::Positions; 2], [Cut::Whole; 2])),
    ("head.norm", ([Module::FinalNorm; 2], [Cut::Whole; 2])),
    ("head.logits", ([Module::Logits; 2], [Cut::Vocabulary; 2])),
];

/// How a matrix `[outputs,inputs]` is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Column parallel: each rank makes its own columns of the output, and has the bias of those.
    Outputs,
    /// Row parallel: each rank makes a part of the sum, behind which the whole bias is added.
    Inputs,
}

impl FeedForwardSplit {
    /// How the first and the second matrix are cut.
    fn matrices(self) -> [By; 2] {
        match self {
            Self::ColRow => [By::Outputs, By::Inputs],
            Self::RowCol => [By::Inputs, By::Outputs],
            Self::ColCol => [By::Outputs, By::Outputs],
        }
    }

    /// Where the matrices of the feed-forward belong, and their biases; `None` for other layers.
    fn place(self, layer: &str) -> Option<Place> {
        let [first, second] = self.matrices();
        let (by, product, behind) = match layer {
            "mlp.fc1" | "mlp.gate" | "mlp.up" => (first, Module::Up, Module::Down),
            "mlp.fc2" | "mlp.down" => (second, Module::Down, Module::Add2),
            _ => return None,
        };
        Some(match by {
            By::Outputs => ([product; 2], [Cut::Even(0); 2]),
            By::Inputs => ([product, behind], [Cut::Even(1), Cut::Whole]),
        })
    }
}

/// What the ranks that share a layer do with a value that each of them has a part of, before the next of them is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seam {
    /// Nothing: each has what it needs.
    None,
    /// They add up their parts: an all-reduce.
    Sum,
    /// They bring their columns together: an all-gather.
    Columns,
    /// They add up their parts, and each takes its own columns: a reduce-scatter.
    ColumnsOfSum,
}

impl Seam {
    /// Where each rank has a part of a sum, or else its own columns, and needs its own columns or else all.
    fn of(is_sum: bool, is_own_needed: bool) -> Self {
        match (is_sum, is_own_needed) {
            (true, false) => Self::Sum,
            (true, true) => Self::ColumnsOfSum,
            (false, false) => Self::Columns,
            (false, true) => Self::None,
        }
    }
}

/// One of several ranks that share the tensors of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// How many they are.
    pub ranks: usize,
    /// The place of this one.
    pub place: usize,
    /// How they cut the feed-forward.
    pub feed_forward: FeedForwardSplit,
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

impl Split {
    /// A rank that shares nothing.
    pub const NONE: Self = Self { ranks: 1, place: 0, feed_forward: FeedForwardSplit::ColRow };

    /// Of all the places of these ranks.
    pub fn places(self) -> impl Iterator<Item = Self> {
        (0..self.ranks).map(move |place| Self { place, ..self })
    }

    /// What the ranks do with what `module` makes forward.
    #[must_use]
    pub fn behind(self, module: Module) -> Seam {
        let [first, second] = self.feed_forward.matrices();
        match module {
            _ if self.ranks == 1 => Seam::None,
            Module::Projection => Seam::Sum,
            Module::Up => Seam::of(first == By::Inputs, second == By::Inputs),
            Module::Down => Seam::of(second == By::Inputs, false),
            _ => Seam::None,
        }
    }

    /// What they do with the gradient of what `module` makes.
    #[must_use]
    pub fn behind_gradient(self, module: Module) -> Seam {
        let [first, second] = self.feed_forward.matrices();
        match module {
            _ if self.ranks == 1 => Seam::None,
            Module::Norm1 => Seam::Sum,
            Module::Norm2 => Seam::of(first == By::Outputs, false),
            Module::Up => Seam::of(second == By::Outputs, first == By::Outputs),
            _ => Seam::None,
        }
    }

    /// Whether a product of the feed-forward takes its own columns of what every rank has whole: the first of its input, the second of the
    /// gradient of its output.
    #[must_use]
    pub fn takes_columns(self, module: Module) -> bool {
        let [first, second] = self.feed_forward.matrices();
        match module {
            Module::Up => first == By::Inputs,
            Module::Down => second == By::Outputs,
            _ => false,
        }
    }

    /// Columns of the non-linearity's output that the second product takes on this rank; and how many of them lie side by side as one device
    /// has them, gate beside up.
    #[must_use]
    pub fn activated(self, model: &Model) -> [usize; 2] {
        let share = |is_shared: bool| model.ffn / if is_shared { self.ranks } else { 1 };
        let [first, second] = self.feed_forward.matrices();
        [share(second == By::Inputs), share(first == By::Outputs)]
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
            Module::Up => self.activated(model)[1] * saved::ffn_input_width(model) / model.ffn,
            Module::Down if self.takes_columns(module) => model.hidden / self.ranks,
            Module::Logits => self.vocabulary(model).1,
            _ => model.hidden,
        }
    }

    /// Columns of the gradient of what `module` takes.
    #[must_use]
    pub fn input_width(self, model: &Model, module: Module) -> usize {
        match module {
            Module::Up if self.takes_columns(module) => model.hidden / self.ranks,
            Module::Down => self.activated(model)[0] * saved::ffn_input_width(model) / model.ffn,
            Module::Projection => self.width(model, Module::Attention),
            Module::Attention => self.width(model, Module::Qkv),
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
    /// What the rank at `split` holds of the parameters of `part`, in registration order. A fused matrix of queries, keys and values is three
    /// slices: each has its own heads.
    #[must_use]
    pub fn slices_of(&self, part: Part, split: Split) -> Vec<Parameter> {
        if let Part::Module(layer, module) = part {
            return self.taken_by(layer, module, split, false);
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
        // A tied head makes logits with the embedding's weight.
        let module = if module == Module::Logits && self.tied { Module::Tokens } else { module };
        let mut all = self.slices_of(module.part(layer), split);
        all.retain(|parameter| {
            let modules = parameter.modules(split);
            modules.is_some_and(|modules| modules[usize::from(parameter.is_bias() && !bias_before_sum)] == module)
        });
        all
    }

    fn cut(&self, parameter: Parameter, split: Split) -> Vec<Parameter> {
        let d = self.head_size();
        if parameter.layer_and_kind().is_some_and(|(layer, _)| layer == FUSED) {
            let cuts = [(0, Cut::Heads(0)), (self.heads, Cut::KvHeads(0)), (self.heads + self.kv_heads, Cut::KvHeads(0))];
            return cuts.into_iter().map(|(heads, cut)| self.slice(parameter.clone(), cut, heads * d, split)).collect();
        }
        let cut = place(&parameter, split).map_or(Cut::Whole, |(_, cuts)| cuts[usize::from(parameter.is_bias())]);
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

/// Where the layer of a parameter belongs, and how it is cut.
fn place(parameter: &Parameter, split: Split) -> Option<Place> {
    let (layer, _) = parameter.layer_and_kind()?;
    // All experts are cut alike.
    let of_experts = parameter.expert().and_then(|_| layer.rsplit_once('.')).map(|(_, matrix)| format!("experts.{matrix}"));
    let layer = of_experts.as_deref().unwrap_or(layer);
    let rule = || RULES.iter().find(|(name, _)| *name == layer).map(|&(_, place)| place);
    split.feed_forward.place(layer).or_else(rule)
}

impl Parameter {
    /// The layer that it belongs to, `attn.proj` of any block or `head.logits`, and what it is there: `weight` or `bias`.
    fn layer_and_kind(&self) -> Option<(&str, &str)> {
        let name = self.name.as_str();
        let inside = name.strip_prefix("blocks.").map_or(Some(name), |inside| inside.split_once('.').map(|(_, inside)| inside));
        inside?.rsplit_once('.')
    }

    /// The module that takes it.
    #[must_use]
    pub fn module(&self, split: Split) -> Option<Module> {
        self.modules(split).map(|modules| modules[usize::from(self.is_bias())])
    }

    /// The modules that take the weight and the bias of its layer.
    fn modules(&self, split: Split) -> Option<[Module; 2]> {
        if self.layer_and_kind().is_some_and(|(layer, _)| layer == FUSED) {
            return Some([Module::Qkv; 2]);
        }
        place(self, split).map(|(modules, _)| modules)
    }

    /// Whether it is the bias of its layer, not the weight.
    fn is_bias(&self) -> bool {
        self.layer_and_kind().is_some_and(|(_, kind)| kind == "bias")
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

    fn of(ranks: usize, feed_forward: FeedForwardSplit) -> Split {
        Split { ranks, place: 0, feed_forward }
    }

    /// How often the slices of all ranks cover each element of every parameter of a block.
    fn check(model: &Model, split: Split, expected: impl Fn(&str) -> usize) {
        for whole in model.parameters_of(Part::Block(1)) {
            let mut covered = vec![0; whole.elements()];
            for split in split.places() {
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
            assert!(covered.iter().all(|&times| times == expected(&whole.name)), "{} on {split:?}: {covered:?}", whole.name);
        }
    }

    #[test]
    fn slices_cover_every_tensor() {
        for (split, behind_sum) in [
            (FeedForwardSplit::ColRow, "fc2.bias"),
            (FeedForwardSplit::RowCol, "fc1.bias"),
            (FeedForwardSplit::ColCol, "no bias"),
        ] {
            let whole = |name: &str| name.contains("norm") || name.ends_with("proj.bias") || name.ends_with(behind_sum);
            for ranks in [2, 3, 6] {
                check(&MODEL, of(ranks, split), |name| if whole(name) { ranks } else { 1 });
            }
            let grouped = Model { kv_heads: 2, fused_qkv: false, activation: Activation::Swiglu, bias: Bias::None, ..MODEL };
            let is_kv = |name: &str| name.contains("attn.k") || name.contains("attn.v");
            check(&grouped, of(6, split), |name| match name {
                _ if whole(name) => 6,
                _ if is_kv(name) => 3,
                _ => 1,
            });
            check(&grouped, of(2, split), |name| if whole(name) { 2 } else { 1 });
        }
        let experts = mixture(vec![1; 4], 0.0);
        let grouped = Model { fused_qkv: false, activation: Activation::Swiglu, bias: Bias::None, ..MODEL };
        let whole = |name: &str| name.contains("norm") || name.ends_with("proj.bias") || name.ends_with("router.weight");
        for model in [MODEL, grouped] {
            let model = Model { experts: Some(experts.clone()), ..model };
            check(&model, of(2, FeedForwardSplit::ColRow), |name| if whole(name) { 2 } else { 1 });
        }
    }

    /// What is left to do between products: of a sum the sum, of columns all of them, but for what the next one takes by columns.
    #[test]
    fn seams_follow_from_cuts() {
        use Seam::{Columns, ColumnsOfSum, None, Sum};
        for (split, forward, backward) in [
            (FeedForwardSplit::ColRow, [None, Sum], [None, Sum]),
            (FeedForwardSplit::RowCol, [Sum, Columns], [Sum, Columns]),
            (FeedForwardSplit::ColCol, [Columns, Columns], [ColumnsOfSum, Sum]),
        ] {
            let (split, alone) = (of(3, split), of(1, split));
            assert_eq!([Module::Up, Module::Down].map(|module| split.behind(module)), forward);
            assert_eq!([Module::Up, Module::Norm2].map(|module| split.behind_gradient(module)), backward);
            assert!(Module::ALL.iter().all(|&module| [alone.behind(module), alone.behind_gradient(module)] == [None; 2]));
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
            let splits = FeedForwardSplit::ALL.iter().map(|&split| Split { place: 2, ..of(3, split) });
            for split in splits.chain([Split::NONE]) {
                for part in [Part::Embedding, Part::Block(0), Part::Head] {
                    let by_module: usize =
                        model.modules_of(part).map(|module| model.slices_of(Part::Module(0, module), split).len()).sum();
                    assert_eq!(by_module, model.slices_of(part, split).len());
                }
            }
        }
    }
}
