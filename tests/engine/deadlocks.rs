//! Deadlocks: which semantics hang, who waits for whom, and where the chain ends.

use ranklab::program::trace::{Outcome, WaitGraph};

use crate::support::{SMALL, head_of, run};

/// Runs shapes, and tells how it ended.
fn outcome(settings: &str) -> (Outcome, Vec<String>) {
    let run = run(settings);
    let outcome = run.session.trace().outcome.clone();
    let edges = match &outcome {
        Outcome::Deadlocked(graph) => graph
            .edges
            .iter()
            .map(|edge| {
                let on = edge.on_op.map_or_else(|| "never issued".to_owned(), |op| head_of(&run, op));
                format!("{} {} | {} {on}", edge.rank, head_of(&run, edge.op), edge.on_rank)
            })
            .collect(),
        _ => Vec::new(),
    };
    (outcome, edges)
}

fn graph(settings: &str) -> (WaitGraph, Vec<String>) {
    match outcome(settings) {
        (Outcome::Deadlocked(graph), edges) => (graph, edges),
        (other, _) => panic!("{other:?} for\n{settings}"),
    }
}

#[test]
fn blocking_sends_deadlock_1f1b_on_two_stages() {
    let (graph, edges) = graph(
        "[batch]\nmicro_batches = 4\n[parallel]\npipeline = 2\n[pipeline]\np2p = \"blocking\"\n[numerics]\nvalues = \"shape\"\n",
    );
    assert_eq!(edges, ["r0 send x4.1 -> r1 | r1 recv x4.1 <- r0", "r1 send dx4.0 -> r0 | r0 recv dx4.0 <- r1"]);
    let cycle: Vec<u32> = graph.cycles[0].iter().map(|(rank, _)| rank.0).collect();
    assert_eq!((graph.cycles.len(), cycle), (1, vec![0, 1]));
}

#[test]
fn the_semantics_decide_what_hangs() {
    let check = |schedule: &str, p2p: &str, completes: bool| {
        let text = format!(
            "[batch]\nmicro_batches = 8\n[parallel]\npipeline = 4\n[pipeline]\nschedule = \"{schedule}\"\np2p = \"{p2p}\"\n[numerics]\nvalues = \"shape\"\n"
        );
        let (outcome, edges) = outcome(&text);
        assert_eq!(outcome == Outcome::Completed, completes, "{schedule} {p2p}: {edges:?}");
    };
    for schedule in ["naive", "gpipe", "1f1b"] {
        check(schedule, "buffered", true);
        check(schedule, "edge-fifo", true);
    }
    for p2p in ["pair-fifo", "rank-fifo", "blocking"] {
        check("naive", p2p, true);
        check("gpipe", p2p, true);
        check("1f1b", p2p, false);
    }
}

#[test]
fn a_circle_within_one_rank_is_found() {
    for all_reduce in ["ring", "tree", "star"] {
        let text = format!(
            "{SMALL}[batch]\nmicro_batches = 1\nsteps = 2\n[parallel]\ndata = 2\n[data_parallel]\nall_reduce = \"{all_reduce}\"\n\
             overlap = false\n[[trouble]]\nkind = \"swap-ops\"\nrank = 0\nop = \"unflatten\"\n"
        );
        let (graph, edges) = graph(&text);
        let circle: Vec<u32> = graph.cycles.first().expect("a circle").iter().map(|(rank, _)| rank.0).collect();
        assert!(circle.len() > 1 && circle.iter().all(|&rank| rank == 0), "{circle:?}");
        assert!(edges.iter().any(|edge| edge.starts_with("r0 ") && edge.contains("flatten")), "{edges:?}");
    }
}

#[test]
fn a_collective_that_one_rank_skips_hangs_and_the_graph_ends_at_it() {
    for (mesh, ranks) in [("data = 2", 2), ("data = 5", 5), ("data = 2\npipeline = 2", 4)] {
        for steps in [1, 2] {
            let guilty = 1;
            let text = format!(
                "{SMALL}[batch]\nsteps = {steps}\n[parallel]\n{mesh}\n[[trouble]]\nkind = \"skip-op\"\nop = \"all-reduce bucket0\"\nrank = {guilty}\nstep = 0\n"
            );
            let (graph, edges) = graph(&text);
            let ends: Vec<u32> = graph.edges.iter().filter(|edge| edge.on_op.is_none()).map(|edge| edge.on_rank.0).collect();
            assert!(!ends.is_empty() && ends.iter().all(|&rank| rank == guilty), "{ranks} ranks: {edges:?}");
            assert!(graph.cycles.is_empty(), "{edges:?}");
        }
    }
}
