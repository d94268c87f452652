//! Shipped scenarios of sharding and recomputation run, and show what their first lines say.

use std::path::Path;

use ranklab::base::Bytes;
use ranklab::lab::{Lab, Run};
use ranklab::program::Role;
use ranklab::program::trace::Outcome;
use ranklab::scenario::load;

use crate::support::metrics;

/// A shipped scenario under overrides.
fn run(name: &str, overrides: &[&str]) -> Run {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.toml"));
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let scenario = load(&path.to_string_lossy(), &overrides).unwrap_or_else(|problems| panic!("{problems}"));
    Lab::new().run(&scenario).expect("a run")
}

/// Outcome, verdict, and traffic in units of the parameters.
fn check(name: &str, overrides: &[&str], outcome: &str, verdicts: &[&str], traffic: f64) {
    let run = run(name, overrides);
    assert_eq!(run.session.trace().outcome.name(), outcome, "{name} {overrides:?}");
    assert!(verdicts.contains(&run.verdict.name()), "{name} {overrides:?}: {:?}", run.verdict);
    for rank in metrics(&run).ranks {
        assert!((rank.traffic_psi - traffic).abs() < 1e-12, "{name} {overrides:?}: {}", rank.traffic_psi);
    }
}

const SUMMED: &[&str] = &["equal", "expected-drift"];

#[test]
fn scenarios_move_what_they_say() {
    check("ddp-accumulation", &[], "completed", SUMMED, 2.0);
    check("ddp-accumulation", &["data_parallel.no_sync=false"], "completed", SUMMED, 8.0);
    check("zero-1", &[], "completed", SUMMED, 2.0);
    check("zero-2", &[], "completed", SUMMED, 5.0);
    check("zero-2", &["batch.micro_batches=1"], "completed", SUMMED, 2.0);
    check("zero-3", &[], "completed", SUMMED, 3.0);
    check("fsdp-prefetch", &[], "completed", SUMMED, 6.0);
    check("fsdp-keep", &[], "completed", SUMMED, 4.0);
    // Gathered twice and scattered once in the node, an eighth of it, twice over, between nodes.
    check("fsdp-hybrid", &[], "completed", SUMMED, 2.0 * (3.0 + 2.0 / 4.0));
    check("fsdp-pipeline", &[], "completed", SUMMED, 2.0);
    check("fsdp-pipeline", &["fsdp.reshard_after_forward=true"], "completed", SUMMED, 9.0);
    check("fsdp-pipeline", &["data_parallel.no_sync=false"], "completed", SUMMED, 5.0);
    for split in ["col-row", "row-col", "col-col"] {
        check("feed-forward-splits", &[&format!("tensor_parallel.split={split}")], "completed", SUMMED, 2.0);
    }
    check("recompute-full", &[], "completed", &["equal"], 0.0);
    check("recompute-selective", &[], "completed", &["equal"], 0.0);
    check("bf16-zero-2", &[], "completed", SUMMED, 3.0);
    check("dropout-recompute", &["numerics.exact=true"], "completed", &["equal"], 2.0);
    check("dropout-recompute", &["recompute.preserve_rng_state=false"], "completed", &["wrong"], 2.0);
    check("zero-7b", &[], "completed", &["none"], 3.0);
    for method in ["ring", "all-gather", "ulysses"] {
        let method = format!("context_parallel.method={method}");
        check("context-parallel-4", &[&method], "completed", SUMMED, 2.0);
        check("context-h100", &[&method], "completed", &["none"], 3.0);
    }
    check("zero-1-card-full", &[], "out-of-memory", &["none"], 0.0);
    check("reduce-scatter-8", &[], "completed", &["equal"], 0.0);
    check("fault-no-sync-forgotten", &[], "completed", SUMMED, 8.0);
}

