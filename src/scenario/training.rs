//! The sections of a training step: how much data, on which ranks, in which order, with which update.

use super::keys::{Key, batch, model as model_keys, numerics as numerics_keys, optimizer, parallel, pipeline};
use super::problem::Problem;
use super::value::Value;
use super::written::Written;
use super::{Batch, Numerics, Optimizer, OptimizerKind, Pipeline, PointToPoint, Training, Values, model, sharding};
use crate::base::mesh::Mesh;
use crate::base::words::{grouped, shortened};
use crate::schedule::Schedule;

/// The most ranks of a run, with shapes and with real values.
const MOST_RANKS: usize = 65_536;
const MOST_REAL_RANKS: usize = 64;

/// The training step.
pub(super) fn read(written: &mut Written, numerics: Option<Numerics>) -> Option<Training> {
    let model = model::read(written);
    let precision = model::read_precision(written, numerics);
    let batch = read_batch(written);
    let mesh = read_mesh(written, numerics);
    let data_parallel = sharding::read_data_parallel(written);
    let fsdp = sharding::read_fsdp(written, mesh.as_ref());
    let recompute = sharding::read_recompute(written, numerics, precision);
    let layers = model.as_ref().map(|model| model.layers);
    let pipeline = read_pipeline(written, layers);
    let optimizer = read_optimizer(written);
    let mut training = Training {
        model: model?,
        precision: precision?,
        batch: batch?,
        mesh: mesh?,
        fold: 1,
        data_parallel: data_parallel?,
        fsdp: fsdp?,
        recompute: recompute?,
        pipeline: pipeline?,
        optimizer: optimizer?,
    };
    sharding::check(written, &mut training);
    Some(training)
}

fn read_batch(written: &Written) -> Option<Batch> {
    Some(Batch {
        micro_batches: written.count(&batch::MICRO_BATCHES)?,
        micro_batch_size: written.size(&batch::MICRO_BATCH_SIZE)?,
        steps: written.count(&batch::STEPS)?,
    })
}

fn read_mesh(written: &mut Written, numerics: Option<Numerics>) -> Option<Mesh> {
    let data = written.size(&parallel::DATA);
    let stages = written.size(&parallel::PIPELINE);
    let (data, stages) = (data?, stages?);
    let ranks = data * stages;
    if ranks > MOST_RANKS {
        let message = format!("data = {data} times pipeline = {stages} is {} ranks", grouped(ranks as i128));
        let problem = Problem::new(message).allowed(format!("at most {} ranks", grouped(MOST_RANKS as i128)));
        written.refuse(&[&parallel::DATA, &parallel::PIPELINE], problem);
        return None;
    }
    let key = if data >= stages { &parallel::DATA } else { &parallel::PIPELINE };
    refuse_real_ranks(written, key, ranks, numerics);
    Some(Mesh::new(data, stages))
}

/// With real values every rank computes and holds its own tensors, all on one machine.
pub(super) fn refuse_real_ranks(written: &mut Written, key: &'static Key, ranks: usize, numerics: Option<Numerics>) {
    if numerics.is_some_and(|numerics| numerics.values == Values::Real) && ranks > MOST_REAL_RANKS {
        let problem = Problem::new(format!("{} ranks are too many for real values", grouped(ranks as i128)));
        let problem =
            problem.allowed(format!("at most {MOST_REAL_RANKS}: each computes and holds its own tensors, all on one machine"));
        let hint = format!("values = \"shape\" follows shapes alone, on up to {} ranks", grouped(MOST_RANKS as i128));
        written.refuse(&[key, &numerics_keys::VALUES], problem.hint(hint));
    }
}

fn read_pipeline(written: &mut Written, layers: Option<usize>) -> Option<Pipeline> {
    let stages = written.size(&parallel::PIPELINE);
    let layers_per_stage = layers.zip(stages).and_then(|(layers, stages)| layers_per_stage(written, layers, stages));
    Some(Pipeline {
        schedule: written.choice(&pipeline::SCHEDULE, Schedule::find)?,
        p2p: written.choice(&pipeline::P2P, PointToPoint::find)?,
        barrier: written.flag(&pipeline::BARRIER)?,
        layers_per_stage: layers_per_stage?,
    })
}

/// As written, or evenly: the first (layers mod stages) stages get one more.
fn layers_per_stage(written: &mut Written, layers: usize, stages: usize) -> Option<Vec<usize>> {
    if layers < stages {
        let message = format!("{} layers cannot fill {} stages", grouped(layers as i128), grouped(stages as i128));
        let problem = Problem::new(message).allowed("at least one layer per stage");
        written.refuse(&[&parallel::PIPELINE, &model_keys::LAYERS, &model_keys::PRESET], problem);
        return None;
    }
    let key = &pipeline::LAYERS_PER_STAGE;
    if !written.has(key, 0) {
        return Some((0..stages).map(|stage| layers / stages + usize::from(stage < layers % stages)).collect());
    }
    let list = written.value(key, 0).and_then(Value::sizes)?;
    let shown = shortened(&format!("{list:?}"));
    if list.len() != stages {
        let message = format!("`layers_per_stage` = {shown} has {} entries for {} stages", list.len(), grouped(stages as i128));
        written.refuse(&[key], Problem::new(message).allowed("one entry per stage"));
        return None;
    }
    let sum: usize = list.iter().sum();
    if sum != layers {
        let message =
            format!("`layers_per_stage` = {shown} sums to {}, not to the model's {layers} layers", grouped(sum as i128));
        written.refuse(&[key], Problem::new(message).allowed(format!("entries that sum to {layers}")));
        return None;
    }
    Some(list)
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
