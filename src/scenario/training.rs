//! The sections of a training step: how much data, on which ranks, in which order, with which update.

use super::keys::{Key, batch, numerics as numerics_keys, optimizer, parallel};
use super::problem::Problem;
use super::value::Value;
use super::written::Written;
use super::{
    Batch, Before, Numerics, Optimizer, OptimizerKind, Training, Values, context_parallel, expert_parallel, model, pipeline,
    sharding, tensor_parallel,
};
use crate::base::folding::Folding;
use crate::base::mesh::{Axis, Mesh};
use crate::base::words::{grouped, shortened};

/// The most ranks of a run, with shapes and with real values.
const MOST_RANKS: usize = 65_536;
const MOST_REAL_RANKS: usize = 64;

/// The training step.
pub(super) fn read(written: &mut Written, numerics: Option<Numerics>) -> Option<Training> {
    let mut model = model::read(written);
    let precision = model::read_precision(written, numerics);
    let batch = read_batch(written);
    let mesh = read_mesh(written, numerics);
    let expert = mesh.as_ref().and_then(|mesh| expert_parallel::read_ranks(written, mesh));
    let experts = model.as_mut().zip(batch.as_ref()).and_then(|(model, batch)| {
        let size = batch.micro_batch_size;
        expert_parallel::read(written, model, size)
    });
    let tensor_parallel = tensor_parallel::read(written);
    let context_parallel = context_parallel::read(written);
    let data_parallel = sharding::read_data_parallel(written, precision);
    let fsdp = sharding::read_fsdp(written, mesh.as_ref());
    let recompute = sharding::read_recompute(written, numerics, precision);
    let layers = model.as_ref().map(|model| model.layers);
    let sequence = model.as_ref().map(|model| model.sequence);
    let pipeline = pipeline::read(written, layers, sequence);
    let optimizer = read_optimizer(written);
    let mut training = Training {
        model: model?,
        precision: precision?,
        batch: batch?,
        mesh: mesh?,
        folding: Folding::default(),
        expert: expert?,
        tensor_parallel: tensor_parallel?,
        context_parallel: context_parallel?,
        data_parallel: data_parallel?,
        fsdp: fsdp?,
        recompute: recompute?,
        pipeline: pipeline?,
        optimizer: optimizer?,
    };
    experts?;
    tensor_parallel::check(written, &training);
    context_parallel::check(written, &training);
    expert_parallel::check(written, &mut training);
    sharding::check(written, &mut training);
    Some(training)
}

fn read_batch(written: &mut Written) -> Option<Batch> {
    let sizes = read_sizes(written)?;
    Some(Batch {
        micro_batches: written.count(&batch::MICRO_BATCHES)?,
        micro_batch_size: sizes.iter().copied().max().map_or_else(|| written.size(&batch::MICRO_BATCH_SIZE), Some)?,
        // A list of equal sizes is one size.
        sizes: if sizes.windows(2).all(|pair| pair[0] == pair[1]) { Vec::new() } else { sizes },
        steps: written.count(&batch::STEPS)?,
        before: Before::default(),
        padded: None,
    })
}

/// The sizes of micro-batches, one for each; none if they are not written.
fn read_sizes(written: &mut Written) -> Option<Vec<usize>> {
    let key = &batch::MICRO_BATCH_SIZES;
    if !written.has(key, 0) {
        return Some(Vec::new());
    }
    let sizes = written.value(key, 0).and_then(Value::sizes)?;
    let largest = sizes.iter().copied().max();
    if written.has(&batch::MICRO_BATCH_SIZE, 0) && written.size(&batch::MICRO_BATCH_SIZE) != largest {
        let problem = Problem::new("`micro_batch_sizes` says how large each micro-batch is, and `micro_batch_size` all");
        written.refuse(&[&batch::MICRO_BATCH_SIZE], problem.hint("leave one of the two out"));
    }
    let micro_batches = written.count(&batch::MICRO_BATCHES)? as usize;
    if sizes.len() != micro_batches {
        let message = format!("`micro_batch_sizes` has {} entries for {micro_batches} micro-batches", sizes.len());
        written.refuse(&[key, &batch::MICRO_BATCHES], Problem::new(message).allowed("one entry per micro-batch"));
        return None;
    }
    Some(sizes)
}

