//! Names for places in tables: dense `u32` indices with a type of their own.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl $name {
            /// The place in its table.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of place `index`.
            ///
            /// # Panics
            /// If `index` does not fit 32 bits.
            #[must_use]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("tables hold fewer than 2^32 entries"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(/// A rank: one device of the job.
    Rank, "r");
id!(/// An operation, for as long as its program lives: passes move ops about, their ids stay.
    OpId, "%");
id!(/// A buffer: a named piece of one rank's memory.
    BufferId, "b");
id!(/// A stream: ops of one rank and one stream run in order. The same numbers mean the same streams on every rank.
    StreamId, "s");
id!(/// A directed, ordered line of messages between two ranks.
    ChannelId, "c");
id!(/// A group of ranks along one axis of the mesh.
    GroupId, "g");
id!(/// One collective operation of a group: every member holds one op that belongs to it.
    CollectiveId, "x");
id!(/// What a compute op computes, with its cost; shared by all micro-batches.
    KernelId, "k");
id!(/// The parts and shapes of a buffer's value.
    LayoutId, "l");
id!(/// One parameter tensor of the model.
    ParameterId, "p");
