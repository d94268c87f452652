//! Bare collectives: what each rank ends with, in how many steps, and what padding adds.

use ranklab::base::Bytes;
use ranklab::observe::{Ledger, Metrics, Run as Observed};

use crate::support::run;

/// A ring of `ranks` with so many f32 elements: the result, the rounds of (N-1) steps, the bytes that each rank sends.
fn check(kind: &str, ranks: u64, elements: u64, rounds: u64) {
    let text = format!("[collective]\nkind = \"{kind}\"\nbytes = {}\nranks = {ranks}\n", elements * 4);
    let run = run(&text);
    assert_eq!(run.verdict.name(), "equal", "{text}");
    let observed = Observed::new(run.session.program(), run.session.trace());
    let metrics = Metrics::new(&observed, &Ledger::new(&observed));
    assert_eq!(u64::from(metrics.collectives[0].steps), rounds * (ranks - 1), "{text}");
    let collective = &run.session.program().collectives[0];
    let padded = elements.next_multiple_of(ranks);
    assert_eq!((collective.bytes, collective.padding), (Bytes(padded * 4), Bytes((padded - elements) * 4)), "{text}");
    for rank in &metrics.ranks {
        assert_eq!(rank.bytes_sent, Bytes(rounds * (ranks - 1) * padded / ranks * 4), "{text}");
        assert_eq!(rank.bytes_received, rank.bytes_sent, "{text}");
    }
}

#[test]
fn halves_of_a_ring_do_their_half() {
    for ranks in [2, 3, 5, 8] {
        for elements in [ranks, 7 * ranks, 7 * ranks + 1, 9 * ranks - 1] {
            check("reduce-scatter", ranks, elements, 1);
            check("all-gather", ranks, elements, 1);
        }
        check("all-reduce", ranks, 7 * ranks, 2);
    }
}
