//! Kinds: what fills a stretch of a row, with its letter, its glyph in plain text, and its name in legends.

use super::run::Run;
use crate::base::{AttentionTensor, OpId};
use crate::program::op::SkippedKind;
use crate::program::plan::Pass;
use crate::program::{CollectiveKind, Kernel, Name, OpKind};

/// What fills a stretch of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Forward.
    Forward,
    /// Full backward: input and weights together.
    Backward,
    /// Backward for the input only.
    BackwardInput,
    /// Backward for the weights only.
    BackwardWeight,
    /// Forward done again for the backward.
    Recompute,
    /// Zeroing and averaging of gradients, and the optimizer's step.
    Optimizer,
    /// A collective of several ranks, as one op.
    Collective,
    /// An activation on its way to the next stage.
    SendActivation,
    /// A gradient on its way to the previous stage.
    SendGradient,
    /// Another message: a step of an expanded collective.
    Transfer,
    /// A copy on a communication stream: gradients into pieces and back.
    Copy,
    /// A trouble rule took the op out.
    Skipped,
    /// Posted, but the peer is not there.
    Waiting,
    /// Compute is idle while a transfer that it needs is moving.
    ExposedCommunication,
    /// Compute is idle inside the rank's own span, waiting for data.
    Bubble,
}

/// Kind, letter of its label, glyph that fills its cells in plain text, name in legends.
type Row = (Kind, &'static str, char, &'static str);

const TABLE: [Row; 15] = [
    (Kind::Forward, "F", '=', "forward"),
    (Kind::Backward, "B", '#', "backward"),
    (Kind::BackwardInput, "I", '#', "backward input"),
    (Kind::BackwardWeight, "W", '+', "backward weights"),
    (Kind::Recompute, "R", ':', "recompute"),
    (Kind::Optimizer, "O", '%', "optimizer"),
    (Kind::Collective, "ar", '~', "collective"),
    (Kind::SendActivation, "a", '>', "activation"),
    (Kind::SendGradient, "g", '<', "gradient"),
    (Kind::Transfer, "c", '-', "transfer"),
    (Kind::Copy, "copy", '&', "copy"),
    (Kind::Skipped, "x", 'x', "skipped"),
    (Kind::Waiting, "", '.', "waits for peer"),
    (Kind::ExposedCommunication, "", '.', "exposed communication"),
    (Kind::Bubble, "", '_', "bubble"),
];

impl Kind {
    /// All kinds; a kind's place here is its number.
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [Self::Forward; TABLE.len()];
        let mut place = 0;
        while place < TABLE.len() {
            all[place] = TABLE[place].0;
            place += 1;
        }
        all
    };

    /// What its labels begin with, before the number of a micro-batch, bucket or chunk.
    #[must_use]
    pub fn letter(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// What fills its cells in plain text.
    #[must_use]
    pub fn glyph(self) -> char {
        TABLE[self as usize].2
    }

    /// Its name in legends.
    #[must_use]
    pub fn name(self) -> &'static str {
        TABLE[self as usize].3
    }

    /// Whether a rank computes while this runs.
    #[must_use]
    pub fn is_compute(self) -> bool {
        self <= Self::Optimizer
    }

    /// Whether nothing runs: the op beside it waits.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self >= Self::Waiting
    }

    /// The kind of `op`.
    #[must_use]
    pub fn of(run: &Run, op: OpId) -> Self {
        let view = run.program.op(op);
        match view.kind {
            OpKind::Run(kernel) => match (run.program.kernels[kernel.index()].kernel, view.origin.slot) {
                (Kernel::Flatten | Kernel::Unflatten | Kernel::TakeShard | Kernel::Stash(_) | Kernel::Release, _) => Self::Copy,
                // An update of its own belongs to a micro-batch's slot.
                (Kernel::ZeroGradients | Kernel::Average(_) | Kernel::Optimizer(_), _) => Self::Optimizer,
                (Kernel::Recompute(_) | Kernel::RecomputeAttention(_), _) => Self::Recompute,
                (_, Some(slot)) => Self::of_pass(slot.pass),
                (kernel, None) => Self::of_kernel(kernel),
            },
            OpKind::Collective(_) => Self::Collective,
            OpKind::Skipped(_) => Self::Skipped,
            OpKind::Send(_) | OpKind::Recv(_) | OpKind::RecvReduce(_) => match message(run, op) {
                Some(Name::Activation(..)) => Self::SendActivation,
                Some(Name::ActivationGradient(..)) => Self::SendGradient,
                _ => Self::Transfer,
            },
        }
    }

    /// Of a slot's computation.
    #[must_use]
    pub fn of_pass(pass: Pass) -> Self {
        match pass {
            Pass::F => Self::Forward,
            Pass::B => Self::Backward,
            Pass::I => Self::BackwardInput,
            Pass::W => Self::BackwardWeight,
        }
    }

    /// Of a kernel that no slot asked for: hand-written programs have no slots.
    fn of_kernel(kernel: Kernel) -> Self {
        match kernel {
            Kernel::LoadTokens
            | Kernel::LoadTargets
            | Kernel::Forward(_)
            | Kernel::Attend
            | Kernel::FinishAttention
            | Kernel::Route
            | Kernel::Balance
            | Kernel::Dispatch
            | Kernel::Experts
            | Kernel::Combine => Self::Forward,
            Kernel::AttendBackward
            | Kernel::AddGradients
            | Kernel::CombineBackward
            | Kernel::ExpertsBackward
            | Kernel::RouteBackward => Self::Backward,
            Kernel::BackwardInput(_) => Self::BackwardInput,
            Kernel::BackwardWeight(_) => Self::BackwardWeight,
            Kernel::Recompute(_) | Kernel::RecomputeAttention(_) => Self::Recompute,
            Kernel::ZeroGradients
            | Kernel::Accumulate
            | Kernel::Average(_)
            | Kernel::Optimizer(_)
            | Kernel::AverageShard
            | Kernel::OptimizerShard => Self::Optimizer,
            Kernel::Stash(_) | Kernel::TakeShard | Kernel::Flatten | Kernel::Unflatten | Kernel::Release => Self::Copy,
        }
    }
}

