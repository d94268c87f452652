//! The numbers of every mesh against one device's.

use ranklab::lab::Verdict;
use ranklab::program::trace::Outcome;
use ranklab::schedule::{Placement, SCHEDULES, Schedule, Size};

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

/// Schedules that cut the model into more stages than ranks, or the backward pass in two: the numbers are still those of one device.
#[test]
fn schedules_equal_one_device_bit_for_bit() {
    for (pipeline, micro_batches) in [(1, 3), (2, 4), (2, 5), (3, 6)] {
        for schedule in ["looped-bfs", "interleaved", "zb-h1", "zb-h2", "zb1p", "zbv", "v-half", "v-min", "dualpipev"] {
            let known = Schedule::find(schedule).expect("a schedule");
            if known.check(Size { ranks: pipeline, chunks: known.placement.usual_chunks(), segments: 1, micro_batches }).is_ok() {
                check_schedule(schedule, pipeline, micro_batches, "", &["equal"]);
            }
        }
    }
    check_schedule("interleaved", 4, 6, "chunks = 3", &["equal"]);
    check_schedule("zb1p", 3, 3, "chunks = 4", &["equal"]);
    check_schedule("zbv", 4, 3, "", &["equal"]);
    check_schedule("dualpipev", 4, 9, "", &["equal"]);
}

/// Segments are summed in another order than whole sequences; in f64 that is next to nothing.
#[test]
fn segments_drift_no_more_than_they_may() {
    for (pipeline, micro_batches, segments) in [(1, 2, 2), (2, 3, 2), (3, 4, 4), (4, 2, 8), (2, 1, 1)] {
        for (positions, dtype) in [("learned", "f32"), ("rotary", "f32"), ("rotary", "f64")] {
            let text = format!(
                "[model]\nlayers = 4\nhidden = 16\nheads = 4\nkv_heads = 2\nsequence = 8\nvocab = 31\npositions = \"{positions}\"\n\
                 [batch]\nmicro_batches = {micro_batches}\nmicro_batch_size = 2\nsteps = 3\n[parallel]\npipeline = {pipeline}\n\
                 [pipeline]\nschedule = \"seq1f1b\"\nsegments = {segments}\n[numerics]\ndtype = \"{dtype}\"\n"
            );
            let run = run(&text);
            assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
            assert_eq!(ranklab::program::check(run.session.program()), [], "{text}");
            assert!(["equal", "expected-drift"].contains(&run.verdict.name()), "{:?} for\n{text}", run.verdict);
            assert!(run.losses[2] < run.losses[0], "the loss falls: {:?}", run.losses);
        }
    }
    let replicas = "[model]\nlayers = 4\nhidden = 16\nheads = 4\nsequence = 8\nvocab = 31\n[batch]\nmicro_batches = 2\n\
                    [parallel]\npipeline = 2\ndata = 2\n[pipeline]\nschedule = \"seq1f1b\"\n";
    assert_eq!(run(replicas).verdict.name(), "expected-drift");
}

/// Losses are weighted by the sequences of their micro-batch: the reference takes all sequences of a step at once. In f64 nothing is left of the
/// difference; in f32 what another order of sums leaves.
#[test]
fn unequal_micro_batches_weigh_their_losses() {
    for (pipeline, data, schedule, sizes) in [
        (1, 1, "1f1b", "1, 3, 2"),
        (2, 1, "1f1b", "2, 5, 1, 1"),
        (3, 1, "gpipe", "1, 1, 4"),
        (2, 2, "zb-h1", "3, 1, 1"),
        (2, 1, "zbv", "1, 2, 3, 4"),
        (2, 1, "seq1f1b", "4, 1"),
        (2, 1, "dualpipe", "1, 2, 1, 3"),
    ] {
        for dtype in ["f64", "f32"] {
            let m = sizes.split(',').count();
            let text = format!(
                "[model]\nlayers = 4\nhidden = 16\nheads = 2\nsequence = 6\nvocab = 31\n[batch]\nmicro_batches = {m}\n\
                 micro_batch_sizes = [{sizes}]\nsteps = 3\n[parallel]\npipeline = {pipeline}\ndata = {data}\n\
                 [pipeline]\nschedule = \"{schedule}\"\n[numerics]\ndtype = \"{dtype}\"\n[optimizer]\nkind = \"sgd\"\nlr = 0.1\n"
            );
            let run = run(&text);
            assert_eq!(ranklab::program::check(run.session.program()), [], "{text}");
            assert_eq!(run.verdict.name(), "expected-drift", "{:?} for\n{text}", run.verdict);
            assert!(run.losses[2] < run.losses[0], "the loss falls: {:?}", run.losses);
        }
    }
}

