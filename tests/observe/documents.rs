//! Documents for other programs: the report and its schema, Perfetto's trace, CSV.

use super::scenes::{self, Scene, pipeline};
use ranklab::base::settings::AllReduce;
use ranklab::observe::export::{Format, export, json};
use ranklab::observe::report::{FirstDifference, Given, JSON_SCHEMA, Tokens, Verdict};
use ranklab::observe::slack::Slack;
use ranklab::observe::{Ledger, Metrics, Observed, Report, Run, VerdictKind};
use serde_json::Value;
use std::collections::BTreeMap;

fn given(verdict: Verdict) -> Given {
    Given {
        recognised: Some("1f1b"),
        title: "a <test> & more".to_owned(),
        costs: "unit".to_owned(),
        algorithm: Some(AllReduce::Ring),
        peak_flops: Some(125e9),
        tokens: Some(Tokens { micro_batch: 64, hide_traffic: 96.5 }),
        loss: vec![5.5, 5.25],
        verdict,
        ..Given::default()
    }
}

fn document(session: &ranklab::engine::session::Session, given: Given) -> Value {
    let run = Run::new(session.program(), session.trace());
    let report = Report::new(&run, &Metrics::new(&run, &Ledger::new(&run)), &Slack::new(&run), given);
    serde_json::from_str(&json(&report)).expect("a report is JSON")
}

#[test]
fn reports_fit_their_schema() {
    let schema: Value = serde_json::from_str(JSON_SCHEMA).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let first = FirstDifference { step: 1, op: "all-reduce bucket0".to_owned(), tensor: "grad3".to_owned(), rank: 2 };
    let wrong =
        Verdict { kind: VerdictKind::Wrong, max_abs_diff: Some(0.5), first_difference: Some(first), ..Verdict::default() };
    let verdicts =
        [Verdict::default(), wrong, Verdict { kind: VerdictKind::ExpectedDrift, max_abs_diff: Some(1e-7), ..Verdict::default() }];
    for (name, session) in scenes::all() {
        for verdict in &verdicts {
            let document = document(&session, given(verdict.clone()));
            let errors: Vec<String> =
                validator.iter_errors(&document).map(|error| format!("{error} at {}", error.instance_path())).collect();
            assert!(errors.is_empty(), "{name}: {errors:?}");
        }
    }
    // The schema can say no.
    let mut broken = document(&scenes::all()[0].1, given(Verdict::default()));
    broken["ranks"][0]["busy"] = Value::from("much");
    assert!(!validator.is_valid(&broken));
}

#[test]
fn a_report_says_what_a_checker_asks() {
    let report = document(&pipeline("1f1b", 8, 16).record(), given(Verdict::default()));
    let field = |pointer: &str| report.pointer(pointer).unwrap_or_else(|| panic!("{pointer}")).clone();
    assert_eq!(field("/schema"), "ranklab.run/1");
    assert_eq!(field("/clock/kind"), "modelled");
    assert_eq!((field("/makespan").as_f64(), field("/unit")), (Some(69.0), Value::from("slots")));
    assert_eq!(field("/bubble/fraction").as_f64(), Some(168.0 / 552.0));
    assert_eq!(field("/bubble/ratio").as_f64(), Some(0.4375));
    assert_eq!(field("/step_period").as_f64(), Some(69.0));
    for rank in field("/ranks").as_array().expect("ranks") {
        let by_role = rank["peak_bytes_by_role"].as_object().expect("roles");
        assert_eq!(
            by_role.values().map(|bytes| bytes.as_u64().expect("bytes")).sum::<u64>(),
            rank["peak_bytes"].as_u64().expect("bytes")
        );
    }
}

#[test]
fn outcomes_follow_the_trace_and_the_verdict() {
    let all = scenes::all();
    let session = |prefix: &str| &all.iter().find(|(name, _)| name.starts_with(prefix)).expect("a scene").1;
    let check = |prefix: &str, kind: VerdictKind, expected: &str| {
        let document = document(session(prefix), given(Verdict { kind, ..Verdict::default() }));
        assert_eq!(document["outcome"], expected, "{prefix}");
        document
    };
    check("data parallel", VerdictKind::Equal, "completed");
    check("data parallel", VerdictKind::Wrong, "wrong");
    let full = check("out of memory", VerdictKind::None, "out-of-memory");
    assert!(full["out_of_memory"]["needed"].as_u64() >= full["out_of_memory"]["limit"].as_u64());
    let stuck = check("1f1b p3 m5 blocking", VerdictKind::None, "deadlocked");
    assert!(!stuck["waits"]["cycles"].as_array().expect("cycles").is_empty());
    assert!(stuck["waits"]["edges"][0]["op"].as_str().is_some_and(|op| op.starts_with("send ")));
}

