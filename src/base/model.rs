//! The transformer's shape, and from it the list of its parameters in registration order.
//!
//! Shape letters, here and in the kernels: b micro-batch size, t sequence, h hidden, n heads, d head size, f feed-forward, v vocabulary.
//! Linear weights are `[out, in]`, as in `torch.nn.Linear`: y = x W^T + bias.

use serde::{Deserialize, Serialize};

use super::mixture::Mixture;
use super::module::Module;
pub use super::settings::{Activation, Bias, Norm, Positions};
use super::split::{Slice, Split};

/// A decoder-only transformer: everything that its parameters, FLOPs and saved tensors depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads; divides `hidden`.
    pub heads: usize,
    /// Key and value heads (grouped-query attention); divides `heads`.
    pub kv_heads: usize,
    /// Tokens in a sequence.
    pub sequence: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// The feed-forward's non-linearity.
    pub activation: Activation,
    /// The normalisation before attention, before the feed-forward, and before the head.
    pub norm: Norm,
    /// How a token knows its place.
    pub positions: Positions,
    /// Which linear layers and norms have a bias.
    pub bias: Bias,
    /// One matrix for queries, keys and values (GPT-2), or three (LLaMA).
    pub fused_qkv: bool,
    /// The head shares the token embedding's weight.
    pub tied: bool,
    /// Probability of dropping an element.
    pub dropout: f64,
    /// Experts in the place of every layer's feed-forward, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Mixture>,
}

/// One parameter tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Full name, such as `blocks.3.attn.qkv.weight`.
    pub name: String,
    /// The part of the model that it belongs to.
    pub part: Part,
    /// Shape.
    pub dims: Vec<usize>,
    /// How it starts.
    pub init: Init,
    /// Where it stands in the tensor of this name, if ranks hold slices of it.
    pub slice: Option<Slice>,
}

/// A part of the model: what one compute op works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Token (and learned position) embedding.
    Embedding,
    /// Block `0..layers`.
    Block(u32),
    /// A module of such a block, or of the embedding or the head with number 0, where ranks meet inside them.
    Module(u32, Module),
    /// Final norm, logits and cross-entropy.
    Head,
}

/// How a parameter starts; the values depend on the scenario's seed, the parameter's name and the element's index alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
}

impl Parameter {
    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

impl Model {
    /// Size of one head.
    #[must_use]
    pub fn head_size(&self) -> usize {
        self.hidden / self.heads
    }

    /// Rows of the query, key and value projections together: `(heads + 2 kv_heads) d`.
    #[must_use]
    pub fn qkv_rows(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_size()
    }

