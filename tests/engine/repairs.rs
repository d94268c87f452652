//! What would resolve a deadlock: each proposal was tried by the engine.

use ranklab::observe::report::{Repair, RepairKind, SilentSwap};
use ranklab::schedule::SCHEDULES;

use crate::support;

fn text(schedule: &str, (p, m): (u32, u32), p2p: &str, more: &str) -> String {
    format!(
        "[model]\nlayers = {}\nhidden = 8\nheads = 2\nsequence = 4\nvocab = 11\n[batch]\nmicro_batches = {m}\n[parallel]\npipeline = {p}\n\
         [pipeline]\nschedule = \"{schedule}\"\np2p = \"{p2p}\"\n[numerics]\nvalues = \"shape\"\n{more}",
        2 * p
    )
}

fn repairs(text: &str) -> Vec<Repair> {
    let run = support::run(text);
    assert_eq!(run.session.trace().outcome.name(), "deadlocked", "{text}");
    run.given().repairs
}

#[test]
fn a_blocking_pipeline_is_repaired_in_three_ways() {
    let repairs = repairs(&text("1f1b", (2, 4), "blocking", ""));
    let shown: Vec<(RepairKind, &str)> = repairs.iter().map(|repair| (repair.kind, repair.what.as_str())).collect();
    insta::assert_debug_snapshot!(shown);
    // A queue for each direction costs nothing; a rank that waits for its sends cannot be faster.
    let makespans: Vec<f64> = repairs.iter().map(|repair| repair.makespan).collect();
    assert!(makespans.iter().all(|&makespan| makespan >= 15.0), "{makespans:?}");
    assert!(makespans.contains(&15.0), "{makespans:?}");
}

/// Every schedule that its semantics stop has a repair, and every repair completes: it was run.
#[test]
fn every_stopped_schedule_has_a_repair() {
    let (mut kinds, mut stopped) = ([0; 2], 0);
    for schedule in SCHEDULES {
        for p2p in ["pair-fifo", "rank-fifo", "blocking"] {
            let text = text(schedule.name, (4, 8), p2p, "");
            let run = support::run(&text);
            if run.session.trace().outcome.name() != "deadlocked" {
                assert_eq!(run.given().repairs, []);
                continue;
            }
            let repairs = run.given().repairs;
            stopped += 1;
            for (place, kind) in [RepairKind::Reorder, RepairKind::Batch].into_iter().enumerate() {
                kinds[place] += usize::from(repairs.iter().any(|repair| repair.kind == kind && !repair.changes.is_empty()));
            }
            assert!(repairs.iter().any(|repair| repair.kind == RepairKind::Semantics), "{text}");
        }
    }
    // Batches help all but one: of DualPipe's pairs, a rank that is held by its sends finds none.
    assert!(kinds == [stopped, stopped - 1] && stopped > 40, "{kinds:?} of {stopped}");
}

/// A rank that never issues its part cannot be helped by another order.
#[test]
fn a_missing_end_has_no_repair() {
    let trouble = "[[trouble]]\nkind = \"skip-op\"\nop = \"recv x3.1\"\nrank = 1\n";
    let text = text("1f1b", (2, 4), "edge-fifo", trouble).replace("layers = 4", "layers = 5");
    let run = support::run(&text);
    assert_eq!((run.session.trace().outcome.name(), run.given().repairs.len()), ("deadlocked", 0), "{text}");
}

/// Ranks outside the circle are only behind.
#[test]
fn who_is_only_behind_is_told_apart() {
    use ranklab::program::trace::Outcome;
    let run = support::run(&text("1f1b", (4, 8), "blocking", ""));
    let Outcome::Deadlocked(graph) = &run.session.trace().outcome else { panic!("it deadlocks") };
    let circles: Vec<u32> = graph.cycles.iter().flatten().map(|(rank, _)| rank.0).collect();
    let behind: Vec<u32> = graph.behind().map(|rank| rank.0).collect();
    assert_eq!((circles, behind), (vec![2, 3], vec![0, 1]));
}

/// Two sends that changed places meet each other's receives: equal shapes, which nothing would notice.
#[test]
fn a_silent_swap_is_reported_with_both_ops() {
    let trouble = "[[trouble]]\nkind = \"swap-ops\"\nop = \"send x2.1\"\nrank = 0\n";
    let run = support::run(&text("gpipe", (2, 4), "edge-fifo", trouble));
    let swap = |sent: u32, received: u32| SilentSwap {
        from: 0,
        send: format!("send x2.{sent} -> r1"),
        to: 1,
        receive: format!("recv x2.{received} <- r0"),
    };
    assert_eq!(run.given().silent_swaps, [swap(2, 1)]);
}
