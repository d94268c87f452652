//! Every schedule against its closed forms: makespan, idle time and peaks of what ran, for all small sizes.

use ranklab::observe::Metrics;
use ranklab::program::check::check;
use ranklab::program::plan::{Pass, Slot};
use ranklab::program::trace::Outcome;
use ranklab::schedule::{SCHEDULES, Schedule, Size, Times};

use crate::support;

/// Ranks, micro-batches and chunks: p, m, v.
type Sizes = (u32, u32, u32);

/// What a run must show. Times in slots; peaks of each rank from its F to the end of I or B, and to the end of W.
#[derive(Debug, PartialEq)]
struct Shown {
    makespan: u32,
    idle: u32,
    to_input: Vec<u32>,
    to_weight: Vec<u32>,
}

fn text(schedule: &str, (p, m, v): Sizes, more: &str) -> String {
    let stages = p * v;
    format!(
        "model = {{ layers = {stages}, hidden = 8, heads = 2, sequence = 4, vocab = 11 }}\nbatch = {{ micro_batches = {m}, steps = 2 }}\n\
         parallel.pipeline = {p}\nnumerics.values = \"shape\"\npipeline.schedule = \"{schedule}\"\npipeline.chunks = {v}\n{more}"
    )
}

/// Runs shapes alone.
fn metrics(schedule: &str, sizes: Sizes, more: &str) -> Metrics {
    let run = support::run(&text(schedule, sizes, more));
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{schedule} {sizes:?}");
    support::metrics(&run)
}

/// What `metrics` says, in slots of one tick.
fn shown(metrics: &Metrics) -> Shown {
    let slots = |ticks: ranklab::base::Ticks| u32::try_from(ticks.0).expect("a short run");
    let idle = slots(metrics.ranks[0].idle);
    assert!(metrics.ranks.iter().all(|rank| slots(rank.idle) == idle), "every rank works as long as the others");
    Shown {
        makespan: slots(metrics.makespan),
        idle,
        to_input: metrics.ranks.iter().map(|rank| rank.peak_in_flight).collect(),
        to_weight: metrics.ranks.iter().map(|rank| rank.peak_in_flight_to_weight).collect(),
    }
}

/// A row of the published table: when it holds, how long a rank is idle, and what rank r holds.
struct Row {
    schedule: &'static str,
    holds: fn(Sizes) -> bool,
    idle: fn(Sizes) -> u32,
    to_input: fn(Sizes, u32) -> u32,
    to_weight: fn(Sizes, u32) -> u32,
}

const TABLE: [Row; 13] = [
    Row {
        schedule: "naive",
        holds: |(.., v)| v == 1,
        idle: |(p, m, _)| 3 * m * (p - 1),
        to_input: |_, _| 1,
        to_weight: |_, _| 1,
    },
    Row {
        schedule: "gpipe",
        holds: |(.., v)| v == 1,
        idle: |(p, ..)| 3 * (p - 1),
        to_input: |(_, m, _), _| m,
        to_weight: |(_, m, _), _| m,
    },
    Row {
        schedule: "1f1b",
        holds: |(.., v)| v == 1,
        idle: |(p, ..)| 3 * (p - 1),
        to_input: |(p, m, _), r| m.min(p - r),
        to_weight: |(p, m, _), r| m.min(p - r),
    },
    Row {
        schedule: "looped-bfs",
        holds: |_| true,
        idle: |(p, ..)| 3 * (p - 1),
        to_input: |(_, m, v), _| m * v,
        to_weight: |(_, m, v), _| m * v,
    },
    Row {
        schedule: "interleaved",
        holds: |(p, m, _)| m % p == 0,
        idle: |(p, ..)| 3 * (p - 1),
        to_input: |(p, m, v), r| (m * v).min((v - 1) * p + 2 * (p - 1 - r) + 1),
        to_weight: |(p, m, v), r| (m * v).min((v - 1) * p + 2 * (p - 1 - r) + 1),
    },
    Row {
        schedule: "zb-h1",
        holds: |(p, m, v)| v == 1 && m >= 2 * p,
        idle: |(p, ..)| p - 1,
        to_input: |(p, ..), r| p - r,
        to_weight: |(p, ..), _| p,
    },
    Row {
        schedule: "zb-h2",
        holds: |(p, m, v)| v == 1 && m >= 2 * p - 1,
        idle: |(p, ..)| p - 1,
        to_input: |(p, ..), r| 2 * (p - r) - 1,
        to_weight: |(p, ..), _| 2 * p - 1,
    },
    Row {
        schedule: "zb1p",
        holds: |(p, m, _)| m % p == 0,
        idle: |(p, ..)| p - 1,
        to_input: |(p, _, v), r| v * p - r,
        to_weight: |(p, _, v), _| v * p,
    },
    Row {
        schedule: "zbv",
        holds: |(p, m, v)| v == 2 && m >= 2 * p - 1,
        idle: |(p, ..)| p - 1,
        to_input: |(p, ..), _| 2 * p,
        to_weight: |(p, ..), _| 2 * p,
    },
    Row {
        schedule: "chimera",
        holds: |(p, m, v)| v == 1 && m == p,
        idle: |(p, ..)| 2 * (p - 2),
        to_input: |(p, ..), r| (p / 2 + 1 + r.min(p - 1 - r)).min(p),
        to_weight: |(p, ..), r| (p / 2 + 1 + r.min(p - 1 - r)).min(p),
    },
    Row {
        schedule: "dualpipe",
        holds: |(p, m, v)| v == 1 && m >= 2 * p,
        idle: |(p, ..)| 2 * (p / 2 - 1),
        to_input: |(p, ..), _| p + 1,
        to_weight: |(p, ..), _| p + 1,
    },
    Row {
        schedule: "dualpipev",
        holds: |(p, m, v)| v == 2 && m >= 2 * p,
        idle: |(p, ..)| 2 * (p - 1),
        to_input: |(p, ..), _| 2 * p + 1,
        to_weight: |(p, ..), _| 2 * p + 1,
    },
    // In the published table the first ZBV row needs 2p-1 micro-batches; with fewer a rank holds what it can.
    Row {
        schedule: "zbv",
        holds: |(p, m, v)| v == 2 && m == p && p == 4,
        idle: |_| 6,
        to_input: |_, r| 5 + r,
        to_weight: |_, r| 5 + r,
    },
];

