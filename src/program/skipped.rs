//! What an op would have done that a trouble rule takes out.

use super::op::OpKind;
use crate::base::{ChannelId, CollectiveId, KernelId};

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
    /// What the op does, or would do if no trouble rule had taken it out.
    #[must_use]
    pub fn original(self) -> Self {
        match self {
            Self::Skipped(kind) => kind.original(),
            kind => kind,
        }
    }

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
}