/// Who is to blame for what, as the first line of the scenario says.
#[test]
fn scenarios_of_faults_are_traced() {
    let check = |name: &str, outcome: &str, verdict: &str, rank: u32, cause: &str| {
        let run = run(name, &[]);
        assert_eq!((run.session.trace().outcome.name(), run.verdict.name()), (outcome, verdict), "{name}");
        let found = run.diagnosis.first().unwrap_or_else(|| panic!("{name} has a diagnosis"));
        assert!(found.rank.0 == rank && found.cause.contains(cause), "{name}: {found:?}");
    };
    check("fault-fewer-steps", "deadlocked", "none", 2, "its steps have ended");
    check("fault-sum-gradients", "completed", "wrong", 0, "4 times one device's");
    check("fault-no-sync-on-last", "completed", "wrong", 0, "drift apart");
    check("fault-no-sync-forgotten", "completed", "expected-drift", 0, "4 times a step");
    check("fault-read-on-one-rank", "deadlocked", "none", 0, "without the others");
    check("fault-unequal-tokens", "completed", "wrong", 3, "16 of 32 tokens count");
    check("fault-save-without-gather", "completed", "expected-drift", 0, "have the shape [0]");
    check("fault-less-memory", "out-of-memory", "none", 1, "would report a time-out");
    check("fault-columns-apart", "completed", "wrong", 0, "goes on without what was to be gathered");
    check("skip-all-reduce-one", "deadlocked", "none", 1, "leaves out");
    check("slow-rank", "completed", "equal", 2, "2.00 times as long");
}

#[test]
fn a_gather_that_one_rank_leaves_out_hangs_all() {
    let run = run("zero-3-one-rank-reads", &[]);
    let Outcome::Deadlocked(graph) = &run.session.trace().outcome else { panic!("{:?}", run.session.trace().outcome) };
    let stuck: Vec<u32> = graph.edges.iter().map(|edge| edge.rank.0).collect();
    assert!((0..4).all(|rank| stuck.contains(&rank)), "{stuck:?}");
}

fn peak(name: &str, overrides: &[&str]) -> Bytes {
    metrics(&run(name, overrides)).ranks[0].peak_bytes
}

#[test]
fn buckets_are_memory() {
    let zero_1 = peak("zero-2-large-buckets", &["data_parallel.strategy=zero-1"]);
    let small = ["data_parallel.bucket_mib=0.25", "data_parallel.first_bucket_mib=0.25"];
    assert!(peak("zero-2-large-buckets", &[]) > zero_1, "one bucket of everything");
    assert!(peak("zero-2-large-buckets", &small) < zero_1, "many buckets");
}

#[test]
fn prefetching_hides_gathers_and_takes_memory() {
    let at = |prefetch: &str, in_flight: &str| {
        let run = run("fsdp-prefetch", &[&format!("fsdp.prefetch={prefetch}"), &format!("fsdp.in_flight={in_flight}")]);
        let metrics = metrics(&run);
        (metrics.makespan, metrics.ranks[0].peak_by_role[Role::Bucket as usize].max(metrics.ranks[0].peak_bytes))
    };
    let (none, one, three) = (at("0", "2"), at("1", "2"), at("3", "4"));
    assert!(none.0 > one.0, "{none:?} {one:?}");
    assert!(none.1 < one.1 && one.1 < three.1, "{none:?} {one:?} {three:?}");
    assert_eq!(at("3", "2"), one, "the limit holds prefetching back");
}

#[test]
fn recomputation_trades_time_for_memory() {
    let measure = |mode: &str| {
        let metrics = metrics(&run("recompute-full", &[&format!("recompute.mode={mode}")]));
        (metrics.makespan, metrics.ranks[0].peak_bytes)
    };
    let (none, selective, full) = (measure("none"), measure("selective"), measure("full"));
    assert_eq!(full.0.0 * 3, none.0.0 * 4, "forward, forward again, and two thirds of backward");
    assert!(full.1 < selective.1 && selective.1 < none.1, "{none:?} {selective:?} {full:?}");
}
