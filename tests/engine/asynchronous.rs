//! Pipelines that are never drained: versions of weights, time, and what goes wrong without a stash.

use ranklab::lab::Verdict;
use ranklab::observe::Metrics;
use ranklab::program::check::check as findings;
use ranklab::program::trace::Outcome;

use crate::support::{self, SMALL, head_of};

fn text(schedule: &str, (p, m, steps): (u32, u32, u32), more: &str) -> String {
    format!(
        "{}[batch]\nmicro_batches = {m}\nsteps = {steps}\n[parallel]\npipeline = {p}\n[pipeline]\nschedule = \"{schedule}\"\n{more}",
        SMALL.replace("layers = 5", &format!("layers = {}", p.max(5)))
    )
}

fn metrics(text: &str) -> Metrics {
    let run = support::run(&format!("{text}[numerics]\nvalues = \"shape\"\n"));
    assert_eq!(findings(run.session.program()), [], "{text}");
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
    support::metrics(&run)
}

/// Ticks in slots.
fn slots(text: &str, ticks: ranklab::base::Ticks) -> u32 {
    let clock = support::run(&format!("{text}[numerics]\nvalues = \"shape\"\n")).session.trace().clock;
    let slots = clock.in_unit(ticks);
    assert!(slots.fract().abs() < 1e-9);
    format!("{slots:.0}").parse().expect("a whole number")
}

#[test]
fn stages_hold_as_many_versions_as_micro_batches_are_under_way() {
    let check = |schedule: &str, sizes, expected: &[u32]| {
        let versions: Vec<u32> = metrics(&text(schedule, sizes, "")).ranks.iter().map(|rank| rank.weight_versions).collect();
        assert_eq!(versions, expected, "{schedule} {sizes:?}");
    };
    check("pipedream", (4, 8, 1), &[4, 3, 2, 1]);
    check("pipedream", (2, 8, 1), &[2, 1]);
    check("pipedream", (8, 16, 1), &[8, 7, 6, 5, 4, 3, 2, 1]);
    check("pipedream", (4, 8, 3), &[4, 3, 2, 1]);
    check("pipedream-2bw", (4, 8, 3), &[2; 4]);
    check("pipedream-2bw", (8, 8, 4), &[2; 8]);
    check("1f1b", (4, 8, 1), &[1; 4]);
}

/// Full once, the pipeline stays full: a step takes as long as its work.
#[test]
fn a_pipeline_that_is_never_drained_has_no_bubble_once_it_is_full() {
    for schedule in ["pipedream", "pipedream-2bw"] {
        for (p, m) in [(2, 4), (4, 8), (8, 8), (5, 7)] {
            let text = text(schedule, (p, m, 4), "");
            let metrics = metrics(&text);
            assert_eq!(metrics.step_period.map(|period| slots(&text, period)), Some(3 * m), "{schedule} p{p} m{m}");
            assert_eq!(slots(&text, metrics.makespan), 3 * (m + p - 1), "{schedule} p{p} m{m}");
            // Before its first op a rank waits; the last one works from then on to the end of the step.
            let last = &metrics.ranks[p as usize - 1];
            assert_eq!(slots(&text, last.idle), p - 1, "{schedule} p{p} m{m}");
            let peaks: Vec<u32> = metrics.ranks.iter().map(|rank| rank.peak_in_flight).collect();
            assert_eq!(peaks, (1..=p).rev().collect::<Vec<u32>>(), "{schedule} p{p} m{m}");
        }
    }
}

/// One device with the same delayed weights has the same numbers.
#[test]
fn delayed_weights_equal_those_of_one_device() {
    for schedule in ["pipedream", "pipedream-2bw"] {
        for sizes in [(1, 3, 2), (2, 4, 3), (3, 3, 2), (4, 6, 2), (8, 8, 2)] {
            let text = text(schedule, sizes, "");
            let run = support::run(&text);
            assert!(["equal", "expected-drift"].contains(&run.verdict.name()), "{:?} for\n{text}", run.verdict);
            assert_eq!(run.losses.len(), sizes.2 as usize);
        }
    }
}

/// Stale weights train otherwise than fresh ones: the reference is not that of 1F1B.
#[test]
fn delayed_weights_are_not_those_of_a_drained_pipeline() {
    let losses = |schedule| support::run(&text(schedule, (4, 4, 3), "")).losses;
    let drained = losses("1f1b");
    for schedule in ["pipedream", "pipedream-2bw"] {
        let delayed = losses(schedule);
        assert!(delayed.iter().zip(&drained).any(|(a, b)| (a - b).abs() > 1e-4), "{schedule}: {delayed:?} {drained:?}");
    }
}

/// Without a stash the first micro-batch that comes back to changed weights has the first wrong gradient. The last stage never has one.
#[test]
fn without_a_stash_the_first_wrong_gradient_is_named() {
    let no_stash = |more: &str| format!("[[trouble]]\nkind = \"no-stash\"\n{more}");
    let check = |schedule: &str, sizes, more: &str, op: &str, rank: u32| {
        let text = text(schedule, sizes, &no_stash(more));
        let run = support::run(&text);
        let Verdict::Wrong { first_difference, .. } = &run.verdict else { panic!("{:?} for\n{text}", run.verdict) };
        let head = head_of(&run, first_difference.op);
        assert!(head.starts_with(op), "{head} for\n{text}");
        assert_eq!((first_difference.step, first_difference.rank.0), (0, rank), "{text}");
    };
    check("pipedream", (2, 4, 1), "", "0B1 backward-input", 0);
    check("pipedream", (4, 8, 1), "", "2B1 backward-input", 2);
    check("pipedream", (4, 8, 1), "rank = 0\n", "0B1 backward-input", 0);
    check("pipedream", (4, 8, 1), "op = \"1B3\"\n", "1B3 backward-input", 1);
    let text = text("pipedream", (4, 8, 1), &no_stash("rank = 3\n"));
    assert_eq!(support::run(&text).verdict.name(), "equal", "the last stage has nothing to stash");
}

#[test]
fn only_pipelines_that_are_never_drained_can_lack_a_stash() {
    let scenario = support::scenario(&text("1f1b", (2, 4, 1), "[[trouble]]\nkind = \"no-stash\"\n"));
    assert!(ranklab::lab::Lab::new().run(&scenario).is_err());
}
