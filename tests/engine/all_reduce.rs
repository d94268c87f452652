//! All-reduces by every algorithm: exact sums of distinct data, bytes and times against closed forms, and where one overtakes another.

use ranklab::base::{Bytes, Ticks};
use ranklab::observe::{Ledger, Metrics, Run as Observed};

use crate::support::run;

/// A bare all-reduce of so many f32 elements, and what its nodes and links are.
fn measure(algorithm: &str, ranks: u64, elements: u64, rest: &str) -> Metrics {
    let text = format!(
        "collective = {{ algorithm = \"{algorithm}\", bytes = {}, ranks = {ranks} }}\n[hardware]\ncosts = \"h100-nvlink\"\n{rest}\n",
        elements * 4
    );
    let run = run(&text);
    let verdict = run.verdict.name();
    assert!(verdict == "equal" || (verdict == "none" && rest.contains("shape")), "{text}: {:?}", run.verdict);
    let observed = Observed::new(run.session.program(), run.session.trace());
    Metrics::new(&observed, &Ledger::new(&observed))
}

#[test]
fn halving_and_doubling_sends_its_share_in_twice_log_n_steps() {
    for ranks in [1_u64, 2, 3, 5, 6, 7, 8, 12, 16] {
        for chunk in [1, 3, 7] {
            let power = 1 << ranks.ilog2();
            let (beyond, payload) = (ranks - power, chunk * power * 4);
            let metrics = measure("halving-doubling", ranks, chunk * power, "");
            for rank in &metrics.ranks {
                let place = u64::from(rank.rank.0);
                // The first of each pair beyond the power of two folds its payload into the second, which sends it back.
                let is_folded = place < 2 * beyond && place.is_multiple_of(2);
                let takes_one_in = place < 2 * beyond && !is_folded;
                let own = if is_folded { 0 } else { 2 * (power - 1) * payload / power };
                let whole = if is_folded || takes_one_in { payload } else { 0 };
                assert_eq!(rank.bytes_sent, Bytes(own + whole), "N = {ranks}, {place}");
                assert_eq!(rank.bytes_received, rank.bytes_sent, "N = {ranks}, {place}");
            }
            let steps = 2 * u64::from(power.ilog2()) + if beyond > 0 { 2 } else { 0 };
            let found = metrics.collectives.first().map_or(0, |stats| u64::from(stats.steps));
            assert_eq!(found, steps, "N = {ranks}");
        }
    }
}

#[test]
fn two_levels_send_what_one_ring_sends_but_less_of_it_between_nodes() {
    for (nodes, per_node) in [(1, 5), (2, 1), (2, 2), (2, 3), (3, 2), (5, 3), (4, 4), (3, 5)] {
        let ranks = nodes * per_node;
        let payload = 3 * ranks * 4;
        let metrics = measure("hierarchical", ranks, 3 * ranks, &format!("nodes = {nodes}"));
        for rank in &metrics.ranks {
            assert_eq!(rank.bytes_sent, Bytes(2 * (ranks - 1) * payload / ranks), "{nodes} x {per_node}");
            assert_eq!(rank.bytes_received, rank.bytes_sent, "{nodes} x {per_node}");
        }
        let node = |rank: ranklab::base::Rank| u64::from(rank.0) / per_node;
        let outside: u64 = metrics.wires.iter().filter(|wire| node(wire.from) != node(wire.to)).map(|wire| wire.bytes.0).sum();
        assert_eq!(outside, ranks * 2 * (nodes - 1) * payload / (nodes * per_node), "{nodes} x {per_node}");
        assert_eq!(u64::from(metrics.collectives[0].steps), 2 * (per_node - 1) + 2 * (nodes - 1), "{nodes} x {per_node}");
    }
}

#[test]
fn odd_payloads_are_summed_exactly() {
    for (ranks, nodes) in [(2, 1), (3, 1), (5, 1), (8, 2), (9, 3), (10, 2)] {
        for elements in [ranks, ranks + 1, 7 * ranks - 1, 100 + ranks] {
            for algorithm in ["ring", "tree", "star", "halving-doubling", "hierarchical"] {
                // `measure` asserts the verdict: every element of every rank, exactly.
                let metrics = measure(algorithm, ranks, elements, &format!("nodes = {nodes}"));
                let sent: Bytes = metrics.ranks.iter().map(|rank| rank.bytes_sent).sum();
                let received: Bytes = metrics.ranks.iter().map(|rank| rank.bytes_received).sum();
                assert_eq!(sent, received, "{algorithm} {ranks} {elements}");
            }
        }
    }
}

