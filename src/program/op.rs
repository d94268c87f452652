//! Ops: what a rank's streams do, and the buffers that they do it to.

pub use super::name::Name;
use super::plan::Slot;
pub use super::skipped::SkippedKind;
use super::tables::Program;
use crate::base::model::Part;
use crate::base::settings::{AttentionTensor, ExpertTensor};
use crate::base::{BufferId, ChannelId, CollectiveId, KernelId, LayoutId, OpId, Rank, StreamId};

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
    /// Gradients summed over tensor-parallel ranks.
    TensorParallel,
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
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Lower, "lower"),
        (Self::Messages, "messages"),
        (Self::Recompute, "recompute"),
        (Self::Gather, "gather"),
        (Self::TensorParallel, "tensor-parallel"),
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
    /// Roughly: m, l, O = merge((m, l, O), softmax(q k^T) v), of one block
    Attend,
    /// Roughly: o, lse = O, m + log l
    FinishAttention,
    /// Roughly: dq, dk, dv += d attention / d (q, k, v), of one block
    AttendBackward,
    /// Roughly: dk, dv += those of one block
    AddGradients,
    /// Gives memory back that a message and a computation have read
    Release,
    /// Roughly: p = softmax(x router^T), chosen = the k largest
    Route,
    /// Roughly: loss = e sum of (share of choices x mean probability), over the tokens of all ranks
    Balance,
    /// Roughly: rows = x, sorted by the experts that were chosen
    Dispatch,
    /// Roughly: y = fc2 f(fc1 x), of every own expert and its rows
    Experts,
    /// Roughly: out = sum of p y, back in the order of the tokens
    Combine,
    /// Roughly: dy = p dout, dp = dout y
    CombineBackward,
    /// Roughly: dx, gradients = d experts / d (x, parameters)
    ExpertsBackward,
    /// Roughly: dx, gradient = d router / d (x, parameters), and what came back from the experts
    RouteBackward,
}

/// A kernel with what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCost {
    /// The computation.
    pub kernel: Kernel,
    /// Blocks that share the stage's slot: a block's kernel costs one of so many shares; 0 is free under unit costs.
    pub shares: u32,
    /// How many of those shares it costs: 1, and of attention as many as its block has grains of pairs.
    pub taken: u32,
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
        Self { kernel, shares: 0, taken: 1, overlapped: false, flops: 0, bytes: 0 }
    }
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

impl Program {
    /// What `op` computes; `None` if it moves something, or a trouble rule took it out.
    #[must_use]
    pub fn kernel_of(&self, op: OpId) -> Option<Kernel> {
        let OpKind::Run(kernel) = self.kind(op) else { return None };
        Some(self.kernels[kernel.index()].kernel)
    }
}

impl Buffer {
    /// Whether it is there after the last op: what lives from the start, and the results of a layer that stands alone.
    #[must_use]
    pub fn stays(&self) -> bool {
        let is_result = match self.name {
            Name::Attention(AttentionTensor::Output | AttentionTensor::QueryGradient, _)
            | Name::Expert(ExpertTensor::Output | ExpertTensor::InputGradient | ExpertTensor::Balance, _) => true,
            Name::Attention(AttentionTensor::KeyValueGradient, slice) => slice == self.rank.0,
            _ => false,
        };
        is_result || self.lives_from_start()
    }

    /// Whether it is there before the first op and stays: state, and what a bare piece is given: a collective's payload, a layer's slice.
    #[must_use]
    pub fn lives_from_start(&self) -> bool {
        match self.name {
            Name::Chunk(_) | Name::Expert(ExpertTensor::Input | ExpertTensor::OutputGradient, _) => true,
            Name::Attention(tensor, slice) => tensor.is_given() && slice == self.rank.0,
            _ => self.role.is_state(),
        }
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
