//! Names: what buffers hold, and how that is written.

use std::fmt;

use super::op::Role;
use crate::base::ParameterId;
use crate::base::context::HeadShare;
use crate::base::module::Module;
use crate::base::settings::{AttentionTensor, ExpertTensor};

/// What a buffer holds. A name is unique on its rank; micro-batches are numbered through all steps and data-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Input tokens of a micro-batch.
    Tokens(u32),
    /// Next tokens of a micro-batch.
    Targets(u32),
    /// Mean loss of a micro-batch.
    Loss(u32),
    /// Activation: `boundary` 0 leaves the embedding, `boundary` l leaves block l-1.
    Activation(u32, u32),
    /// Gradient of the loss by that activation.
    ActivationGradient(u32, u32),
    /// What part `0..` (embedding, blocks, head) keeps from forward for backward.
    Saved(u32, u32),
    /// What a part keeps from backward-for-input for backward-for-weights.
    Deferred(u32, u32),
    /// A parameter.
    Parameter(ParameterId),
    /// Its gradient.
    Gradient(ParameterId),
    /// Its gradient of one micro-batch, that ranks have not summed yet.
    Unreduced(ParameterId),
    /// The optimizer's first moment.
    FirstMoment(ParameterId),
    /// The optimizer's second moment.
    SecondMoment(ParameterId),
    /// The optimizer's copy of a parameter in full precision.
    Master(ParameterId),
    /// A shard of a unit's parameters: unit, place of the shard. The unit's tensors lie flat behind each other, with zeros at the end.
    Shard(u32, u32),
    /// The same shard of their gradients.
    GradientShard(u32, u32),
    /// The same shard of their gradients of one micro-batch.
    Reduced(u32, u32),
    /// The same shard of the first moments.
    FirstMomentShard(u32, u32),
    /// The same shard of the second moments.
    SecondMomentShard(u32, u32),
    /// The same shard of the copies in full precision.
    MasterShard(u32, u32),
    /// A shard of a unit's parameters between forward and backward, cut among fewer ranks: unit, place of the shard.
    Near(u32, u32),
    /// What part `0..` did not keep from forward for backward, computed again.
    Recomputed(u32, u32),
    /// Where the random numbers of a part stood in forward, so that what is computed again drops the same elements.
    RandomState(u32, u32),
    /// What a parameter was before so many updates and one more: its weights from when a micro-batch went forward.
    Version(u32, u32),
    /// With segments: what later segments have left as the gradient of a part's keys and values before this one.
    KeyValueGradient(u32, u32),
    /// A chunk of a bare collective's payload.
    Chunk(u32),
    /// A piece of an expanded collective: collective, chunk.
    Piece(u32, u32),
    /// A tensor of an attention layer, of one slice of the sequence.
    Attention(AttentionTensor, u32),
    /// The same with some of the heads: those of the rank.
    Heads(AttentionTensor, u32),
    /// A tensor of a mixture of experts: of what travels, to or from this rank; else the rank's own.
    Expert(ExpertTensor, u32),
    /// A value inside a part that is cut into modules: which, layer, micro-batch.
    Inside(Inside, u32, u32),
    /// A tensor of attention inside a training step whose sequences are cut into slices, with all heads or some of them: the layer's slice
    /// (numbered through all layers), micro-batch.
    Context(AttentionTensor, HeadShare, u32, u32),
}

/// A value inside a part that is cut into modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inside {
    /// What it is to its module.
    pub flow: Flow,
    /// The module.
    pub module: Module,
}

/// What a value inside a part is to its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    /// What it makes.
    Output,
    /// The gradient of the loss by that.
    OutputGradient,
    /// What it makes behind the ranks' meeting: the rank's own tokens of a sum, or what the ranks gathered.
    Tokens,
    /// The same of that gradient.
    TokensGradient,
    /// What it keeps from forward for backward.
    Saved,
    /// What it keeps from backward-for-input for backward-for-weights.
    Deferred,
}

