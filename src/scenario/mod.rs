//! A scenario: what is asked. A TOML text with `--set` overrides becomes a checked [`Scenario`], or all of its problems at once.
//!
//! As written: keys with values and places, after the one table of keys ([`keys`]). As meant: the types below.

mod collective;
mod context_parallel;
mod expert_parallel;
mod experts;
mod fold;
mod hardware;
pub mod keys;
mod layer;
mod levels;
mod limits;
mod load;
mod memory;
mod model;
mod pipeline;
pub mod presets;
pub mod problem;
mod reader;
mod resume;
mod sharding;
pub mod settings;
mod sheet;
mod tensor_parallel;
mod text;
pub mod topology;
mod training;
mod trouble;
mod value;
mod written;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::base::context::Attention;
use crate::base::experts::Experts;
use crate::base::folding::Folding;
use crate::base::hardware::Hardware;
use crate::base::mesh::{Axis, Mesh};
use crate::base::model::{Model, Part};
use crate::base::precision::Precision;
pub use crate::base::settings::{
    AllReduce, CollectiveKind, ContextMethod, FeedForwardSplit, Optimizer, OptimizerKind, PointToPoint, Recompute, SavedTensors,
    Strategy, Updates, Values, Wrap,
};
use crate::base::sharing::Sharing;
use crate::base::{Bytes, Dtype, Rank};
use crate::program::plan::Plan;
use crate::program::sheet::Sheet;
use crate::program::tables::Padded;
use crate::program::trouble::{Trouble, TroubleKind};
use crate::schedule::{Placement, Schedule, Size};

pub use context_parallel::ContextParallel;
pub use load::{Source, decode, load, read};
pub use problem::{Problem, Problems};
pub use settings::{Setting, settings};
pub use sheet::with_sheet;
pub use text::{merged, new_scenario, show_scenario};

/// A checked scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name on the screen and in reports.
    pub title: String,
    /// Start of all random numbers.
    pub seed: u64,
    /// What is run.
    pub task: Task,
    /// What things cost.
    pub hardware: Hardware,
    /// How numbers are computed, if they are.
    pub numerics: Numerics,
    /// Faults; the first that fits an op applies.
    pub trouble: Vec<Trouble>,
}

/// What is run.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one for a run")]
pub enum Task {
    /// Training steps.
    Train(Training),
    /// A bare collective.
    Collective(Collective),
    /// A bare layer of attention.
    Layer(Layer),
    /// A bare mixture of experts.
    Experts(Experts),
}

/// Training steps of a model on a mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// The transformer.
    pub model: Model,
    /// Types of parameters, gradients and optimizer state.
    pub precision: Precision,
    /// How much data a step takes.
    pub batch: Batch,
    /// All ranks; at least as many layers as stages.
    pub mesh: Mesh,
    /// Which of them do the same at the same time, and are followed as one.
    pub folding: Folding,
    /// The data-parallel ranks that share out the experts of each layer; divides them, and 1 without experts.
    pub expert: usize,
    /// How ranks share the matrices of each layer.
    pub tensor_parallel: TensorParallel,
    /// How ranks share each sequence.
    pub context_parallel: ContextParallel,
    /// How replicas average their gradients, and what they share out.
    pub data_parallel: DataParallel,
    /// How sharded parameters are gathered.
    pub fsdp: Fsdp,
    /// What backward computes again.
    pub recompute: Recomputation,
    /// How stages work together.
    pub pipeline: Pipeline,
    /// What a step does with the gradients.
    pub optimizer: Optimizer,
}

/// How much data a step takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Micro-batches per data-parallel rank and step, m.
    pub micro_batches: u32,
    /// Sequences in a micro-batch, b; in the largest, where they differ.
    pub micro_batch_size: usize,
    /// Sequences of each micro-batch of a rank's step, where they differ; else empty.
    pub sizes: Vec<usize>,
    /// Training steps.
    pub steps: u32,
    /// What was done before the first of them.
    pub before: Before,
    /// Padding that a fault puts into the data.
    pub padded: Option<Padded>,
}

