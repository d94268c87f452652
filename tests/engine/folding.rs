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

/// Both ways give one report, and the folded one followed each rank for so many.
#[track_caller]
fn check(model: &str, mesh: &str, fold: usize, settings: &str) {
    let text = |fold: bool| {
        format!(
            "{model}[batch]\nmicro_batches = 2\nsteps = 2\n[parallel]\n{mesh}\nfold = {fold}\n[numerics]\nvalues = \"shape\"\n{settings}"
        )
    };
    let (folded, unfolded) = (report(&run(&text(true))), report(&run(&text(false))));
    assert_eq!((folded.1, unfolded.1), (fold, 1), "{}", text(true));
    let [short, long] = [&folded.0, &unfolded.0];
    assert_eq!(short.ranks, long.ranks, "{}", text(true));
    assert_eq!(short.collectives, long.collectives, "{}", text(true));
    assert_eq!(short.links, long.links, "{}", text(true));
    assert_eq!(short, long, "{}", text(true));
}

/// `[data_parallel]`, with small buckets and whole collectives.
fn strategy(name: &str, more: &str) -> String {
    format!("[data_parallel]\nstrategy = \"{name}\"\nbucket_mib = 0.01\nfirst_bucket_mib = 0.004\nexpand = false\n{more}\n")
}

#[test]
fn folded_ranks_have_the_numbers_of_each() {
    for costs in ["", "[hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = 2\n"] {
        for name in ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"] {
            for (data, pipeline, more) in [
                (2, 1, ""),
                (3, 1, ""),
                (8, 1, "no_sync = false\n"),
                (8, 1, "[fsdp]\nshard_size = 2\n"),
                (8, 1, "[fsdp]\nshard_size = 4\nreshard_after_forward = false\n"),
                (8, 1, "[fsdp]\nshard_size = 4\nreshard_after_forward = 2\n"),
                (4, 2, ""),
                (4, 2, "[fsdp]\nshard_size = 2\n"),
            ] {
                if pipeline > 1 && ["zero-2", "zero-3"].contains(&name) {
                    continue;
                }
                check(SMALL, &format!("data = {data}\npipeline = {pipeline}"), data, &format!("{}{costs}", strategy(name, more)));
            }
        }
    }
}

/// A model whose heads, columns, tokens and vocabulary two or four ranks can share.
const EVEN: &str = "[model]\nlayers = 4\nhidden = 24\nheads = 4\nkv_heads = 2\nsequence = 24\nvocab = 60\n";

/// Where messages are free, what is there at a peak depends on the order of what happens at once: here they take time.
const IN_ONE_NODE: &str = "[hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = 48\n";

const ULYSSES: &str = "data = 3\ncontext = 2\npipeline = 2";

/// Ranks that share tensors fold with the replicas, wherever they stand: between them may be others that do not.
#[test]
fn ranks_that_share_tensors_are_followed_as_one() {
    let strategies = ["ddp", "zero-1", "fsdp"];
    let mut turn = 0;
    for (mesh, fold) in [
        ("data = 3\npipeline = 3\ntensor = 2", 6),
        ("data = 2\ntensor = 4", 8),
        ("tensor = 4\npipeline = 2", 4),
        (ULYSSES, 3),
        ("data = 2\ncontext = 3\ntensor = 4", 8),
        ("data = 2\ncontext = 2\npipeline = 2\ntensor = 2", 4),
    ] {
        for order in ["tp-cp-ep-dp-pp", "tp-cp-pp-dp", "dp-tp-cp-ep-pp", "pp-dp-cp-tp"] {
            for method in ["all-gather", "ring", "ulysses"] {
                // Heads are few: of those of a tensor-parallel rank there is not one for each slice.
                let is_possible = if method == "ulysses" { mesh == ULYSSES } else { mesh.contains("context") };
                if method != "all-gather" && !is_possible {
                    continue;
                }
                turn += 1;
                let settings = format!(
                    "{}[tensor_parallel]\nsequence_parallel = {}\n[context_parallel]\nmethod = \"{method}\"\n[recompute]\nmode = \"{}\"\n\
                     {IN_ONE_NODE}",
                    strategy(strategies[turn % 3], if turn % 4 == 0 { "no_sync = false" } else { "" }),
                    turn % 2 == 0,
                    if turn % 5 == 0 { "full" } else { "none" },
                );
                check(EVEN, &format!("{mesh}\norder = \"{order}\""), fold, &settings);
            }
        }
    }
}

