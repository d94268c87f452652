//! Modules: the pieces of the model between which tensor-parallel ranks meet.

use std::fmt;

use super::model::{Model, Part};

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

impl Model {
    /// The modules of `part`, in forward order.
    pub fn modules_of(&self, part: Part) -> impl Iterator<Item = Module> + use<> {
        let layer = if let Part::Block(layer) = part { layer } else { 0 };
        let left_out = if self.has_experts() { Module::is_of_feed_forward } else { Module::is_of_experts };
        Module::ALL.into_iter().filter(move |module| module.part(layer) == part && !left_out(*module))
    }
}
