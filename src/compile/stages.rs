//! The stages of the pipeline: which parts each holds, and what those parts' kernels take.

use std::collections::BTreeMap;

use crate::base::mesh::Axis;
use crate::base::model::{Model, Part};
use crate::base::module::Module;
use crate::base::saved::{self, SavedTensor};
use crate::base::settings::{Dtype, SavedTensors};
use crate::base::{BufferId, KernelId, LayoutId, ParameterId, Rank};
use crate::program::tables::{Layout, TensorPart};
use crate::program::{Inside, Kernel, KernelCost, Program};
use crate::scenario::Training;

use super::data_parallel::Held;
use super::flops;
use super::homes::Homes;
use super::slices::Slices;
use super::tensor_parallel;

/// The parts of every stage, and the layouts and kernels that all stages share.
pub(super) struct Stages {
    /// Per stage, its parts in forward order.
    pub parts: Vec<Vec<PartTables>>,
    /// Per place (0 embedding, then blocks, last the head) its stage.
    pub stage_of_place: Vec<usize>,
    pub activation: LayoutId,
    pub tokens: LayoutId,
    pub loss: LayoutId,
    /// What flows inside layers that are cut into modules.
    pub inside: BTreeMap<Inside, LayoutId>,
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
    /// Per lane and home of the stage, the parameters' buffers in the kernels' order.
    pub weights: Vec<Vec<BufferId>>,
    /// Per lane and home, their gradients' buffers.
    pub gradients: Vec<Vec<BufferId>>,
    /// The modules that a layer is cut into; empty where it is computed in one go.
    pub modules: Vec<PartTables>,
}

/// The kernels of a part.
#[derive(Clone, Copy)]
pub(super) struct Passes {
    pub forward: KernelId,
    /// Forward once more; of a module.
    pub again: KernelId,
    pub backward_input: KernelId,
    pub backward_weight: KernelId,
}

/// The lanes of the mesh, each by its first rank: pipelines beside each other, which differ along all axes but their own.
pub(super) fn lanes(training: &Training) -> Vec<Rank> {
    training.mesh.groups(Axis::Pipeline).into_iter().map(|ranks| ranks[0]).collect()
}

/// The rank of the plan's `row` in `lane`.
pub(super) fn rank(training: &Training, lane: Rank, row: usize) -> Rank {
    training.mesh.with(lane, Axis::Pipeline, row)
}

impl Stages {
    /// Cuts the model into stages, which stand at `homes`; `held` is what every rank holds.
    pub(super) fn new(program: &mut Program, training: &Training, homes: &Homes, slices: &Slices, held: &[Held]) -> Self {
        let (size, dtype) = (training.batch.micro_batch_size, training.precision.parameter);
        let model = &training.model;
        let cut = cut(training);
        let stage_of_place = cut.iter().enumerate().flat_map(|(stage, parts)| parts.iter().map(move |_| stage)).collect();
        let mut stages = Self {
            parts: cut.iter().map(|parts| stage(program, training, homes.overlaps, parts)).collect(),
            stage_of_place,
            activation: program.layout(Layout::tensor(dtype, &[tensor_parallel::tokens(training), vec![model.hidden]].concat())),
            tokens: program.layout(Layout::tensor(Dtype::U32, &[size, model.sequence])),
            // A mean over many tokens: nobody takes it in half precision.
            loss: program.layout(Layout::tensor(dtype.widened(), &[])),
            inside: tensor_parallel::layouts(program, training),
            load_tokens: program.kernel(KernelCost::free(Kernel::LoadTokens)),
            load_targets: program.kernel(KernelCost::free(Kernel::LoadTargets)),
            zero_gradients: program.kernel(KernelCost::free(Kernel::ZeroGradients)),
        };
        for lane in lanes(training) {
            let (place, early) = (training.mesh.coordinate(lane, Axis::Tensor), program.setting.bias_before_sum);
            for (stage, parts) in stages.parts.iter_mut().enumerate() {
                for &row in &homes.of_stage[stage] {
                    let held = &held[rank(training, lane, row).index()];
                    parts.iter_mut().for_each(|part| part.hold(model, slices, (place, early), held));
                }
            }
        }
        stages
    }
}

impl PartTables {
    /// The buffers that its kernels take on the next rank.
    fn hold(&mut self, model: &Model, slices: &Slices, (place, early): (usize, bool), held: &Held) {
        let parameters = match self.part {
            Part::Module(layer, module) => slices.of_module(model, place, (layer, module), early),
            part => slices.taken(model, place, part),
        };
        let (weights, gradients) = operands(held, &parameters);
        self.weights.push(weights);
        self.gradients.push(gradients);
        self.modules.iter_mut().for_each(|module| module.hold(model, slices, (place, early), held));
    }

