//! One binary for all integration tests.

mod support;

mod engine;
mod lessons;
mod numerics;
mod observe;
mod pty;
mod scenarios;
mod screens;
mod tidy;
