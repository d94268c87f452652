//! The stages of the pipeline: which parts each holds, and what those parts' kernels take.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::mesh::Axis;
use crate::base::model::{Model, Part, Segment};
use crate::base::module::Module;
use crate::base::saved::{self, SavedTensor};
use crate::base::settings::{Dtype, SavedTensors};
use crate::base::{BufferId, KernelId, LayoutId, ParameterId, Rank};
use crate::program::tables::{Layout, TensorPart};
use crate::program::{Inside, Kernel, KernelCost, Program};
use crate::scenario::Training;

use super::data_parallel::Held;
use super::expert_parallel;
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
    /// Per kind of piece, the layouts of activations and tokens.
    pub activations: Vec<LayoutId>,
    pub tokens: Vec<LayoutId>,
    pub loss: LayoutId,
    /// Per piece of the plan's first step, its kind at the first place among the ranks that share out experts.
    pub kinds: Vec<usize>,
    /// Per kind of piece, what flows inside layers that are cut into modules.
    pub inside: Vec<BTreeMap<Inside, LayoutId>>,
    pub load_tokens: KernelId,
    pub load_targets: KernelId,
    pub zero_gradients: KernelId,
}

/// One part of the model on its stage.
pub(super) struct PartTables {
    pub part: Part,
    /// Place in forward order: 0 embedding, 1.. blocks, last head.
    pub place: u32,
    /// For each kind of piece: of a size, and of a segment.
    pub pieces: Vec<PieceTables>,
    /// Per lane and home of the stage, the parameters' buffers in the kernels' order.
    pub weights: Vec<Vec<BufferId>>,
    /// Per lane and home, their gradients' buffers.
    pub gradients: Vec<Vec<BufferId>>,
    /// The modules that it is cut into; empty where it is computed in one go.
    pub modules: Vec<PartTables>,
}

