//! What the lessons' pages say about their runs, held against the runs.

use std::collections::BTreeMap;

use ranklab::base::Rank;
use ranklab::lab::{Lab, Run, Verdict};
use ranklab::program::OpKind;
use ranklab::program::head::head;
use ranklab::program::trace::Outcome;
use ranklab::scenario::Scenario;
use ranklab::teach::{Block, Lesson};

use super::shipped;

/// The scenario `name` of `lesson` with these settings.
fn scenario(lesson: &Lesson, name: &str, set: &[String]) -> Scenario {
    let text = &lesson.scenario(name).expect("a scenario of the lesson").text;
    Scenario::parse(name, text, set).unwrap_or_else(|problems| panic!("{}: {set:?}\n{problems}", lesson.name))
}

#[test]
fn scenarios_and_knobs_fit_each_other() {
    for lesson in shipped().lessons() {
        for file in &lesson.scenarios {
            scenario(lesson, &file.name, &[]);
        }
        let offered = lesson.knobs.iter().flat_map(|knob| knob.values.iter().map(|value| format!("{}={value}", knob.key)));
        offered.for_each(|set| _ = scenario(lesson, "scenario.toml", &[set]));
        for page in &lesson.pages {
            for block in &page.blocks {
                let Block::Try { key, values, .. } = block else { continue };
                values.iter().for_each(|value| _ = scenario(lesson, &page.scenario, &[format!("{key}={value}")]));
            }
        }
    }
}

#[test]
fn pages_stand_where_their_runs_come() {
    for lesson in shipped().lessons() {
        let mut lab = Lab::new();
        for file in &lesson.scenarios {
            let run = lab.run(&scenario(lesson, &file.name, &[])).expect("a run");
            for page in lesson.pages.iter().filter(|page| page.scenario == file.name) {
                let Some(stop) = &page.stop else { continue };
                let position = stop.position(run.session.program(), run.session.trace());
                assert!(position.is_some(), "{}, {}: {stop:?}", lesson.name, page.title);
            }
        }
    }
}

/// Lesson, scenario, settings, and what a page says about the run.
const CLAIMS: &[(&str, &str, &[&str], &str)] = &[
    ("2", "scenario.toml", &[], "163.29 us, equal, most sent 1.5"),
    ("2", "slow.toml", &[], "653.16 us, equal, most sent 1.5"),
    ("2", "star.toml", &[], "635.15 us, equal, most sent 3"),
    ("2", "scenario.toml", &["collective.ranks=2"], "106.86 us, equal, most sent 1"),
    ("2", "scenario.toml", &["collective.ranks=8"], "197.51 us, equal, most sent 1.75"),
    ("2", "small.toml", &[], "14.73 us, equal, most sent 1.75"),
    ("2", "small.toml", &["collective.ranks=4"], "6.62 us, equal, most sent 1.5"),
    ("2", "small.toml", &["collective.ranks=2"], "2.41 us, equal, most sent 1"),
    ("2", "small.toml", &["collective.algorithm=tree"], "12.69 us, equal, most sent 3"),
    ("2", "small.toml", &["collective.algorithm=star"], "19.74 us, equal, most sent 7"),
    ("2", "small.toml", &["collective.bytes=1048576"], "197.51 us, equal, most sent 1.75"),
    ("2", "small.toml", &["collective.bytes=1048576", "collective.algorithm=tree"], "952.72 us, equal, most sent 3"),
    ("4", "scenario.toml", &[], "5 buckets"),
    ("4", "scenario.toml", &["data_parallel.bucket_mib=25"], "2 buckets, last 850.5 KiB of 914.5 KiB"),
    ("4", "scenario.toml", &["data_parallel.bucket_mib=0.1"], "8 buckets"),
    ("4", "gpt2.toml", &[], "13 buckets, last 168.27 MiB of 474.7 MiB"),
    ("4", "gpt2.toml", &["model.parameter_dtype=bf16"], "7 buckets, last 97.66 MiB of 237.35 MiB"),
    ("4", "skip.toml", &[], "deadlocked, r0 waits for r1"),
    ("4", "wrong.toml", &[], "wrong, all-reduce bucket1, loss falls"),
    ("10", "scenario.toml", &[], "96u, equal"),
    ("10", "two.toml", &[], "24u, equal, peaks 1 1 1 1"),
    ("10", "two.toml", &["batch.micro_batches=8"], "96u, equal"),
    ("10", "gpipe.toml", &[], "33u, equal, peaks 8 8 8 8"),
    ("10", "gpipe.toml", &["batch.micro_batches=16"], "57u, equal, peaks 16 16 16 16"),
    ("10", "slow.toml", &[], "57u, equal"),
    ("11", "scenario.toml", &[], "33u, equal, peaks 4 3 2 1"),
    ("11", "gpipe.toml", &[], "33u, equal"),
    ("11", "scenario.toml", &["batch.micro_batches=16"], "57u, equal"),
    ("11", "scenario.toml", &["batch.micro_batches=32"], "105u, equal, peaks 4 3 2 1"),
    ("11", "scenario.toml", &["parallel.pipeline=8"], "45u, equal, peaks 8 7 6 5 4 3 2 1"),
    ("11", "scenario.toml", &["parallel.pipeline=8", "batch.micro_batches=32", "hardware.backward_weight=0"], "78u, equal"),
    ("11", "deadlock.toml", &[], "deadlocked, r0 r1"),
    ("11", "deadlock.toml", &["pipeline.p2p=pair-fifo"], "deadlocked, r0 r1"),
    ("11", "deadlock.toml", &["pipeline.p2p=rank-fifo"], "deadlocked, r0 r1"),
    ("11", "deadlock.toml", &["pipeline.p2p=edge-fifo"], "15u, equal"),
    ("11", "deadlock.toml", &["pipeline.schedule=gpipe"], "15u, equal"),
];

