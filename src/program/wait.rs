//! Why an op cannot start now.

use serde::{Deserialize, Serialize};

use crate::base::{OpId, Rank};

/// The one thing that an op waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// An earlier op of its own stream is not done.
    Stream(OpId),
    /// An op of another stream of its rank, which it waits for, is not done.
    Event(OpId),
    /// The other end of its message is not there yet.
    Peer(OpId),
    /// Its message is on the way.
    Message(OpId),
    /// Its message has no other end: the peer never issues it.
    NoPeer(Rank),
    /// A member of its collective is not there yet.
    Member(OpId),
    /// A member of its collective never issues its part.
    NoMember(Rank),
}

impl Wait {
    /// The op that has to move first; `None` if nothing ever will.
    #[must_use]
    pub fn on(self) -> Option<OpId> {
        match self {
            Self::Stream(op) | Self::Event(op) | Self::Peer(op) | Self::Message(op) | Self::Member(op) => Some(op),
            Self::NoPeer(_) | Self::NoMember(_) => None,
        }
    }

    /// The reason in words, to stand before the op or rank that is waited for.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Stream(_) => "stands behind, on its stream,",
            Self::Event(_) => "needs the result of",
            Self::Peer(_) => "meets its peer at",
            Self::Message(_) => "waits for the message of",
            Self::NoPeer(_) => "has no peer: it is never issued by",
            Self::Member(_) => "meets the group at",
            Self::NoMember(_) => "misses a member: it is never issued by",
        }
    }
}