/// What a part's kernels make of a piece of data; mostly there is one kind, a whole micro-batch.
pub(super) struct PieceTables {
    pub saved: LayoutId,
    pub deferred: LayoutId,
    /// What it leaves for the keys and values before it.
    pub key_value_gradient: LayoutId,
    /// Its passes by themselves.
    pub alone: Passes,
    /// Its passes in a forward and a backward that run as one.
    pub overlapped: Passes,
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

/// The lanes of the mesh that are followed, each by its first rank among all: pipelines beside each other, which differ along all axes but
/// their own.
pub(super) fn lanes(training: &Training) -> Vec<Rank> {
    let firsts = training.mesh.groups(Axis::Pipeline).into_iter().map(|ranks| ranks[0]);
    firsts.filter(|&first| training.folding.is_followed(first)).collect()
}

/// The rank of the plan's `row` in `lane`, which is followed.
pub(super) fn rank(training: &Training, lane: Rank, row: usize) -> Rank {
    training.folding.fold(training.mesh.with(lane, Axis::Pipeline, row)).0
}

impl Stages {
    /// Cuts the model into stages, which stand at `homes`; `held` is what every rank holds.
    pub(super) fn new(program: &mut Program, training: &Training, homes: &Homes, slices: &Slices, held: &[Held]) -> Self {
        let (model, dtype) = (&training.model, training.precision.parameter);
        let cut: Vec<Vec<Part>> = (0..training.stages()).map(|stage| training.parts(stage)).collect();
        let pieces = pieces(training);
        let tokens = |piece: &Piece| [piece.size, piece.segment.tokens(model) / training.mesh.size(Axis::Context)];
        let shares_tokens = tensor_parallel::shares_tokens(training);
        let stream = |piece: &Piece| if shares_tokens { tensor_parallel::tokens(training) } else { tokens(piece).to_vec() };
        let activation = |piece: &Piece| [stream(piece), vec![model.hidden]].concat();
        let stage_of_place = cut.iter().enumerate().flat_map(|(stage, parts)| parts.iter().map(move |_| stage)).collect();
        let mut stages = Self {
            parts: cut.iter().map(|parts| stage(program, training, homes.overlaps, parts)).collect(),
            stage_of_place,
            activations: pieces.iter().map(|piece| program.layout(Layout::tensor(dtype, &activation(piece)))).collect(),
            tokens: pieces.iter().map(|piece| program.layout(Layout::tensor(Dtype::U32, &tokens(piece)))).collect(),
            kinds: kinds(training),
            // A mean over many tokens: nobody takes it in half precision.
            loss: program.layout(Layout::tensor(dtype.widened(), &[])),
            inside: pieces.iter().map(|piece| tensor_parallel::layouts(program, training, piece.place)).collect(),
            load_tokens: program.kernel(KernelCost::free(Kernel::LoadTokens)),
            load_targets: program.kernel(KernelCost::free(Kernel::LoadTargets)),
            zero_gradients: program.kernel(KernelCost::free(Kernel::ZeroGradients)),
        };
        // Places follow the way of a micro-batch.
        (0..).zip(stages.parts.iter_mut().flatten()).for_each(|(place, part)| part.place = place);
        for lane in lanes(training) {
            let (place, early) = (training.place(lane), program.setting.bias_before_sum);
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

fn stage(program: &mut Program, training: &Training, overlaps: bool, parts: &[Part]) -> Vec<PartTables> {
    let blocks = parts.iter().filter(|part| matches!(part, Part::Block(_))).count();
    let blocks = u32::try_from(blocks).expect("a checked number of layers");
    let tables = |&part: &Part| {
        let mut tables = part_tables(program, training, overlaps, (part, blocks));
        if tensor_parallel::cuts_part(training, part) {
            let layer = if let Part::Block(layer) = part { layer } else { 0 };
            let modules = training.model.modules_of(part).map(|module| Part::Module(layer, module));
            tables.modules = modules.map(|part| part_tables(program, training, overlaps, (part, blocks))).collect();
        }
        tables
    };
    parts.iter().map(tables).collect()
}

/// A part of a stage with so many blocks, which share its slots evenly; so do the products of a block.
fn part_tables(program: &mut Program, training: &Training, overlaps: bool, (part, blocks): (Part, u32)) -> PartTables {
    let shares = match part {
        Part::Block(_) => blocks,
        Part::Module(_, module) if module.is_product() || module == Module::Experts => Module::PRODUCTS * blocks,
        _ => 0,
    };
    let all = pieces(training).into_iter().map(|piece| piece_tables(program, training, overlaps, (part, shares), piece));
    let pieces = all.collect();
    PartTables { part, place: 0, pieces, weights: Vec::new(), gradients: Vec::new(), modules: Vec::new() }
}

fn piece_tables(
    program: &mut Program,
    training: &Training,
    overlaps: bool,
    (part, shares): (Part, u32),
    piece: Piece,
) -> PieceTables {
    let (model, dtype) = (&training.model, training.precision.parameter);
    let mut passes = |overlapped| {
        let mut kernel = |kernel| program.kernel(KernelCost { overlapped, ..cost_of(training, piece, kernel, shares) });
        let forward = kernel(Kernel::Forward(part));
        Passes {
            forward,
            again: if let Part::Module(..) = part { kernel(Kernel::Recompute(part)) } else { forward },
            backward_input: kernel(Kernel::BackwardInput(part)),
            backward_weight: kernel(Kernel::BackwardWeight(part)),
        }
    };
    let alone = passes(false);
    let overlapped = if overlaps { passes(true) } else { alone };
    let key_values = [piece.size, piece.segment.before(model), 2 * model.kv_heads * model.head_size()];
    PieceTables {
        saved: program.layout(bundle(saved_of(training, piece, part), dtype)),
        deferred: program.layout(bundle(deferred(training, piece, part), dtype)),
        key_value_gradient: program.layout(Layout::tensor(dtype, &key_values)),
        alone,
        overlapped,
    }
}

/// A kind of data that goes through the pipeline as one.
#[derive(Clone, Copy)]
struct Piece {
    /// Sequences of its micro-batch.
    size: usize,
    /// The part of them.
    segment: Segment,
    /// Where it is among the ranks that share out experts.
    place: usize,
}

/// A whole micro-batch of the usual size.
fn usual(training: &Training) -> Piece {
    Piece { size: training.batch.micro_batch_size, segment: Segment::WHOLE, place: 0 }
}

/// All kinds of pieces, the segments of a size beside each other, and the places of each.
fn pieces(training: &Training) -> Vec<Piece> {
    let of = training.pipeline.segments as usize;
    let segments = move |size| (0..of).map(move |place| (size, Segment { place, of }));
    let places = |(size, segment)| (0..training.expert).map(move |place| Piece { size, segment, place });
    sizes(training).into_iter().flat_map(segments).flat_map(places).collect()
}

/// The different sizes of micro-batches.
fn sizes(training: &Training) -> Vec<usize> {
    let sizes: BTreeSet<usize> = training.batch.sizes.iter().copied().collect();
    if sizes.is_empty() { vec![training.batch.micro_batch_size] } else { sizes.into_iter().collect() }
}

/// The kind of every piece of a step, at the first place among the ranks that share out experts.
fn kinds(training: &Training) -> Vec<usize> {
    let (sizes, of) = (sizes(training), training.pipeline.segments as usize);
    let size = |micro_batch: usize| {
        let own = training.batch.sizes.get(micro_batch);
        own.and_then(|own| sizes.iter().position(|size| size == own)).unwrap_or(0)
    };
    (0..training.pieces() as usize).map(|piece| (size(piece / of) * of + piece % of) * training.expert).collect()
}

/// A kernel on one micro-batch with its FLOPs, and the bytes of the activations that it reads and writes.
pub(super) fn cost(training: &Training, kernel: Kernel, shares: u32) -> KernelCost {
    cost_of(training, usual(training), kernel, shares)
}

fn cost_of(training: &Training, Piece { size, segment, place }: Piece, kernel: Kernel, shares: u32) -> KernelCost {
    if let Some(Part::Module(_, module)) =
        kernel.words().1.filter(|part| matches!(part, Part::Module(_, module) if module.is_of_experts()))
    {
        return expert_parallel::cost(training, place, (kernel, module), shares);
    }
    let model = &tensor_parallel::own(training);
    let activation = (size * segment.tokens(model) * model.hidden) as u64 * training.precision.parameter.size();
    // Norms and sums go through the whole stream; between them a layer reads it once and writes it once.
    let bytes = match kernel.words().1 {
        Some(Part::Module(_, module)) if module.is_of_stream() => activation / 2 / tensor_parallel::stretches(training),
        Some(Part::Module(..)) => 0,
        _ => 2 * activation,
    };
    let flops = flops::flops(model, (size, training.split()), segment, kernel);
    KernelCost { kernel, shares, taken: 1, overlapped: false, flops, bytes }
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
    saved_of(training, usual(training), part)
}

fn saved_of(training: &Training, piece: Piece, part: Part) -> Vec<SavedTensor> {
    let list: fn(&Model, usize) -> Vec<SavedTensor> = match part {
        Part::Embedding => saved::embedding_saved,
        Part::Block(_) if training.recompute.saved == SavedTensors::Megatron => saved::block_saved_by_megatron,
        Part::Block(_) => saved::block_saved,
        Part::Module(_, module) => return tensor_parallel::saved(training, module),
        Part::Head => saved::head_saved,
    };
    saved::of_segment(list, &training.model, piece.size, piece.segment)
}

/// What a part's backward for the input keeps for the weights.
fn deferred(training: &Training, piece: Piece, part: Part) -> Vec<SavedTensor> {
    let list: fn(&Model, usize) -> Vec<SavedTensor> = match part {
        Part::Embedding => return Vec::new(),
        Part::Block(_) => saved::block_deferred,
        Part::Module(_, module) => return tensor_parallel::deferred(training, module),
        Part::Head => saved::head_deferred,
    };
    saved::of_segment(list, &training.model, piece.size, piece.segment)
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
