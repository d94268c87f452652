//! Faults of pipelines: each is injected on several ranks and numbers of ranks, and traced to its rank, op and cause.

use ranklab::lab::{Lab, Run};

use crate::support::{SMALL, head_of, run, scenario};

fn text(mesh: &str, batch: &str, more: &str, rule: &str) -> String {
    let small = SMALL.replace("layers = 5", "layers = 8");
    format!("{small}[batch]\n{batch}\nsteps = 2\n[parallel]\n{mesh}\n{more}\n[[trouble]]\n{rule}\n")
}

/// Rank, op and words of the first diagnosis; how the run ends, and its verdict.
#[track_caller]
fn check(text: &str, ends: (&str, &str), (rank, op, cause): (u32, &str, &str)) -> Run {
    let run = run(text);
    let found = run.diagnosis.first().unwrap_or_else(|| panic!("a diagnosis of\n{text}"));
    let head = found.op.map_or_else(String::new, |op| head_of(&run, op));
    let told = format!("{} `{head}`: {}\n{text}", found.rank, found.cause);
    assert_eq!((run.session.trace().outcome.name(), run.verdict.name()), ends, "{told}");
    assert_eq!(found.rank.0, rank, "{told}");
    assert!(head.contains(op), "`{op}` in {told}");
    assert!(found.cause.contains(cause), "`{cause}` in {told}");
    run
}

/// 6.3: two neighbours that both send first.
#[test]
fn blocking_sends_are_a_circle_of_two() {
    for (pipeline, rank) in [(2, 0), (3, 1), (4, 2)] {
        let text = text(&format!("pipeline = {pipeline}"), "micro_batches = 4", "", "kind = \"blocking-sends\"");
        let run = check(&text, ("deadlocked", "none"), (rank, "send x", "in a circle"));
        assert!(!run.given().repairs.is_empty(), "{text}");
    }
    // One that blocks by itself holds nobody up for good.
    let alone = text("pipeline = 3", "micro_batches = 4", "", "kind = \"blocking-sends\"\nrank = 1");
    assert_eq!(run(&alone).verdict.name(), "equal", "{alone}");
}

/// 6.6: the replicas meet behind the first micro-batch, and what comes later stays their own.
#[test]
fn an_early_sum_is_told_by_what_is_added_behind_it() {
    for (mesh, schedule) in [
        ("data = 2\npipeline = 2", "1f1b"),
        ("data = 3\npipeline = 3", "1f1b"),
        ("data = 2", "1f1b"),
        ("data = 2\npipeline = 2", "gpipe"),
    ] {
        let pipeline = format!("[pipeline]\nschedule = \"{schedule}\"");
        let text = text(mesh, "micro_batches = 4", &pipeline, "kind = \"early-sum\"");
        let run = run(&text);
        let found = run.diagnosis.first().unwrap_or_else(|| panic!("a diagnosis of\n{text}"));
        assert_eq!(run.verdict.name(), "wrong", "{text}");
        assert!(found.cause.contains("before all are there"), "{}\n{text}", found.cause);
    }
}

/// 6.5: sequences of small micro-batches count more.
#[test]
fn a_mean_of_means_is_told_by_the_sizes() {
    for (mesh, sizes) in [("pipeline = 1", "1, 3"), ("pipeline = 2", "2, 1, 5"), ("data = 2\npipeline = 2", "1, 1, 4")] {
        let m = sizes.split(',').count();
        let batch = format!("micro_batches = {m}\nmicro_batch_sizes = [{sizes}]");
        let text = text(mesh, &batch, "", "kind = \"mean-of-means\"");
        let run = run(&text);
        let found = run.diagnosis.first().unwrap_or_else(|| panic!("a diagnosis of\n{text}"));
        assert_eq!(run.verdict.name(), "wrong", "{text}");
        assert!(found.cause.contains(&format!("micro-batches of {sizes} sequences count alike")), "{}\n{text}", found.cause);
    }
}

/// 6.20: the loss falls all the same, and one device tells.
#[test]
fn a_cut_that_is_off_by_one_is_told_by_the_layers() {
    for (pipeline, rank, schedule) in [(2, 1, "1f1b"), (3, 2, "gpipe"), (3, 1, "zb-h1"), (4, 3, "1f1b")] {
        for (kind, words) in [("layer-missing", "and nobody runs blocks."), ("layer-twice", "has run already")] {
            let pipeline = (format!("pipeline = {pipeline}"), format!("[pipeline]\nschedule = \"{schedule}\""));
            let rule = format!("kind = \"{kind}\"\nrank = {rank}");
            let text = text(&pipeline.0, "micro_batches = 3", &pipeline.1, &rule);
            let run = check(&text, ("completed", "wrong"), (rank, "forward blocks.", words));
            assert!(run.losses[1] < run.losses[0], "the loss falls: {:?}", run.losses);
            assert_eq!(ranklab::program::check(run.session.program()), [], "{text}");
        }
    }
}

/// 6.21: weights moved on between a forward and its backward.
#[test]
fn a_missing_stash_is_told_by_the_updates_in_between() {
    for (schedule, pipeline, rank, rule, words) in [
        ("pipedream", 2, 0, "", "updated once since"),
        ("pipedream", 4, 2, "", "updated once since"),
        ("pipedream", 4, 0, "\nrank = 0\nop = \"0B3\"", "updated 3 times since"),
    ] {
        let schedule = format!("[pipeline]\nschedule = \"{schedule}\"");
        let rule = format!("kind = \"no-stash\"{rule}");
        let text = text(&format!("pipeline = {pipeline}"), "micro_batches = 6", &schedule, &rule);
        check(&text, ("completed", "wrong"), (rank, "backward-input", words));
    }
}

/// A fault that changes nothing about a run says what it wants.
#[test]
fn faults_that_find_nothing_are_refused() {
    for (mesh, rule) in [
        ("pipeline = 1", "kind = \"blocking-sends\""),
        ("pipeline = 2", "kind = \"early-sum\""),
        ("pipeline = 2", "kind = \"mean-of-means\""),
        ("pipeline = 2", "kind = \"layer-missing\"\nrank = 0"),
        ("pipeline = 8", "kind = \"layer-twice\"\nrank = 3"),
        ("pipeline = 2", "kind = \"no-stash\""),
    ] {
        let text = text(mesh, "micro_batches = 2", "", rule);
        assert!(Lab::new().run(&scenario(&text)).is_err(), "{text}");
    }
}
