//! `[pipeline]`: which rank computes which stage of which micro-batch, in which order.

use super::keys::{Key, batch, model as model_keys, parallel, pipeline};
use super::problem::Problem;
use super::value::Value;
use super::written::Written;
use super::{Order, Pipeline, PointToPoint, Updates};
use crate::base::words::{counted, grouped, shortened};
use crate::schedule::{Measure, Schedule, Size};

/// The pipeline; its stages follow from ranks, schedule and chunks, its cut from the model's `layers`, its segments from its `sequence`.
pub(super) fn read(written: &mut Written, layers: Option<usize>, sequence: Option<usize>) -> Option<Pipeline> {
    let schedule = written.choice(&pipeline::SCHEDULE, Schedule::find);
    let sheet = written.sheet.clone();
    let stages = sheet.as_ref().map_or_else(|| stages(written, schedule), |sheet| Some(sheet.plan().stages()));
    let layers_per_stage = layers.zip(stages).and_then(|(layers, stages)| layers_per_stage(written, layers, stages));
    let segments = segments(written, schedule, sequence);
    Some(Pipeline {
        segments: segments?,
        off_by_one: None,
        order: match sheet {
            Some(sheet) => Order::Sheet(sheet),
            None => Order::Schedule(schedule?),
        },
        updates: if written.sheet.is_some() { Updates::EachStep } else { schedule?.updates },
        p2p: written.choice(&pipeline::P2P, PointToPoint::find)?,
        barrier: written.flag(&pipeline::BARRIER)?,
        layers_per_stage: layers_per_stage?,
    })
}

/// Segments of a sequence: as many tokens in each.
fn segments(written: &mut Written, schedule: Option<&Schedule>, sequence: Option<usize>) -> Option<u32> {
    let usual = if written.sheet.is_some() { 1 } else { schedule.map_or(1, Schedule::usual_segments) };
    let segments = written.or(&pipeline::SEGMENTS, Written::count, Some(usual))?;
    if sequence.is_some_and(|sequence| !sequence.is_multiple_of(segments as usize)) {
        let sequence = sequence.unwrap_or(0);
        let problem = Problem::new(format!("a sequence of {sequence} tokens has no {segments} equal segments"));
        let divisors =
            (2..=sequence.min(64)).filter(|divisor| sequence.is_multiple_of(*divisor)).map(|divisor| divisor.to_string());
        let allowed = format!(
            "a divisor of {sequence}: {}",
            std::iter::once("1".to_owned()).chain(divisors).collect::<Vec<_>>().join(", ")
        );
        written.refuse(&[&pipeline::SEGMENTS, &pipeline::SCHEDULE, &model_keys::SEQUENCE], problem.allowed(allowed));
        return None;
    }
    if segments > 1 && written.sheet.is_some() {
        let problem = Problem::new("a sheet has no words for segments of a sequence").allowed("1");
        written.refuse(&[&pipeline::SEGMENTS], problem);
    }
    Some(segments)
}

/// The number of stages, if the schedule takes its sizes. A schedule that is unknown takes all: other problems are found all the same.
fn stages(written: &mut Written, schedule: Option<&Schedule>) -> Option<usize> {
    let usual = schedule.map_or(1, |schedule| schedule.placement.usual_chunks());
    let (ranks, chunks) = (written.count(&parallel::PIPELINE)?, written.or(&pipeline::CHUNKS, Written::count, Some(usual))?);
    let stages = Some(ranks as usize * chunks as usize);
    let (Some(schedule), Some(micro_batches)) = (schedule, written.count(&batch::MICRO_BATCHES)) else { return stages };
    let segments = written.or(&pipeline::SEGMENTS, Written::count, Some(schedule.usual_segments()))?;
    let Err(illegal) = schedule.check(Size { ranks, chunks, segments, micro_batches }) else { return stages };
    let key = match illegal.what {
        Measure::Ranks => &parallel::PIPELINE,
        Measure::Chunks => &pipeline::CHUNKS,
        Measure::Segments => &pipeline::SEGMENTS,
        Measure::MicroBatches => &batch::MICRO_BATCHES,
    };
    let problem = Problem::new(format!("{} {}", schedule.title, illegal.reason));
    written.refuse(&[key, &pipeline::SCHEDULE], problem.hint(format!("{} = {} would do", illegal.what, illegal.nearest)));
    None
}

/// As written, or evenly: the first (layers mod stages) stages get one more.
fn layers_per_stage(written: &mut Written, layers: usize, stages: usize) -> Option<Vec<usize>> {
    if layers < stages {
        let message = format!("{} cannot fill {}", counted(layers as u64, "layer"), counted(stages as u64, "stage"));
        let problem = Problem::new(message).allowed("at least one layer per stage");
        let keys: [&'static Key; 4] = [&parallel::PIPELINE, &pipeline::CHUNKS, &model_keys::LAYERS, &model_keys::PRESET];
        written.refuse(&keys, problem);
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
