//! How a scenario becomes a program: a plan, lowered to compute ops, then one named pass after the other.
//!
//! `PASSES` is the recipe. Each pass does one thing to the whole program, and `ranklab compile FILE --after PASS` prints it there.

mod buckets;
mod collective;
mod context_parallel;
mod data_parallel;
mod expand;
mod expert_parallel;
mod experts;
mod flops;
mod free;
mod homes;
mod layer;
mod lower;
mod messages;
mod optimizer;
mod recompute;
mod sheet;
mod slices;
mod stages;
mod synchronise;
mod tensor_parallel;
mod tied;
mod trouble;
mod versions;

use std::collections::BTreeSet;

use crate::base::Updates;
use crate::base::context::Attention;
use crate::base::mesh::Axis;
use crate::program::Program;
use crate::program::plan::{Plan, Slot};
use crate::program::tables::Setting;
use crate::program::trouble::TroubleKind;
use crate::scenario::{Scenario, Task, Training};

use homes::Homes;
use slices::Slices;

pub use buckets::{Bucket, assign as assign_buckets};
use data_parallel::{Held, Sharing};

/// What compiling gives.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The pipeline's plan; `None` for a bare piece.
    pub plan: Option<Plan>,
    /// The program.
    pub program: Program,
    /// Trouble rules that fit no op, by their place in the scenario.
    pub idle_trouble: Vec<usize>,
}

/// A program under construction.
struct Build<'scenario> {
    scenario: &'scenario Scenario,
    /// The pipeline's plan; `None` for a bare collective.
    plan: Option<Plan>,
    program: Program,
    /// Slots that run as one with the slot before them.
    joined: BTreeSet<Slot>,
    /// Rules that have not met an op yet, by their place in the scenario.
    trouble: Vec<usize>,
    /// What the ranks share out; `None` for a bare collective.
    sharing: Option<Sharing>,
    /// Who holds which slices; `None` for a bare collective.
    slices: Option<Slices>,
    /// Per rank, the buffers of its state.
    held: Vec<Held>,
}

/// A named pass.
struct Pass {
    name: &'static str,
    run: fn(&mut Build),
}

/// The recipe: the first entry makes the ops, each later one changes the program.
const PASSES: &[Pass] = &[
    Pass { name: "lower", run: lower::run },
    Pass { name: "recompute", run: recompute::run },
    Pass { name: "tensor-sums", run: tensor_parallel::sums::run },
    Pass { name: "gather", run: data_parallel::gather::run },
    Pass { name: "data-parallel", run: data_parallel::reduce::run },
    Pass { name: "tied", run: tied::run },
    Pass { name: "optimizer", run: optimizer::run },
    Pass { name: "versions", run: versions::run },
    Pass { name: "messages", run: messages::run },
    Pass { name: "trouble", run: trouble::run },
    Pass { name: "expand", run: expand::run },
    Pass { name: "trouble-in-steps", run: trouble::run },
    Pass { name: "free", run: free::run },
    Pass { name: "synchronise", run: synchronise::run },
];

/// The names of the passes, in order.
pub fn pass_names() -> impl Iterator<Item = &'static str> {
    PASSES.iter().map(|pass| pass.name)
}

/// Compiles the whole scenario.
#[must_use]
pub fn compile(scenario: &Scenario) -> Compiled {
    run_passes(scenario, PASSES)
}

/// Compiles up to and including the pass called `name`; `None` if there is none.
#[must_use]
pub fn compile_until(scenario: &Scenario, name: &str) -> Option<Compiled> {
    let last = PASSES.iter().position(|pass| pass.name == name)?;
    Some(run_passes(scenario, &PASSES[..=last]))
}

/// The plan of one step of a pipeline.
#[must_use]
pub fn plan(training: &Training) -> Plan {
    training.plan()
}

