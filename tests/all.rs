//! One binary for all integration tests.

mod support;

mod engine;
mod lessons;
mod numerics;
mod scenarios;
mod tidy;