fn read_mesh(written: &mut Written, numerics: Option<Numerics>) -> Option<Mesh> {
    let axes = [
        (Axis::Data, &parallel::DATA),
        (Axis::Pipeline, &parallel::PIPELINE),
        (Axis::Tensor, &parallel::TENSOR),
        (Axis::Context, &parallel::CONTEXT),
    ];
    let sizes = axes.map(|(axis, key)| written.size(key).map(|size| (axis, key, size)));
    let order = read_order(written);
    let sizes: Vec<(Axis, &'static Key, usize)> = sizes.into_iter().collect::<Option<_>>()?;
    let ranks = sizes.iter().try_fold(1_usize, |ranks, (.., size)| ranks.checked_mul(*size)).unwrap_or(usize::MAX);
    if ranks > MOST_RANKS {
        let factors = sizes.iter().filter(|(.., size)| *size > 1).map(|(_, key, size)| format!("{} = {size}", key.name));
        let message = format!("{} is {} ranks", factors.collect::<Vec<_>>().join(" times "), grouped(ranks as i128));
        let problem = Problem::new(message).allowed(format!("at most {} ranks", grouped(MOST_RANKS as i128)));
        written.refuse(&axes.map(|(_, key)| key), problem);
        return None;
    }
    let (_, key, _) = sizes.iter().rev().max_by_key(|(.., size)| *size)?;
    refuse_real_ranks(written, key, ranks, numerics);
    let mesh = sizes.iter().fold(Mesh::new(1, 1), |mesh, &(axis, _, size)| mesh.sized(axis, size));
    Some(mesh.ordered(order?))
}

/// The axes, fastest first. Experts have no axis of their own: their ranks are carved out of the others.
fn read_order(written: &mut Written) -> Option<[Axis; Axis::ALL.len()]> {
    let text = written.text(&parallel::ORDER)?;
    let names: Vec<&str> = text.split('-').filter(|name| *name != EXPERTS).collect();
    let axes: Vec<Axis> = names.iter().filter_map(|name| Axis::find(name)).collect();
    let is_whole = Axis::ALL.iter().all(|axis| axes.contains(axis)) && names.len() == Axis::ALL.len();
    match axes.try_into() {
        Ok(order) if is_whole && text.split('-').filter(|name| *name == EXPERTS).count() <= 1 => Some(order),
        _ => {
            let problem = Problem::new(format!("`order = \"{}\"` does not name every axis once", shortened(&text)));
            let problem = problem.allowed("tp, cp, ep, dp and pp in any order, with `-` between them");
            written.refuse(&[&parallel::ORDER], problem.hint("tp-cp-ep-dp-pp keeps those near who talk most"));
            None
        }
    }
}

/// The name of the ranks that share out experts.
const EXPERTS: &str = "ep";

/// With real values every rank computes and holds its own tensors, all on one machine.
pub(super) fn refuse_real_ranks(written: &mut Written, key: &'static Key, ranks: usize, numerics: Option<Numerics>) {
    if numerics.is_some_and(|numerics| numerics.values == Values::Real) && ranks > MOST_REAL_RANKS {
        let problem = Problem::new(format!("{} ranks are too many for real values", grouped(ranks as i128)));
        let problem =
            problem.allowed(format!("at most {MOST_REAL_RANKS}: each computes and holds its own tensors, all on one machine"));
        let hint = format!("numerics.values = \"shape\" follows shapes alone, on up to {} ranks", grouped(MOST_RANKS as i128));
        written.refuse(&[key, &numerics_keys::VALUES], problem.hint(hint));
    }
}

fn read_optimizer(written: &Written) -> Option<Optimizer> {
    Some(Optimizer {
        kind: written.choice(&optimizer::KIND, OptimizerKind::find)?,
        lr: written.number(&optimizer::LR)?,
        beta1: written.number(&optimizer::BETA1)?,
        beta2: written.number(&optimizer::BETA2)?,
        epsilon: written.number(&optimizer::EPSILON)?,
        weight_decay: written.number(&optimizer::WEIGHT_DECAY)?,
    })
}