    /// One of its modules.
    ///
    /// # Panics
    /// If it is not cut into modules, or this is none of them.
    pub fn module(&self, module: Module) -> &PartTables {
        let is_it = |tables: &&PartTables| matches!(tables.part, Part::Module(_, one) if one == module);
        self.modules.iter().find(is_it).expect("a module of this part")
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
    let blocks = parts.iter().filter(|part| matches!(part, Part::Block(_))).count();
    let blocks = u32::try_from(blocks).expect("a checked number of layers");
    let tables = |&part: &Part| {
        let mut tables = part_tables(program, training, overlaps, (part, blocks));
        if tensor_parallel::cuts(training) {
            let layer = if let Part::Block(layer) = part { layer } else { 0 };
            let modules = Module::of(part).map(|module| Part::Module(layer, module));
            tables.modules = modules.map(|part| part_tables(program, training, overlaps, (part, blocks))).collect();
        }
        tables
    };
    parts.iter().map(tables).collect()
}

/// A part of a stage with so many blocks, which share its slots evenly; so do the products of a block.
fn part_tables(program: &mut Program, training: &Training, overlaps: bool, (part, blocks): (Part, u32)) -> PartTables {
    let (model, dtype) = (&training.model, training.precision.parameter);
    let shares = match part {
        Part::Block(_) => blocks,
        Part::Module(_, module) if module.is_product() => Module::PRODUCTS * blocks,
        _ => 0,
    };
    let mut passes = |overlapped| {
        let mut kernel = |kernel| program.kernel(KernelCost { overlapped, ..cost(training, kernel, shares) });
        let forward = kernel(Kernel::Forward(part));
        Passes {
            forward,
            again: if let Part::Module(..) = part { kernel(Kernel::Recompute(part)) } else { forward },
            backward_input: kernel(Kernel::BackwardInput(part)),
            backward_weight: kernel(Kernel::BackwardWeight(part)),
        }
    };
    let (alone, overlapped) = (passes(false), passes(overlaps));
    PartTables {
        part,
        place: place(model, part),
        saved: program.layout(bundle(saved(training, part), dtype)),
        deferred: program.layout(bundle(deferred(training, part), dtype)),
        alone,
        overlapped,
        weights: Vec::new(),
        gradients: Vec::new(),
        modules: Vec::new(),
    }
}

/// A kernel on one micro-batch with its FLOPs, and the bytes of the activations that it reads and writes.
pub(super) fn cost(training: &Training, kernel: Kernel, shares: u32) -> KernelCost {
    let (model, size, ranks) = (&training.model, training.batch.micro_batch_size, training.mesh.size(Axis::Tensor));
    let activation = (size * model.sequence * model.hidden) as u64 * training.precision.parameter.size();
    // Norms and sums go through the whole stream; between them a layer reads it once and writes it once.
    let bytes = match kernel.words().1 {
        Some(Part::Module(_, module)) if module.is_of_stream() => activation / 2 / tensor_parallel::stretches(training),
        Some(Part::Module(..)) => 0,
        _ => 2 * activation,
    };
    KernelCost { kernel, shares, taken: 1, overlapped: false, flops: flops::flops(model, (size, ranks), kernel), bytes }
}

/// The place of a part in forward order; of a module, its layer's.
pub(super) fn place(model: &Model, part: Part) -> u32 {
    match part {
        Part::Embedding => 0,
        Part::Block(layer) => layer + 1,
        Part::Module(layer, module) => place(model, module.part(layer)),
        Part::Head => u32::try_from(model.layers).expect("a checked number of layers") + 1,
    }
}

/// What a part's forward keeps for backward, where nothing is recomputed.
pub(super) fn saved(training: &Training, part: Part) -> Vec<SavedTensor> {
    let (model, size) = (&training.model, training.batch.micro_batch_size);
    match part {
        Part::Embedding => saved::embedding_saved(model, size),
        Part::Block(_) if training.recompute.saved == SavedTensors::Megatron => saved::block_saved_by_megatron(model, size),
        Part::Block(_) => saved::block_saved(model, size),
        Part::Module(_, module) => tensor_parallel::saved(training, module),
        Part::Head => saved::head_saved(model, size),
    }
}

/// What a part's backward for the input keeps for the weights.
fn deferred(training: &Training, part: Part) -> Vec<SavedTensor> {
    let (model, size) = (&training.model, training.batch.micro_batch_size);
    match part {
        Part::Embedding => Vec::new(),
        Part::Block(_) => saved::block_deferred(model, size),
        Part::Module(_, module) => tensor_parallel::deferred(training, module),
        Part::Head => saved::head_deferred(model, size),
    }
}

/// Tensors as one value; masks take a byte for an element.
pub(super) fn bundle(tensors: Vec<SavedTensor>, dtype: Dtype) -> Layout {
    let dtype = |tensor: &SavedTensor| if tensor.mask { Dtype::U8 } else { dtype };
    let part = |tensor: SavedTensor| TensorPart { name: tensor.name.to_owned(), dtype: dtype(&tensor), dims: tensor.dims };
    Layout { parts: tensors.into_iter().map(part).collect() }
}

/// The buffers that the kernels of `part` take on a rank: its parameters, and the gradients that backward adds to.
fn operands(held: &Held, parameters: &[ParameterId]) -> (Vec<BufferId>, Vec<BufferId>) {
    let weights = held.of(parameters, |copies| copies.parameter);
    (weights, parameters.iter().map(|&parameter| held.target(parameter)).collect())
}
