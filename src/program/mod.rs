//! The language: plans (who computes what in which order) and programs (what each rank's streams do).

pub mod check;
pub mod collective;
pub mod edit;
pub mod exchange;
pub mod head;
pub mod links;
pub mod memory;
pub mod name;
pub mod op;
pub mod partners;
pub mod plan;
pub mod ready;
pub mod record;
pub mod sheet;
pub mod skipped;
pub mod tables;
pub mod text;
pub mod trace;
pub mod trouble;
pub mod wait;
pub mod wait_graph;

pub use check::{Finding, FindingKind, check};
pub use collective::{Collective, CollectiveKind, Fold, Group, Unit};
pub use name::{Flow, Inside, Name};
pub use op::{Buffer, Kernel, KernelCost, Op, OpKind, Origin, PassName, Role};
pub use tables::{Channel, Layout, Program, Setting, Stream, StreamKind, TensorPart};
pub use trace::Trace;
pub use wait::Wait;