#[test]
fn what_pages_say_is_what_runs_give() {
    let library = shipped();
    let mut lab = Lab::new();
    let mut wrong = Vec::new();
    for (name, file, set, claim) in CLAIMS {
        let lesson = library.find(name).expect("a shipped lesson");
        let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
        let run = lab.run(&scenario(lesson, file, &set)).expect("a run");
        let facts = facts(&run);
        let missing: Vec<&str> = claim.split(", ").filter(|fact| !facts.iter().any(|known| known == fact)).collect();
        if !missing.is_empty() {
            wrong.push(format!("{name} {file} {set:?}: {missing:?} is not among {facts:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What can be said about a run, in words.
fn facts(run: &Run) -> Vec<String> {
    let (program, trace) = (run.session.program(), run.session.trace());
    let mut facts = vec![trace.outcome.name().to_owned(), trace.clock.show(trace.step_end(program, 0))];
    if let Outcome::Deadlocked(graph) = &trace.outcome {
        facts.extend(
            graph.cycles.iter().map(|cycle| cycle.iter().map(|(rank, _)| rank.to_string()).collect::<Vec<_>>().join(" ")),
        );
        facts.extend(graph.edges.iter().map(|edge| format!("{} waits for {}", edge.rank, edge.on_rank)));
    }
    match &run.verdict {
        Verdict::Equal => facts.push("equal".to_owned()),
        Verdict::Wrong { first_difference, .. } => {
            facts.extend(["wrong".to_owned(), head(program, first_difference.op).to_string()]);
        }
        _ => {}
    }
    facts.extend(buckets(run));
    facts.push(most_sent(run));
    facts.push(peaks(run));
    if run.losses.last() < run.losses.first() {
        facts.push("loss falls".to_owned());
    }
    facts
}

/// The number of a step's buckets; the last one and all together.
fn buckets(run: &Run) -> Vec<String> {
    let collectives = &run.session.program().collectives;
    let sizes: Vec<_> = collectives.iter().filter(|c| c.step == 0 && c.label.starts_with("bucket")).map(|c| c.bytes).collect();
    let Some(last) = sizes.last() else { return Vec::new() };
    let all: ranklab::base::Bytes = sizes.iter().copied().sum();
    vec![format!("{} buckets", sizes.len()), format!("last {last} of {all}")]
}

/// What the rank that sends most sends, in payloads of a bare collective.
fn most_sent(run: &Run) -> String {
    let program = run.session.program();
    let sent = |rank: Rank| -> u64 {
        let sends = program.order[rank.index()].iter().map(|&op| program.op(op)).filter(|op| matches!(op.kind, OpKind::Send(_)));
        sends.map(|op| program.bytes(op.reads[0]).0).sum()
    };
    let most = (0..program.ranks()).map(|rank| sent(Rank::new(rank))).max().unwrap_or(0);
    let payload = program.collectives.first().map_or(1, |collective| collective.bytes.0.max(1));
    #[expect(clippy::cast_precision_loss, reason = "bytes of a small run")]
    let share = most as f64 / payload as f64;
    format!("most sent {share}")
}

/// Per rank, the most micro-batches of the first step between the start of their F and the end of their B.
fn peaks(run: &Run) -> String {
    let (program, trace) = (run.session.program(), run.session.trace());
    let peak = |rank: usize| {
        let mut held: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for &op in &program.order[rank] {
            let origin = program.op(op).origin;
            let (Some(slot), Some(times), 0) = (origin.slot, trace.times(op), origin.step) else { continue };
            let (_, end) = held.entry(slot.micro_batch).or_insert((times.start.0, 0));
            *end = times.end.0;
        }
        let at = |time: u64| held.values().filter(|(start, end)| (*start..*end).contains(&time)).count();
        held.values().map(|(start, _)| at(*start)).max().unwrap_or(0).to_string()
    };
    format!("peaks {}", (0..program.ranks()).map(peak).collect::<Vec<_>>().join(" "))
}
