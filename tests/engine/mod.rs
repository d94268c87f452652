//! Programs run: numbers, deadlocks, stepping, buckets.

mod buckets;
mod deadlocks;
mod recompute;
mod sharding;
mod stepping;
mod verdicts;
