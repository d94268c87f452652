//! ranklab: a scenario compiles to one program per rank; one engine runs that program with real numbers;
//! everything on the screen is drawn from the trace of that run.
//!
//! The rooms stand in the order of the data. A room may name only the rooms above it (`tests/tidy` enforces it).

pub mod base;
pub mod program;
pub mod schedule;
pub mod scenario;
pub mod compile;
pub mod engine;
pub mod observe;
pub mod lab;
pub mod checkpoint;
pub mod teach;
pub mod tui;
pub mod cli;