/// A segment that loses the gradient of its keys and values from the segments behind it is wrong.
#[test]
fn a_lost_segment_is_named() {
    let text = "[model]\nlayers = 4\nhidden = 16\nheads = 4\nsequence = 8\nvocab = 31\n[batch]\nmicro_batches = 2\n[parallel]\npipeline = 2\n\
                [pipeline]\nschedule = \"seq1f1b\"\n[[trouble]]\nkind = \"skip-op\"\nop = \"0B1 backward-input blocks.1\"\n";
    let run = run(text);
    let Verdict::Wrong { first_difference, .. } = &run.verdict else { panic!("{:?}", run.verdict) };
    assert_eq!(first_difference.rank.0, 0);
}

/// Every schedule on 2, 4 and 8 ranks, with the fewest micro-batches that it takes of p, and of 2p-1 or 2p: equal where sums keep their order,
/// with the same delayed weights where the pipeline is never drained; within rounding where two sums meet.
#[test]
fn every_schedule_trains_on_two_four_and_eight_ranks() {
    let mut trained = 0;
    for schedule in SCHEDULES {
        for ranks in [2, 4, 8] {
            let sizes = [ranks, ranks + 1, 2 * ranks - 1, 2 * ranks].map(|micro_batches| {
                let chunks = schedule.placement.usual_chunks();
                Size { ranks, chunks, segments: schedule.usual_segments(), micro_batches }
            });
            let mut legal: Vec<Size> = sizes.into_iter().filter(|size| schedule.check(*size).is_ok()).collect();
            // On eight ranks the largest says most.
            legal.drain(..if ranks == 8 { legal.len() - 1 } else { 0 });
            for size in legal {
                let text = format!(
                    "[model]\nlayers = {}\nhidden = 8\nheads = 2\nsequence = 6\nvocab = 23\n[batch]\nmicro_batches = {}\nsteps = 2\n\
                     [parallel]\npipeline = {ranks}\n[pipeline]\nschedule = \"{}\"\n",
                    2 * ranks,
                    size.micro_batches,
                    schedule.name
                );
                let run = run(&text);
                let is_summed_twice = schedule.placement == Placement::TwoWay || schedule.segmented;
                let expected = if is_summed_twice { ["equal", "expected-drift"].as_slice() } else { &["equal"] };
                assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
                assert!(expected.contains(&run.verdict.name()), "{:?} is none of {expected:?} for\n{text}", run.verdict);
                assert_eq!(run.given().verdict.delayed_weights, schedule.updates.is_asynchronous(), "{text}");
                trained += 1;
            }
        }
    }
    assert!(trained > 100, "{trained}");
}

/// Where a stage stands twice two sums meet; in exact mode that does not show.
#[test]
fn two_way_schedules_average_over_both_homes_of_a_stage() {
    for (schedule, pipeline, micro_batches) in [("chimera", 2, 2), ("chimera", 4, 8), ("dualpipe", 2, 4), ("dualpipe", 4, 10)] {
        check_schedule(schedule, pipeline, micro_batches, "", &["equal", "expected-drift"]);
        check_schedule(schedule, pipeline, micro_batches, "[numerics]\nexact = true", &["equal"]);
        let replicas = "[numerics]\nexact = true\n[data_parallel]\nbucket_mib = 0.01\n";
        check_schedule(schedule, pipeline, micro_batches, &format!("{replicas}[parallel]\ndata = 2"), &["equal"]);
    }
}

