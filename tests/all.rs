//! One binary for all integration tests.

mod support;

mod checkpoint;
mod cli;
mod engine;
mod lessons;
mod numerics;
mod observe;
mod panels;
mod program;
mod pty;
mod scenarios;
mod screens;
mod tidy;
