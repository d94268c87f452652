//! What is asked: a scenario, checked.
#![allow(missing_docs)]

use crate::base::Bytes;
use crate::base::hardware::Hardware;
use crate::base::mesh::Mesh;
use crate::base::model::Model;
use crate::base::settings::{AllReduce, Dtype, Optimizer, PointToPoint};
use crate::program::trouble::Trouble;
use crate::schedule::Schedule;

#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub title: String,
    pub seed: u64,
    pub task: Task,
    pub hardware: Hardware,
    pub numerics: Numerics,
    pub trouble: Vec<Trouble>,
}
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    Train(Training),
    Collective(Collective),
}
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    pub model: Model,
    pub parameter_dtype: Dtype,
    pub batch: Batch,
    pub mesh: Mesh,
    pub data_parallel: DataParallel,
    pub pipeline: Pipeline,
    pub optimizer: Optimizer,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub micro_batches: u32,
    pub micro_batch_size: usize,
    pub steps: u32,
}
#[derive(Clone, Debug, PartialEq)]
pub struct DataParallel {
    pub all_reduce: AllReduce,
    pub bucket: Bytes,
    pub first_bucket: Bytes,
    pub overlap: bool,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    pub schedule: &'static Schedule,
    pub p2p: PointToPoint,
    pub barrier: bool,
    pub layers_per_stage: Vec<usize>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    Real,
    Shape,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Numerics {
    pub values: Values,
    pub dtype: Dtype,
    pub exact: bool,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    AllReduce,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Collective {
    pub kind: CollectiveKind,
    pub bytes: Bytes,
    pub ranks: usize,
    pub algorithm: AllReduce,
    pub chunks: usize,
}
