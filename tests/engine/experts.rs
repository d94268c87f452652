//! A bare mixture of experts over ranks: its verdict, its work per rank, its bytes, and its faults.

#![expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "tests compare small counts")]

use ranklab::base::{Bytes, Rank};
use ranklab::lab::{Lab, Run, check};
use ranklab::observe::routes::Routes;
use ranklab::program::text;

use crate::support::{metrics, run, scenario};

/// A layer with 7 tokens on each rank, of an odd width.
fn layer(ranks: usize, rest: &str) -> String {
    format!("[layer]\nkind = \"experts\"\n[model]\nhidden = 13\nffn = 5\nsequence = 7\n[parallel]\nexpert = {ranks}\n{rest}\n")
}

/// The loads of a published case: the busiest expert has 2.81 times the mean.
const UNEVEN: &str = "[experts]\nloads = [90, 60, 40, 25, 18, 12, 7, 4]";

/// Eight ranks with 16 tokens and one expert each: 256 choices.
fn eight(rest: &str) -> String {
    layer(8, rest).replace("sequence = 7", "sequence = 16")
}

#[test]
fn every_number_of_ranks_equals_one_device() {
    for ranks in [1, 2, 3, 4, 6, 8, 12] {
        for (dtype, k, skew) in [("f32", 1, 0.0), ("f64", 2, 0.8), ("f32", 4, 1.5), ("bf16", 2, 0.5)] {
            let count = if ranks == 8 { 8 } else { 12 };
            let rest = format!("[experts]\ncount = {count}\ntop_k = {k}\nskew = {skew}\n[numerics]\ndtype = \"{dtype}\"");
            let run = run(&layer(ranks, &rest));
            let allowed = if ranks == 1 { ["equal", "equal"] } else { ["expected-drift", "equal"] };
            assert!(allowed.contains(&run.verdict.name()), "{ranks}, {rest}: {:?}", run.verdict);
        }
    }
}

#[test]
fn programs_are_sound() {
    for ranks in [1, 2, 3, 4] {
        for rest in ["", "capacity_factor = 1.0", "top_k = 1"] {
            let scenario = scenario(&layer(ranks, &format!("[experts]\ncount = 12\nskew = 1.0\n{rest}")));
            let checked = check(&scenario).expect("a program");
            assert!(checked.findings.is_empty(), "{ranks}, {rest}: {:?}", checked.findings);
            let program = ranklab::compile::compile(&scenario).program;
            assert_eq!(text::parse(&program.to_string()).expect("its own text"), program);
        }
    }
}

/// The slowest expert sets the pace: 90 of 256 choices on one of eight ranks are 2.81 times an eighth.
#[test]
fn a_step_takes_as_long_as_its_busiest_experts() {
    let time = |rest: &str| {
        let run = run(&eight(rest));
        let clock = run.session.trace().clock;
        clock.in_unit(metrics(&run).makespan)
    };
    assert_eq!(time(""), 3.0, "forward 1, backward 2, and nobody waits");
    assert_eq!(time(UNEVEN) / time(""), 90.0 / 32.0);
    assert_eq!(90.0 / 32.0, 2.8125);
}

#[test]
fn what_a_rank_computes_is_what_its_experts_are_sent() {
    let run = run(&eight(UNEVEN));
    let routes = Routes::of(run.session.program()).expect("experts");
    let rows: Vec<usize> = (0..8).map(|rank| routes.rows(rank)).collect();
    assert_eq!(rows, [90, 60, 40, 25, 18, 12, 7, 4]);
    assert_eq!(routes.slowest(), Some(0));
    let busy: Vec<f64> = metrics(&run).ranks.iter().map(|rank| run.session.trace().clock.in_unit(rank.busy)).collect();
    assert_eq!(busy, rows.iter().map(|&rows| 3.0 * rows as f64 / 32.0).collect::<Vec<f64>>());
}

/// Rows to others, four times; the statistics of all; and the router's gradient around a ring.
#[test]
fn ranks_send_what_is_not_theirs() {
    for ranks in [2, 3, 4] {
        let run = run(&layer(ranks, "[experts]\ncount = 12\nskew = 1.0"));
        let routes = Routes::of(run.session.program()).expect("experts");
        let metrics = metrics(&run);
        let n = ranks as u64;
        let row = 13 * 4;
        let others = (n - 1) * (2 * 12 * 4) + 2 * (n - 1) * (12 * 13 * 4_u64).div_ceil(n);
        for (rank, found) in metrics.ranks.iter().enumerate() {
            let moved = |out: bool| -> u64 {
                let pairs = (0..12).flat_map(|expert| (0..ranks).map(move |from| (from, expert)));
                let is_it = |&(from, expert): &(usize, usize)| {
                    let home = expert / (12 / ranks);
                    home != from && (if out { from } else { home }) == rank
                };
                pairs.filter(is_it).map(|(from, expert)| routes.sent(from, expert) as u64).sum()
            };
            // Out and back, forward and backward.
            let rows = 2 * (moved(true) + moved(false));
            assert_eq!(found.bytes_sent, Bytes(rows * row + others), "{ranks}, r{rank}");
            assert_eq!(found.bytes_received, found.bytes_sent);
        }
    }
}

