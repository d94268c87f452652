//! How a program runs: the world and its readiness function, the interpreter, the costs, the stepped driver, the session.
//!
//! The engine does not know what pipeline parallelism is: it runs ops on buffers and streams, and a program written by hand runs the same way.

mod agenda;
mod apply;
mod checkpoint;
mod collectives;
pub mod compare;
pub mod cost;
pub mod deadlock;
pub mod kernels;
pub mod session;
pub mod sharing;
pub mod state;
pub mod stepped;
pub mod value;
pub mod world;

pub use candle_core::{Error, Result};