    /// Why there is no such model, if its numbers came from outside: a size out of range, or heads that do not divide.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        let sizes = [
            ("layers", self.layers, 10_000),
            ("hidden", self.hidden, 1 << 20),
            ("heads", self.heads, 1 << 16),
            ("kv_heads", self.kv_heads, 1 << 16),
            ("sequence", self.sequence, 1 << 24),
            ("vocab", self.vocab, 1 << 24),
            ("ffn", self.ffn, 1 << 22),
        ];
        if let Some((name, size, most)) = sizes.into_iter().find(|(_, size, most)| !(1..=*most).contains(size)) {
            return Some(format!("{name} = {size} is not between 1 and {most}"));
        }
        let divides = |[(name, whole), (by, part)]: [(&str, usize); 2]| {
            (!whole.is_multiple_of(part)).then(|| format!("{name} = {whole} is not a multiple of {by} = {part}"))
        };
        let heads = divides([("hidden", self.hidden), ("heads", self.heads)]);
        let pairs = || divides([("heads", self.heads), ("kv_heads", self.kv_heads)]);
        let is_probability = (0.0..1.0).contains(&self.dropout);
        heads
            .or_else(pairs)
            .or_else(|| (!is_probability).then(|| format!("dropout = {} is no probability below 1", self.dropout)))
            .or_else(|| self.experts.as_ref().and_then(Mixture::flaw))
    }

    /// All parameters in registration order: embedding, blocks, head.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        self.parts().flat_map(|part| self.parameters_of(part)).collect()
    }

    /// The parts in forward order.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let blocks = (0..self.layers).map(|layer| Part::Block(u32::try_from(layer).expect("fewer than 2^32 layers")));
        std::iter::once(Part::Embedding).chain(blocks).chain(std::iter::once(Part::Head))
    }

    /// Number of parameters of the whole model.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.parameters().iter().map(Parameter::elements).sum()
    }

    /// The parameters of one part, in registration order. The kernels take them in this order.
    #[must_use]
    pub fn parameters_of(&self, part: Part) -> Vec<Parameter> {
        let mut list = List { part, prefix: prefix(part), parameters: Vec::new() };
        match part {
            Part::Embedding => self.embedding(&mut list),
            Part::Block(_) => self.block(&mut list),
            Part::Module(..) => return self.slices_of(part, Split::NONE),
            Part::Head => self.head(&mut list),
        }
        list.parameters
    }

    fn embedding(&self, list: &mut List) {
        list.add("tokens.weight", &[self.vocab, self.hidden], Init::Normal(0.02));
        if self.positions == Positions::Learned {
            list.add("positions.weight", &[self.sequence, self.hidden], Init::Normal(0.02));
        }
    }

    fn block(&self, list: &mut List) {
        let (h, d) = (self.hidden, self.head_size());
        self.norm(list, "norm1");
        let qkv_bias = self.bias == Bias::All;
        if self.fused_qkv {
            list.linear("attn.qkv", self.qkv_rows(), h, qkv_bias, Init::Normal(0.02));
        } else {
            list.linear("attn.q", self.heads * d, h, qkv_bias, Init::Normal(0.02));
            list.linear("attn.k", self.kv_heads * d, h, qkv_bias, Init::Normal(0.02));
            list.linear("attn.v", self.kv_heads * d, h, qkv_bias, Init::Normal(0.02));
        }
        let bias = self.bias != Bias::None;
        list.linear("attn.proj", h, self.heads * d, bias, self.residual_init());
        self.norm(list, "norm2");
        let Some(experts) = &self.experts else { return self.feed_forward(list, "mlp", bias) };
        list.add("router.weight", &[experts.count, h], Init::Normal(0.02));
        // As in Mixtral, no expert has a bias.
        (0..experts.count).for_each(|expert| self.feed_forward(list, &format!("experts.{expert}"), false));
    }

    fn feed_forward(&self, list: &mut List, name: &str, bias: bool) {
        let (h, f, init) = (self.hidden, self.ffn, Init::Normal(0.02));
        let down = match self.activation {
            Activation::Gelu => {
                list.linear(&format!("{name}.fc1"), f, h, bias, init);
                "fc2"
            }
            Activation::Swiglu => {
                list.linear(&format!("{name}.gate"), f, h, bias, init);
                list.linear(&format!("{name}.up"), f, h, bias, init);
                "down"
            }
        };
        list.linear(&format!("{name}.{down}"), h, f, bias, self.residual_init());
    }

    fn head(&self, list: &mut List) {
        self.norm(list, "norm");
        if !self.tied {
            list.add("logits.weight", &[self.vocab, self.hidden], Init::Normal(0.02));
        }
    }

    fn norm(&self, list: &mut List, name: &str) {
        list.add(&format!("{name}.weight"), &[self.hidden], Init::Ones);
        if self.norm == Norm::Layer && self.bias != Bias::None {
            list.add(&format!("{name}.bias"), &[self.hidden], Init::Zeros);
        }
    }

    /// GPT-2 scales the layers that write to the residual stream by 1/sqrt(2 layers).
    #[expect(clippy::cast_precision_loss, reason = "a number of layers")]
    fn residual_init(&self) -> Init {
        Init::Normal(0.02 / (2.0 * self.layers as f64).sqrt())
    }
}

struct List {
    part: Part,
    prefix: String,
    parameters: Vec<Parameter>,
}

impl List {
    fn add(&mut self, name: &str, dims: &[usize], init: Init) {
        let name = format!("{}.{name}", self.prefix);
        self.parameters.push(Parameter { name, part: self.part, dims: dims.to_vec(), init, slice: None });
    }

    fn linear(&mut self, name: &str, rows: usize, columns: usize, bias: bool, init: Init) {
        self.add(&format!("{name}.weight"), &[rows, columns], init);
        if bias {
            self.add(&format!("{name}.bias"), &[rows], Init::Zeros);
        }
    }
}

fn prefix(part: Part) -> String {
    match part {
        Part::Embedding => "embedding".to_owned(),
        Part::Block(layer) => format!("blocks.{layer}"),
        Part::Module(layer, module) => prefix(module.part(layer)),
        Part::Head => "head".to_owned(),
    }
}

/// A piece of every sequence of a micro-batch: number `place` of `of` equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 0.
    pub place: usize,
    /// How many there are.
    pub of: usize,
}

impl Segment {
    /// The whole sequence.
    pub const WHOLE: Self = Self { place: 0, of: 1 };

    /// Tokens of a segment of `model`.
    #[must_use]
    pub fn tokens(self, model: &Model) -> usize {
        model.sequence / self.of
    }

    /// Tokens before it.
    #[must_use]
    pub fn before(self, model: &Model) -> usize {
        self.place * self.tokens(model)
    }

    /// Tokens up to its end: those that its last token sees.
    #[must_use]
    pub fn end(self, model: &Model) -> usize {
        self.before(model) + self.tokens(model)
    }

    /// The model as far as all but attention and positions are concerned: one with short sequences.
    #[must_use]
    pub fn cut(self, model: &Model) -> Model {
        Model { sequence: self.tokens(model), ..model.clone() }
    }
}
