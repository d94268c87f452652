//! The stages of the pipeline: which parts each holds, and what those parts' kernels take.

use crate::base::mesh::Axis;
use crate::base::model::{Model, Part};
use crate::base::saved::{self, SavedTensor};
use crate::base::settings::Dtype;
use crate::base::{BufferId, KernelId, LayoutId, ParameterId, Rank};
use crate::program::tables::{Layout, TensorPart};
use crate::program::{Kernel, KernelCost, Name, Program, Role};
use crate::scenario::Training;

use super::flops;
use super::homes::Homes;

/// The parts of every stage, and the layouts and kernels that all stages share.
pub(super) struct Stages {
    /// Per stage, its parts in forward order.
    pub parts: Vec<Vec<PartTables>>,
    /// Per place (0 embedding, then blocks, last the head) its stage.
    pub stage_of_place: Vec<usize>,
    pub activation: LayoutId,
    pub tokens: LayoutId,
    pub loss: LayoutId,
    pub load_tokens: KernelId,
    pub load_targets: KernelId,
    pub zero_gradients: KernelId,
}

/// One part of the model on its stage.
pub(super) struct PartTables {
    pub part: Part,
    /// Place in forward order: 0 embedding, 1.. blocks, last head.
    pub place: u32,
    pub saved: LayoutId,
    pub deferred: LayoutId,
    /// Its passes by themselves.
    pub alone: Passes,
    /// Its passes in a forward and a backward that run as one.
    pub overlapped: Passes,
    /// Per replica and home of the stage, the parameters' buffers in the kernels' order.
    pub weights: Vec<Vec<BufferId>>,
    /// Per replica and home, their gradients' buffers.
    pub gradients: Vec<Vec<BufferId>>,
}

/// The kernels of a part.
#[derive(Clone, Copy)]
pub(super) struct Passes {
    pub forward: KernelId,
    pub backward_input: KernelId,
    pub backward_weight: KernelId,
}

/// The rank of the plan's `row` in `replica`.
pub(super) fn rank(training: &Training, replica: usize, row: usize) -> Rank {
    let mesh = &training.mesh;
    mesh.with(mesh.with(Rank(0), Axis::Data, replica), Axis::Pipeline, row)
}

impl Stages {
    /// Cuts the model, and gives every rank the parameters, gradients and moments of its stage.
    pub(super) fn new(program: &mut Program, training: &Training, homes: &Homes) -> Self {
        let (size, dtype) = (training.batch.micro_batch_size, training.parameter_dtype);
        let model = &training.model;
        program.parameters = model.parameters();
        let cut = cut(training);
        let first_parameter = first_parameters(model);
        let stage_of_place = cut.iter().enumerate().flat_map(|(stage, parts)| parts.iter().map(move |_| stage)).collect();
        let mut stages = Self {
            parts: cut.iter().map(|parts| stage(program, training, homes.overlaps, parts)).collect(),
            stage_of_place,
            activation: program.layout(Layout::tensor(dtype, &[size, model.sequence, model.hidden])),
            tokens: program.layout(Layout::tensor(Dtype::U32, &[size, model.sequence])),
            loss: program.layout(Layout::tensor(dtype, &[])),
            load_tokens: program.kernel(KernelCost::free(Kernel::LoadTokens)),
            load_targets: program.kernel(KernelCost::free(Kernel::LoadTargets)),
            zero_gradients: program.kernel(KernelCost::free(Kernel::ZeroGradients)),
        };
        for replica in 0..training.mesh.size(Axis::Data) {
            for (stage, parts) in stages.parts.iter_mut().enumerate() {
                for &row in &homes.of_stage[stage] {
                    add_state(program, training, &first_parameter, rank(training, replica, row), parts);
                }
            }
        }
        stages
    }
}

/// The parts of each stage: blocks as the scenario cuts them, the embedding first, the head last.
fn cut(training: &Training) -> Vec<Vec<Part>> {
    let mut blocks = training.model.parts().skip(1);
    let cut = &training.pipeline.layers_per_stage;
    let mut stages: Vec<Vec<Part>> = cut.iter().map(|&layers| blocks.by_ref().take(layers).collect()).collect();
    stages.first_mut().expect("a pipeline has a stage").insert(0, Part::Embedding);
    stages.last_mut().expect("a pipeline has a stage").push(Part::Head);
    stages
}

