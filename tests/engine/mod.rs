//! Programs run: numbers, deadlocks, stepping, buckets.

mod all_reduce;
mod asynchronous;
mod buckets;
mod collectives;
mod contention;
mod deadlocks;
mod dropout;
mod experts;
mod faults;
mod pipeline_faults;
mod repairs;
mod folding;
mod half;
mod layers;
mod mixture;
mod recompute;
mod schedules;
mod search;
mod sharding;
mod sheets;
mod shipped;
mod stepping;
mod tensor;
mod tensor_traffic;
mod verdicts;