/// The first stage and the last have half each of a tied embedding's gradient; in exact mode the order of their sum does not show.
#[test]
fn a_tied_embedding_is_summed_over_its_two_stages() {
    for (schedule, pipeline, data) in [("1f1b", 2, 1), ("gpipe", 3, 2), ("interleaved", 2, 1), ("zbv", 3, 1), ("dualpipe", 2, 2)]
    {
        for (exact, expected) in [(false, ["equal", "expected-drift"].as_slice()), (true, ["equal"].as_slice())] {
            let text = format!(
                "[model]\nlayers = 6\nhidden = 16\nheads = 2\nsequence = 7\nvocab = 31\ntied = true\n\
                 [batch]\nmicro_batches = 4\nsteps = 3\n[parallel]\npipeline = {pipeline}\ndata = {data}\n\
                 [pipeline]\nschedule = \"{schedule}\"\n[numerics]\nexact = {exact}\n"
            );
            let run = run(&text);
            assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
            assert_eq!(ranklab::program::check(run.session.program()), [], "{text}");
            assert!(expected.contains(&run.verdict.name()), "{:?} is none of {expected:?} for\n{text}", run.verdict);
        }
    }
    check_wrong_tied();
}

/// Without its sum the two copies of the embedding part ways, which one device tells.
fn check_wrong_tied() {
    let text =
        format!("{SMALL}tied = true\n[parallel]\npipeline = 2\n[[trouble]]\nkind = \"skip-op\"\nop = \"all-reduce embedding\"\n");
    let run = run(&text);
    let Verdict::Wrong { first_difference, .. } = &run.verdict else { panic!("{:?} for\n{text}", run.verdict) };
    assert_eq!(head_of(&run, first_difference.op), "all-reduce embedding (skipped)");
}

/// Trains a small model of twelve layers for three steps; `more` stands behind the schedule.
fn check_schedule(schedule: &str, pipeline: u32, micro_batches: u32, more: &str, expected: &[&str]) {
    let parallel = format!("pipeline = {pipeline}");
    let (more, parallel) = match more.split_once("[parallel]\n") {
        Some((more, data)) => (more, format!("{parallel}\n{data}")),
        None => (more, parallel),
    };
    let text = format!(
        "[model]\nlayers = 12\nhidden = 16\nheads = 2\nsequence = 7\nvocab = 31\n[batch]\nmicro_batches = {micro_batches}\nsteps = 3\n\
         [parallel]\n{parallel}\n[pipeline]\nschedule = \"{schedule}\"\n{more}"
    );
    let run = run(&text);
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
    assert!(expected.contains(&run.verdict.name()), "{:?} is none of {expected:?} for\n{text}", run.verdict);
    assert!(run.losses[2] < run.losses[0], "the loss falls: {:?}", run.losses);
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

const ZERO_2: &str = "data = 2\n[data_parallel]\nstrategy = \"zero-2\"";

#[test]
fn an_update_left_out_is_wrong_even_where_all_ranks_agree() {
    for (mesh, op) in
        [("data = 1", "optimizer"), ("data = 2", "optimizer"), ("pipeline = 2", "optimizer"), (ZERO_2, "optimizer-shard")]
    {
        let text = format!(
            "{SMALL}[batch]\nmicro_batches = 2\nsteps = 3\n[parallel]\n{mesh}\n[[trouble]]\nkind = \"skip-op\"\nop = \"{op}\"\nstep = 2\n"
        );
        let run = run(&text);
        let Verdict::Wrong { first_difference, .. } = &run.verdict else { panic!("{:?} for\n{text}", run.verdict) };
        assert!(head_of(&run, first_difference.op).starts_with(op), "{text}");
        assert_eq!(first_difference.step, 2, "{text}");
    }
}