/// The number in an op's label: micro-batch of the step, bucket, or chunk; `None` where its kind says all.
#[must_use]
pub fn number(run: &Run, op: OpId) -> Option<u32> {
    let view = run.program.op(op);
    if let OpKind::Collective(collective) | OpKind::Skipped(SkippedKind::Collective(collective)) = view.kind {
        let label = &run.program.collectives[collective.index()].label;
        let number = label.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        // What meets inside a layer belongs to a micro-batch.
        return number.or(view.origin.slot.map(|slot| slot.micro_batch));
    }
    match message(run, op) {
        Some(Name::Piece(_, chunk) | Name::Chunk(chunk)) => Some(chunk),
        Some(Name::Attention(_, slice)) => Some(slice),
        _ => view.origin.slot.map(|slot| slot.micro_batch).or_else(|| slice_of_keys(run, op)),
    }
}

/// The slice whose keys a kernel of attention reads.
fn slice_of_keys(run: &Run, op: OpId) -> Option<u32> {
    run.program.reads(op).iter().find_map(|buffer| match run.program.buffers[buffer.index()].name {
        Name::Attention(AttentionTensor::KeyValue, slice) | Name::Heads(AttentionTensor::KeyValue, slice) => Some(slice),
        _ => None,
    })
}

/// The short label of `op`: `F3`, `a3` (activation of micro-batch 3), `ar0` (all-reduce of bucket 0), `c5` (chunk 5), `barrier`.
#[must_use]
pub fn label(run: &Run, op: OpId) -> String {
    if let OpKind::Collective(collective) = run.program.kind(op)
        && run.program.collectives[collective.index()].kind == CollectiveKind::Barrier
    {
        return "barrier".to_owned();
    }
    let letter = match run.program.kind(op) {
        OpKind::Collective(collective) => collective_letter(run.program.collectives[collective.index()].kind),
        _ => Kind::of(run, op).letter(),
    };
    number(run, op).map_or_else(|| letter.to_owned(), |number| format!("{letter}{number}"))
}

/// What a collective's label begins with.
fn collective_letter(kind: CollectiveKind) -> &'static str {
    ["ar", "rs", "ag", "barrier", "aa"][kind as usize]
}

/// What a message carries; the first, if it is several buffers.
#[must_use]
pub fn message(run: &Run, op: OpId) -> Option<Name> {
    let operand = match run.program.kind(op).original() {
        OpKind::Send(_) => run.program.reads(op).first(),
        OpKind::Recv(_) | OpKind::RecvReduce(_) => run.program.writes(op).first(),
        _ => None,
    };
    operand.map(|buffer| run.program.buffers[buffer.index()].name)
}