/// What was done before a run: nothing, or what a checkpoint says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Training steps.
    pub steps: u32,
    /// Micro-batches of all data-parallel ranks, in sizes of this run.
    pub micro_batches: u32,
}

/// How replicas average their gradients, and what they share out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataParallel {
    /// What every rank keeps but its own share of.
    pub strategy: Strategy,
    /// Where every rank has whole gradients, they are summed once a step, not once a micro-batch.
    pub no_sync: bool,
    /// How the data moves.
    pub all_reduce: AllReduce,
    /// A bucket closes when it is at least this large.
    pub bucket: Bytes,
    /// The same for the first bucket.
    pub first_bucket: Bytes,
    /// Buckets leave while the backward pass goes on.
    pub overlap: bool,
    /// Every message of a collective is an op; otherwise the whole collective is.
    pub expand: bool,
}

/// How ranks share the matrices of each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorParallel {
    /// Each rank keeps its own tokens of the residual stream.
    pub sequence_parallel: bool,
    /// How they cut the feed-forward's matrices; one rank by itself has them whole.
    pub feed_forward: FeedForwardSplit,
}

/// How sharded parameters are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsdp {
    /// Ranks that share one copy of the state; divides the data-parallel ranks.
    pub shard_size: usize,
    /// What becomes of what is gathered for forward.
    pub reshard_after_forward: Reshard,
    /// Units gathered ahead of computation.
    pub prefetch: usize,
    /// The most units that are gathered at a time.
    pub in_flight: usize,
    /// How much is gathered as a whole.
    pub wrap: Wrap,
}

/// What becomes of gathered parameters between forward and backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reshard {
    /// They are kept whole.
    Keep,
    /// They are freed, and gathered again from all shards.
    Free,
    /// They are cut among so many neighbours, more than one and fewer than share a copy, and gathered again from those alone.
    To(usize),
}

/// What backward computes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recomputation {
    /// How much of a layer.
    pub mode: Recompute,
    /// Of one layer in so many.
    pub every: u32,
    /// Which tensors a layer keeps.
    pub saved: SavedTensors,
    /// Forward leaves word where its random numbers stood, so that dropout drops the same elements again.
    pub preserve_rng_state: bool,
}

/// How stages work together.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Which slots run where, and in which order.
    pub order: Order,
    /// When a stage updates its weights.
    pub updates: Updates,
    /// Segments that sequences go through the pipeline in; divides the model's sequence.
    pub segments: u32,
    /// Who waits for whom when stages exchange a message.
    pub p2p: PointToPoint,
    /// Ranks meet at the end of a step.
    pub barrier: bool,
    /// Trouble: a stage that begins a layer too late or too early.
    pub off_by_one: Option<OffByOne>,
    /// Blocks of each stage; one entry per stage, each at least 1, together the model's layers.
    pub layers_per_stage: Vec<usize>,
}

/// A stage whose cut is off by one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffByOne {
    /// The stage, not the first.
    pub stage: usize,
    /// It runs the last layer of the stage before it, too; otherwise it leaves its own first layer out.
    pub is_early: bool,
}

/// Which slots run where, and in which order.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// As a named schedule says.
    Schedule(&'static Schedule),
    /// As somebody's own plan says.
    Sheet(Arc<Sheet>),
    /// As this plan says, which is sound: its rows are the pipeline's ranks, and it runs every micro-batch through every stage and back.
    Plan(Arc<Plan>),
}

/// How numbers are computed, if they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numerics {
    /// Real numbers, or shapes alone.
    pub values: Values,
    /// Type of the tensors; f32 or f64 for real values.
    pub dtype: Dtype,
    /// Gradients are rounded to a grid before they are summed, so that sums do not depend on their order.
    pub exact: bool,
}

/// A bare collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Which one.
    pub kind: CollectiveKind,
    /// Payload of each rank: a whole number of elements, at least one per chunk.
    pub bytes: Bytes,
    /// Ranks that take part.
    pub ranks: usize,
    /// How the data moves.
    pub algorithm: AllReduce,
    /// Pieces that the payload is cut into; `ranks` for a ring.
    pub chunks: usize,
}

