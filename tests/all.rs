//! One binary for all integration tests.

mod scenarios;
