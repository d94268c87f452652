//! Limits of a whole run: operations, tensors and time that would outgrow memory and 64-bit numbers.

use super::keys::{Key, batch, collective, data_parallel, hardware, model, parallel, trouble};
use super::problem::Problem;
use super::written::Written;
use super::{AllReduce, Collective, CollectiveKind, ContextMethod, Layer, Recompute, Reshard, Scenario, Task, Training, Updates};
use crate::base::hardware::{Costs, Table};
use crate::base::mesh::Axis;
use crate::base::settings::Activation;
use crate::base::sharing::Sharing;
use crate::base::units::Bytes;
use crate::base::words::grouped;

/// A program holds every operation: this many are compiled and run within a minute.
const MOST_OPS: f64 = 16e6;
/// No tensor, and no sum of tensors, is larger: byte counts stay exact as floating-point numbers.
const MOST_BYTES: f64 = 9e15;
/// Floating-point operations of one micro-batch stay exact in 64 bits.
const MOST_FLOPS: f64 = 4e18;
/// Ticks after which a clock of 64 bits would be in danger.
const MOST_TICKS: f64 = 4e18;

/// Operations of the whole run, roughly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ops {
    /// Kernels, and the messages between stages.
    pub compute: f64,
    /// What collectives consist of.
    pub collectives: f64,
}

impl Ops {
    pub fn all(self) -> f64 {
        self.compute + self.collectives
    }
}

/// The operations of `scenario`.
pub(super) fn ops(scenario: &Scenario) -> Ops {
    match &scenario.task {
        Task::Train(training) => training_ops(training, scenario.sums_once(training)),
        Task::Collective(collective) => Ops { compute: 0.0, collectives: collective_ops(collective) },
        Task::Layer(layer) => Ops { compute: layer_ops(layer), collectives: 0.0 },
        Task::Experts(layer) => Ops { compute: 14.0 * float(layer.ranks), collectives: 0.0 },
    }
}

