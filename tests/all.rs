//! One binary for all integration tests.

mod engine;
mod numerics;
mod tidy;