#[test]
fn schedules_follow_the_published_table() {
    let mut rows = 0;
    for row in &TABLE {
        for sizes in sizes().filter(|&sizes| (row.holds)(sizes)) {
            let (p, m, v) = sizes;
            let idle = (row.idle)(sizes);
            let expected = Shown {
                makespan: 3 * m * v + idle,
                idle,
                to_input: (0..p).map(|r| (row.to_input)(sizes, r)).collect(),
                to_weight: (0..p).map(|r| (row.to_weight)(sizes, r)).collect(),
            };
            assert_eq!(shown(&metrics(row.schedule, sizes, "")), expected, "{} {sizes:?}", row.schedule);
            rows += 1;
        }
    }
    assert!(rows > 100, "{rows} rows");
}

fn sizes() -> impl Iterator<Item = Sizes> {
    let rounds = [2, 4, 8].into_iter().flat_map(|p| [p, 2 * p, 4 * p].map(|m| (p, m)));
    rounds.flat_map(|(p, m)| [1, 2, 3].map(|v| (p, m, v)))
}

#[test]
fn selected_sizes_show_the_published_numbers() {
    #[track_caller]
    fn check(schedule: &str, sizes: Sizes, makespan: u32, idle: u32, peaks: [&[u32]; 2]) {
        let [to_input, to_weight] = peaks.map(<[u32]>::to_vec);
        assert_eq!(shown(&metrics(schedule, sizes, "")), Shown { makespan, idle, to_input, to_weight }, "{schedule} {sizes:?}");
    }
    check("1f1b", (4, 8, 1), 33, 9, [&[4, 3, 2, 1]; 2]);
    check("gpipe", (4, 8, 1), 33, 9, [&[8; 4]; 2]);
    check("interleaved", (4, 8, 2), 57, 9, [&[11, 9, 7, 5]; 2]);
    check("interleaved", (4, 8, 4), 105, 9, [&[19, 17, 15, 13]; 2]);
    check("interleaved", (4, 10, 2), 69, 9, [&[12, 10, 8, 6]; 2]);
    check("interleaved", (4, 3, 2), 30, 12, [&[6, 6, 6, 4]; 2]);
    check("interleaved", (4, 6, 2), 45, 9, [&[12, 11, 9, 7]; 2]);
    check("interleaved", (8, 16, 2), 117, 21, [&[23, 21, 19, 17, 15, 13, 11, 9]; 2]);
    check("zb-h1", (4, 8, 1), 27, 3, [&[4, 3, 2, 1], &[4; 4]]);
    check("zb-h2", (4, 8, 1), 27, 3, [&[7, 5, 3, 1], &[7; 4]]);
    check("zb1p", (4, 8, 2), 51, 3, [&[8, 7, 6, 5], &[8; 4]]);
    check("zbv", (4, 8, 2), 51, 3, [&[8; 4]; 2]);
    check("zbv", (4, 4, 2), 30, 6, [&[5, 6, 7, 8]; 2]);
    check("dualpipe", (8, 20, 1), 66, 6, [&[9; 8]; 2]);
    check("dualpipev", (4, 10, 2), 66, 6, [&[9; 4]; 2]);
    check("chimera", (4, 4, 1), 16, 4, [&[3, 4, 4, 3]; 2]);
}

