//! Transfers that share links: nothing changes where none is contended, times follow closed forms where some are, and going back gives
//! the same bits.

use ranklab::base::Ticks;
use ranklab::lab::Run;
use ranklab::program::{CollectiveKind, OpKind, Trace};

use super::stepping::look;
use crate::support::{SMALL, metrics, run};

fn collective(algorithm: &str, ranks: usize, bytes: usize, hardware: &str) -> Run {
    let text = format!(
        "collective = {{ algorithm = \"{algorithm}\", ranks = {ranks}, bytes = {bytes} }}\n[hardware]\ncosts = \"h100-nvlink\"\n{hardware}\n"
    );
    run(&text)
}

/// When the ops of a run started and ended, and its events.
fn times(run: &Run) -> Vec<(u64, u64)> {
    let trace: &Trace = run.session.trace();
    let times = run.session.program().all().map(|op| trace.times(op).expect("it ran"));
    let events = trace.events.iter().map(|event| (event.time.0, u64::from(event.op.0)));
    events.chain(times.map(|times| (times.start.0, times.end.0))).collect()
}

#[test]
fn without_contention_sharing_changes_nothing() {
    for algorithm in ["ring", "halving-doubling", "hierarchical", "tree"] {
        for (ranks, nodes) in [(2, 1), (5, 1), (8, 1), (8, 2), (9, 3), (6, 6)] {
            let hardware = format!("nodes = {nodes}");
            let alone = collective(algorithm, ranks, 4 * 1003, &hardware);
            let shared = collective(algorithm, ranks, 4 * 1003, &format!("sharing = true\n{hardware}"));
            if algorithm != "tree" {
                assert_eq!(times(&alone), times(&shared), "{algorithm} {ranks} {nodes}");
            }
            assert_eq!(shared.verdict.name(), "equal", "{algorithm} {ranks} {nodes}");
        }
    }
}

/// 10 GB/s and 1 us inside, 1 GB/s and 5 us between nodes: bytes are nanoseconds.
const LINKS: &str = "[hardware.inside]\nalpha = 1\nbandwidth = 10\n[hardware.between]\nalpha = 5\nbandwidth = 1";

#[test]
fn ranks_behind_one_nic_wait_for_each_other() {
    let check = |algorithm, nodes: usize, ranks, nics: usize, expected: u64| {
        let bytes = ranks * 10_000;
        let run =
            collective(algorithm, ranks, bytes, &format!("sharing = true\nnodes = {nodes}\nnics_per_node = {nics}\n{LINKS}"));
        assert_eq!(run.session.trace().end(), Ticks(expected), "{algorithm} {nodes} nodes of {ranks} ranks, {nics} NICs");
        assert_eq!(run.verdict.name(), "equal");
    };
    // Half of 40,000 bytes inside, a quarter between nodes, where two pairs meet; and back.
    check("halving-doubling", 2, 4, 2, 2 * (1_000 + 2_000 + 5_000 + 10_000));
    check("halving-doubling", 2, 4, 1, 2 * (1_000 + 2_000 + 5_000 + 2 * 10_000));
    // Three steps of a quarter inside; then each of four rings of two moves an eighth, through four NICs, two, or one.
    for (nics, sharers) in [(4, 1), (2, 2), (1, 4)] {
        check("hierarchical", 2, 8, nics, 2 * (3 * (1_000 + 2_000) + 5_000 + sharers * 10_000));
    }
    // One ring crosses each node's border once, whatever it has: 14 steps, as slow as the slowest.
    check("ring", 2, 8, 1, 14 * (5_000 + 10_000));
}

#[test]
fn slow_messages_take_their_factor() {
    let end = |sharing: &str| {
        let trouble = "[[trouble]]\nkind = \"slow-link\"\nrank = 1\nfactor = 3";
        collective("ring", 2, 8 * 1003, &format!("{sharing}\n{trouble}")).session.trace().end()
    };
    let (alone, shared) = (end("sharing = false"), end("sharing = true"));
    assert!(alone.0.abs_diff(shared.0) <= 4, "each message rounds by itself: {alone:?} {shared:?}");
}