/// Copies of the state are as many whole lines of slices, or parts of one.
#[test]
fn copies_of_the_state_fold_beside_slices() {
    let model = EVEN.replace("sequence = 24", "sequence = 16");
    for (data, context, order, shards, fold) in [
        (4, 2, "tp-cp-ep-dp-pp", 2, 8),
        (4, 2, "tp-cp-ep-dp-pp", 4, 8),
        (4, 2, "tp-cp-ep-dp-pp", 8, 8),
        (4, 2, "dp-cp-tp-pp", 2, 8),
        (4, 2, "dp-cp-tp-pp", 4, 8),
        // Some share a copy with half of a sequence's slices: they are told apart, and those that share tensors are not.
        (3, 4, "tp-cp-ep-dp-pp", 6, 2),
        (3, 4, "dp-cp-tp-pp", 4, 2),
        (3, 4, "dp-cp-tp-pp", 6, 6),
    ] {
        for keep in ["true", "false"] {
            let mesh = format!("data = {data}\ncontext = {context}\ntensor = 2\norder = \"{order}\"");
            let fsdp = format!("[fsdp]\nshard_size = {shards}\nreshard_after_forward = {keep}\n{IN_ONE_NODE}");
            check(&model, &mesh, fold, &strategy("fsdp", &fsdp));
        }
    }
    let near = format!("[fsdp]\nshard_size = 8\nreshard_after_forward = 4\n{IN_ONE_NODE}");
    check(&model, "data = 4\ncontext = 4", 4, &strategy("fsdp", &near));
}

/// Replicas of all the ranks that share out experts are followed as one.
#[test]
fn replicas_of_experts_are_followed_as_one() {
    let experts = "[experts]\ncount = 4\ntop_k = 2\nskew = 0.7\n";
    for (mesh, fold) in [
        ("data = 6\nexpert = 2", 3),
        ("data = 4\nexpert = 4", 1),
        ("data = 4\nexpert = 2\npipeline = 3", 2),
        ("data = 4\nexpert = 2\ntensor = 2", 4),
        ("data = 4\nexpert = 2\ntensor = 2\norder = \"ep-dp-tp-cp-pp\"", 4),
    ] {
        let copy = if mesh.contains("expert = 4") { "[fsdp]\nshard_size = 4" } else { "[fsdp]\nshard_size = 2" };
        for (name, more) in [("ddp", ""), ("zero-1", ""), ("fsdp", ""), ("fsdp", copy)] {
            for sequence_parallel in [false, true] {
                let tensor = format!("[tensor_parallel]\nsequence_parallel = {sequence_parallel}\n");
                let settings = format!("{}{experts}{tensor}[hardware]\ncosts = \"h100-nvlink\"\n", strategy(name, more));
                check(EVEN, mesh, fold, &settings);
            }
        }
    }
}

/// Stages may stand twice, and an embedding on two of them.
#[test]
fn ranks_with_the_same_stages_are_followed_as_one() {
    let tied = EVEN.replace("vocab = 60", "vocab = 60\ntied = true");
    for (model, schedule) in [(tied.as_str(), "1f1b"), (EVEN, "chimera")] {
        let settings = format!("{}[pipeline]\nschedule = \"{schedule}\"\n", strategy("ddp", ""));
        check(model, "data = 3\npipeline = 2\ntensor = 2", 6, &settings);
        check(model, "data = 2\npipeline = 2\ntensor = 2\norder = \"pp-dp-tp-cp\"", 4, &settings);
    }
}

/// Where nodes cut a line, all of its ranks have the same links, or they are not followed as one.
#[test]
fn ranks_that_are_placed_alike_are_followed_as_one() {
    for (mesh, node, fold) in [
        ("data = 6\ntensor = 2\npipeline = 2", 2, 12),
        ("data = 6\ntensor = 2\npipeline = 2", 4, 12),
        ("data = 6\ntensor = 2\npipeline = 2", 6, 12),
        ("data = 6\ntensor = 2\npipeline = 2", 8, 2),
        ("data = 6\ntensor = 2\npipeline = 2", 24, 12),
        ("data = 2\ntensor = 4\ncontext = 2", 2, 8),
        ("data = 2\ntensor = 4\ncontext = 2", 1, 8),
        ("data = 3\ntensor = 2\npipeline = 4\norder = \"tp-pp-cp-dp\"", 8, 6),
    ] {
        let hardware = format!("[hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = {node}\n");
        check(EVEN, mesh, fold, &format!("{}{hardware}", strategy("zero-1", "")));
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
    assert_eq!(fold(&format!("tensor = 3\n{shape}{whole}")), 6, "three ranks do not share 61 tokens of a vocabulary evenly");
    let even = "[model]\nhidden = 24\nheads = 4\nvocab = 60\n[parallel]\ndata = 6\ntensor = 2\n";
    let table = "[hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = 3\n";
    let program = ranklab::compile::compile(&scenario(&format!("{even}{shape}{whole}{table}"))).program;
    assert_eq!(program.fold(), 1, "some share tensors across nodes");
}

#[test]
fn a_deadlock_names_ranks_by_their_number_among_all() {
    let text = |fold: bool| {
        format!(
            "{SMALL}[batch]\nmicro_batches = 4\n[parallel]\ndata = 3\npipeline = 2\nfold = {fold}\n[pipeline]\np2p = \"blocking\"\n\
             [numerics]\nvalues = \"shape\"\n{}",
            strategy("ddp", "")
        )
    };
    let [folded, unfolded] = [true, false].map(|fold| report(&run(&text(fold))).0.waits);
    assert_eq!(folded.cycles, [[0, 3]]);
    assert_eq!(unfolded.cycles, [[0, 3], [1, 4], [2, 5]]);
    assert!(!folded.edges.is_empty() && folded.edges.iter().all(|edge| unfolded.edges.contains(edge)), "{folded:?} {unfolded:?}");
}
