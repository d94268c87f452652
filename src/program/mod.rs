//! The language: plans (who computes what in which order) and programs (what each rank's streams do).

pub mod head;
pub mod op;
pub mod plan;
pub mod tables;
pub mod trouble;

pub use op::{Buffer, Kernel, KernelCost, Name, Op, OpKind, Origin, PassName, Role};
pub use tables::{Channel, Collective, CollectiveKind, Group, Layout, Program, Setting, Stream, StreamKind, TensorPart};
