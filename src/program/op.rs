//! Ops: what a rank's streams do, and the names of the buffers that they do it to.

use std::fmt;

use super::plan::Slot;
pub use super::skipped::SkippedKind;
use crate::base::model::Part;
use crate::base::{BufferId, ChannelId, CollectiveId, KernelId, LayoutId, OpId, ParameterId, Rank, StreamId};

/// What an op does. Its operands stand beside it in the program's tables (see [`Op`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Computes: reads buffers, writes buffers.
    Run(KernelId),
    /// Sends the values of the buffers that it reads: mostly one, or several behind each other.
    Send(ChannelId),
    /// Receives values into the buffers that it writes.
    Recv(ChannelId),
    /// Receives values and adds them to the buffers that it reads and writes (NCCL's receive-reduce).
    RecvReduce(ChannelId),
    /// Takes part in a collective on the buffers that it reads and writes.
    Collective(CollectiveId),
    /// Does nothing: a trouble rule took the op out. Its operands and its place stay visible.
    Skipped(SkippedKind),
}

/// A view of one op in the tables of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op<'program> {
    /// Its id.
    pub id: OpId,
    /// Its rank.
    pub rank: Rank,
    /// Its stream; ops of one rank and stream run in order.
    pub stream: StreamId,
    /// What it does.
    pub kind: OpKind,
    /// Buffers that it reads; an op that updates a buffer reads and writes it.
    pub reads: &'program [BufferId],
    /// Buffers that it writes.
    pub writes: &'program [BufferId],
    /// Why it is here.
    pub origin: Origin,
}

/// Why an op is here: the slot that asked for it, and the pass of the compiler that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The slot of the plan, where one asked for it.
    pub slot: Option<Slot>,
    /// The training step, from 0.
    pub step: u32,
    /// The compiler's pass.
    pub pass: PassName,
}

impl Origin {
    /// The number of the update that an optimizer's op is: a slot's own where a micro-batch has one, else its step's.
    #[must_use]
    pub fn update(self) -> u32 {
        self.slot.map_or(self.step, |slot| slot.micro_batch)
    }
}

/// The compiler's passes, as provenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PassName {
    /// Plan to compute ops.
    Lower,
    /// Reads across ranks to messages.
    Messages,
    /// Layers computed again before their backward.
    Recompute,
    /// Sharded parameters gathered before their use.
    Gather,
    /// Gradients summed over data-parallel ranks.
    DataParallel,
    /// Average, barrier and optimizer at the end of a step.
    Optimizer,
    /// Weights kept for micro-batches that have used them.
    Versions,
    /// A collective to its messages.
    Expand,
    /// Written by hand.
    Hand,
}

impl PassName {
    /// All passes with their names.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Lower, "lower"),
        (Self::Messages, "messages"),
        (Self::Recompute, "recompute"),
        (Self::Gather, "gather"),
        (Self::DataParallel, "data-parallel"),
        (Self::Optimizer, "optimizer"),
        (Self::Versions, "versions"),
        (Self::Expand, "expand"),
        (Self::Hand, "hand"),
    ];

    /// Its name in program texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// A computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// Roughly: tokens = batch(sample).inputs
    LoadTokens,
    /// Roughly: targets = batch(sample).next
    LoadTargets,
    /// Roughly: y, saved = part(x, parameters)
    Forward(Part),
    /// Roughly: dx, deferred = d part / d x (dy, saved)
    BackwardInput(Part),
    /// Roughly: gradients += d part / d parameters (saved, deferred)
    BackwardWeight(Part),
    /// Roughly: saved = part(x, parameters), once more
    Recompute(Part),
    /// Roughly: probabilities = softmax(q k^T), once more
    RecomputeAttention(Part),
    /// Roughly: gradients = 0
    ZeroGradients,
    /// Roughly: gradients += those of one micro-batch
    Accumulate,
    /// Roughly: gradients /= micro-batches of the step over all data-parallel ranks
    Average(Part),
    /// Roughly: parameters, moments = optimizer(parameters, moments, gradients)
    Optimizer(Part),
    /// The same as `Average`, of shards
    AverageShard,
    /// The same as `Optimizer`, of shards
    OptimizerShard,
    /// Roughly: version = parameters, before they change
    Stash(Part),
    /// Roughly: shard = own part of concatenate(tensors)
    TakeShard,
    /// Roughly: pieces = chunks(concatenate(tensors))
    Flatten,
    /// Roughly: tensors = split(concatenate(pieces))
    Unflatten,
}

/// A kernel with what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCost {
    /// The computation.
    pub kernel: Kernel,
    /// Blocks that share the stage's slot: a block's kernel costs one of so many shares; 0 is free under unit costs.
    pub shares: u32,
    /// It belongs to a forward and a backward that run as one, and have a slot of their own under unit costs.
    pub overlapped: bool,
    /// Floating-point operations, a multiply-add counted as two.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl KernelCost {
    /// A kernel that costs nothing.
    #[must_use]
    pub fn free(kernel: Kernel) -> Self {
        Self { kernel, shares: 0, overlapped: false, flops: 0, bytes: 0 }
    }
}

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
    /// What a parameter was before so many updates and one more: its weights from when a micro-batch went forward.
    Version(u32, u32),
    /// With segments: what later segments have left as the gradient of a part's keys and values before this one.
    KeyValueGradient(u32, u32),
    /// Where the random numbers of a part stood in forward, so that what is computed again drops the same elements.
    RandomState(u32, u32),
    /// A chunk of a bare collective's payload.
    Chunk(u32),
    /// A piece of an expanded collective: collective, chunk.
    Piece(u32, u32),
}