/// 4,096 tokens on each of 8 ranks, 2 experts each, 4,096 wide in bf16: 58.7 MB leave a rank in each of the 4 all-to-alls.
#[test]
fn a_published_layer_moves_its_published_bytes() {
    let text = "[layer]\nkind = \"experts\"\n[model]\nhidden = 4096\nffn = 14336\nactivation = \"swiglu\"\nsequence = 4096\n\
                [parallel]\nexpert = 8\n[numerics]\nvalues = \"shape\"\ndtype = \"bf16\"\n[hardware]\ncosts = \"h100-nvlink\"\n";
    let run = run(text);
    let sent: Vec<u64> = metrics(&run)
        .collectives
        .iter()
        .filter(|stats| run.session.program().collectives[stats.collective.index()].kind.name() == "all-to-all")
        .map(|stats| stats.sent.0)
        .collect();
    assert_eq!(sent.len(), 4);
    // 4,096 x 2 x 4,096 x 2 bytes x 7/8 from each.
    assert_eq!(sent, [8 * 58_720_256; 4]);
}

#[test]
fn capacity_evens_out_the_step_and_loses_tokens() {
    let of = |factor: f64| {
        let run = run(&eight(&format!("{UNEVEN}\ncapacity_factor = {factor}")));
        let routes = Routes::of(run.session.program()).expect("experts");
        assert!(matches!(run.verdict.name(), "equal" | "expected-drift"), "{factor}: {:?}", run.verdict);
        (routes.burden(0), routes.all_dropped())
    };
    let (burden, dropped) = of(1.0);
    assert!(burden <= 1.0 && dropped > 60, "{burden}, {dropped}");
    assert_eq!(of(0.0).1, 0);
    assert_eq!(of(8.0).1, 0, "an expert has room for every token");
}

#[test]
fn a_run_of_shapes_has_the_same_times_as_one_of_numbers() {
    let text = layer(4, "[experts]\ncount = 12\nskew = 1.0\n[hardware]\ncosts = \"h100-nvlink\"\n");
    let [real, shape] = ["real", "shape"].map(|values| {
        let run = Lab::new().run(&scenario(&(text.clone() + &format!("[numerics]\nvalues = \"{values}\"\n")))).expect("a run");
        metrics(&run).makespan
    });
    assert_eq!(real, shape);
}

/// The cause that is found for a fault, and on which rank.
fn cause(run: &Run) -> (Rank, String) {
    let first = run.diagnosis.first().expect("a diagnosis");
    (first.rank, first.cause.clone())
}

#[test]
fn an_overloaded_rank_is_found() {
    for (ranks, rank) in [(3, 0), (4, 2), (6, 5)] {
        let run = run(&layer(
            ranks,
            &format!("[experts]\ncount = 12\n[[trouble]]\nkind = \"expert-overload\"\nrank = {rank}\nfactor = 3"),
        ));
        assert!(matches!(run.verdict.name(), "equal" | "expected-drift"), "slow, and right: {:?}", run.verdict);
        let (found, cause) = cause(&run);
        assert_eq!(found, Rank(rank), "{cause}");
        assert!(cause.contains("times an even share"), "{cause}");
    }
}

#[test]
fn lost_tokens_are_found() {
    for (ranks, factor) in [(2, 0.5), (3, 1.0), (4, 0.75)] {
        let text = format!("[experts]\ncount = 12\nskew = 1.0\n[[trouble]]\nkind = \"capacity-drop\"\nfactor = {factor}");
        let run = run(&layer(ranks, &text));
        assert_eq!(run.verdict.name(), "wrong", "{ranks}");
        let routes = Routes::of(run.session.program()).expect("experts");
        let (_, cause) = cause(&run);
        assert!(cause.contains(&format!("{} of {}", routes.all_dropped(), routes.all_choices())), "{cause}");
    }
}

#[test]
fn splits_of_another_batch_hang() {
    for (ranks, rank) in [(2, 1), (3, 0), (4, 2)] {
        let run = run(&layer(ranks, &format!("[experts]\ncount = 12\n[[trouble]]\nkind = \"stale-splits\"\nrank = {rank}")));
        assert_eq!(run.session.trace().outcome.name(), "deadlocked", "{ranks}");
        let (found, cause) = cause(&run);
        assert_eq!(found, Rank(rank), "{cause}");
        assert!(cause.contains("sizes"), "{cause}");
    }
}