fn run_passes(scenario: &Scenario, passes: &[Pass]) -> Compiled {
    let program = match &scenario.task {
        Task::Train(training) => Program::new(training.followed().count(), setting(scenario, training)),
        Task::Collective(collective) => Program::new(collective.ranks, bare_setting(scenario, None)),
        Task::Layer(layer) => Program::new(layer.attention.slices, bare_setting(scenario, Some(layer.attention))),
        Task::Experts(layer) => {
            Program::new(layer.ranks, Setting { experts: Some(layer.clone()), ..bare_setting(scenario, None) })
        }
    };
    let plan = match &scenario.task {
        Task::Train(training) => Some(plan(training)),
        Task::Collective(_) | Task::Layer(_) | Task::Experts(_) => None,
    };
    let mut joined = BTreeSet::new();
    joined.extend(plan.iter().flat_map(Plan::joined));
    let trouble = trouble::rules(scenario);
    let mut build = Build { scenario, plan, program, joined, trouble, sharing: None, slices: None, held: Vec::new() };
    for pass in passes {
        (pass.run)(&mut build);
    }
    let idle_trouble = trouble::idle(&build);
    Compiled { plan: build.plan, program: build.program, idle_trouble }
}

/// The grid of exact mode: gradients of the lab's models stay far below 2^8, and 2^8 * 2^15 fits f32's 24-bit mantissa.
const EXACT_GRID: i32 = 15;

fn setting(scenario: &Scenario, training: &Training) -> Setting {
    let data_ranks = u32::try_from(training.data_ranks()).expect("a checked number of ranks");
    let has = |kind| scenario.trouble.iter().any(|rule| rule.kind == kind);
    Setting {
        model: Some(training.model.clone()),
        attention: context_parallel::attention(training),
        experts: None,
        micro_batch_size: training.batch.micro_batch_size,
        micro_batch_sizes: training.batch.sizes.iter().map(|&size| u32::try_from(size).expect("a checked size")).collect(),
        // An update of its own needs no weight beside others.
        mean_of_means: training.pipeline.updates == Updates::EachMicroBatch || trouble::takes_mean_of_means(scenario),
        segments: if training.pipeline.segments > 1 { training.pipeline.segments } else { 0 },
        micro_batches_per_step: match training.pipeline.updates {
            Updates::EachMicroBatch => 1,
            Updates::EachStep | Updates::Delayed => trouble::averaged_over(scenario, training.pieces(), data_ranks),
        },
        steps: training.batch.steps,
        first_step: training.batch.before.steps,
        padded: training.batch.padded,
        dtype: training.precision.parameter,
        initial: training.precision.parameter,
        grid: scenario.numerics.exact.then_some(EXACT_GRID),
        seed: scenario.seed,
        optimizer: training.optimizer,
        tensor: training.mesh.line(Axis::Tensor),
        feed_forward: training.split().feed_forward,
        context: training.mesh.line(Axis::Context),
        data: training.mesh.line(Axis::Data),
        same_seed: has(TroubleKind::SameSeed),
        bias_before_sum: has(TroubleKind::BiasBeforeSum),
        folding: training.folding.clone(),
    }
}

/// What the kernels of a bare piece need to know: there is no model.
fn bare_setting(scenario: &Scenario, attention: Option<Attention>) -> Setting {
    let dtype = scenario.numerics.dtype;
    Setting { attention, steps: 1, dtype, initial: dtype, seed: scenario.seed, ..Setting::default() }
}

impl<'scenario> Build<'scenario> {
    fn training(&self) -> Option<&'scenario Training> {
        match &self.scenario.task {
            Task::Train(training) => Some(training),
            Task::Collective(_) | Task::Layer(_) | Task::Experts(_) => None,
        }
    }

    /// Where the stages of the plan stand; `None` for a bare collective.
    fn homes(&self) -> Option<Homes> {
        Some(Homes::new(self.plan.as_ref()?, self.training()?.stages()))
    }
}
