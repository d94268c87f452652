//! Tensor parallelism: a layer is cut into modules, and the ranks that share its tensors meet where a product leaves each of them a part of
//! the sum.
//!
//! Forward they meet behind the projection and behind the feed-forward, backward behind the gradients of the inputs of q k v and of the
//! feed-forward: two all-reduces each way. Everything else is each rank's own, or the same on all of them.

mod layer;
pub(super) mod sums;

pub(super) use layer::Meeting;

use std::collections::BTreeMap;

use crate::base::LayoutId;
use crate::base::mesh::Axis;
use crate::base::module::{Module, Split};
use crate::base::saved::{self, SavedTensor};
use crate::base::settings::SavedTensors;
use crate::program::tables::Layout;
use crate::program::{Flow, Inside, Program};
use crate::scenario::Training;

use super::stages;

/// Whether the layers of a run are cut into modules.
pub(super) fn cuts_layers(training: &Training) -> bool {
    training.mesh.size(Axis::Tensor) > 1
}

/// Whether a module works on the residual stream, where every rank has all columns.
pub(super) fn is_of_stream(module: Module) -> bool {
    matches!(module, Module::Norm1 | Module::Add1 | Module::Norm2 | Module::Add2)
}

/// Any of the ranks that share a layer: their widths are the same.
fn split(training: &Training) -> Split {
    Split { ranks: training.mesh.size(Axis::Tensor), place: 0 }
}

/// The shape of the tokens on which norms and sums work.
fn tokens(training: &Training) -> Vec<usize> {
    vec![training.batch.micro_batch_size, training.model.sequence]
}

/// What a module saves beside its output.
pub(super) fn saved(training: &Training, module: Module) -> Vec<SavedTensor> {
    let (model, size, ranks) = (&training.model, training.batch.micro_batch_size, split(training).ranks);
    let saved = match training.recompute.saved {
        SavedTensors::Lab => saved::module_saved,
        SavedTensors::Megatron => saved::module_saved_by_megatron,
    };
    saved(model, size, ranks, &tokens(training), module)
}

/// What a module's I leaves for its W.
pub(super) fn deferred(training: &Training, module: Module) -> Vec<SavedTensor> {
    if saved(training, module).iter().any(|tensor| tensor.name == "activation output") {
        return Vec::new();
    }
    saved::module_deferred(&training.model, training.batch.micro_batch_size, split(training).ranks, module)
}

/// The layouts of what flows inside layers.
pub(super) fn layouts(program: &mut Program, training: &Training) -> BTreeMap<Inside, LayoutId> {
    let mut layouts = BTreeMap::new();
    if !cuts_layers(training) {
        return layouts;
    }
    let dtype = training.precision.parameter;
    let whole = [training.batch.micro_batch_size, training.model.sequence];
    for module in Module::ALL {
        let width = split(training).width(&training.model, module);
        let lead = if is_of_stream(module) { tokens(training) } else { whole.to_vec() };
        let output = program.layout(Layout::tensor(dtype, &[lead.as_slice(), &[width]].concat()));
        let saved = program.layout(stages::bundle(saved(training, module), dtype));
        let deferred = program.layout(stages::bundle(deferred(training, module), dtype));
        let flows = [(Flow::Output, output), (Flow::OutputGradient, output), (Flow::Saved, saved), (Flow::Deferred, deferred)];
        layouts.extend(flows.map(|(flow, layout)| (Inside { flow, module }, layout)));
    }
    layouts
}