#[test]
fn collectives_are_those_of_the_first_step() {
    let report = document(&Scene { replicas: 4, ..pipeline("1f1b", 1, 2) }.record(), given(Verdict::default()));
    let collectives = report["collectives"].as_array().expect("collectives");
    let names: Vec<&str> = collectives.iter().filter_map(|collective| collective["name"].as_str()).collect();
    let expected: Vec<String> = (0..names.len()).map(|bucket| format!("all-reduce bucket{bucket}")).collect();
    assert_eq!(names, expected);
    assert!(names.len() > 1);
    let payload: u64 = collectives.iter().map(|collective| collective["bytes"].as_u64().expect("bytes")).sum();
    assert_eq!(payload, report["ranks"][0]["state_bytes"]["gradient"].as_u64().expect("bytes"), "every gradient once");
    for collective in collectives {
        assert_eq!((collective["group"].as_str(), collective["steps"].as_u64()), (Some("dp0"), Some(6)), "2(N-1)");
    }
}

#[test]
fn perfetto_traces_are_well_formed() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let document: Value =
            serde_json::from_str(&export(&Observed::new(run), given(Verdict::default()), Format::Perfetto)).expect("JSON");
        let mut flows: BTreeMap<u64, Vec<(&str, f64)>> = BTreeMap::new();
        let mut tracks: BTreeMap<(u64, u64), f64> = BTreeMap::new();
        for event in document["traceEvents"].as_array().expect("events") {
            let number = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{name}: {key} of {event}"));
            let track = (event["pid"].as_u64().expect("pid"), event["tid"].as_u64().expect("tid"));
            match event["ph"].as_str().expect("ph") {
                "X" => {
                    assert!(number("dur") >= 0.0 && number("ts") >= 0.0, "{name}: {event}");
                    // Slices of a track come in order; an op stands inside its slot.
                    let last = tracks.insert(track, number("ts")).unwrap_or(0.0);
                    assert!(event["cat"] == "op" || number("ts") >= last - 1e-9, "{name}: {event}");
                }
                "s" => flows.entry(event["id"].as_u64().expect("id")).or_default().push(("s", number("ts"))),
                "f" => flows.entry(event["id"].as_u64().expect("id")).or_default().push(("f", number("ts"))),
                "C" => assert!(event["args"].as_object().is_some_and(|roles| !roles.is_empty()), "{name}: {event}"),
                "M" => assert!(event["args"].is_object(), "{name}: {event}"),
                other => panic!("{name}: {other}"),
            }
        }
        for (id, ends) in flows {
            assert!(matches!(ends[..], [("s", left), ("f", there)] if left <= there), "{name}: {id} {ends:?}");
        }
    }
}

#[test]
fn what_was_learnt_before_is_not_learnt_again_and_tells_the_same() {
    for (name, session) in scenes::all() {
        let fresh = Observed::new(Run::new(session.program(), session.trace()));
        let (lanes, ledger, metrics) = (fresh.lanes(), fresh.ledger(), fresh.metrics());
        assert!(std::ptr::eq(lanes, fresh.lanes()) && std::ptr::eq(ledger, fresh.ledger()), "{name}: made once");
        let known = Observed::known(Run::new(session.program(), session.trace()), lanes, ledger, metrics);
        assert!(std::ptr::eq(lanes, known.lanes()) && std::ptr::eq(metrics, known.metrics()), "{name}: not made again");
        for (format, format_name) in Format::ALL {
            let text = |observed: &Observed| export(observed, given(Verdict::default()), format);
            assert!(text(&fresh) == text(&known), "{name} as {format_name}");
        }
    }
}

#[test]
fn csv_has_a_row_for_every_op_that_ran() {
    for (name, session) in scenes::all() {
        let observed = Observed::new(Run::new(session.program(), session.trace()));
        let (run, table) = (&observed.run, export(&observed, given(Verdict::default()), Format::Csv));
        let ran = run.program.all().filter(|&op| run.times(op).is_some()).count();
        assert_eq!(table.lines().count(), ran + 1, "{name}");
        let columns = table.lines().next().expect("a head").split(',').count();
        assert!(table.lines().all(|line| line.split(',').count() == columns), "{name}");
    }
}