/// In units of segments: ramps of one each, and a rank holds those of a whole sequence and one for every rank behind it.
#[test]
fn segments_shorten_the_ramps() {
    for (p, m, k) in [(2, 2, 2), (4, 4, 2), (4, 8, 4), (8, 8, 2), (8, 16, 4), (3, 5, 4), (4, 1, 4), (1, 2, 4)] {
        let metrics = metrics("seq1f1b", (p, m, 1), &format!("pipeline.segments = {k}"));
        let peaks: Vec<u32> = (0..p).map(|r| (m * k).min(p + k - 1 - r)).collect();
        let expected = Shown { makespan: 3 * (m * k + p - 1), idle: 3 * (p - 1), to_input: peaks.clone(), to_weight: peaks };
        assert_eq!(shown(&metrics), expected, "p{p} m{m} k{k}");
    }
}

/// What the authors' own scheduler reaches; ours must be no longer and hold no more.
#[test]
fn schedules_made_of_blocks_are_as_good_as_published() {
    #[track_caller]
    fn check(schedule: &str, (p, m): (u32, u32), makespan: u32, peak: u32) {
        let shown = shown(&metrics(schedule, (p, m, 2), ""));
        assert!(shown.makespan <= makespan, "{schedule} p{p} m{m}: {} > {makespan}", shown.makespan);
        assert!(shown.to_weight.iter().all(|&held| held <= peak), "{schedule} p{p} m{m}: {:?} > {peak}", shown.to_weight);
    }
    check("v-half", (4, 12), 77, 6);
    check("v-half", (4, 24), 149, 6);
    check("v-half", (6, 24), 155, 8);
    check("v-half", (8, 32), 209, 10);
    check("v-min", (4, 12), 83, 4);
    check("v-min", (4, 24), 155, 4);
    check("v-min", (6, 24), 161, 6);
    check("v-min", (8, 32), 219, 8);
}

/// However many micro-batches there are, a rank holds what the schedule promises.
#[test]
fn schedules_made_of_blocks_keep_to_their_memory() {
    for p in 1..17 {
        for (name, room) in [("v-half", 2 * (p / 2) + 2), ("v-min", 2 * ((p + 1) / 3) + 2)] {
            let schedule = Schedule::find(name).expect("a schedule");
            for micro_batches in [1, 2, 3, p, 2 * p + 1, 5 * p] {
                let plan = (schedule.plan)(Size { ranks: p, chunks: 2, segments: 1, micro_batches });
                for row in &plan.rows {
                    assert_eq!(row.len(), 6 * micro_batches as usize, "{name} p{p} m{micro_batches}");
                    let change = |slot: Slot| i32::from(slot.pass == Pass::F) - i32::from(slot.pass == Pass::W);
                    let held = row.iter().flat_map(|cell| cell.slots()).scan(0, |held, slot| {
                        *held += change(slot);
                        Some(*held)
                    });
                    assert!(held.max() <= i32::try_from(room).ok(), "{name} p{p} m{micro_batches} holds more than {room}");
                }
            }
        }
    }
}

#[test]
fn chimera_with_equal_passes_has_its_published_bubble() {
    for p in [2, 4, 6, 8] {
        let metrics = metrics("chimera", (p, p, 1), "hardware.backward_weight = 0");
        assert_eq!(shown(&metrics).idle, p - 2, "p = {p}");
    }
}

/// Naive, GPipe and 1F1B, interleaved with a rank's slot divided among its chunks, and what zero bubbles make of it.
#[test]
fn the_ladder_of_four_ranks_and_eight_micro_batches() {
    #[track_caller]
    fn check(schedule: &str, v: u32, more: &str, makespan: &str, period: &str) {
        let run = support::run(&text(schedule, (4, 8, v), more));
        let record = run.record();
        let run = record.run();
        let show = |ticks| run.trace.clock.show(ticks);
        let shown = [run.makespan(), run.step_period().expect("two steps")].map(show);
        assert_eq!(shown, [makespan, period], "{schedule} {more}");
    }
    check("naive", 1, "", "96u", "96u");
    check("gpipe", 1, "", "33u", "33u");
    check("1f1b", 1, "", "33u", "33u");
    check("interleaved", 2, "pipeline.chunk_costs = \"split\"", "28.5u", "28.5u");
    check("zb-h1", 1, "", "27u", "27u");
    check("zb-h2", 1, "", "27u", "27u");
    check("zb-h2", 1, "pipeline.barrier = false", "27u", "24u");
    check("zbv", 2, "pipeline.barrier = false\npipeline.chunk_costs = \"split\"", "25.5u", "24u");
}

