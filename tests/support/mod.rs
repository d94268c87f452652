//! What several tests need: scenarios from text, runs, and words for their outcomes.

use ranklab::lab::{Lab, Run};
use ranklab::observe::{Ledger, Metrics, Run as Observed};
use ranklab::program::trace::Outcome;
use ranklab::program::{OpKind, head};
use ranklab::scenario::Scenario;

/// A model small enough for many runs, with odd sizes.
pub const SMALL: &str = "[model]\nlayers = 5\nhidden = 24\nheads = 3\nsequence = 11\nvocab = 61\n";

/// The scenario of `text`, which must be well-formed.
pub fn scenario(text: &str) -> Scenario {
    Scenario::parse("test.toml", text, &[]).unwrap_or_else(|problems| panic!("{}", problems.render(false, 100)))
}

/// A finished run of `text`.
pub fn run(text: &str) -> Run {
    Lab::new().run(&scenario(text)).expect("a run")
}

/// A run of `text` that completes with one of the `expected` verdicts, of a sound program whose loss falls over three steps.
#[track_caller]
pub fn sound(text: &str, expected: &[&str]) -> Run {
    let run = run(text);
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
    assert!(expected.contains(&run.verdict.name()), "{:?} is none of {expected:?} for\n{text}", run.verdict);
    let findings = ranklab::program::check::check(run.session.program());
    assert!(findings.is_empty(), "{findings:?} for\n{text}");
    assert!(run.losses[2] < run.losses[0], "the loss falls: {:?}\n{text}", run.losses);
    run
}

/// The metrics of `run`.
pub fn metrics(run: &Run) -> Metrics {
    let observed = Observed::new(run.session.program(), run.session.trace());
    Metrics::new(&observed, &Ledger::new(&observed))
}

/// The row of lesson `number` in the list of lessons, from 0.
pub fn row_of(number: u32) -> usize {
    let library = ranklab::teach::Library::shipped();
    library.lessons().iter().position(|lesson| lesson.number == number).expect("a shipped lesson")
}

/// The head of an op of `run`.
pub fn head_of(run: &Run, op: ranklab::base::OpId) -> String {
    let program = run.session.program();
    let skipped = if matches!(program.kind(op), OpKind::Skipped(_)) { " (skipped)" } else { "" };
    format!("{}{skipped}", head::head(program, op))
}
