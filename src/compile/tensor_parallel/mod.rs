//! Tensor parallelism: the model is cut into modules, and the ranks that share its tensors meet where a product leaves each of them a part
//! of the sum.
//!
//! In a layer they meet behind the projection and behind the feed-forward, and backward behind the gradients of the inputs of q k v and of
//! the feed-forward: two all-reduces each way. Embedding and head are cut by the vocabulary: the ranks add up what each looked up, and tell
//! each other what the loss needs.
//!
//! With sequence parallelism every rank keeps its own tokens of the residual stream. The all-reduces become reduce-scatters, and what
//! every rank needs whole is gathered before a product, once more for the gradient of its weight. Source: Korthikanti et al. 2022,
//! "Reducing activation recomputation in large transformer models", arXiv 2205.05198, section 4.2.2.

mod ends;
mod layer;
mod layouts;
mod meeting;
pub(super) mod sums;

use crate::base::Rank;
use crate::base::mesh::Axis;
use crate::base::model::{Model, Part};
use crate::base::module::Module;
use crate::base::saved::{self, SavedTensor};
use crate::base::settings::SavedTensors;
use crate::scenario::Training;

pub(super) use layer::again;
pub(super) use layouts::layouts;
pub(super) use meeting::{Circle, Meeting, Way};

/// Whether the model is cut into modules: where ranks share tensors, or sequences.
pub(super) fn cuts(training: &Training) -> bool {
    training.mesh.size(Axis::Tensor) > 1 || shares_sequences(training)
}

/// Whether ranks have slices of every sequence.
pub(super) fn shares_sequences(training: &Training) -> bool {
    training.mesh.size(Axis::Context) > 1
}

/// The model with a rank's tokens of each sequence.
pub(super) fn own(training: &Training) -> Model {
    Model { sequence: training.model.sequence / training.mesh.size(Axis::Context), ..training.model.clone() }
}

/// Whether `part` is cut into modules: where ranks share tensors, and a layer with experts.
pub(super) fn cuts_part(training: &Training, part: Part) -> bool {
    cuts(training) || (training.model.has_experts() && matches!(part, Part::Block(_)))
}

/// Whether the ranks that share tensors each keep their own tokens of the residual stream.
pub(super) fn shares_tokens(training: &Training) -> bool {
    training.mesh.size(Axis::Tensor) > 1 && training.tensor_parallel.sequence_parallel
}

/// Into how many stretches of tokens the residual stream is cut.
pub(super) fn stretches(training: &Training) -> u64 {
    if shares_tokens(training) { training.mesh.size(Axis::Tensor) as u64 } else { 1 }
}

/// The number of the group of ranks that share tensors with `rank`, one of all: by stage, then by replica.
fn group_number(training: &Training, rank: Rank) -> usize {
    let mesh = &training.mesh;
    let replica = mesh.coordinate(rank, Axis::Data) * mesh.size(Axis::Context) + mesh.coordinate(rank, Axis::Context);
    mesh.coordinate(rank, Axis::Pipeline) * training.data_ranks() + replica
}

/// The shape of the residual stream on a rank, without its columns.
pub(super) fn tokens(training: &Training) -> Vec<usize> {
    let [size, sequence] = [training.batch.micro_batch_size, own(training).sequence];
    if shares_tokens(training) { vec![size * sequence / training.split().ranks] } else { vec![size, sequence] }
}

/// What a module saves beside its output.
pub(super) fn saved(training: &Training, module: Module) -> Vec<SavedTensor> {
    let saved = match training.recompute.saved {
        SavedTensors::Lab => saved::module_saved,
        SavedTensors::Megatron => saved::module_saved_by_megatron,
    };
    if module == Module::Attention && shares_sequences(training) {
        // By blocks it makes its probabilities again.
        return Vec::new();
    }
    saved(&own(training), training.batch.micro_batch_size, training.split(), &tokens(training), module)
}

/// What a module's I leaves for its W.
pub(super) fn deferred(training: &Training, module: Module) -> Vec<SavedTensor> {
    // Megatron saves the activation's output, and makes it once.
    if module == Module::Down && training.recompute.saved == SavedTensors::Megatron {
        return Vec::new();
    }
    let (split, tokens) = (training.split(), tokens(training));
    saved::module_deferred(&own(training), training.batch.micro_batch_size, split, &tokens, module)
}
