//! Ops: what a rank's streams do, and the names of the buffers that they do it to.

use std::fmt;

use super::plan::Slot;
use crate::base::model::Part;
use crate::base::{BufferId, ChannelId, CollectiveId, KernelId, LayoutId, OpId, ParameterId, Rank, StreamId};

/// What an op does. Its operands stand beside it in the program's tables (see [`Op`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Computes: reads buffers, writes buffers.
    Run(KernelId),
    /// Sends the value of the one buffer that it reads.
    Send(ChannelId),
    /// Receives a value into the one buffer that it writes.
    Recv(ChannelId),
    /// Receives a value and adds it to the one buffer that it reads and writes (NCCL's receive-reduce).
    RecvReduce(ChannelId),
    /// Takes part in a collective on the buffers that it reads and writes.
    Collective(CollectiveId),
    /// Does nothing: a trouble rule took the op out. Its operands and its place stay visible.
    Skipped(SkippedKind),
}

/// What a skipped op would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkippedKind {
    /// A compute op.
    Run(KernelId),
    /// A send.
    Send(ChannelId),
    /// A receive.
    Recv(ChannelId),
    /// A receive-reduce.
    RecvReduce(ChannelId),
    /// A collective.
    Collective(CollectiveId),
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

/// The compiler's passes, as provenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PassName {
    /// Plan to compute ops.
    Lower,
    /// Reads across ranks to messages.
    Messages,
    /// Gradient all-reduce over data-parallel ranks.
    DataParallel,
    /// Average, barrier and optimizer at the end of a step.
    Optimizer,
    /// A collective to its messages.
    Expand,
    /// Written by hand.
    Hand,
}

impl PassName {
    /// All passes with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Lower, "lower"),
        (Self::Messages, "messages"),
        (Self::DataParallel, "data-parallel"),
        (Self::Optimizer, "optimizer"),
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
    /// Roughly: gradients = 0
    ZeroGradients,
    /// Roughly: gradients /= micro-batches of the step over all data-parallel ranks
    Average(Part),
    /// Roughly: parameters, moments = optimizer(parameters, moments, gradients)
    Optimizer(Part),
    /// Roughly: pieces = chunks(concatenate(gradients))
    Flatten,
    /// Roughly: gradients = split(concatenate(pieces))
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
    /// The optimizer's first moment.
    FirstMoment(ParameterId),
    /// The optimizer's second moment.
    SecondMoment(ParameterId),
    /// A chunk of a bare collective's payload.
    Chunk(u32),
    /// A piece of an expanded all-reduce: collective, chunk.
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

/// A kind of name in program texts: its prefix, how it is made of index and micro-batch, and whether it has a micro-batch.
type NameText = (&'static str, fn(u32, u32) -> Name, bool);

/// The one description for printing and parsing names.
const NAMES: [NameText; 13] = [
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

    /// What memory of this name is for, unless its program says otherwise.
    #[must_use]
    pub fn usual_role(self) -> Role {
        match self {
            Self::Tokens(_) | Self::Targets(_) | Self::Activation(..) | Self::Saved(..) | Self::Deferred(..) => Role::Activation,
            Self::Loss(_) | Self::ActivationGradient(..) => Role::Scratch,
            Self::Parameter(_) => Role::Parameter,
            Self::Gradient(_) => Role::Gradient,
            Self::FirstMoment(_) | Self::SecondMoment(_) => Role::Optimizer,
            Self::Chunk(_) | Self::Piece(..) => Role::Bucket,
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

impl SkippedKind {
    /// The kind before the op was skipped.
    #[must_use]
    pub fn original(self) -> OpKind {
        match self {
            Self::Run(kernel) => OpKind::Run(kernel),
            Self::Send(channel) => OpKind::Send(channel),
            Self::Recv(channel) => OpKind::Recv(channel),
            Self::RecvReduce(channel) => OpKind::RecvReduce(channel),
            Self::Collective(collective) => OpKind::Collective(collective),
        }
    }
}

impl OpKind {
    /// The kind that stands for this op when a trouble rule takes it out.
    #[must_use]
    pub fn skipped(self) -> Self {
        Self::Skipped(match self {
            Self::Run(kernel) => SkippedKind::Run(kernel),
            Self::Send(channel) => SkippedKind::Send(channel),
            Self::Recv(channel) => SkippedKind::Recv(channel),
            Self::RecvReduce(channel) => SkippedKind::RecvReduce(channel),
            Self::Collective(collective) => SkippedKind::Collective(collective),
            Self::Skipped(kind) => kind,
        })
    }

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