/// Sharded training inside nodes of two ranks, whose copies in `nodes` nodes sum their shards over the NICs.
fn hybrid(nodes: usize, expand: bool, hardware: &str) -> Run {
    let mesh = format!("[batch]\nmicro_batches = 1\nsteps = 2\n[parallel]\ndata = {}\n", 2 * nodes);
    let strategy = format!("[data_parallel]\nstrategy = \"fsdp\"\nexpand = {expand}\n[fsdp]\nshard_size = 2\n");
    run(&format!("{SMALL}{mesh}{strategy}[hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = 2\n{hardware}\n{LINKS}\n"))
}

/// Payload and time of every collective of a kind in the first step.
fn collectives(run: &Run, kind: CollectiveKind) -> Vec<(u64, u64)> {
    let program = run.session.program();
    let metrics = metrics(run);
    let of_kind = metrics.collectives.iter().filter(|stats| program.collectives[stats.collective.index()].kind == kind);
    of_kind.map(|stats| (stats.bytes.0, (stats.end - stats.start).0)).collect()
}

#[test]
fn a_collective_that_is_one_operation_shares_links_as_its_messages_do() {
    for nodes in [2, 3, 4] {
        let n = nodes as u64;
        for (nics, sharers) in [(2, 1), (1, 2)] {
            let hardware = format!("sharing = true\nnics_per_node = {nics}");
            let whole = hybrid(nodes, false, &hardware);
            let sums = collectives(&whole, CollectiveKind::AllReduce);
            assert!(sums.len() > 2);
            for &(bytes, took) in &sums {
                // A ring of a rank in each node: a gigabyte a second is a byte a nanosecond.
                let steps = 2 * (n - 1);
                assert_eq!(
                    took,
                    steps * 5_000 + sharers * steps * bytes.div_ceil(n),
                    "{nodes} nodes, {nics} NICs, {bytes} bytes"
                );
            }
            // Two ranks of a node exchange halves over their ports, ten bytes a nanosecond; some meet the next gather there.
            let scatters = collectives(&whole, CollectiveKind::ReduceScatter);
            let late = scatters.iter().map(|(bytes, took)| took - (1_000 + bytes.div_ceil(2).div_ceil(10)));
            assert!(late.clone().any(|late| late == 0) && late.clone().any(|late| late > 0), "{:?}", late.collect::<Vec<_>>());
            let expanded = collectives(&hybrid(nodes, true, &hardware), CollectiveKind::AllReduce);
            for (one, messages) in sums.iter().zip(&expanded) {
                // Chunks of floats may be a float longer or shorter than an N-th.
                let apart = 8 * sharers * 2 * (n - 1);
                assert!(
                    one.0 == messages.0 && one.1.abs_diff(messages.1) <= apart,
                    "{nodes} nodes, {nics} NICs: {one:?} {messages:?}"
                );
            }
            assert_eq!(whole.losses, hybrid(nodes, false, "").losses, "sharing changes no number");
        }
    }
}

/// Buckets leave one behind the other, so none of them meets another.
#[test]
fn without_contention_sharing_changes_no_collective() {
    let buckets = |hardware: &str| collectives(&training(hardware, false), CollectiveKind::AllReduce);
    let (alone, shared) = (buckets(""), buckets("sharing = true"));
    assert!(alone.len() > 2 && alone.len() == shared.len());
    for (alone, shared) in alone.iter().zip(&shared) {
        assert!(
            alone.0 == shared.0 && alone.1.abs_diff(shared.1) <= 6,
            "each of six steps rounds by itself: {alone:?} {shared:?}"
        );
    }
}

/// Real training whose gradients cross two nodes through one NIC each, with compute beside it.
fn training(hardware: &str, expand: bool) -> Run {
    let mesh = "[batch]\nmicro_batches = 2\nsteps = 2\n[parallel]\ndata = 4\n";
    let reduce = format!(
        "[data_parallel]\nall_reduce = \"halving-doubling\"\nbucket_mib = 0.01\nfirst_bucket_mib = 0.004\nexpand = {expand}\n"
    );
    run(&format!("{SMALL}{mesh}{reduce}[hardware]\ncosts = \"laptop\"\nnodes = 2\n{hardware}\n"))
}

