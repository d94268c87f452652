//! The numbers of every mesh against one device's.

use ranklab::lab::Verdict;
use ranklab::program::trace::Outcome;

use crate::support::{SMALL, head_of, run};

/// Runs the small model for five steps with these settings, and compares the verdict's word.
fn check(data: usize, pipeline: usize, settings: &str, expected: &[&str]) {
    let small = SMALL.replace("layers = 5", &format!("layers = {}", pipeline.max(5)));
    let text =
        format!("{small}[batch]\nmicro_batches = 3\nsteps = 5\n[parallel]\ndata = {data}\npipeline = {pipeline}\n{settings}");
    let run = run(&text);
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
    assert!(expected.contains(&run.verdict.name()), "{:?} is none of {expected:?} for\n{text}", run.verdict);
    assert_eq!(run.losses.len(), 5);
    assert!(run.losses[4] < run.losses[0], "the loss falls: {:?}", run.losses);
}

#[test]
fn pipelines_equal_one_device_bit_for_bit() {
    for pipeline in [1, 2, 3, 4, 5, 8] {
        for schedule in ["naive", "gpipe", "1f1b"] {
            check(1, pipeline, &format!("[pipeline]\nschedule = \"{schedule}\"\n"), &["equal"]);
        }
    }
}

#[test]
fn data_parallel_sums_drift_no_more_than_they_may() {
    for (data, pipeline) in [(2, 1), (4, 1), (8, 1), (2, 2), (3, 2), (2, 4), (4, 2), (2, 8)] {
        for all_reduce in ["ring", "tree", "star"] {
            let settings =
                format!("[data_parallel]\nall_reduce = \"{all_reduce}\"\nbucket_mib = 0.01\nfirst_bucket_mib = 0.004\n");
            check(data, pipeline, &settings, &["equal", "expected-drift"]);
        }
    }
}

#[test]
fn exact_mode_makes_sums_independent_of_their_order() {
    for (data, pipeline) in [(2, 1), (3, 2), (8, 1)] {
        check(data, pipeline, "[numerics]\nexact = true\n", &["equal"]);
    }
}

#[test]
fn double_precision_stays_close() {
    check(3, 2, "[numerics]\ndtype = \"f64\"\n", &["equal", "expected-drift"]);
}

/// A trouble that spoils the numbers is wrong, at the op that it met.
#[track_caller]
fn check_wrong(mesh: &str, trouble: &str, op: &str, step: u32) {
    let text =
        format!("{SMALL}[batch]\nmicro_batches = 3\nsteps = 3\n[parallel]\n{mesh}\n[[trouble]]\nkind = \"skip-op\"\n{trouble}");
    let run = run(&text);
    let Verdict::Wrong { first_difference, max_abs_diff } = &run.verdict else { panic!("{:?} for\n{text}", run.verdict) };
    assert_eq!((head_of(&run, first_difference.op).as_str(), first_difference.step), (op, step), "{text}");
    assert!(*max_abs_diff > 1e-6);
}

#[test]
fn a_skipped_op_is_named() {
    check_wrong("data = 4", "op = \"all-reduce bucket0\"", "all-reduce bucket0 (skipped)", 0);
    check_wrong("data = 2\npipeline = 2", "op = \"all-reduce bucket0\"\nstep = 1", "all-reduce bucket0 (skipped)", 1);
    check_wrong("pipeline = 2", "op = \"0F1 forward blocks.2\"", "0F1 forward blocks.2 (skipped)", 0);
    check_wrong("pipeline = 3", "op = \"1B2 backward-input blocks.3\"\nstep = 2", "1B2 backward-input blocks.3 (skipped)", 2);
    check_wrong("pipeline = 2", "op = \"0B1 backward-weight blocks.0\"", "0B1 backward-weight blocks.0 (skipped)", 0);
    let sharded = |strategy: &str| format!("data = 4\n[data_parallel]\nstrategy = \"{strategy}\"");
    let on = |op: &str| format!("op = \"{op}\"\nrank = 2\nstep = 1");
    check_wrong(&sharded("zero-2"), &on("accumulate"), "accumulate (skipped)", 1);
    check_wrong(&sharded("fsdp"), &on("accumulate"), "accumulate (skipped)", 1);
    check_wrong(&sharded("fsdp"), "op = \"all-gather blocks.3\"\nstep = 1", "0F0 forward blocks.3", 1);
    check_wrong(&sharded("fsdp"), "op = \"reduce-scatter blocks.3\"", "reduce-scatter blocks.3 (skipped)", 0);
    check_wrong(&sharded("zero-1"), "op = \"all-gather bucket0\"", "0F0 forward embedding", 1);
}