/// A forward and a backward that run as one may take less than both.
#[test]
fn overlapped_pairs_have_their_own_cost() {
    #[track_caller]
    fn check(costs: &str, makespan: &str) {
        let sheet = "0F0,(0F1;0B0)OVERLAP_F_B,(0F2;0B1)OVERLAP_F_B,0B2\n";
        let overrides: Vec<String> =
            costs.split(' ').chain(["numerics.values=shape", "model.layers=3"]).map(str::to_owned).collect();
        let scenario =
            ranklab::scenario::Scenario::parse("plan.csv", sheet, &overrides).unwrap_or_else(|problems| panic!("{problems}"));
        let run = ranklab::lab::Lab::new().run(&scenario).expect("a run");
        let record = run.record();
        assert_eq!(record.trace.clock.show(record.run().makespan()), makespan, "{costs}");
    }
    check("seed=1", "9u");
    check("hardware.overlapped=2", "7u");
    check("hardware.overlapped=2.5", "8u");
    check("hardware.overlapped=0.25 hardware.forward=0.5", "3u");
    check("hardware.overlapped=4", "11u");
}

/// Wherever theory has a value for a size and its times, a run shows it.
#[test]
fn theory_says_what_runs_show() {
    let mut said = 0;
    for schedule in SCHEDULES {
        for (p, m, v) in
            (1..6).flat_map(|p| [1, p, 2 * p, 3 * p + 1].into_iter().flat_map(move |m| (1..4).map(move |v| (p, m, v))))
        {
            let size = Size { ranks: p, chunks: v, segments: schedule.usual_segments(), micro_batches: m };
            for [forward, input, weight] in [[1, 1, 1], [1, 2, 1], [2, 1, 3], [3, 1, 0]] {
                let all = forward + input + weight;
                let float = |slots: u32| f64::from(slots);
                let times = Times { forward: float(forward), input: float(input), weight: float(weight), overlapped: float(all) };
                let known = schedule.check(size).is_ok().then(|| (schedule.theory.value)(size, times)).flatten();
                let Some(idle) = known else { continue };
                let costs = format!(
                    "hardware = {{ forward = {forward}, backward_input = {input}, backward_weight = {weight}, overlapped = {all} }}"
                );
                let run = support::run(&text(schedule.name, (p, m, v), &costs));
                let record = run.record();
                let makespan = record.trace.clock.in_unit(record.run().makespan());
                let expected = float(m * v * size.segments * all) + idle;
                assert!((makespan - expected).abs() < 1e-9, "{} {size:?} {costs}: {makespan}, not {expected}", schedule.name);
                said += 1;
            }
        }
    }
    assert!(said > 300, "{said}");
}

/// A plan is known by what it is; another order is another plan.
#[test]
fn plans_are_recognised() {
    // The orders of the others are those of 1F1B: with whole sequences, and with all steps as one.
    for schedule in SCHEDULES.iter().filter(|schedule| !schedule.updates.is_asynchronous() && !schedule.segmented) {
        let size = Size { ranks: 4, chunks: schedule.placement.usual_chunks(), segments: 1, micro_batches: 8 };
        let mut plan = (schedule.plan)(size);
        assert_eq!(Schedule::recognise(&plan), Some(schedule));
        plan.rows[0].swap(0, 1);
        assert_eq!(Schedule::recognise(&plan), None, "{}", schedule.name);
    }
}

#[test]
fn zero_bubble_ranks_do_not_pause_in_their_own_span() {
    for (schedule, sizes) in [("zb-h2", (4, 8, 1)), ("zbv", (4, 8, 2)), ("zb-h2", (8, 15, 1)), ("zbv", (3, 5, 2))] {
        let metrics = metrics(schedule, sizes, "");
        assert!(metrics.ranks.iter().all(|rank| rank.idle_in_own_span().0 == 0), "{schedule} {sizes:?}");
    }
}