/// A bare layer: attention, forward and backward, whose sequence is cut up over context-parallel ranks, a slice each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// How ranks come by the keys and values of others.
    pub method: ContextMethod,
    /// Its sizes.
    pub attention: Attention,
}

impl Order {
    /// Its name: the schedule's, or `plan`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Schedule(schedule) => schedule.name,
            Self::Sheet(_) | Self::Plan(_) => "plan",
        }
    }
}

impl Scenario {
    /// Reads the text of a scenario and the overrides, each `section.key=value`. `name` names the text in problems.
    ///
    /// # Errors
    /// All problems of the text and the overrides at once; a syntax error alone.
    pub fn parse(name: &str, text: &str, overrides: &[String]) -> Result<Self, Problems> {
        reader::scenario(name, text, overrides)
    }

    /// The problem, at its place in the text of a scenario, that its rule `[[trouble]]` number `index` meets no op: this takes a
    /// program, and only who compiles the scenario finds it.
    #[must_use]
    pub fn idle_trouble(source: &Source, overrides: &[String], index: usize, message: &str, hint: &str) -> Problems {
        reader::idle_trouble(&source.name, &source.text, overrides, index, [message, hint])
    }

    /// The same with `plan`, which is sound and computes the same stages and micro-batches on as many ranks. A bare collective has none.
    #[must_use]
    pub fn with_plan(mut self, plan: Arc<Plan>) -> Self {
        if let Task::Train(training) = &mut self.task {
            training.pipeline.order = Order::Plan(plan);
        }
        self
    }

    /// Whether there is a trouble of this kind.
    #[must_use]
    pub fn has_trouble(&self, kind: TroubleKind) -> bool {
        self.trouble.iter().any(|rule| rule.kind == kind)
    }

    /// Whether whole gradients are summed once a step: as `no_sync` says, unless a fault forgets it.
    #[must_use]
    pub fn sums_once(&self, training: &Training) -> bool {
        training.data_parallel.no_sync && !self.has_trouble(TroubleKind::SyncAlways)
    }

    /// The number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        match &self.task {
            Task::Train(training) => training.mesh.ranks(),
            Task::Collective(collective) => collective.ranks,
            Task::Layer(layer) => layer.attention.slices,
            Task::Experts(layer) => layer.ranks,
        }
    }
}

