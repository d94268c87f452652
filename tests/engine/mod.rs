//! Programs run: numbers, deadlocks, stepping, buckets.

mod buckets;
mod deadlocks;
mod schedules;
mod sheets;
mod stepping;
mod verdicts;
