//! The language: plans (who computes what in which order) and programs (what each rank's streams do).

pub mod plan;
pub mod trouble;
