//! The shapes of what flows between modules.

use std::collections::BTreeMap;

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::split::Seam;
use crate::base::{BufferId, LayoutId};
use crate::compile::{expert_parallel, stages};
use crate::program::tables::Layout;
use crate::program::{Flow, Inside, Program};
use crate::scenario::Training;

use super::{cuts_part, deferred, own, saved, tokens};

/// Numbers of each token that the loss needs from every rank.
const TOLD: usize = 3;

/// The layouts of what flows inside parts that are cut into modules, at a place among the ranks that share out experts; empty where none are.
pub(in crate::compile) fn layouts(program: &mut Program, training: &Training, place: usize) -> BTreeMap<Inside, LayoutId> {
    let mut layouts = BTreeMap::new();
    let parts = [Part::Embedding, Part::Block(0), Part::Head];
    for part in parts.into_iter().filter(|&part| cuts_part(training, part)) {
        for module in training.model.modules_of(part) {
            let all = if module.is_of_experts() {
                expert_parallel::layouts(program, training, place, module)
            } else {
                of_module(program, training, module)
            };
            layouts.extend(all.map(|(flow, layout)| (Inside { flow, module }, layout)));
        }
    }
    layouts
}

fn of_module(program: &mut Program, training: &Training, module: Module) -> [(Flow, LayoutId); 6] {
    let (dtype, split) = (training.precision.parameter, training.split());
    let all = [training.batch.micro_batch_size, own(training).sequence];
    let mut tensor = |lead: &[usize], width: usize| program.layout(Layout::tensor(dtype, &[lead, &[width]].concat()));
    let (width, stream) = (split.width(&training.model, module), tokens(training));
    let whole = tensor(&all, width);
    let own = tensor(&stream, width);
    // Maxima and sums of exponentials: nobody takes them in half precision.
    let mut wide = |lead: &[usize]| program.layout(Layout::tensor(dtype.widened(), &[lead, &[TOLD]].concat()));
    let told = wide(&all);
    let told_by_all = wide(&[&[training.mesh.size(Axis::Tensor)], all.as_slice()].concat());
    let (output, gradient) = match module {
        Module::Logits => (told, whole),
        // Behind a norm each rank routes its own tokens.
        Module::Norm2 if training.model.has_experts() => (own, own),
        // The gradient of a norm's output comes from a product, in parts of a sum.
        _ if module.is_norm() => (own, whole),
        _ if module.is_of_stream() => (own, own),
        _ => (whole, whole),
    };
    // What is gathered, and what is left of a sum.
    let (met, met_gradient) = match module {
        Module::Logits => (told_by_all, whole),
        _ if module.is_norm() => (whole, own),
        _ => (own, whole),
    };
    let mut columns = |width: usize| {
        let own = Layout::tensor(dtype, &[all.as_slice(), &[width]].concat());
        let parts = own.parts.iter().cycle().take(split.ranks).cloned().collect();
        (program.layout(own), program.layout(Layout { parts }))
    };
    let (output, met) = if split.behind(module) == Seam::Columns { columns(width) } else { (output, met) };
    let (gradient, met_gradient) = match split.behind_gradient(module) {
        Seam::Columns => columns(width / split.ranks),
        Seam::ColumnsOfSum => {
            let (own, all) = columns(width);
            (all, own)
        }
        Seam::None | Seam::Sum => (gradient, met_gradient),
    };
    let mut bundle = |tensors| program.layout(stages::bundle(tensors, dtype));
    let (saved, deferred) = (bundle(saved(training, module)), bundle(deferred(training, module)));
    [
        (Flow::Output, output),
        (Flow::OutputGradient, gradient),
        (Flow::Tokens, met),
        (Flow::TokensGradient, met_gradient),
        (Flow::Saved, saved),
        (Flow::Deferred, deferred),
    ]
}

/// Whether a buffer's tensors are none.
pub(super) fn is_nothing(program: &Program, layout: LayoutId) -> bool {
    program.layouts[layout.index()].parts.is_empty()
}

/// A collective's payload, from either side: the larger of its operands.
pub(super) fn payload(program: &Program, read: BufferId, written: BufferId) -> crate::base::Bytes {
    program.bytes(read).max(program.bytes(written))
}
