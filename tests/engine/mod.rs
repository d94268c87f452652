//! Programs run: numbers, deadlocks, stepping, buckets.

mod buckets;
mod deadlocks;
mod stepping;
mod verdicts;
