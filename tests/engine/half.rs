//! Half precision: parameters and activations in bf16, gradients that add up in f32, and the copy in f32 that the optimizer updates.

use ranklab::base::Dtype;
use ranklab::engine::session::tensors;
use ranklab::lab::Run;
use ranklab::program::trace::Outcome;
use ranklab::program::{Name, check as findings};

use crate::support::{SMALL, metrics, run};

const STRATEGIES: [&str; 5] = ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"];

fn text(data: usize, micro_batches: u32, steps: u32, more: &str) -> String {
    format!(
        "{SMALL}parameter_dtype = \"bf16\"\n[batch]\nmicro_batches = {micro_batches}\nsteps = {steps}\n[parallel]\ndata = {data}\n{more}"
    )
}

/// A sound run whose verdict is one of `expected`, and whose loss falls.
#[track_caller]
fn check(text: &str, expected: &[&str]) -> Run {
    let run = run(text);
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
    assert!(expected.contains(&run.verdict.name()), "{:?} is none of {expected:?} for\n{text}", run.verdict);
    assert!(run.losses.last() < run.losses.first(), "the loss falls: {:?}", run.losses);
    assert_eq!(findings(run.session.program()), [], "{text}");
    run
}

#[test]
fn every_strategy_drifts_no_more_than_it_may() {
    for strategy in STRATEGIES {
        for (data, micro_batches) in [(2, 1), (3, 3), (4, 1), (8, 3)] {
            let more = format!("[data_parallel]\nstrategy = \"{strategy}\"\nbucket_mib = 0.01\n");
            check(&text(data, micro_batches, 5, &more), &["equal", "expected-drift"]);
        }
        let sgd = format!("[optimizer]\nkind = \"sgd\"\nlr = 0.1\n[data_parallel]\nstrategy = \"{strategy}\"\n");
        check(&text(3, 2, 5, &sgd), &["equal", "expected-drift"]);
    }
}

/// Sums of gradients are in f32: on a grid they do not depend on their order, and all else is the same bits.
#[test]
fn exact_sums_are_equal() {
    for strategy in STRATEGIES {
        for kind in ["adamw", "sgd"] {
            let more = format!(
                "[optimizer]\nkind = \"{kind}\"\nlr = 0.01\n[data_parallel]\nstrategy = \"{strategy}\"\nbucket_mib = 0.01\n[numerics]\nexact = true\n"
            );
            check(&text(3, 2, 3, &more), &["equal"]);
        }
    }
}

#[test]
fn pipelines_and_recomputation_are_equal_bit_for_bit() {
    for more in [
        "pipeline = 2\n",
        "pipeline = 5\n[pipeline]\nschedule = \"gpipe\"\n",
        "pipeline = 2\n[pipeline]\nschedule = \"zb-h1\"\n",
        "[recompute]\nmode = \"selective\"\n",
        "[recompute]\nmode = \"full\"\nevery = 2\n",
    ] {
        check(&text(1, 3, 3, more), &["equal"]);
        check(&text(1, 3, 3, more).replacen("[batch]", "dropout = 0.2\n[batch]", 1), &["equal"]);
    }
}

/// Conventions differ in what they keep: with a copy in f32 the state is 18 or 16 bytes a parameter, and all of them train.
#[test]
fn conventions_keep_what_they_say() {
    for (convention, bytes) in [("mixed-adam-16", 16), ("mixed-adam-18", 18), ("mixed-adam-12", 12), ("bf16-adam-8", 8)] {
        for strategy in ["ddp", "zero-3"] {
            let more = format!("[data_parallel]\nstrategy = \"{strategy}\"\n");
            let text = text(2, 2, 3, &more).replacen(
                "parameter_dtype = \"bf16\"",
                &format!("bytes_per_parameter = \"{convention}\""),
                1,
            );
            let run = check(&text, &["equal", "expected-drift"]);
            let metrics = metrics(&run);
            let model = run.session.program().setting.model.as_ref().expect("a model");
            let state = metrics.ranks[0].state.parameter + metrics.ranks[0].state.gradient + metrics.ranks[0].state.optimizer;
            let shards = if strategy == "ddp" { 1 } else { 2 };
            let padding = metrics.ranks.iter().map(|rank| rank.padding.0).sum::<u64>();
            assert_eq!(state.0 * shards, model.parameter_count() as u64 * bytes + padding * (shards - 1), "{text}");
        }
    }
}

/// What lies in the buffers has the type of the layout, and a parameter is its copy in f32, rounded.
#[test]
fn buffers_hold_the_types_that_the_ledger_counts() {
    let run = check(&text(2, 1, 3, "[data_parallel]\nstrategy = \"zero-1\"\n"), &["equal", "expected-drift"]);
    let program = run.session.program();
    let mut checked = 0;
    for rank in 0..2 {
        for id in run.session.held(ranklab::base::Rank(rank)) {
            let layout = &program.layouts[program.buffers[id.index()].layout.index()];
            let value = run.session.value(id).expect("real values");
            for (tensor, part) in tensors(layout, value).expect("tensors").iter().zip(&layout.parts) {
                assert_eq!(
                    format!("{:?}", tensor.dtype()).to_lowercase(),
                    part.dtype.name(),
                    "{}",
                    program.buffers[id.index()].name
                );
            }
            let of = |name: Name| {
                matches!(name, Name::Parameter(_))
                    .then_some(Dtype::Bf16)
                    .or(matches!(name, Name::MasterShard(..)).then_some(Dtype::F32))
            };
            if let Some(dtype) = of(program.buffers[id.index()].name) {
                assert_eq!(layout.parts[0].dtype, dtype);
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "parameters and copies are there");
}

/// Half precision is near full precision, and not the same.
#[test]
fn losses_are_near_those_of_full_precision() {
    let losses = |dtype: &str| run(&text(2, 2, 5, "").replacen("bf16", dtype, 1)).losses;
    let (half, full) = (losses("bf16"), losses("f32"));
    for (half, full) in half.iter().zip(&full) {
        assert!((half - full).abs() < 0.02 * full && half.to_bits() != full.to_bits(), "{half} {full}");
    }
}
