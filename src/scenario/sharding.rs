//! `[data_parallel]`, `[fsdp]` and `[recompute]`: what ranks share out, and what they compute again to save memory.

use super::keys::{batch, data_parallel, fsdp, model, numerics as numerics_keys, parallel, pipeline, recompute};
use super::problem::Problem;
use super::written::Written;
use super::{
    AllReduce, DataParallel, Fsdp, Numerics, Recomputation, Recompute, Reshard, SavedTensors, Strategy, Training, Values, Wrap,
    limits,
};
use crate::base::Bytes;
use crate::base::mesh::{Axis, Mesh};
use crate::base::precision::Precision;
use crate::base::words::grouped;

/// How replicas average their gradients, and what they share out.
pub(super) fn read_data_parallel(written: &Written, precision: Option<Precision>) -> Option<DataParallel> {
    let strategy = written.choice(&data_parallel::STRATEGY, Strategy::find)?;
    let usual = precision.map(|precision| usual_buckets(strategy, precision));
    let bucket = written.or(&data_parallel::BUCKET_MIB, Written::mebibytes, usual.map(|usual| usual.0));
    let first_bucket = usual.and_then(|usual| usual.1).or(bucket);
    Some(DataParallel {
        strategy,
        no_sync: written.flag(&data_parallel::NO_SYNC)?,
        all_reduce: written.choice(&data_parallel::ALL_REDUCE, AllReduce::find)?,
        first_bucket: written.or(&data_parallel::FIRST_BUCKET_MIB, Written::mebibytes, first_bucket)?,
        bucket: bucket?,
        overlap: written.flag(&data_parallel::OVERLAP)?,
        expand: written.or(&data_parallel::EXPAND, Written::flag, Some(true))?,
    })
}

/// The size of buckets where nobody says, and of the first one if it is smaller: PyTorch's; with ZeRO DeepSpeed's `reduce_bucket_size`.
fn usual_buckets(strategy: Strategy, precision: Precision) -> (Bytes, Option<Bytes>) {
    const DEEPSPEED_ELEMENTS: u64 = 500_000_000;
    match strategy {
        Strategy::Ddp | Strategy::Fsdp => (Bytes(25 << 20), Some(Bytes(1 << 20))),
        Strategy::Zero1 | Strategy::Zero2 | Strategy::Zero3 => (Bytes(DEEPSPEED_ELEMENTS * precision.gradient.size()), None),
    }
}

/// How sharded parameters are gathered.
pub(super) fn read_fsdp(written: &mut Written, mesh: Option<&Mesh>) -> Option<Fsdp> {
    let data = mesh.map(|mesh| mesh.size(Axis::Data) * mesh.size(Axis::Context));
    let stages = mesh.map_or(1, |mesh| mesh.size(Axis::Pipeline));
    let shard_size = written.or(&fsdp::SHARD_SIZE, Written::size, data);
    if let (Some(data), Some(shard_size)) = (data, shard_size)
        && !data.is_multiple_of(shard_size)
    {
        let message =
            format!("{} data-parallel ranks cannot be cut into groups of {}", grouped(data as i128), grouped(shard_size as i128));
        let problem = Problem::new(message).allowed("a divisor of `data`");
        let near = (1..=data).filter(|size| data.is_multiple_of(*size)).min_by_key(|size| size.abs_diff(shard_size));
        let hint = format!("shard_size = {} would do", near.unwrap_or(1));
        written.refuse(&[&fsdp::SHARD_SIZE, &parallel::DATA], problem.hint(hint));
    }
    Some(Fsdp {
        shard_size: shard_size?,
        reshard_after_forward: read_reshard(written, shard_size?, stages)?,
        prefetch: written.size(&fsdp::PREFETCH)?,
        in_flight: written.size(&fsdp::IN_FLIGHT)?,
        wrap: written.choice(&fsdp::WRAP, Wrap::find)?,
    })
}

/// FSDP2's rule: a number is a divisor of the ranks that share a copy, and neither 1 nor all of them. Where nobody says, stages keep their
/// parameters, as TorchTitan's do: a pipeline has many micro-batches to gather them for.
fn read_reshard(written: &mut Written, shard_size: usize, stages: usize) -> Option<Reshard> {
    let key = &fsdp::RESHARD_AFTER_FORWARD;
    if let Some(flag) = written.or(key, Written::flag, Some(stages == 1)) {
        return Some(if flag { Reshard::Free } else { Reshard::Keep });
    }
    let ranks = written.size(key)?;
    if ranks >= shard_size || !shard_size.is_multiple_of(ranks) {
        let problem =
            Problem::new(format!("{} ranks that share a copy cannot be cut into groups of {ranks}", grouped(shard_size as i128)));
        let near = (2..shard_size).filter(|size| shard_size.is_multiple_of(*size)).min_by_key(|size| size.abs_diff(ranks));
        let hint =
            near.map_or("true and false need no group".to_owned(), |near| format!("reshard_after_forward = {near} would do"));
        let allowed = "true, false, or a divisor of the ranks that share a copy, neither 1 nor all of them";
        written.refuse(&[key, &fsdp::SHARD_SIZE, &parallel::DATA], problem.allowed(allowed).hint(hint));
    }
    Some(Reshard::To(ranks))
}

