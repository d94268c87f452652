//! Stored traces: every run prints and reads back to the same trace, and foreign or broken records are refused by line.

use std::sync::Arc;

use proptest::prelude::*;

use super::{collective, training};
use crate::support::scenario;
use ranklab::compile;
use ranklab::engine::session::{Numbers, run};
use ranklab::program::record::{read, write};
use ranklab::program::{Program, Trace};
use ranklab::scenario::Scenario;

/// Runs the shapes of `scenario`.
fn shapes(scenario: &Scenario) -> (Arc<Program>, Trace) {
    let program = Arc::new(compile::compile(scenario).program);
    let (_, trace) = run(program.clone(), &scenario.hardware, &scenario.trouble, Numbers::Shape, &mut |_, _| {}).expect("a run");
    (program, trace)
}

fn stored(program: &Program, trace: &Trace) -> String {
    let mut lines = Vec::new();
    write(program, trace, &mut lines).expect("memory takes all");
    String::from_utf8(lines).expect("JSON is UTF-8")
}

fn round_trip(scenario: &Scenario) -> Result<(), TestCaseError> {
    let (program, trace) = shapes(scenario);
    let text = stored(&program, &trace);
    let record = read(&text).map_err(|errors| TestCaseError::fail(format!("{errors:?}")))?;
    let read = record.trace(&program).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(read == trace, "{}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn runs_of_training_are_stored(scenario in training()) {
        round_trip(&scenario)?;
    }

    #[test]
    fn runs_of_collectives_are_stored(scenario in collective()) {
        round_trip(&scenario)?;
    }

    #[test]
    fn any_record_is_read_or_refused(line in any::<prop::sample::Index>(), from in "[0-9]+|null|\"[a-z]+\"", to in "[0-9]{0,12}|null|\"\"|\\PC{0,9}") {
        let (program, trace) = shapes(&scenario(DEADLOCK));
        let text = stored(&program, &trace);
        let number = line.index(text.lines().count());
        let change = |(at, line): (usize, &str)| if at == number { line.replace(&from, &to) } else { line.to_owned() };
        let changed: Vec<String> = text.lines().enumerate().map(change).collect();
        let _ = read(&changed.join("\n")).map(|record| record.trace(&program));
    }
}

/// Small enough to be looked at; both ranks wait for each other with both ends of a message posted.
const DEADLOCK: &str = "[model]\nlayers = 2\nhidden = 24\nheads = 3\nsequence = 11\nvocab = 61\n[batch]\nmicro_batches = 2\nsteps = 1\n\
                        [parallel]\npipeline = 2\n[pipeline]\np2p = \"blocking\"\n";

#[test]
fn outcomes_are_stored() {
    let full = DEADLOCK.replace("blocking", "edge-fifo") + "[hardware]\ncosts = \"laptop\"\nmemory_gb = 0.00018\n";
    let skipped = DEADLOCK.replace("pipeline = 2", "data = 2").replace("blocking", "edge-fifo")
        + "[[trouble]]\nkind = \"skip-op\"\nrank = 1\nop = \"all-reduce bucket0\"\n";
    for (text, outcome) in [(DEADLOCK, "deadlocked"), (&full, "out-of-memory"), (&skipped, "deadlocked")] {
        let scenario = scenario(text);
        assert_eq!(shapes(&scenario).1.outcome.name(), outcome, "{text}");
        round_trip(&scenario).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_record_reads_well() {
    let (program, trace) = shapes(&scenario(DEADLOCK));
    insta::assert_snapshot!(stored(&program, &trace));
}

#[test]
fn broken_records_are_refused_by_line() {
    let (program, trace) = shapes(&scenario(DEADLOCK));
    let text = stored(&program, &trace);
    let check = |from: &str, to: &str, expected: &str| {
        assert!(text.contains(from), "{from}");
        let changed = text.replacen(from, to, 1);
        let error = match read(&changed) {
            Err(errors) => errors[0].to_string(),
            Ok(record) => record.trace(&program).expect_err(from).to_string(),
        };
        assert!(error.starts_with(expected), "{from} -> {to}: {error}");
    };
    check("ranklab.trace/1", "ranklab.trace/9", "line 1: the schema is `ranklab.trace/9`, not `ranklab.trace/1`");
    check("\"ranks\":2", "\"ranks\":3", "line 1: a run of 3 ranks and ");
    check("\"events\":", "\"events\":9", "line 1: 9");
    check("\"edges\":[{\"rank\":0,\"op\":", "\"edges\":[{\"rank\":0,\"op\":9", "line 1: the outcome names ops");
    check("{\"event\":1,", "{\"event\":2,", "line 2: event 2 stands behind event 0");
    check("{\"event\":1,", "{\"event\":null,", "line 2: %0 has an event, a start and an end behind it, or none of them");
    check("\"head\":\"zero-gradients\"", "\"head\":\"zero\"", "line 2: the program has no op %0 `zero` on r0");
    check("\"slot\":null", "\"slot\":null,\"colour\":1", "line 2: unknown field `colour`");
    check("{\"event\":2,", "\"event\":2,", "line 3: invalid type");
    assert_eq!(read("").expect_err("nothing")[0].to_string(), "line 1: nothing is here, not even a header");
}