fn stage(program: &mut Program, training: &Training, overlaps: bool, parts: &[Part]) -> Vec<PartTables> {
    let (model, size, dtype) = (&training.model, training.batch.micro_batch_size, training.parameter_dtype);
    let blocks = parts.iter().filter(|part| matches!(part, Part::Block(_))).count();
    let blocks = u32::try_from(blocks).expect("a checked number of layers");
    let tables = |&part: &Part| {
        let shares = if matches!(part, Part::Block(_)) { blocks } else { 0 };
        let mut passes = |overlapped| {
            let mut kernel = |kernel| program.kernel(KernelCost { overlapped, ..cost(training, kernel, shares) });
            Passes {
                forward: kernel(Kernel::Forward(part)),
                backward_input: kernel(Kernel::BackwardInput(part)),
                backward_weight: kernel(Kernel::BackwardWeight(part)),
            }
        };
        let (alone, overlapped) = (passes(false), passes(overlaps));
        PartTables {
            part,
            place: place(model, part),
            saved: program.layout(bundle(saved(model, size, part), dtype)),
            deferred: program.layout(bundle(deferred(model, size, part), dtype)),
            alone,
            overlapped,
            weights: Vec::new(),
            gradients: Vec::new(),
        }
    };
    parts.iter().map(tables).collect()
}

/// A kernel on one micro-batch with its FLOPs, and the bytes of the activations that it reads and writes.
pub(super) fn cost(training: &Training, kernel: Kernel, shares: u32) -> KernelCost {
    let (model, size) = (&training.model, training.batch.micro_batch_size);
    let activation = (size * model.sequence * model.hidden) as u64 * training.parameter_dtype.size();
    KernelCost { kernel, shares, overlapped: false, flops: flops::flops(model, size, kernel), bytes: 2 * activation }
}

fn place(model: &Model, part: Part) -> u32 {
    match part {
        Part::Embedding => 0,
        Part::Block(layer) => layer + 1,
        Part::Head => u32::try_from(model.layers).expect("a checked number of layers") + 1,
    }
}

/// Per place, the number of its part's first parameter; behind the last, the number of all.
fn first_parameters(model: &Model) -> Vec<usize> {
    let counts = model.parts().map(|part| model.parameters_of(part).len());
    let sums = counts.scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// The parameters that the kernels of `part` take. A tied head also takes the token embedding's weight, parameter 0.
fn parameters(model: &Model, first_parameter: &[usize], part: Part) -> Vec<ParameterId> {
    let place = place(model, part) as usize;
    let own = (first_parameter[place]..first_parameter[place + 1]).map(ParameterId::new);
    let tied = (model.tied && part == Part::Head).then_some(ParameterId(0));
    own.chain(tied).collect()
}

/// What a part's forward keeps for backward.
fn saved(model: &Model, size: usize, part: Part) -> Vec<SavedTensor> {
    match part {
        Part::Embedding => Vec::new(),
        Part::Block(_) => saved::block_saved(model, size),
        Part::Head => saved::head_saved(model, size),
    }
}

/// What a part's backward for the input keeps for the weights.
fn deferred(model: &Model, size: usize, part: Part) -> Vec<SavedTensor> {
    match part {
        Part::Embedding => Vec::new(),
        Part::Block(_) => saved::block_deferred(model, size),
        Part::Head => saved::head_deferred(model, size),
    }
}

fn bundle(tensors: Vec<SavedTensor>, dtype: Dtype) -> Layout {
    let part = |tensor: SavedTensor| TensorPart { name: tensor.name.to_owned(), dtype, dims: tensor.dims };
    Layout { parts: tensors.into_iter().map(part).collect() }
}

/// Gives `rank` the state of its stage's parts. On one stage a tied head shares the embedding's buffers.
fn add_state(program: &mut Program, training: &Training, first_parameter: &[usize], rank: Rank, parts: &mut [PartTables]) {
    let mut tied = None;
    for part in parts {
        let buffers = parameters(&training.model, first_parameter, part.part).into_iter().map(|parameter| match tied {
            Some(buffers) if parameter == ParameterId(0) => buffers,
            _ => {
                let buffers = add_parameter(program, training, rank, parameter);
                tied = tied.or(Some(buffers));
                buffers
            }
        });
        let (weights, gradients) = buffers.unzip();
        part.weights.push(weights);
        part.gradients.push(gradients);
    }
}

/// Adds a parameter's buffers on `rank`: its value, its gradient, and the optimizer's moments.
fn add_parameter(program: &mut Program, training: &Training, rank: Rank, parameter: ParameterId) -> (BufferId, BufferId) {
    let dtype = training.parameter_dtype;
    let dims = program.parameters[parameter.index()].dims.clone();
    let layout = program.layout(Layout::tensor(dtype, &dims));
    // Half-precision parameters keep their moments in f32.
    let moment = if dtype.size() < 4 { Dtype::F32 } else { dtype };
    let moment_layout = program.layout(Layout::tensor(moment, &dims));
    let moments = [Name::FirstMoment(parameter), Name::SecondMoment(parameter)];
    for name in moments.into_iter().take(training.optimizer.kind.moments()) {
        program.buffer(rank, name, Role::Optimizer, moment_layout);
    }
    let weight = program.buffer(rank, Name::Parameter(parameter), Role::Parameter, layout);
    (weight, program.buffer(rank, Name::Gradient(parameter), Role::Gradient, layout))
}