/// What backward computes again, and which tensors a layer keeps.
pub(super) fn read_recompute(
    written: &mut Written,
    numerics: Option<Numerics>,
    precision: Option<Precision>,
) -> Option<Recomputation> {
    let mode = written.choice(&recompute::MODE, Recompute::find);
    let every = written.count(&recompute::EVERY);
    let (numerics, precision) = (numerics?, precision?);
    let is_half = numerics.values == Values::Shape && precision.parameter.size() == 2;
    let usual = if is_half { SavedTensors::Megatron } else { SavedTensors::Lab };
    let saved = written.or(&recompute::SAVED, |written, key| written.choice(key, SavedTensors::find), Some(usual))?;
    if numerics.values == Values::Real && saved == SavedTensors::Megatron {
        let problem = Problem::new("with real values a layer keeps what the lab's own kernels need").allowed("lab");
        let problem = problem.hint("numerics.values = \"shape\" follows any tensors");
        written.refuse(&[&recompute::SAVED, &numerics_keys::VALUES], problem);
    }
    let preserve_rng_state = written.flag(&recompute::PRESERVE_RNG_STATE)?;
    Some(Recomputation { mode: mode?, every: every?, saved, preserve_rng_state })
}

/// What only the whole training step tells.
pub(super) fn check(written: &mut Written, training: &mut Training) {
    refuse_pipeline(written, training);
    refuse_two_way(written, training);
    refuse_split_embedding(written, training);
    refuse_asynchronous(written, training);
    refuse_segments(written, training);
    refuse_unequal(written, training);
    refuse_prefetch(written, training);
    if !written.has(&data_parallel::EXPAND, 0) {
        training.data_parallel.expand = limits::is_small(training);
    }
}

/// DeepSpeed's own reason: its pipeline engine asserts that ZeRO-2 and ZeRO-3 are off.
fn refuse_pipeline(written: &mut Written, training: &Training) {
    let strategy = training.data_parallel.strategy;
    let stages = training.mesh.size(Axis::Pipeline);
    if stages > 1 && matches!(strategy, Strategy::Zero2 | Strategy::Zero3) {
        let message = format!("{strategy} does not go with a pipeline of {stages} stages");
        let why = "it scatters the gradients of every micro-batch, and a pipeline has many: DeepSpeed refuses this pair, too";
        let problem = Problem::new(message).allowed("ddp, zero-1, fsdp").hint(format!("{why}; zero-1 scatters once a step"));
        written.refuse(&[&data_parallel::STRATEGY, &parallel::PIPELINE], problem);
    }
}

/// Where each stage stands twice, its two homes take different micro-batches: they meet once, when all are done.
fn refuse_two_way(written: &mut Written, training: &Training) {
    let DataParallel { strategy, no_sync, .. } = training.data_parallel;
    if !training.is_two_way() || (strategy == Strategy::Ddp && no_sync) {
        return;
    }
    let (key, what) = if strategy == Strategy::Ddp {
        (&data_parallel::NO_SYNC, "no_sync = false".to_owned())
    } else {
        (&data_parallel::STRATEGY, strategy.to_string())
    };
    let name = training.pipeline.order.name();
    let problem = Problem::new(format!("{what} does not go with {name}, whose stages stand on two ranks each"));
    let hint = "the two take different micro-batches, and average their gradients once a step";
    written.refuse(&[key, &pipeline::SCHEDULE], problem.allowed("ddp with no_sync").hint(hint));
}

/// A tied embedding that stands on two ranks is averaged whole, once a step.
fn refuse_split_embedding(written: &mut Written, training: &Training) {
    let DataParallel { strategy, no_sync, .. } = training.data_parallel;
    if !training.splits_embedding() || (strategy == Strategy::Ddp && no_sync) {
        return;
    }
    let problem = Problem::new("a tied embedding stands on the first stage and on the last, and they share no shards of it");
    let keys = [&model::TIED, &model::PRESET, &data_parallel::STRATEGY, &data_parallel::NO_SYNC];
    written.refuse(&keys, problem.allowed("ddp with no_sync").hint("tied = false, or strategy = \"ddp\""));
}

