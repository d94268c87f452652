//! One binary for all integration tests.

#[cfg(unix)]
mod pty;
mod screens;