impl Training {
    /// The number of pipeline stages: one for each rank of the pipeline, or several.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.pipeline.layers_per_stage.len()
    }

    /// Whether every stage stands on two ranks of the pipeline.
    #[must_use]
    pub fn is_two_way(&self) -> bool {
        match &self.pipeline.order {
            Order::Schedule(schedule) => schedule.placement == Placement::TwoWay,
            Order::Plan(plan) => plan.is_two_way(),
            Order::Sheet(_) => false,
        }
    }

    /// Whether a tied embedding stands on one rank, and the head that shares it on another.
    #[must_use]
    pub fn splits_embedding(&self) -> bool {
        let ends = |row: usize| {
            let stages = self.stages_of(row);
            stages.contains(&0) && stages.contains(&(self.stages() - 1))
        };
        self.model.tied && !(0..self.mesh.size(Axis::Pipeline)).any(ends)
    }

    /// What a step takes through the pipeline, one after the other: micro-batches, or segments of them.
    #[must_use]
    pub fn pieces(&self) -> u32 {
        self.batch.micro_batches * self.pipeline.segments
    }

    /// The plan of a step; of all steps, whose micro-batches are numbered through, where the pipeline is never drained.
    #[must_use]
    pub fn plan(&self) -> Plan {
        match &self.pipeline.order {
            Order::Schedule(schedule) => {
                let rounds = if self.pipeline.updates.is_asynchronous() { self.batch.steps } else { 1 };
                let size = self.size();
                (schedule.plan)(Size { micro_batches: rounds * size.micro_batches, ..size })
            }
            Order::Sheet(sheet) => sheet.plan(),
            Order::Plan(plan) => Plan::clone(plan),
        }
    }

    /// What its schedule depends on.
    ///
    /// # Panics
    /// Never: a checked scenario has far fewer ranks and stages than 2^32.
    #[must_use]
    pub fn size(&self) -> Size {
        let ranks = self.mesh.size(Axis::Pipeline);
        let count = |number: usize| u32::try_from(number).expect("a checked number of stages");
        let (segments, micro_batches) = (self.pipeline.segments, self.batch.micro_batches);
        Size { ranks: count(ranks), chunks: count(self.stages() / ranks), segments, micro_batches }
    }

    /// The blocks of `stage`.
    #[must_use]
    pub fn layers(&self, stage: usize) -> Range<usize> {
        let layers = &self.pipeline.layers_per_stage;
        let start: usize = layers[..stage].iter().sum();
        let first = match self.pipeline.off_by_one {
            Some(OffByOne { stage: wrong, is_early }) if wrong == stage => {
                if is_early {
                    start - 1
                } else {
                    start + 1
                }
            }
            _ => start,
        };
        first..start + layers[stage]
    }

    /// The parts of the model on `stage`, in forward order: the first stage has the embedding, the last the head.
    #[must_use]
    pub fn parts(&self, stage: usize) -> Vec<Part> {
        let layers = self.layers(stage);
        // Places in forward order: the embedding is 0, block i is i + 1, the head comes last.
        let first = if stage == 0 { 0 } else { layers.start + 1 };
        let last = if stage + 1 == self.stages() { layers.end + 1 } else { layers.end };
        self.model.parts().take(last + 1).skip(first).collect()
    }

    /// The parts of the model on the pipeline rank `row`.
    #[must_use]
    pub fn parts_of(&self, row: usize) -> Vec<Part> {
        self.stages_of(row).into_iter().flat_map(|stage| self.parts(stage)).collect()
    }

    /// The stages of the pipeline rank `row`, in order.
    fn stages_of(&self, row: usize) -> Vec<usize> {
        let rank = u32::try_from(row).unwrap_or(u32::MAX);
        let stages: BTreeSet<u32> = match &self.pipeline.order {
            Order::Schedule(schedule) => schedule.placement.stages(self.size(), rank).into_iter().collect(),
            Order::Sheet(_) | Order::Plan(_) => {
                self.plan().rows[row].iter().flat_map(|cell| cell.slots()).map(|slot| slot.stage).collect()
            }
        };
        stages.into_iter().map(|stage| stage as usize).collect()
    }

    /// Memory of the parameters of `stage`.
    #[must_use]
    pub fn parameter_bytes(&self, stage: usize) -> Bytes {
        let parts = self.parts(stage).into_iter();
        let elements: usize = parts.flat_map(|part| self.model.parameters_of(part)).map(|parameter| parameter.elements()).sum();
        Bytes(elements as u64 * self.precision.parameter.size())
    }

    /// Ranks that hold the same parameters and see different data: replicas, and within each those that have slices of its sequences.
    #[must_use]
    pub fn data_ranks(&self) -> usize {
        self.mesh.size(Axis::Data) * self.mesh.size(Axis::Context)
    }

    /// The ranks that are followed, each by its number among those and its number among all.
    pub fn followed(&self) -> impl Iterator<Item = (Rank, Rank)> + '_ {
        let ranks = (0..self.mesh.ranks() / self.folding.size()).map(Rank::new);
        ranks.map(|rank| (rank, self.folding.unfold(rank, 0)))
    }

    /// What the ranks share out, and among how many. Where there is but one, all strategies are the same.
    #[must_use]
    pub fn sharing(&self) -> (&'static Sharing, usize) {
        let sharing = self.data_parallel.strategy.sharing();
        let shards = if sharing.parameters { self.fsdp.shard_size.min(self.data_ranks()) } else { self.data_ranks() };
        if shards == 1 || !sharing.optimizer { (Strategy::Ddp.sharing(), 1) } else { (sharing, shards) }
    }

    /// Whether backward computes `part` again, and how much of it.
    #[must_use]
    pub fn recomputes(&self, part: Part) -> Recompute {
        match part {
            Part::Block(layer) if layer.is_multiple_of(self.recompute.every) => self.recompute.mode,
            _ => Recompute::None,
        }
    }
}