/// What memory is for; the ledger's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Parameters.
    Parameter,
    /// Gradients.
    Gradient,
    /// Optimizer state.
    Optimizer,
    /// What forward keeps, and what flows between parts of a rank.
    Activation,
    /// Gathered parameters, packed or unreduced gradients.
    Bucket,
    /// What travels between ranks.
    Message,
    /// Short-lived results.
    Scratch,
}

impl Role {
    /// All roles, in the ledger's order.
    pub const ALL: [Self; 7] =
        [Self::Parameter, Self::Gradient, Self::Optimizer, Self::Activation, Self::Bucket, Self::Message, Self::Scratch];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["parameter", "gradient", "optimizer", "activation", "bucket", "message", "scratch"][self as usize]
    }

    /// Whether the rank owns it between steps: it is there before the first op.
    #[must_use]
    pub fn is_state(self) -> bool {
        matches!(self, Self::Parameter | Self::Gradient | Self::Optimizer)
    }
}

/// A named piece of one rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The rank whose memory it is.
    pub rank: Rank,
    /// What it holds.
    pub name: Name,
    /// What its memory counts as.
    pub role: Role,
    /// Its parts and shapes.
    pub layout: LayoutId,
}

impl Buffer {
    /// Whether it is there before the first op and stays: state, and a bare collective's payload.
    #[must_use]
    pub fn lives_from_start(&self) -> bool {
        self.role.is_state() || matches!(self.name, Name::Chunk(_))
    }
}

/// A kind of name in program texts: its prefix, how it is made of its two numbers, and whether it has the second: a micro-batch, a shard or a
/// chunk.
type NameText = (&'static str, fn(u32, u32) -> Name, bool);

/// The one description for printing and parsing names.
const NAMES: [NameText; 26] = [
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
    ("version", Name::Version, true),
    ("dkv", Name::KeyValueGradient, true),
];

impl Name {
    /// Row of [`NAMES`], index and micro-batch.
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
            Self::Version(parameter, version) => (24, parameter, version),
            Self::KeyValueGradient(part, m) => (25, part, m),
        }
    }

    /// The neighbour of this name: the next micro-batch, or the next index where there are none; `None` behind the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let (row, index, micro_batch) = self.fields();
        let (_, make, has_micro_batch) = NAMES[row];
        if has_micro_batch { Some(make(index, micro_batch.checked_add(1)?)) } else { Some(make(index.checked_add(1)?, 0)) }
    }

    /// How many neighbours lie between this name and `last`, which must not come before it; `None` if they are of different kinds.
    #[must_use]
    pub fn distance(self, last: Self) -> Option<u32> {
        let ((row, index, micro_batch), (last_row, last_index, last_micro_batch)) = (self.fields(), last.fields());
        if row != last_row {
            return None;
        }
        if !NAMES[row].2 {
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
            | Self::Recomputed(_, m) => Some(m),
            _ => None,
        }
    }

    /// What memory of this name is for, unless its program says otherwise.
    #[must_use]
    pub fn usual_role(self) -> Role {
        match self {
            Self::Tokens(_)
            | Self::Targets(_)
            | Self::Activation(..)
            | Self::Saved(..)
            | Self::Deferred(..)
            | Self::KeyValueGradient(..)
            | Self::Recomputed(..)
            | Self::RandomState(..) => Role::Activation,
            Self::Loss(_) | Self::ActivationGradient(..) => Role::Scratch,
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
        let &(_, make, has_micro_batch) = NAMES.iter().find(|(name, ..)| *name == prefix)?;
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
        let index = if index.is_empty() { 0 } else { number(index)? };
        let micro_batch = micro_batch.map(number);
        match (has_micro_batch, micro_batch) {
            (true, Some(Some(micro_batch))) => Some(make(index, micro_batch)),
            (false, None) => Some(make(index, 0)),
            _ => None,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (row, index, micro_batch) = self.fields();
        let (prefix, _, has_micro_batch) = NAMES[row];
        f.write_str(prefix)?;
        if !matches!(self, Self::Tokens(_) | Self::Targets(_) | Self::Loss(_)) {
            write!(f, "{index}")?;
        }
        if has_micro_batch { write!(f, ".{micro_batch}") } else { Ok(()) }
    }
}

impl OpKind {
    /// The channel of a message's end.
    #[must_use]
    pub fn channel(self) -> Option<ChannelId> {
        match self {
            Self::Send(channel) | Self::Recv(channel) | Self::RecvReduce(channel) => Some(channel),
            _ => None,
        }
    }

    /// Whether it receives a message.
    #[must_use]
    pub fn receives(self) -> bool {
        matches!(self, Self::Recv(_) | Self::RecvReduce(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_prints_and_parses(row in 0..NAMES.len(), index: u32, micro_batch: u32) {
            let name = NAMES[row].1(index, micro_batch);
            prop_assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
    }
}