#[test]
fn sharing_changes_times_and_no_number() {
    let (alone, shared) = (training("", true), training("sharing = true\nnics_per_node = 1", true));
    assert_eq!(alone.losses, shared.losses);
    assert!(shared.session.trace().end() > alone.session.trace().end(), "the NICs are contended");
}

#[test]
fn going_back_gives_the_same_times_states_and_bits() {
    check_going_back(|| training("sharing = true\nnics_per_node = 1", true));
    check_going_back(|| hybrid(2, false, "sharing = true\nnics_per_node = 1"));
}

fn check_going_back(run: impl Fn() -> Run) {
    let (mut walker, mut jumper) = (run().session, run().session);
    let trace = walker.trace().clone();
    assert_eq!(&trace, jumper.trace(), "the same run twice");
    let end = walker.position();
    let mut looks = Vec::new();
    walker.seek(0).expect("the start");
    for position in 0..=end {
        walker.seek(position).expect("a step");
        if position % 37 == 0 {
            looks.push((position, look(&walker)));
        }
    }
    for (position, expected) in looks.iter().rev().step_by(3).chain(&looks) {
        jumper.seek(*position).expect("a position");
        assert!(look(&jumper) == *expected, "position {position}");
    }
    jumper.seek(end).expect("the end");
    let times = |trace: &Trace| jumper.program().all().map(|op| trace.times(op)).collect::<Vec<_>>();
    assert_eq!(times(jumper.trace()), times(&trace), "a replay does not forget when messages ended");
}

#[test]
fn a_traced_transfer_ends_when_it_ends() {
    let run = collective("hierarchical", 8, 80_000, &format!("sharing = true\nnodes = 2\nnics_per_node = 1\n{LINKS}"));
    let (program, trace) = (run.session.program(), run.session.trace());
    let mut crossings = 0;
    for op in program.all() {
        let OpKind::Send(channel) = program.kind(op) else { continue };
        let (channel, times) = (program.channels[channel.index()], trace.times(op).expect("it ran"));
        let leaves = channel.from.0 / 4 != channel.to.0 / 4;
        let expected = if leaves { 5_000 + 4 * 10_000 } else { 1_000 + 2_000 };
        assert_eq!(times.end - times.start, Ticks(expected), "{op}");
        crossings += usize::from(leaves);
    }
    assert_eq!(crossings, 16, "every rank sends one to the other node, and one back");
}

/// A step of so many micro-batches on ranks of which every node has so many, behind one NIC where they share.
fn mesh(parallel: &str, micro_batches: usize, (sharing, per_node): (bool, usize), settings: &str) -> Run {
    run(&format!(
        "[model]\nlayers = 4\nhidden = 64\nheads = 4\nsequence = 32\nvocab = 50\nbias = \"none\"\n[batch]\nmicro_batches = {micro_batches}\nsteps = 1\n\
         [parallel]\n{parallel}\n[data_parallel]\nexpand = false\nbucket_mib = 100\nfirst_bucket_mib = 100\n\
         [hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = {per_node}\nsharing = {sharing}\n{}{LINKS}\n{settings}\n",
        if sharing { "nics_per_node = 1\n" } else { "" }
    ))
}

/// The collectives of the ranks that share layers: how often the payload goes round, its bytes, and the time.
fn inside_layers(run: &Run) -> Vec<(u64, u64, u64)> {
    let program = run.session.program();
    let metrics = metrics(run);
    let is_it = |stats: &&ranklab::observe::traffic::CollectiveStats| {
        let collective = &program.collectives[stats.collective.index()];
        program.groups[collective.group.index()].name.starts_with("tp")
    };
    let rounds = |stats: &ranklab::observe::traffic::CollectiveStats| program.collectives[stats.collective.index()].kind.rounds();
    let all = metrics.collectives.iter().filter(is_it);
    all.map(|stats| (rounds(stats), stats.bytes.0, (stats.end - stats.start).0)).collect()
}

