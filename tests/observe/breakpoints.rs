//! Breakpoints: where each is met, told again by a plain walk over the events.

use super::scenes::{self, Scene, pipeline};
use ranklab::base::{Bytes, OpId, Rank};
use ranklab::observe::breakpoint::Breakpoint;
use ranklab::observe::{Ledger, Run};
use ranklab::program::Program;
use ranklab::program::head::head;

fn hits(run: &Run, text: &str) -> Vec<usize> {
    let breakpoint = Breakpoint::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
    breakpoint.hits(run, &Ledger::new(run), None)
}

/// The events that start an op that `fits`.
fn started(run: &Run, fits: impl Fn(OpId) -> bool) -> Vec<usize> {
    let events = 1..=run.trace.events.len();
    events.filter(|&event| run.program.all().any(|op| run.trace.event_of(op) == Some(event) && fits(op))).collect()
}

/// Whether the whole text of the head begins with these words.
fn begins(program: &Program, op: OpId, words: &str) -> bool {
    let text = head(program, op).to_string();
    text == words || text.starts_with(&format!("{words} "))
}

#[test]
fn ops_and_ranks_are_met_at_every_start() {
    let session = Scene { replicas: 2, ..pipeline("1f1b", 3, 4) }.record();
    let run = Run::new(session.program(), session.trace());
    let of = |rank: u32| move |run: &Run, op: OpId| run.program.rank_of(op) == Rank(rank);
    assert_eq!(hits(&run, "r2"), started(&run, |op| of(2)(&run, op)));
    for words in [
        "send",
        "recv x2.1",
        "send x4.3 -> r4",
        "recv dx2.1 <- r1",
        "send x",
        "send x04.3",
        "se",
        "optimizer",
        "1F2 forward blocks.3",
        "barrier",
    ] {
        let plain = started(&run, |op| begins(run.program, op, words));
        assert_eq!(hits(&run, &format!("op {words}")), plain, "{words}");
        let on_rank = started(&run, |op| begins(run.program, op, words) && of(3)(&run, op));
        assert_eq!(hits(&run, &format!("r3 op {words}")), on_rank, "{words}");
    }
    assert!(!hits(&run, "op send").is_empty());
    assert!(hits(&run, "op no such op").is_empty() && hits(&run, "r99").is_empty());
}

#[test]
fn a_slot_is_met_once_a_step_on_each_rank_that_has_it() {
    let session = Scene { steps: 2, ..pipeline("1f1b", 3, 4) }.record();
    let run = Run::new(session.program(), session.trace());
    for (text, times) in
        [("1F2", 2), ("r1 1F2", 2), ("r0 1F2", 0), ("F2", 6), ("r2 B3", 2), ("mb 1", 12), ("r0 mb 1", 4), ("mb 4", 0)]
    {
        let met = hits(&run, text);
        assert_eq!(met.len(), times, "{text}: {met:?}");
        assert!(met.is_sorted(), "{text}");
    }
    let first = |event: usize| run.trace.events[event - 1].op;
    let slot = |event| run.program.op(first(event)).origin.slot.map(|slot| slot.to_string());
    assert!(hits(&run, "1F2").into_iter().all(|event| slot(event).as_deref() == Some("1F2")));
}

#[test]
fn a_time_is_met_once_and_memory_whenever_it_is_exceeded() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let ledger = Ledger::new(&run);
        let clock = run.trace.clock;
        let middle = clock.in_unit(run.trace.events[run.trace.events.len() / 2].time);
        let met = hits(&run, &format!("time {middle}"));
        let [event] = met[..] else { panic!("{name}: {met:?}") };
        assert!(clock.in_unit(run.trace.events[event - 1].time) >= middle, "{name}");
        assert!(event == 1 || clock.in_unit(run.trace.events[event - 2].time) < middle, "{name}");

        let account = ledger.rank(Rank(0));
        let limit = Bytes(account.samples[0].total().0.midpoint(account.peak().total().0));
        let mut above = account.samples[0].total() > limit;
        let mut expected = Vec::new();
        for sample in &account.samples {
            let now = sample.total() > limit;
            if now && !above && expected.last() != Some(&(sample.event as usize)) {
                expected.push(sample.event as usize);
            }
            above = now;
        }
        assert_eq!(hits(&run, &format!("r0 memory {}", limit.0)), expected, "{name} above {limit}");
        assert!(hits(&run, &format!("memory {}", limit.0)).len() >= expected.len(), "{name}");
    }
}