/// Notes what is too large about `scenario`.
pub(super) fn check(written: &mut Written, scenario: &Scenario) {
    let all = ops(scenario).all();
    match &scenario.task {
        Task::Train(training) => {
            check_bytes(written, training);
            let keys: [&'static Key; 5] =
                [&batch::MICRO_BATCHES, &batch::STEPS, &parallel::DATA, &parallel::PIPELINE, &data_parallel::BUCKET_MIB];
            check_ops(written, &keys, all, "fewer micro-batches, steps or ranks, larger buckets, or expand = false");
        }
        Task::Collective(_) => {
            let keys: [&'static Key; 2] = [&collective::RANKS, &collective::CHUNKS];
            check_ops(written, &keys, all, "fewer ranks or chunks");
        }
        Task::Experts(_) => {}
        Task::Layer(_) => check_ops(written, &[&parallel::CONTEXT], all, "fewer ranks"),
    }
    let slowest = scenario.trouble.iter().map(|trouble| trouble.factor).fold(1.0, f64::max);
    if longest_ticks(scenario) * slowest > MOST_TICKS {
        let problem = Problem::new("the run would last longer than the clock can count");
        let keys: [&'static Key; 6] =
            [&trouble::FACTOR, &hardware::FORWARD, &batch::STEPS, &batch::MICRO_BATCHES, &model::LAYERS, &hardware::COSTS];
        written.refuse(&keys, problem.hint("fewer steps or micro-batches, smaller costs"));
    }
}

fn check_ops(written: &mut Written, keys: &[&'static Key], ops: f64, hint: &str) {
    if ops > MOST_OPS {
        let message = format!("the run would have about {} operations", whole(ops));
        let problem = Problem::new(message).allowed(format!("at most {}", whole(MOST_OPS)));
        written.refuse(keys, problem.hint(hint));
    }
}

fn check_bytes(written: &mut Written, training: &Training) {
    let state = 4.0 * parameters(training) * 8.0;
    if state > MOST_BYTES {
        let message = format!("a model of {} parameters is larger than anything that is built", whole(parameters(training)));
        written
            .refuse(&[&model::HIDDEN, &model::FFN, &model::VOCAB, &model::LAYERS], Problem::new(message).hint("smaller sizes"));
    }
    let keys: [&'static Key; 5] = [&batch::MICRO_BATCH_SIZE, &model::SEQUENCE, &batch::MICRO_BATCHES, &model::HEADS, &model::FFN];
    let hint = "a smaller micro-batch or a shorter sequence";
    let activations = activation_elements(training) * 8.0;
    if activations > MOST_BYTES {
        let message = format!("the activations of a step would take {}", bytes(activations));
        written.refuse(&keys, Problem::new(message).hint(hint));
    } else if flops(training) > MOST_FLOPS {
        let message = format!("a micro-batch would take {} floating-point operations", whole(flops(training)));
        written.refuse(&keys, Problem::new(message).allowed(format!("at most {}", whole(MOST_FLOPS))).hint(hint));
    }
}

/// Forward and backward of one micro-batch through all blocks: 6 per parameter and token, and attention's t x t scores.
fn flops(training: &Training) -> f64 {
    let model = &training.model;
    let tokens = float(training.batch.micro_batch_size) * float(model.sequence);
    let attention = 12.0 * float(model.sequence) * float(model.hidden) * float(model.layers);
    tokens * (6.0 * parameters(training) + attention)
}

/// Parameters of the whole model, in floating point: a product of sizes may exceed 64 bits.
fn parameters(training: &Training) -> f64 {
    let model = &training.model;
    let [h, f, v, t] = [model.hidden, model.ffn, model.vocab, model.sequence].map(float);
    let qkv = (float(model.heads) + 2.0 * float(model.kv_heads)) * float(model.head_size());
    let matrices = if model.activation == Activation::Swiglu { 3.0 } else { 2.0 };
    // A router has a row for each expert.
    let experts = model.experts.as_ref().map_or(0.0, |experts| float(experts.count));
    let feed_forward = if experts > 0.0 { experts * (matrices * h * f + h) } else { matrices * h * f };
    float(model.layers) * (h * qkv + h * h + feed_forward + 8.0 * h + f) + 2.0 * v * h + t * h
}

/// Elements that a step's micro-batches save on all ranks that are followed: an upper bound of what lives at once.
fn activation_elements(training: &Training) -> f64 {
    super::memory::saved_elements(training) * float(training.batch.micro_batches as usize) * lanes(training)
}

/// An estimate: loading and compute per part, both ends of every message; per step the update of every part and the messages of every
/// bucket's all-reduce.
fn training_ops(training: &Training, sums_once: bool) -> Ops {
    /// Kernels of a layer that is cut into modules, forward and backward.
    const OF_MODULES: f64 = 26.0;
    let stages = float(training.stages());
    let parts = float(training.model.layers) + 2.0;
    let slices = training.mesh.size(Axis::Context);
    let passes = if training.recompute.mode == Recompute::None { 1.0 } else { 1.5 };
    let of_attention = if slices > 1 { passes * attention_ops(training.context_parallel.method, float(slices)) } else { 0.0 };
    let is_cut = slices > 1 || training.mesh.size(Axis::Tensor) > 1 || training.model.has_experts();
    let of_part = if is_cut { OF_MODULES } else { 3.0 };
    let micro_batch = 2.0 + of_part * parts + of_attention * (parts - 2.0) + 4.0 * (stages - 1.0);
    let steps = f64::from(training.batch.steps);
    // A micro-batch with an update of its own: average, stash, optimizer.
    let update = if training.pipeline.updates == Updates::EachMicroBatch { 3.0 * parts } else { 0.0 };
    let compute = lanes(training) * ((micro_batch + update) * f64::from(training.pieces()) + 2.0 * parts);
    Ops { compute: steps * compute, collectives: steps * communication_ops(training, training.data_parallel.expand, sums_once) }
}

/// Pipelines beside each other that are followed: replicas, and ranks that share each layer's tensors.
pub(super) fn lanes(training: &Training) -> f64 {
    float(training.followed().count() / training.mesh.size(Axis::Pipeline))
}

/// Ops of a step's all-reduces inside layers in a lane: two forward and two backward.
fn tensor_ops(training: &Training, expand: bool) -> f64 {
    let ranks = float(training.mesh.size(Axis::Tensor));
    let each = if expand { all_reduce_ops(training.data_parallel.all_reduce, ranks, 1.0) / ranks } else { 1.0 };
    let all = 4.0 * float(training.model.layers) * f64::from(training.batch.micro_batches);
    if ranks > 1.0 { all * each } else { 0.0 }
}

/// No fewer than the model's parameter tensors.
pub(super) fn tensors(training: &Training) -> f64 {
    let of_experts = training.model.experts.as_ref().map_or(0, |experts| 3 * experts.count);
    (14.0 + float(of_experts)) * float(training.model.layers) + 6.0
}

/// The first bucket of each stage and the others; no more of them than parameter tensors. A bucket closes behind the tensor that fills it.
fn buckets(training: &Training) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let size = |bytes: Bytes| bytes.0 as f64;
    let stages = float(training.stages());
    let stage = parameters(training) * size(Bytes(training.precision.parameter.size())) / stages;
    let overshoot = stage * stages / tensors(training) / 2.0;
    let rest = (stage - size(training.data_parallel.first_bucket) - overshoot).max(0.0);
    let later = (rest / (size(training.data_parallel.bucket) + overshoot)).ceil();
    tensors(training).min(stages * (1.0 + later))
}

/// Whether there are few enough messages to follow each of them.
pub(super) fn is_small(training: &Training) -> bool {
    /// Some tenths of a second's work.
    const FEW: f64 = 1e6;
    communication_ops(training, true, training.data_parallel.no_sync) <= FEW
}

/// Ops of a step's collectives on all ranks.
fn communication_ops(training: &Training, expand: bool, sums_once: bool) -> f64 {
    lanes(training) * (tensor_ops(training, expand) + data_ops(training, expand, sums_once))
}

/// Those of replicas in a lane: for each micro-batch two gathers and a reduction where parameters are shared out, for a step one of each under stages.
fn data_ops(training: &Training, expand: bool, sums_once: bool) -> f64 {
    if training.data_ranks() == 1 {
        return 0.0;
    }
    let data = float(training.data_ranks());
    let micro_batches = f64::from(training.batch.micro_batches);
    let (sharing, shards) = training.sharing();
    let ring = |ranks: f64| if expand { 2.0 * (ranks - 1.0) + 3.0 } else { 4.0 };
    let all_reduce = if expand { all_reduce_ops(training.data_parallel.all_reduce, data, 1.0) / data } else { 4.0 };
    if sharing.parameters {
        let wrapped = float((0..training.stages()).map(|stage| training.wrapped(stage).len()).sum());
        let sums = if training.accumulates_whole() && sums_once { 1.0 } else { micro_batches };
        let stays = training.accumulates_whole() && training.fsdp.reshard_after_forward == Reshard::Keep;
        let gathers = if stays { 1.0 } else { 2.0 * micro_batches };
        let replicas = if shards < training.data_ranks() { 2.0 * ring(data / float(shards)) } else { 0.0 };
        return wrapped * ((gathers + sums) * ring(float(shards)) + sums * replicas);
    }
    let each = match sharing {
        Sharing { gradients: true, .. } => (1.0 + micro_batches) * ring(data),
        _ if sums_once => all_reduce,
        _ => micro_batches * all_reduce,
    };
    buckets(training) * each
}

fn collective_ops(collective: &Collective) -> f64 {
    let all_reduce = all_reduce_ops(collective.algorithm, float(collective.ranks), float(collective.chunks));
    if collective.kind == CollectiveKind::AllReduce { all_reduce } else { all_reduce / 2.0 }
}

/// Both ends of each message, and each rank's packing and unpacking.
fn all_reduce_ops(algorithm: AllReduce, ranks: f64, chunks: f64) -> f64 {
    match algorithm {
        AllReduce::Ring | AllReduce::Hierarchical => 2.0 * (ranks - 1.0) * ranks * 2.0 + 3.0 * ranks,
        AllReduce::HalvingDoubling => 2.0 * (ranks.log2() + 1.0) * ranks * 2.0 + 3.0 * ranks,
        AllReduce::Tree | AllReduce::Star => 2.0 * (ranks - 1.0) * chunks * 2.0 + 3.0 * ranks,
    }
}

/// All work one after another, in ticks.
fn longest_ticks(scenario: &Scenario) -> f64 {
    match (&scenario.task, &scenario.hardware.costs) {
        (Task::Collective(_), Costs::Unit(_)) => 0.0,
        (Task::Layer(layer), Costs::Unit(unit)) => {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let slot = (unit.forward.0 + unit.backward_input.0 + unit.backward_weight.0) as f64;
            slot * float(layer.attention.slices).powi(2)
        }
        (Task::Experts(layer), costs) => super::experts::longest_ticks(layer, costs),
        (Task::Layer(layer), Costs::Table(table)) => layer_ns(layer, table),
        (Task::Train(training), Costs::Unit(unit)) => {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let slot = (unit.forward.0 + unit.backward_input.0 + unit.backward_weight.0) as f64;
            slot * float(training.stages()) * passes(training)
        }
        (Task::Collective(collective), Costs::Table(table)) => message_ns(table, collective.bytes) * collective_ops(collective),
        (Task::Train(training), Costs::Table(table)) => {
            passes(training) * micro_batch_ns(training, table) + state_ns(training, table)
        }
    }
}

/// An estimate: every block forward and backward, and what moves it.
fn layer_ops(layer: &Layer) -> f64 {
    let ranks = float(layer.attention.slices);
    ranks * attention_ops(layer.method, ranks)
}

/// Ops of an attention on one of `ranks` that share a sequence, forward and backward: of a ring every hop with its messages.
fn attention_ops(method: ContextMethod, ranks: f64) -> f64 {
    match method {
        ContextMethod::Ring => 11.0 * ranks,
        ContextMethod::AllGather => 1.5 * ranks + 4.0,
        // Every rank has all blocks, of some heads.
        ContextMethod::Ulysses => 1.5 * ranks.powi(2) + 8.0,
    }
}

/// All blocks and messages of all ranks one after another: seven products, and what moves in at most so many passes.
fn layer_ns(layer: &Layer, table: &Table) -> f64 {
    const PASSES: f64 = 20.0;
    let attention = &layer.attention;
    let [sequence, width, ranks] = [attention.sequence, attention.heads * attention.head_size, attention.slices].map(float);
    let compute = 14.0 * sequence * sequence * width / table.device.flops_per_second;
    let moved = PASSES * 8.0 * sequence * width * ranks / table.device.memory_bytes_per_second;
    let block = bytes(16.0 * sequence * width / ranks);
    1e9 * (compute + moved) + 4.0 * ranks * ranks * message_ns(table, block)
}

/// A micro-batch through all stages, forward and backward.
fn micro_batch_ns(training: &Training, table: &Table) -> f64 {
    /// More passes over the saved tensors than any kernel makes.
    const PASSES: f64 = 100.0;
    let saved = 8.0 * super::memory::saved_elements(training);
    let compute = flops(training) / table.device.flops_per_second + PASSES * saved / table.device.memory_bytes_per_second;
    let activation = 8 * training.batch.micro_batch_size * training.model.sequence * training.model.hidden;
    1e9 * compute + 2.0 * float(training.stages()) * message_ns(table, Bytes(activation as u64))
}

/// Every step's gradients and updates, on all ranks one after another.
fn state_ns(training: &Training, table: &Table) -> f64 {
    /// Bytes moved per parameter, more than any all-reduce and optimizer need.
    const BYTES: f64 = 100.0;
    let slowest = table.device.memory_bytes_per_second.min(slowest_link(table));
    let rank = 1e9 * BYTES * parameters(training) / slowest + buckets(training) * 2.0 * message_ns(table, Bytes::ZERO);
    f64::from(training.batch.steps) * float(training.followed().count()) * rank
}

fn passes(training: &Training) -> f64 {
    f64::from(training.batch.micro_batches) * f64::from(training.batch.steps)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn message_ns(table: &Table, bytes: Bytes) -> f64 {
    let alpha = table.inside.alpha.max(table.between.alpha);
    alpha.0 as f64 + 1e9 * bytes.0 as f64 / slowest_link(table)
}

fn slowest_link(table: &Table) -> f64 {
    table.inside.bytes_per_second.min(table.between.bytes_per_second)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn float(size: usize) -> f64 {
    size as f64
}

#[expect(clippy::cast_possible_truncation, reason = "an estimate, far below 2^127")]
pub(super) fn whole(value: f64) -> String {
    grouped(value as i128)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates: an estimate for a message")]
pub(super) fn bytes(value: f64) -> Bytes {
    Bytes(value as u64)
}
