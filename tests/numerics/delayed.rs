//! Delayed weights against candle's autograd: the gradients of `PipeDream` and PipeDream-2BW are those of the loss at old weights, stage by
//! stage as old as the schedule says. The oracle knows the delays alone, neither plans nor stashes.

use std::collections::BTreeMap;

use candle_core::{DType, Result, Tensor};
use ranklab::base::BufferId;
use ranklab::base::model::Segment;
use ranklab::engine::kernels::cpu::data::batch;
use ranklab::engine::kernels::cpu::{Dims, init};
use ranklab::lab::Run;
use ranklab::program::Name;
use ranklab::scenario::Task;

use super::oracle;
use crate::support;

const LR: f64 = 0.05;

/// Runs `schedule` on `p` ranks, and compares its last weights with those of the oracle, whose version of stage s for a micro-batch of the
/// whole run is `version`, and which updates once for every `sum` micro-batches.
#[track_caller]
fn check(schedule: &str, (p, m, steps): (u32, u32, u32), sum: u32, version: impl Fn(u32, u32) -> u32) {
    let text = format!(
        "seed = 3\n[model]\nlayers = 5\nhidden = 12\nheads = 3\nsequence = 5\nvocab = 23\n[batch]\nmicro_batches = {m}\nsteps = {steps}\n\
         micro_batch_size = 2\n[parallel]\npipeline = {p}\n[pipeline]\nschedule = \"{schedule}\"\n[numerics]\ndtype = \"f64\"\n\
         [optimizer]\nkind = \"sgd\"\nlr = {LR}\n"
    );
    let run = support::run(&text);
    let expected = expected(&run, (p, m * steps), sum, version).expect("an oracle");
    for (name, value) in last_weights(&run) {
        let (distance, norm) = value
            .iter()
            .zip(&expected[&name])
            .fold((0.0f64, 0.0f64), |(distance, norm), (a, b)| (distance + (a - b) * (a - b), norm + b * b));
        assert!(distance.sqrt() <= 1e-10 * norm.sqrt(), "{name} is {} off for\n{text}", (distance / norm).sqrt());
    }
}

fn last_weights(run: &Run) -> BTreeMap<String, Vec<f64>> {
    let program = run.session.program();
    let weight = |(index, buffer): (usize, &ranklab::program::Buffer)| {
        let Name::Parameter(parameter) = buffer.name else { return None };
        let value = run.session.value(BufferId::new(index))?.elements().ok()??;
        Some((program.parameters[parameter.index()].name.clone(), value))
    };
    program.buffers.iter().enumerate().filter_map(weight).collect()
}

/// The oracle's weights behind all updates.
fn expected(
    run: &Run,
    (p, micro_batches): (u32, u32),
    sum: u32,
    version: impl Fn(u32, u32) -> u32,
) -> Result<BTreeMap<String, Vec<f64>>> {
    let Task::Train(training) = &run.scenario.task else { panic!("a training step") };
    let model = &training.model;
    let dims = Dims {
        model: model.clone(),
        micro_batch_size: training.batch.micro_batch_size,
        grid: None,
        half: false,
        segment: Segment::WHOLE,
    };
    let parameters = model.parameters();
    let stage_of: BTreeMap<String, u32> = (0..p)
        .flat_map(|stage| training.parts(stage as usize).into_iter().map(move |part| (part, stage)))
        .flat_map(|(part, stage)| model.parameters_of(part).into_iter().map(move |parameter| (parameter.name, stage)))
        .collect();
    let first = |parameter: &ranklab::base::model::Parameter| {
        Ok((parameter.name.clone(), vec![init::parameter(parameter, run.scenario.seed, DType::F64)?]))
    };
    let mut versions: BTreeMap<String, Vec<Tensor>> = parameters.iter().map(first).collect::<Result<_>>()?;
    let mut sums: BTreeMap<String, Tensor> = BTreeMap::new();
    for i in 0..micro_batches {
        let at =
            |(name, versions): (&String, &Vec<Tensor>)| (name.clone(), versions[version(stage_of[name], i) as usize].clone());
        let values: BTreeMap<String, Tensor> = versions.iter().map(at).collect();
        let (tokens, targets) = batch(u64::from(i) * dims.micro_batch_size as u64, &dims, run.scenario.seed)?;
        for (name, gradient) in oracle::run(model, &values, &BTreeMap::new(), &tokens, &targets)?.gradients {
            let sum = match sums.remove(&name) {
                Some(earlier) => (earlier + gradient)?,
                None => gradient,
            };
            sums.insert(name, sum);
        }
        if (i + 1) % sum == 0 {
            for (name, gradient) in std::mem::take(&mut sums) {
                let versions = versions.get_mut(&name).expect("a parameter");
                let now = versions.last().expect("a first version");
                versions.push((now - (gradient * (LR / f64::from(sum)))?)?);
            }
        }
    }
    let last = |(name, versions): (String, Vec<Tensor>)| Ok((name, versions[versions.len() - 1].flatten_all()?.to_vec1()?));
    versions.into_iter().map(last).collect()
}

/// A stage's forward comes behind as many updates as its warm-up is short of the micro-batch's number.
#[test]
fn pipedream_uses_weights_as_old_as_its_stage_is_far_from_the_last() {
    for (p, m, steps) in [(2, 5, 1), (3, 4, 2), (4, 8, 1), (5, 3, 3), (3, 1, 4), (1, 3, 2)] {
        check("pipedream", (p, m, steps), 1, |stage, i| i.saturating_sub(p - 1 - stage));
    }
}

/// Step t uses the weights that step t-2 has left, on all stages.
#[test]
fn pipedream_2bw_delays_every_stage_by_one_update() {
    for (p, m, steps) in [(2, 3, 4), (3, 3, 3), (4, 5, 3), (1, 2, 3)] {
        check("pipedream-2bw", (p, m, steps), m, |_, i| (i / m).saturating_sub(1));
    }
}
