//! Whole jobs of the size that papers report: what a rank keeps, from runs of shapes.

use ranklab::base::mesh::Axis;
use ranklab::base::model::Model;
use ranklab::lab::Lab;
use ranklab::observe::{Ledger, Metrics, Run as Observed};
use ranklab::scenario::{Scenario, Task, load};

/// A shipped scenario under overrides.
fn job(name: &str, overrides: &[&str]) -> Scenario {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let path = format!("{}/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    load(&path, &overrides).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Parameters of `layers` layers of a rank that shares each matrix with `tensor` others, by the papers' formulas: matrices and the biases of
/// their columns are cut, norms and biases of sums are not.
fn parameters(model: &Model, layers: usize, tensor: usize) -> usize {
    let Model { hidden: h, kv_heads, heads, ffn, .. } = *model;
    let kv = h / heads * kv_heads;
    let (cut, whole) = if model.fused_qkv {
        (2 * h * h + 2 * h * kv + 2 * h * ffn + h + 2 * kv + ffn, 4 * h + 2 * h)
    } else {
        (2 * h * h + 2 * h * kv + 3 * h * ffn, 2 * h)
    };
    layers * (cut / tensor + whole)
}

/// What the job's ranks keep: `printed` gigabytes on every stage but the first and the last, to the digits printed and the formula's byte.
/// `kept` are bytes a parameter that each rank keeps, and those that its replicas share out. Whether it fits devices of 80 GB.
#[track_caller]
fn check(name: &str, overrides: &[&str], ranks: usize, printed: &str, kept: (usize, usize)) -> Vec<u64> {
    let scenario = job(name, overrides);
    let Task::Train(training) = &scenario.task else { panic!("{name} is a training step") };
    let [tensor, pipeline] = [Axis::Tensor, Axis::Pipeline].map(|axis| training.mesh.size(axis));
    let data = training.data_ranks();
    assert_eq!(tensor * pipeline * data, ranks, "{name} {overrides:?}");
    let run = Lab::new().run(&scenario).expect("a run of shapes");
    let program = run.session.program();
    // 72 GB of state leave no room for activations.
    let outcome = if printed == "72.0" { "out-of-memory" } else { "completed" };
    assert_eq!(run.session.trace().outcome.name(), outcome, "{name} {overrides:?}");
    let observed = Observed::new(program, run.session.trace());
    let metrics = Metrics::new(&observed, &Ledger::new(&observed));
    let state = |stage: usize, place: usize| {
        let rank = training.mesh.at(&[(Axis::Pipeline, stage), (Axis::Tensor, place)]);
        let state = metrics.ranks[program.setting.folding.fold(rank).0.index()].state;
        (state.parameter + state.gradient + state.optimizer).0
    };
    for stage in 1..pipeline - 1 {
        let layers = training.pipeline.layers_per_stage[stage];
        let each = parameters(&training.model, layers, tensor);
        for place in 0..tensor {
            let bytes = state(stage, place);
            let closed = each * kept.0 + (each * kept.1).div_ceil(data);
            // Shards of a unit end with at most an element of zeros.
            let padding = bytes - closed as u64;
            assert!(
                padding <= (16 * program.units.len()) as u64,
                "{bytes} is {padding} more than {closed}, {name} {overrides:?}"
            );
            #[expect(clippy::cast_precision_loss, reason = "gigabytes as they are printed")]
            let gigabytes = bytes as f64 / 1e9;
            let digits = printed.split_once('.').map_or(0, |(_, digits)| digits.len());
            assert_eq!(format!("{gigabytes:.digits$}"), printed, "{name} {overrides:?}");
        }
    }
    (0..pipeline).map(|stage| state(stage, 0)).collect()
}

const WHOLE: (usize, usize) = (16, 0);
const SHARED_OPTIMIZER: (usize, usize) = (4, 12);
const SHARED: (usize, usize) = (0, 16);

/// The stages of a job whose ends are as large as a layer keep the same, within a thousandth.
#[track_caller]
fn check_ends(stages: &[u64], printed: u64) {
    for bytes in stages {
        assert!(bytes.abs_diff(printed * 1_000_000) * 1000 < printed * 1_000_000, "{stages:?}");
    }
}

#[test]
fn seventy_two_billion_parameters_on_64_devices() {
    check_ends(&check("72b-tp8-pp4-dp2", &["data_parallel.strategy=ddp"], 64, "36.0", WHOLE), 36_000);
    check_ends(&check("72b-tp8-pp4-dp2", &[], 64, "22.5", SHARED_OPTIMIZER), 22_500);
    check_ends(&check("72b-tp8-pp2-dp4", &["data_parallel.strategy=ddp"], 64, "72.0", WHOLE), 72_000);
    check_ends(&check("72b-tp8-pp2-dp4", &[], 64, "31.5", SHARED_OPTIMIZER), 31_500);
}

#[test]
fn gpt_3_on_1024_devices() {
    check("gpt3-175b-1024", &[], 1024, "21.75", WHOLE);
    check("gpt3-175b-1024", &["parallel.pipeline=8", "parallel.data=16"], 1024, "43.50", WHOLE);
    check("gpt3-175b-1024", &["data_parallel.strategy=zero-1"], 1024, "7.48", SHARED_OPTIMIZER);
}

#[test]
fn bloom_on_384_devices() {
    check("bloom-176b-384", &["data_parallel.strategy=ddp"], 384, "59.2", WHOLE);
    let stages = check("bloom-176b-384", &[], 384, "20.4", SHARED_OPTIMIZER);
    assert!(stages[0] > stages[1], "the embedding is larger than a layer: {stages:?}");
}

#[test]
fn llama_405b_on_8192_and_16384_devices() {
    check("llama-405b-8192", &[], 8192, "0.797", SHARED);
    check("llama-405b-8192", &["parallel.data=128", "batch.micro_batches=16"], 16_384, "0.398", SHARED);
}

/// The third row: sequences of 131,072 tokens, 16 slices of each. Of the 16 data-parallel rows of a sequence's slices the state is cut in as
/// many pieces as in the second row.
#[test]
fn llama_405b_with_long_sequences() {
    // The state is that of any number of micro-batches.
    check("llama-405b-long", &["batch.micro_batches=2"], 16_384, "0.398", SHARED);
}