impl Flow {
    /// All of them, with what stands before the module's word in program texts.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Output, ""),
        (Self::OutputGradient, "d-"),
        (Self::Tokens, "tokens-"),
        (Self::TokensGradient, "d-tokens-"),
        (Self::Saved, "saved-"),
        (Self::Deferred, "deferred-"),
    ];

    /// Whether it is what ranks have met for.
    #[must_use]
    pub fn is_met(self) -> bool {
        matches!(self, Self::Tokens | Self::TokensGradient)
    }
}

/// The modules' words in program texts: a number follows, so they end in none.
const MODULES: [&str; Module::ALL.len()] = [
    "norm-a", "qkv", "core", "proj", "add-a", "norm-b", "up", "down", "route", "dispatch", "expert", "combine", "add-b", "tok",
    "pos", "norm-c", "logits", "ce",
];

/// A kind of name in program texts: its prefix, how it is made of its two numbers, and whether it has the second: a micro-batch, a shard or a
/// chunk.
type NameText = (&'static str, fn(u32, u32) -> Name, bool);

/// The one description for printing and parsing names.
const NAMES: [NameText; 63] = [
    ("tokens", |_, m| Name::Tokens(m), true),
    ("targets", |_, m| Name::Targets(m), true),
    ("loss", |_, m| Name::Loss(m), true),
    ("x", Name::Activation, true),
    ("dx", Name::ActivationGradient, true),
    ("saved", Name::Saved, true),
    ("deferred", Name::Deferred, true),
    ("p", |p, _| Name::Parameter(ParameterId(p)), false),
    ("grad", |p, _| Name::Gradient(ParameterId(p)), false),
    ("m", |p, _| Name::FirstMoment(ParameterId(p)), false),
    ("v", |p, _| Name::SecondMoment(ParameterId(p)), false),
    ("chunk", |c, _| Name::Chunk(c), false),
    ("piece", Name::Piece, true),
    ("ugrad", |p, _| Name::Unreduced(ParameterId(p)), false),
    ("master", |p, _| Name::Master(ParameterId(p)), false),
    ("shard", Name::Shard, true),
    ("gradshard", Name::GradientShard, true),
    ("reduced", Name::Reduced, true),
    ("mshard", Name::FirstMomentShard, true),
    ("vshard", Name::SecondMomentShard, true),
    ("mastershard", Name::MasterShard, true),
    ("recomputed", Name::Recomputed, true),
    ("near", Name::Near, true),
    ("random", Name::RandomState, true),
    ("q", |slice, _| Name::Attention(AttentionTensor::Query, slice), false),
    ("kv", |slice, _| Name::Attention(AttentionTensor::KeyValue, slice), false),
    ("state", |slice, _| Name::Attention(AttentionTensor::State, slice), false),
    ("out", |slice, _| Name::Attention(AttentionTensor::Output, slice), false),
    ("dout", |slice, _| Name::Attention(AttentionTensor::OutputGradient, slice), false),
    ("dq", |slice, _| Name::Attention(AttentionTensor::QueryGradient, slice), false),
    ("dkv", |slice, _| Name::Attention(AttentionTensor::KeyValueGradient, slice), false),
    ("part", |slice, _| Name::Attention(AttentionTensor::KeyValuePart, slice), false),
    ("hq", |slice, _| Name::Heads(AttentionTensor::Query, slice), false),
    ("hkv", |slice, _| Name::Heads(AttentionTensor::KeyValue, slice), false),
    ("hstate", |slice, _| Name::Heads(AttentionTensor::State, slice), false),
    ("hout", |slice, _| Name::Heads(AttentionTensor::Output, slice), false),
    ("hdout", |slice, _| Name::Heads(AttentionTensor::OutputGradient, slice), false),
    ("hdq", |slice, _| Name::Heads(AttentionTensor::QueryGradient, slice), false),
    ("hdkv", |slice, _| Name::Heads(AttentionTensor::KeyValueGradient, slice), false),
    ("hpart", |slice, _| Name::Heads(AttentionTensor::KeyValuePart, slice), false),
    ("version", Name::Version, true),
    ("kvgrad", Name::KeyValueGradient, true),
    ("tokin", |rank, _| Name::Expert(ExpertTensor::Input, rank), false),
    ("router", |rank, _| Name::Expert(ExpertTensor::Router, rank), false),
    ("experts", |rank, _| Name::Expert(ExpertTensor::Weights, rank), false),
    ("gates", |rank, _| Name::Expert(ExpertTensor::Gates, rank), false),
    ("stats", |rank, _| Name::Expert(ExpertTensor::Statistics, rank), false),
    ("balance", |rank, _| Name::Expert(ExpertTensor::Balance, rank), false),
    ("rows", |rank, _| Name::Expert(ExpertTensor::Rows, rank), false),
    ("arrived", |rank, _| Name::Expert(ExpertTensor::Arrived, rank), false),
    ("hidden", |rank, _| Name::Expert(ExpertTensor::Hidden, rank), false),
    ("results", |rank, _| Name::Expert(ExpertTensor::Results, rank), false),
    ("returned", |rank, _| Name::Expert(ExpertTensor::Returned, rank), false),
    ("tokout", |rank, _| Name::Expert(ExpertTensor::Output, rank), false),
    ("dtokout", |rank, _| Name::Expert(ExpertTensor::OutputGradient, rank), false),
    ("dreturned", |rank, _| Name::Expert(ExpertTensor::ReturnedGradient, rank), false),
    ("dresults", |rank, _| Name::Expert(ExpertTensor::ResultGradient, rank), false),
    ("darrived", |rank, _| Name::Expert(ExpertTensor::ArrivedGradient, rank), false),
    ("drows", |rank, _| Name::Expert(ExpertTensor::RowGradient, rank), false),
    ("dgates", |rank, _| Name::Expert(ExpertTensor::GateGradient, rank), false),
    ("dtokin", |rank, _| Name::Expert(ExpertTensor::InputGradient, rank), false),
    ("drouter", |rank, _| Name::Expert(ExpertTensor::RouterGradient, rank), false),
    ("dexperts", |rank, _| Name::Expert(ExpertTensor::WeightGradient, rank), false),
];

/// The rows of what is inside parts come behind those of the table, and behind them those of attention inside training steps.
const INSIDE: usize = Flow::ALL.len() * Module::ALL.len();
const CONTEXT: usize = 2 * AttentionTensor::ALL.len();

/// Rows of all names.
const ROWS: usize = NAMES.len() + INSIDE + CONTEXT;

/// Where a row stands.
enum Row {
    /// In the table.
    Table(usize),
    /// Behind it.
    Inside(Flow, &'static str, usize),
    /// Behind those: with the row of the same tensor of a bare layer.
    Context(AttentionTensor, HeadShare, usize),
}

impl Row {
    fn of(row: usize) -> Self {
        let Some(inside) = row.checked_sub(NAMES.len()) else { return Self::Table(row) };
        match inside.checked_sub(INSIDE) {
            None => {
                let (flow, before) = Flow::ALL[inside / Module::ALL.len()];
                Self::Inside(flow, before, inside % Module::ALL.len())
            }
            Some(context) => {
                let (share, tensor) = (context / AttentionTensor::ALL.len(), context % AttentionTensor::ALL.len());
                let share = if share == 0 { HeadShare::All } else { HeadShare::One };
                Self::Context(AttentionTensor::ALL[tensor], share, BARE + context)
            }
        }
    }
}

/// The row of the first tensor of a bare layer.
const BARE: usize = 24;

impl Name {
    /// Row of [`NAMES`], index and micro-batch. Behind the rows of the table come those of what is inside layers.
    fn fields(self) -> (usize, u32, u32) {
        match self {
            Self::Tokens(m) => (0, 0, m),
            Self::Targets(m) => (1, 0, m),
            Self::Loss(m) => (2, 0, m),
            Self::Activation(boundary, m) => (3, boundary, m),
            Self::ActivationGradient(boundary, m) => (4, boundary, m),
            Self::Saved(part, m) => (5, part, m),
            Self::Deferred(part, m) => (6, part, m),
            Self::Parameter(p) => (7, p.0, 0),
            Self::Gradient(p) => (8, p.0, 0),
            Self::FirstMoment(p) => (9, p.0, 0),
            Self::SecondMoment(p) => (10, p.0, 0),
            Self::Chunk(chunk) => (11, chunk, 0),
            Self::Piece(collective, chunk) => (12, collective, chunk),
            Self::Unreduced(p) => (13, p.0, 0),
            Self::Master(p) => (14, p.0, 0),
            Self::Shard(unit, place) => (15, unit, place),
            Self::GradientShard(unit, place) => (16, unit, place),
            Self::Reduced(unit, place) => (17, unit, place),
            Self::FirstMomentShard(unit, place) => (18, unit, place),
            Self::SecondMomentShard(unit, place) => (19, unit, place),
            Self::MasterShard(unit, place) => (20, unit, place),
            Self::Recomputed(part, m) => (21, part, m),
            Self::Near(unit, place) => (22, unit, place),
            Self::RandomState(part, m) => (23, part, m),
            Self::Version(parameter, version) => (BARE + CONTEXT, parameter, version),
            Self::KeyValueGradient(part, m) => (BARE + CONTEXT + 1, part, m),
            Self::Attention(tensor, slice) => (BARE + tensor as usize, slice, 0),
            Self::Heads(tensor, slice) => (BARE + AttentionTensor::ALL.len() + tensor as usize, slice, 0),
            Self::Context(tensor, share, slice, m) => {
                let some = if share == HeadShare::All { 0 } else { AttentionTensor::ALL.len() };
                (NAMES.len() + INSIDE + some + tensor as usize, slice, m)
            }
            Self::Expert(tensor, rank) => (BARE + CONTEXT + 2 + tensor as usize, rank, 0),
            Self::Inside(Inside { flow, module }, layer, m) => {
                (NAMES.len() + flow as usize * Module::ALL.len() + module as usize, layer, m)
            }
        }
    }

    /// The name of this row and these numbers.
    fn of(row: usize, index: u32, micro_batch: u32) -> Self {
        match Row::of(row) {
            Row::Table(row) => NAMES[row].1(index, micro_batch),
            Row::Inside(flow, _, module) => Self::Inside(Inside { flow, module: Module::ALL[module] }, index, micro_batch),
            Row::Context(tensor, share, _) => Self::Context(tensor, share, index, micro_batch),
        }
    }

    /// What a row's names begin with.
    fn prefix(row: usize) -> [&'static str; 2] {
        match Row::of(row) {
            Row::Table(row) => ["", NAMES[row].0],
            Row::Inside(_, before, module) => [before, MODULES[module]],
            Row::Context(_, _, bare) => ["c-", NAMES[bare].0],
        }
    }

    /// Whether a row's names have a second number.
    fn has_micro_batch(row: usize) -> bool {
        NAMES.get(row).is_none_or(|row| row.2)
    }

    /// The neighbour of this name: the next micro-batch, or the next index where there are none; `None` behind the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let (row, index, micro_batch) = self.fields();
        if Self::has_micro_batch(row) {
            Some(Self::of(row, index, micro_batch.checked_add(1)?))
        } else {
            Some(Self::of(row, index.checked_add(1)?, 0))
        }
    }

    /// How many neighbours lie between this name and `last`, which must not come before it; `None` if they are of different kinds.
    #[must_use]
    pub fn distance(self, last: Self) -> Option<u32> {
        let ((row, index, micro_batch), (last_row, last_index, last_micro_batch)) = (self.fields(), last.fields());
        if row != last_row {
            return None;
        }
        if !Self::has_micro_batch(row) {
            return last_index.checked_sub(index);
        }
        if index == last_index { last_micro_batch.checked_sub(micro_batch) } else { None }
    }

    /// The micro-batch whose data it holds; `None` where it holds another thing.
    #[must_use]
    pub fn micro_batch(self) -> Option<u32> {
        match self {
            Self::Tokens(m)
            | Self::Targets(m)
            | Self::Loss(m)
            | Self::Activation(_, m)
            | Self::ActivationGradient(_, m)
            | Self::Saved(_, m)
            | Self::Deferred(_, m)
            | Self::KeyValueGradient(_, m)
            | Self::Recomputed(_, m)
            | Self::Inside(_, _, m)
            | Self::Context(_, _, _, m) => Some(m),
            _ => None,
        }
    }

    /// The tensor of attention that it is, and its slice among so many; `None` if it is none.
    #[must_use]
    pub fn attention(self, slices: usize) -> Option<(AttentionTensor, usize)> {
        match self {
            Self::Attention(tensor, slice) | Self::Heads(tensor, slice) => Some((tensor, slice as usize)),
            Self::Context(tensor, _, slice, _) => Some((tensor, slice as usize % slices.max(1))),
            _ => None,
        }
    }

    /// What memory of this name is for, unless its program says otherwise.
    #[must_use]
    pub fn usual_role(self) -> Role {
        match self {
            Self::Loss(_)
            | Self::ActivationGradient(..)
            | Self::Context(
                AttentionTensor::State
                | AttentionTensor::OutputGradient
                | AttentionTensor::QueryGradient
                | AttentionTensor::KeyValueGradient
                | AttentionTensor::KeyValuePart,
                ..,
            )
            | Self::Attention(AttentionTensor::KeyValuePart, _)
            | Self::Inside(Inside { flow: Flow::OutputGradient | Flow::TokensGradient, .. }, ..) => Role::Scratch,
            Self::Tokens(_)
            | Self::Targets(_)
            | Self::Activation(..)
            | Self::Saved(..)
            | Self::Deferred(..)
            | Self::KeyValueGradient(..)
            | Self::Recomputed(..)
            | Self::RandomState(..)
            | Self::Attention(..)
            | Self::Heads(..)
            | Self::Inside(..)
            | Self::Context(..) => Role::Activation,
            Self::Expert(tensor, _) => expert_role(tensor),
            Self::Parameter(_) | Self::Shard(..) => Role::Parameter,
            Self::Gradient(_) | Self::GradientShard(..) => Role::Gradient,
            Self::FirstMoment(_)
            | Self::SecondMoment(_)
            | Self::Master(_)
            | Self::FirstMomentShard(..)
            | Self::SecondMomentShard(..)
            | Self::MasterShard(..) => Role::Optimizer,
            Self::Chunk(_) | Self::Piece(..) | Self::Unreduced(_) | Self::Reduced(..) | Self::Near(..) | Self::Version(..) => {
                Role::Bucket
            }
        }
    }

    /// Reads the text form: `x3.5` is activation 3 of micro-batch 5, `grad7` the gradient of parameter 7.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (head, micro_batch) = match text.split_once('.') {
            Some((head, micro_batch)) => (head, Some(micro_batch)),
            None => (text, None),
        };
        let digits = head.find(|c: char| c.is_ascii_digit()).unwrap_or(head.len());
        let (prefix, index) = head.split_at(digits);
        let is_of = |&row: &usize| {
            let [before, word] = Self::prefix(row);
            prefix.strip_prefix(before) == Some(word)
        };
        let row = (0..ROWS).find(is_of)?;
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
        let index = if index.is_empty() { 0 } else { number(index)? };
        let micro_batch = micro_batch.map(number);
        match (Self::has_micro_batch(row), micro_batch) {
            (true, Some(Some(micro_batch))) => Some(Self::of(row, index, micro_batch)),
            (false, None) => Some(Self::of(row, index, 0)),
            _ => None,
        }
    }
}

/// What memory of a mixture of experts is for.
fn expert_role(tensor: ExpertTensor) -> Role {
    use ExpertTensor as Tensor;
    match tensor {
        Tensor::Router | Tensor::Weights => Role::Parameter,
        Tensor::RouterGradient | Tensor::WeightGradient => Role::Gradient,
        Tensor::Input | Tensor::Gates | Tensor::Hidden | Tensor::Output | Tensor::OutputGradient | Tensor::InputGradient => {
            Role::Activation
        }
        Tensor::Statistics | Tensor::Balance | Tensor::GateGradient => Role::Scratch,
        _ => Role::Message,
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (row, index, micro_batch) = self.fields();
        let [before, prefix] = Self::prefix(row);
        write!(f, "{before}{prefix}")?;
        if !matches!(self, Self::Tokens(_) | Self::Targets(_) | Self::Loss(_)) {
            write!(f, "{index}")?;
        }
        if Self::has_micro_batch(row) { write!(f, ".{micro_batch}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_prints_and_parses(row in 0..ROWS, index: u32, micro_batch: u32) {
            let name = Name::of(row, index, micro_batch);
            prop_assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
    }
}
