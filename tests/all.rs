//! One binary for all integration tests.

mod engine;
mod observe;
