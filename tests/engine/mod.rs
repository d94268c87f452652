//! Programs run: numbers, deadlocks, stepping, buckets.

mod buckets;
mod collectives;
mod deadlocks;
mod folding;
mod recompute;
mod schedules;
mod sharding;
mod sheets;
mod shipped;
mod stepping;
mod verdicts;
