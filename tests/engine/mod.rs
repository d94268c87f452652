//! Programs run: numbers, deadlocks, stepping, buckets.

mod all_reduce;
mod buckets;
mod collectives;
mod contention;
mod deadlocks;
mod dropout;
mod faults;
mod folding;
mod half;
mod layers;
mod recompute;
mod schedules;
mod sharding;
mod sheets;
mod shipped;
mod stepping;
mod tensor;
mod tensor_traffic;
mod verdicts;