/// Where a pipeline is never drained, stages update at different times: nobody could meet for a sum in between.
fn refuse_asynchronous(written: &mut Written, training: &Training) {
    if !training.pipeline.updates.is_asynchronous() {
        return;
    }
    let (name, data) = (training.pipeline.order.name(), training.mesh.size(Axis::Data));
    if data > 1 {
        let problem = Problem::new(format!("{name} updates while micro-batches are under way, and takes no data-parallel ranks"));
        let problem = problem.allowed("data = 1").hint("1f1b averages over replicas, once a step");
        written.refuse(&[&parallel::DATA, &pipeline::SCHEDULE], problem);
    }
    if training.splits_embedding() {
        let problem = Problem::new(format!("a tied embedding stands on two stages, which {name} updates at different times"));
        written.refuse(&[&model::TIED, &model::PRESET, &pipeline::SCHEDULE], problem.allowed("tied = false"));
    }
}

/// A segment's attention needs what earlier segments saved: there is nothing to compute again from a segment alone.
fn refuse_segments(written: &mut Written, training: &Training) {
    if training.pipeline.segments > 1 && training.model.dropout > 0.0 {
        let problem = Problem::new("dropout does not go with segments of sequences").allowed("dropout = 0");
        written.refuse(&[&model::DROPOUT, &pipeline::SEGMENTS, &pipeline::SCHEDULE], problem);
    }
    if training.pipeline.segments > 1 && training.recompute.mode != Recompute::None {
        let problem = Problem::new(format!("recompute = {} does not go with segments of sequences", training.recompute.mode));
        let problem = problem.allowed("none").hint("segments = 1 takes whole sequences through the pipeline");
        written.refuse(&[&recompute::MODE, &pipeline::SEGMENTS, &pipeline::SCHEDULE], problem);
    }
}

/// What is computed again is laid out for micro-batches of one size.
fn refuse_unequal(written: &mut Written, training: &Training) {
    if !training.batch.sizes.is_empty() && training.recompute.mode != Recompute::None {
        let message = format!("recompute = {} does not go with micro-batches of different sizes", training.recompute.mode);
        let problem = Problem::new(message).allowed("none").hint("micro_batch_size gives all the same size");
        written.refuse(&[&recompute::MODE, &batch::MICRO_BATCH_SIZES], problem);
    }
}

/// Beyond the last unit there is nothing to gather.
fn refuse_prefetch(written: &mut Written, training: &Training) {
    let units = (0..training.stages()).map(|stage| training.wrapped(stage).len()).min().unwrap_or(1);
    if training.data_parallel.strategy.sharing().parameters && written.has(&fsdp::PREFETCH, 0) && training.fsdp.prefetch >= units
    {
        let message =
            format!("`prefetch = {}` looks beyond the {units} units of a rank", grouped(training.fsdp.prefetch as i128));
        let problem = Problem::new(message).allowed(format!("0 to {}", units - 1));
        written.refuse(
            &[&fsdp::PREFETCH],
            problem.hint("a layer, the embedding and the head are a unit each with wrap = \"layer\""),
        );
    }
}

impl Training {
    /// Whether ranks that share parameters add up whole gradients over a step, and keep what they do not free behind forward to its end:
    /// FSDP's stages, whose schedule says when a step's last micro-batch has come. Source: PyTorch, `pipelining/stage.py`.
    #[must_use]
    pub fn accumulates_whole(&self) -> bool {
        self.data_parallel.strategy == Strategy::Fsdp && self.mesh.size(Axis::Pipeline) > 1
    }

    /// The parts of `stage`, cut into units that are gathered as a whole. A tied head and its embedding share one.
    #[must_use]
    pub fn wrapped(&self, stage: usize) -> Vec<Vec<crate::base::model::Part>> {
        use crate::base::model::Part;
        /// Layers of a block of them.
        const BLOCK: usize = 4;
        let parts = self.parts(stage);
        let (layers, ends): (Vec<Part>, Vec<Part>) = parts.iter().partition(|part| matches!(part, Part::Block(_)));
        let size = match self.fsdp.wrap {
            Wrap::Layer => 1,
            Wrap::Block => BLOCK,
            Wrap::Whole => return vec![parts],
        };
        let blocks = layers.chunks(size).map(<[Part]>::to_vec);
        if self.model.tied && ends.len() == 2 {
            return std::iter::once(ends).chain(blocks).collect();
        }
        let end = |wanted| ends.iter().copied().filter(move |part| *part == wanted).map(|part| vec![part]);
        end(Part::Embedding).chain(blocks).chain(end(Part::Head)).collect()
    }
}