/// Every schedule, every small size that it takes: the program passes the check, and runs to its end under every semantics that lets a
/// rank compute while its messages wait.
#[test]
fn generated_plans_are_sound_and_never_deadlock() {
    for schedule in SCHEDULES {
        let mut taken = 0;
        for (p, m, v) in (1..6).flat_map(|p| (1..14).flat_map(move |m| (1..4).map(move |v| (p, m, v)))) {
            if schedule.check(Size { ranks: p, chunks: v, segments: schedule.usual_segments(), micro_batches: m }).is_err() {
                continue;
            }
            taken += 1;
            for p2p in ["edge-fifo", "buffered"] {
                let text = text(schedule.name, (p, m, v), &format!("pipeline.p2p = \"{p2p}\""));
                let run = support::run(&text);
                assert_eq!(check(run.session.program()), [], "{text}");
                assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
            }
        }
        assert!(taken >= 8, "{} takes {taken} sizes", schedule.name);
    }
}

/// With one queue for both directions nearly every schedule is stuck: one rank sends an activation, the other a gradient. GPipe is not,
/// as it never does both at a time; around a loop it is stuck where a rank has one queue for all.
#[test]
fn semantics_decide_which_schedules_deadlock() {
    for schedule in SCHEDULES {
        let stuck: &[&str] = match schedule.name {
            "naive" | "gpipe" => &[],
            "looped-bfs" => &["rank-fifo", "blocking"],
            _ => &["pair-fifo", "rank-fifo", "blocking"],
        };
        for p2p in ["buffered", "edge-fifo", "pair-fifo", "rank-fifo", "blocking"] {
            let text = text(schedule.name, (4, 8, schedule.placement.usual_chunks()), &format!("pipeline.p2p = \"{p2p}\""));
            let outcome = support::run(&text).session.trace().outcome.name();
            assert_eq!(outcome == "deadlocked", stuck.contains(&p2p), "{} {p2p}: {outcome}", schedule.name);
        }
    }
}

/// The table that `ranklab list deadlocks` prints says the same of every schedule.
#[test]
fn the_table_of_deadlocks_is_what_runs_do() {
    let table = ranklab::lab::semantics::table().expect("shapes have no kernels");
    assert_eq!(table.len(), SCHEDULES.len());
    for row in table {
        let p2p = ranklab::base::PointToPoint::NAMES;
        assert_eq!(row.completes.len(), p2p.len(), "{}", row.schedule);
        assert_eq!(row.completes[..2], [true, true], "{}", row.schedule);
        assert_eq!(row.completes[4], row.why.is_empty(), "{}: {}", row.schedule, row.why);
        assert_eq!(row.completes[4], matches!(row.schedule, "naive" | "gpipe"), "{}", row.schedule);
    }
}

/// The circle in which an interleaved schedule on eight ranks is known to hang where all of a rank's messages take one queue.
#[test]
fn a_known_circle_is_found() {
    let run = support::run(&text("interleaved", (8, 16, 2), "pipeline.p2p = \"rank-fifo\""));
    let Outcome::Deadlocked(graph) = &run.session.trace().outcome else { panic!("it deadlocks") };
    let heads: Vec<String> = graph.edges.iter().map(|edge| support::head_of(&run, edge.op)).collect();
    let expected: Vec<String> =
        (0..8).map(|stage| format!("send x{}.{} -> r{}", stage + 1, 7 - stage, (stage + 1) % 8)).collect();
    assert_eq!(heads, expected);
}

/// A schedule that refuses a size takes the one that it names instead.
#[test]
fn a_refused_size_has_a_legal_neighbour() {
    let mut refused = 0;
    for schedule in SCHEDULES {
        for (p, m, v) in (1..7).flat_map(|p| (1..18).flat_map(move |m| (1..4).map(move |v| (p, m, v)))) {
            let mut size = Size { ranks: p, chunks: v, segments: schedule.usual_segments(), micro_batches: m };
            let mut tries = 0;
            while let Err(illegal) = schedule.check(size) {
                use ranklab::schedule::Measure;
                refused += 1;
                tries += 1;
                match illegal.what {
                    Measure::Ranks => size.ranks = illegal.nearest,
                    Measure::Chunks => size.chunks = illegal.nearest,
                    Measure::Segments => size.segments = illegal.nearest,
                    Measure::MicroBatches => size.micro_batches = illegal.nearest,
                }
                assert!(tries < 5, "{}: {illegal:?}", schedule.name);
            }
        }
    }
    assert!(refused > 500, "{refused}");
    assert!(Schedule::find("gpipe").is_some() && Schedule::find("GPipe").is_none());
}
