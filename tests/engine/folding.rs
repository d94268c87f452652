//! Ranks that are followed as one: the report is that of following each.

use ranklab::lab::Run;
use ranklab::observe::report::Report;
use ranklab::observe::slack::Slack;
use ranklab::observe::{Ledger, Metrics, Run as Observed};

use crate::support::{SMALL, run, scenario};

/// The report but for what names events and ops, and the run's fold.
fn report(run: &Run) -> (Report, usize) {
    let observed = Observed::new(run.session.program(), run.session.trace());
    let metrics = Metrics::new(&observed, &Ledger::new(&observed));
    let mut report = Report::new(&observed, &metrics, &Slack::new(&observed), run.given());
    report.collectives.sort_by_key(|collective| format!("{} {} {}", collective.group, collective.name, collective.start));
    (Report { events: 0, critical_path: String::new(), ..report }, observed.program.fold())
}

/// Both ways give one report, and the folded one followed a rank for each stage.
fn check(mesh: (usize, usize), settings: &str) {
    let (data, pipeline) = mesh;
    let text = |fold: bool| {
        format!(
            "{SMALL}[batch]\nmicro_batches = 3\nsteps = 2\n[parallel]\ndata = {data}\npipeline = {pipeline}\nfold = {fold}\n\
             [numerics]\nvalues = \"shape\"\n{settings}"
        )
    };
    let (folded, unfolded) = (report(&run(&text(true))), report(&run(&text(false))));
    assert_eq!((folded.1, unfolded.1), (data, 1), "{settings}");
    assert_eq!(folded.0, unfolded.0, "{data} x {pipeline}, {settings}");
}

#[test]
fn folded_ranks_have_the_numbers_of_each() {
    for costs in ["", "[hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = 2\n"] {
        for strategy in ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"] {
            for (mesh, more) in [
                ((2, 1), ""),
                ((3, 1), ""),
                ((8, 1), "no_sync = false\n"),
                ((8, 1), "[fsdp]\nshard_size = 2\n"),
                ((8, 1), "[fsdp]\nshard_size = 4\nreshard_after_forward = false\n"),
                ((8, 1), "[fsdp]\nshard_size = 4\nreshard_after_forward = 2\n"),
                ((4, 2), ""),
                ((4, 2), "[fsdp]\nshard_size = 2\n"),
            ] {
                if mesh.1 > 1 && ["zero-2", "zero-3"].contains(&strategy) {
                    continue;
                }
                let buckets = "bucket_mib = 0.01\nfirst_bucket_mib = 0.004\nexpand = false\n";
                check(mesh, &format!("[data_parallel]\nstrategy = \"{strategy}\"\n{buckets}{more}{costs}"));
            }
        }
    }
}

/// Replicas need not be neighbours: ranks that share tensors, or stages, may stand between them.
#[test]
fn replicas_are_folded_wherever_they_stand() {
    for order in ["tp-cp-ep-dp-pp", "dp-tp-cp-ep-pp", "tp-pp-dp-cp"] {
        for strategy in ["ddp", "zero-1", "fsdp"] {
            for sequence_parallel in [false, true] {
                let text = |fold: bool| {
                    format!(
                        "[model]\nlayers = 4\nhidden = 24\nheads = 4\nkv_heads = 1\nsequence = 12\nvocab = 61\n[batch]\nmicro_batches = 3\n\
                         [parallel]\ndata = 3\npipeline = 2\ntensor = 2\norder = \"{order}\"\nfold = {fold}\n[numerics]\nvalues = \"shape\"\n\
                         [data_parallel]\nexpand = false\nstrategy = \"{strategy}\"\nbucket_mib = 0.01\n\
                         [tensor_parallel]\nsequence_parallel = {sequence_parallel}\n\
                         [hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = 12\n"
                    )
                };
                let (folded, unfolded) = (report(&run(&text(true))), report(&run(&text(false))));
                assert_eq!((folded.1, unfolded.1), (3, 1));
                assert_eq!(folded.0, unfolded.0, "{}", text(true));
            }
        }
    }
}

#[test]
fn ranks_are_folded_where_nothing_tells_them_apart() {
    let fold = |settings: &str| {
        let text = format!("{SMALL}[parallel]\ndata = 6\n{settings}");
        ranklab::compile::compile(&scenario(&text)).program.fold()
    };
    let shape = "[numerics]\nvalues = \"shape\"\n";
    let whole = "[data_parallel]\nexpand = false\n";
    assert_eq!(fold(whole), 1, "real values");
    assert_eq!(fold(shape), 1, "messages are followed");
    assert_eq!(fold(&format!("{shape}{whole}")), 6);
    assert_eq!(fold(&format!("fold = false\n{shape}{whole}")), 1);
    assert_eq!(fold(&format!("{shape}{whole}[[trouble]]\nkind = \"slow-rank\"\nrank = 3\n")), 1, "one is slow");
    let table = "[hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = 4\n";
    assert_eq!(fold(&format!("{shape}{whole}{table}")), 6, "one group of all");
    assert_eq!(fold(&format!("pipeline = 2\n{shape}{whole}{table}")), 1, "some stages' neighbours are in their node");
    let sharded = "[data_parallel]\nexpand = false\nstrategy = \"fsdp\"\n[fsdp]\nshard_size = 3\n";
    assert_eq!(fold(&format!("{shape}{sharded}{table}")), 1, "some copies lie across nodes");
}
