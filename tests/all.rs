//! One binary for all integration tests.

mod support;

mod engine;
mod numerics;
mod program;
mod scenarios;
mod tidy;