/// Two ranks of a node share layers with two of another node: both sums of a layer leave through one NIC at the same time, each at half its
/// speed. With the layers' ranks side by side none of them leaves the node.
#[test]
fn sums_inside_layers_share_nics() {
    let across = mesh("tensor = 2\ndata = 2\norder = \"dp-tp-cp-pp\"", 3, (true, 2), "");
    let sums = inside_layers(&across);
    assert!(sums.len() >= 2 * 4 * 4 * 3, "two groups, four layers, four sums, three micro-batches: {}", sums.len());
    for (rounds, bytes, took) in sums {
        // A ring of two: a round is a latency and half of the payload, a byte a nanosecond, of which two groups have half each.
        assert_eq!(took, rounds * (5_000 + 2 * bytes.div_ceil(2)), "{bytes} bytes, {rounds} rounds");
    }
    let inside = mesh("tensor = 2\ndata = 2\norder = \"tp-dp-cp-pp\"", 3, (true, 2), "");
    for (rounds, bytes, took) in inside_layers(&inside) {
        assert_eq!(took, rounds * 1_000 + (rounds * bytes.div_ceil(2)).div_ceil(10), "{bytes} bytes, {rounds} rounds");
    }
    assert_eq!(across.verdict.name(), "expected-drift", "sharing changes no number");
}

/// A message's send: when it started and ended, and its bytes.
fn sends(run: &Run, from: u32, to: u32) -> Vec<(u64, u64, u64)> {
    let observed = run.observed();
    let (program, of_run) = (run.session.program(), &observed.run);
    let is_it = |op: ranklab::base::OpId| match program.kind(op) {
        OpKind::Send(channel) => {
            let channel = program.channels[channel.index()];
            (channel.from.0, channel.to.0) == (from, to)
        }
        _ => false,
    };
    let all = program.all().filter(|&op| is_it(op));
    all.map(|op| {
        let times = of_run.times(op).expect("it ran");
        (times.start.0, times.end.0, of_run.message_bytes(op).0)
    })
    .collect()
}

/// Two pipelines whose stages stand in two nodes send at the same time through one NIC.
#[test]
fn messages_of_pipelines_share_nics() {
    let beside = mesh("pipeline = 2\ndata = 2\norder = \"dp-pp-tp-cp\"", 3, (true, 2), "[pipeline]\nschedule = \"gpipe\"");
    let (first, second) = (sends(&beside, 0, 2), sends(&beside, 1, 3));
    assert_eq!((first.len(), second.len()), (3, 3));
    for (start, end, bytes) in first.into_iter().chain(second) {
        assert_eq!(end - start, 5_000 + 2 * bytes, "{bytes} bytes");
    }
}

/// Behind the last backward of a stage its gradient goes to the stage before, and its weights' gradients are summed over the replicas. Both
/// leave by the NIC of its node: the message has it alone while the sum's second latency passes, then each has half, then the sum all.
#[test]
fn a_message_and_a_sum_share_a_nic() {
    for sharing in [false, true] {
        let run = mesh("pipeline = 2\ndata = 2\norder = \"pp-dp-tp-cp\"", 1, (sharing, 1), "[pipeline]\nschedule = \"gpipe\"");
        let program = run.session.program();
        let (start, end, message) = *sends(&run, 1, 0).last().expect("a gradient");
        let metrics = metrics(&run);
        let of_stage = |stats: &&ranklab::observe::traffic::CollectiveStats| {
            let group = &program.groups[program.collectives[stats.collective.index()].group.index()];
            group.ranks.iter().map(|rank| rank.0).eq([1, 3])
        };
        let sum = metrics.collectives.iter().find(of_stage).expect("a sum of the last stage");
        assert_eq!(sum.start.0, start, "both begin behind the last backward");
        let (sum_end, bytes) = (sum.end.0, sum.bytes.0);
        assert!(message > 5_000 && bytes > message, "{message} {bytes}: they meet");
        let expected = if sharing { (2 * message, 5_000 + message + bytes) } else { (5_000 + message, 2 * 5_000 + bytes) };
        assert_eq!((end - start, sum_end - start), expected, "sharing = {sharing}, {message} and {bytes} bytes");
    }
}
