//! Sheets run: as their schedules do, with the messages that they place, and with the mistakes that they make.

use ranklab::lab::Run;
use ranklab::program::check::{FindingKind, check};
use ranklab::program::trace::Outcome;
use ranklab::scenario::Scenario;

use crate::support::{self, SMALL};

/// Runs the sheet `text`, the small model on it.
fn run(text: &str, overrides: &[&str]) -> Run {
    let small = SMALL.lines().skip(1).map(|line| format!("model.{}", line.replace(' ', "")));
    let overrides: Vec<String> = small.chain(overrides.iter().map(|&text| text.to_owned())).collect();
    let scenario = Scenario::parse("plan.csv", text, &overrides).unwrap_or_else(|problems| panic!("{problems}"));
    ranklab::lab::Lab::new().run(&scenario).expect("a run")
}

#[test]
fn a_schedule_written_out_runs_as_itself() {
    for (schedule, pipeline) in [("1f1b", 3), ("zb-h1", 2), ("interleaved", 2), ("zbv", 2), ("dualpipev", 2)] {
        let text = format!(
            "{SMALL}[batch]\nmicro_batches = 4\n[parallel]\npipeline = {pipeline}\n[pipeline]\nschedule = \"{schedule}\"\n"
        );
        let named = support::run(&text);
        let plan = named.plan.as_ref().expect("a pipeline").to_string();
        let written = run(&plan, &[]);
        assert_eq!(written.session.program(), named.session.program(), "{schedule}");
        assert_eq!((written.losses, written.verdict.name()), (named.losses, "equal"), "{schedule}");
    }
}

/// With its messages written out as PyTorch places them, a schedule has the same numbers, and every message meets its own.
#[test]
fn a_schedule_with_its_messages_runs_as_itself() {
    for (schedule, pipeline) in
        [("gpipe", 4), ("1f1b", 3), ("zb-h1", 2), ("interleaved", 2), ("zbv", 2), ("v-half", 2), ("dualpipev", 2)]
    {
        let text = format!(
            "{SMALL}[batch]\nmicro_batches = 4\n[parallel]\npipeline = {pipeline}\n[pipeline]\nschedule = \"{schedule}\"\n"
        );
        let named = support::run(&text);
        let sheet = ranklab::program::sheet::Sheet::with_messages(named.plan.as_ref().expect("a pipeline")).expect("a sheet");
        let written = run(&sheet.to_string(), &[]);
        assert_eq!(check(written.session.program()), [], "{schedule}");
        assert_eq!((written.losses, written.verdict.name()), (named.losses, "equal"), "{schedule}");
    }
}

/// Two ranks, 1F1B, messages and waits where PyTorch 2.15 puts them.
const PAIR: &str = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1\n\
                    1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n";

/// The same, the first rank receiving before it sends: a receive that stands in the way of the send that would bring it.
const CIRCLE: &str = "0F0,0RECV_B0,0SEND_F0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n\
                      1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";

/// Sends in one order, receives in the other.
const SWAP: &str = "0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1\n\
                    1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";

#[test]
fn messages_stand_where_the_sheet_says() {
    let outcome = |text: &str, p2p: &str| {
        let run = run(text, &["numerics.values=shape", &format!("pipeline.p2p={p2p}")]);
        run.session.trace().outcome.name()
    };
    // r0 sends F1 before it receives B0, and r1 sends B0 before it receives F1: one queue for both directions is stuck.
    let in_turn = PAIR.replace("0F1,0SEND_F1,0RECV_B0", "0F1,0RECV_B0,0SEND_F1");
    for p2p in ["buffered", "edge-fifo", "pair-fifo", "rank-fifo", "blocking"] {
        let expected = if matches!(p2p, "buffered" | "edge-fifo") { "completed" } else { "deadlocked" };
        assert_eq!([PAIR, CIRCLE].map(|text| outcome(text, p2p)), [expected; 2], "{p2p}");
        assert_eq!(outcome(&in_turn, p2p), "completed", "{p2p}");
    }
    let run = run(PAIR, &[]);
    assert_eq!((run.session.trace().outcome.name(), run.verdict.name()), ("completed", "equal"));
}

#[test]
fn a_swap_along_an_edge_is_found_and_spoils_the_numbers() {
    let run = run(SWAP, &[]);
    let kinds: Vec<FindingKind> = check(run.session.program()).iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::SilentSwap]);
    assert_eq!((&run.session.trace().outcome, run.verdict.name()), (&Outcome::Completed, "wrong"));
}

#[test]
fn a_sheet_settles_its_sizes() {
    let scenario = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        Scenario::parse("plan.csv", PAIR, &overrides).map_err(|problems| problems.to_string())
    };
    assert_eq!(scenario(&[]).map(|scenario| scenario.ranks()), Ok(2));
    assert_eq!(scenario(&["parallel.pipeline=2", "parallel.data=2"]).map(|scenario| scenario.ranks()), Ok(4));
    let refused = |overrides: &[&str], words: &str| {
        let problems = scenario(overrides).expect_err("it does not agree");
        assert!(problems.contains(words), "{problems}");
    };
    let merged = ranklab::scenario::merged("folder/plan.csv", PAIR, &["seed=3".to_owned()]).expect("a sheet");
    assert_eq!(merged, "seed = 3\n\n[pipeline]\ncsv = \"plan.csv\"\n");
    refused(&["parallel.pipeline=4"], "the sheet has 2 rows");
    refused(&["batch.micro_batches=8"], "the sheet has 2 micro-batches");
    refused(&["pipeline.schedule=gpipe"], "leave one of the two out");
    refused(&["model.layers=1"], "1 layer cannot fill 2 stages");
}
