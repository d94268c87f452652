//! One binary for all integration tests.

mod support;

mod engine;
mod scenarios;
mod tidy;