/// Milliseconds of an all-reduce inside a node with this latency in microseconds and this bandwidth in GB/s.
fn milliseconds(algorithm: &str, ranks: u64, bytes: u64, (alpha, bandwidth): (f64, f64)) -> f64 {
    let rest = format!(
        "ranks_per_node = {ranks}\n[hardware.inside]\nalpha = {alpha}\nbandwidth = {bandwidth}\n[numerics]\nvalues = \"shape\""
    );
    in_milliseconds(measure(algorithm, ranks, bytes / 4, &rest).makespan)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53 ns")]
fn in_milliseconds(ticks: Ticks) -> f64 {
    ticks.0 as f64 / 1e6
}

#[test]
fn times_of_the_documents() {
    let check = |algorithm, ranks, expected: f64| {
        let found = milliseconds(algorithm, ranks, 1_000_000_000, (5.0, 450.0));
        assert!((found - expected).abs() < 0.000_15, "{algorithm} p={ranks}: {found} ms, not {expected}");
    };
    check("ring", 8, 3.9589);
    check("halving-doubling", 8, 3.9189);
    check("ring", 64, 5.0050);
    check("halving-doubling", 64, 4.4350);
}

#[test]
fn thirty_two_mebibytes_take_what_the_lessons_say() {
    let check = |nodes: u64, steps_alpha_ms: f64, expected: f64| {
        let rest = format!("nodes = {nodes}\n[numerics]\nvalues = \"shape\"");
        let found = in_milliseconds(measure("ring", 8, (32 << 20) / 4, &rest).makespan) - steps_alpha_ms;
        assert!((found - expected).abs() < 0.005, "{found} ms beside latency, not {expected}");
    };
    check(1, 14.0 * 0.0015, 0.13);
    check(8, 14.0 * 0.005, 1.17);
}

/// The smallest payload, in steps of 4 KiB, with which `second` is not slower any more.
fn overtakes(second: &str, first: &str, ranks: u64, link: (f64, f64)) -> u64 {
    let is_over = |pages: u64| milliseconds(second, ranks, pages << 12, link) <= milliseconds(first, ranks, pages << 12, link);
    let (mut below, mut above) = (1, 1 << 16);
    assert!(!is_over(below) && is_over(above), "{second} overtakes {first} somewhere");
    while above - below > 1 {
        let middle = u64::midpoint(below, above);
        if is_over(middle) { above = middle } else { below = middle }
    }
    above << 12
}

#[test]
fn crossing_points_are_where_the_closed_forms_meet() {
    let (alpha, bandwidth) = (5.0, 50.0);
    let check = |second, first, ranks, alphas: f64, payloads: f64| {
        // alphas * a = payloads * n / B: microseconds times GB/s are kilobytes.
        let expected = alphas * alpha * bandwidth * 1e3 / payloads;
        let found = overtakes(second, first, ranks, (alpha, bandwidth));
        #[expect(clippy::cast_precision_loss, reason = "a payload far below 2^53")]
        let off = (found as f64 - expected).abs();
        assert!(off <= 4096.0 + expected * 1e-3, "{second} overtakes {first}, p={ranks}: at {found}, not {expected}");
    };
    // Of five ranks one folds in: 6 a + (2 + 3/2) n b against the ring's 8 a + 8/5 n b.
    check("ring", "halving-doubling", 5, 2.0, 1.9);
    // Of six two fold in: 6 a + (2 + 3/2) n b against 10 a + 10/6 n b.
    check("ring", "halving-doubling", 6, 4.0, 3.5 - 10.0 / 6.0);
    // With a power of two halving and doubling has the ring's bytes and fewer latencies: no crossing.
    for bytes in [1 << 12, 1 << 20, 1 << 28] {
        let [fast, slow] = ["halving-doubling", "ring"].map(|algorithm| milliseconds(algorithm, 8, bytes, (alpha, bandwidth)));
        assert!((slow - fast - 8.0 * alpha / 1e3).abs() < 1e-4, "eight latencies less, and nothing else: {fast} {slow}");
    }
}

#[test]
fn latency_takes_half_of_the_time_where_the_lessons_say() {
    let half = |link: (f64, f64), bytes| {
        let all = milliseconds("ring", 8, bytes, link);
        14.0 * link.0 / 1e3 / all
    };
    for (link, bytes) in [((5.0, 50.0), 2_000_000), ((1.5, 450.0), 5_400_000)] {
        assert!((half(link, bytes) - 0.5).abs() < 1e-3, "{link:?}");
    }
}
