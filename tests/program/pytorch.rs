//! What PyTorch 2.15 makes of schedules: its own orders, its loader, its dry run, read with a reader that shares no code with ours.
//!
//! `pytorch-2.15.txt` was made by PyTorch itself. Messages stand where it puts them in a schedule whose stages are not sharded.

use std::collections::{BTreeMap, BTreeSet};

use ranklab::program::plan::Plan;
use ranklab::program::sheet::Sheet;
use ranklab::schedule::{Placement, SCHEDULES, Schedule, Size};

const ORDERS: &str = include_str!("pytorch-2.15.txt");

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Every order that PyTorch makes is ours, cell by cell; what it refuses is refused.
#[test]
fn orders_are_those_of_pytorch() {
    let (mut same, mut wrong) = (0, Vec::new());
    for line in ORDERS.lines().filter(|line| !line.starts_with('#')) {
        let [name, ranks, chunks, micro_batches, hash] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let [ranks, chunks, micro_batches] = [ranks, chunks, micro_batches].map(|number| number.parse().expect("a number"));
        let schedule = Schedule::find(name).expect("a schedule");
        let size = Size { ranks, chunks, segments: 1, micro_batches };
        let made = schedule.check(size).is_ok().then(|| format!("{:016x}", fnv(&(schedule.plan)(size).to_string())));
        if made.as_deref().unwrap_or("refused") == hash {
            same += 1;
        } else {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), same + wrong.len());
    assert!(same > 500, "{same}");
}

/// An action as PyTorch's reader takes it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Act {
    stage: u32,
    kind: &'static str,
    micro_batch: Option<u32>,
}

/// The types in the order in which PyTorch's pattern tries them: the first that fits is taken, and what follows its number is dropped.
const KINDS: [&str; 14] = [
    "WAIT_REDUCE_GRAD",
    "WAIT_SEND_F",
    "WAIT_SEND_B",
    "REDUCE_GRAD",
    "UNSHARD",
    "RESHARD",
    "SEND_F",
    "RECV_F",
    "SEND_B",
    "RECV_B",
    "F",
    "I",
    "B",
    "W",
];

/// The actions of a cell: one, or two that overlap.
type Cells = Vec<Act>;

fn number(text: &str) -> (Option<u32>, &str) {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

fn act(cell: &str) -> Act {
    let (stage, rest) = number(cell);
    let kind = KINDS.into_iter().find(|kind| rest.starts_with(kind)).unwrap_or_else(|| panic!("no action: {cell}"));
    let (micro_batch, dropped) = number(&rest[kind.len()..]);
    assert_eq!(dropped, "", "PyTorch would drop this of {cell}");
    Act { stage: stage.unwrap_or_else(|| panic!("no stage: {cell}")), kind, micro_batch }
}

fn rows(text: &str) -> Vec<Vec<Cells>> {
    let cell = |cell: &str| match cell.strip_prefix('(') {
        Some(pair) => pair.strip_suffix(")OVERLAP_F_B").expect("a pair").split(';').map(act).collect(),
        None => vec![act(cell)],
    };
    text.lines().map(|row| row.split(',').map(cell).collect()).collect()
}

/// `_validate_schedule`: the stages' ranks.
fn validate(rows: &[Vec<Cells>], stages: u32, micro_batches: usize) -> BTreeMap<u32, usize> {
    let mut homes = BTreeMap::new();
    let mut done: BTreeMap<(u32, &str), BTreeSet<u32>> = BTreeMap::new();
    for (rank, row) in rows.iter().enumerate() {
        for act in row.iter().flatten() {
            let has = |kind| done.get(&(act.stage, kind)).is_some_and(|set| act.micro_batch.is_some_and(|m| set.contains(&m)));
            match act.kind {
                "B" | "I" => assert!(has("F"), "{act:?} before its F"),
                "W" => assert!(has("I"), "{act:?} before its I"),
                _ => {}
            }
            assert!(act.stage < stages);
            done.entry((act.stage, act.kind)).or_default().extend(act.micro_batch);
            assert_eq!(*homes.entry(act.stage).or_insert(rank), rank, "{act:?} stands on a second rank");
        }
    }
    let count = |stage, kind| done.get(&(stage, kind)).map_or(0, BTreeSet::len);
    for stage in 0..stages {
        assert_eq!((count(stage, "F"), count(stage, "I")), (micro_batches, count(stage, "W")));
        assert_eq!(count(stage, "B") + count(stage, "I"), micro_batches);
    }
    homes
}

/// `_validate_send_waits`: every send has one wait behind it.
fn validate_waits(rows: &[Vec<Cells>]) {
    for row in rows {
        let (mut pending, mut known) = (BTreeSet::new(), BTreeSet::new());
        for act in row.iter().flatten() {
            let key = |kind: &str| (kind.to_owned(), act.stage, act.micro_batch.expect("a micro-batch"));
            if act.kind.starts_with("SEND") {
                assert!(known.insert(key(act.kind)) && pending.insert(key(act.kind)), "{act:?} twice");
            } else if let Some(kind) = act.kind.strip_prefix("WAIT_").filter(|kind| kind.starts_with("SEND")) {
                assert!(pending.remove(&key(kind)), "{act:?} has no pending send");
            }
        }
        assert!(pending.is_empty(), "never waited for: {pending:?}");
    }
}

/// `_add_send_recv` and `_add_wait_send`: a compute-only sheet with its messages, as PyTorch adds them.
fn lowered(rows: &[Vec<Cells>], homes: &BTreeMap<u32, usize>) -> Vec<Vec<Cells>> {
    let last = homes.last_key_value().map_or(0, |(&stage, _)| stage);
    let mut made: Vec<Vec<Cells>> = vec![Vec::new(); rows.len()];
    let mut known: Vec<BTreeSet<Act>> = vec![BTreeSet::new(); rows.len()];
    let mut next = vec![0; rows.len()];
    while (0..rows.len()).any(|rank| next[rank] < rows[rank].len()) {
        let before = next.clone();
        for rank in 0..rows.len() {
            let Some(cell) = rows[rank].get(next[rank]) else { continue };
            let of = |stage, kind, act: &Act| known[rank].contains(&Act { stage, kind, ..*act });
            let ready = |act: &Act| match act.kind {
                "F" if act.stage > 0 => of(act.stage, "RECV_F", act) || of(act.stage - 1, "F", act),
                "B" | "I" if act.stage < last => {
                    of(act.stage, "RECV_B", act) || of(act.stage + 1, "I", act) || of(act.stage + 1, "B", act)
                }
                _ => true,
            };
            if !cell.iter().all(ready) {
                continue;
            }
            next[rank] += 1;
            made[rank].push(cell.clone());
            for act in cell {
                known[rank].insert(*act);
                let (there, send, receive) = match act.kind {
                    "F" if act.stage < last => (act.stage + 1, "SEND_F", "RECV_F"),
                    "B" | "I" if act.stage > 0 => (act.stage - 1, "SEND_B", "RECV_B"),
                    _ => continue,
                };
                if homes[&there] != rank {
                    let receive = Act { stage: there, kind: receive, ..*act };
                    made[rank].push(vec![Act { kind: send, ..*act }]);
                    made[homes[&there]].push(vec![receive]);
                    known[homes[&there]].insert(receive);
                }
            }
        }
        assert_ne!(next, before, "malformed compute schedule");
    }
    made.iter().map(|row| with_waits(row)).collect()
}

fn with_waits(row: &[Cells]) -> Vec<Cells> {
    let mut pending: Vec<Act> = Vec::new();
    let mut made = Vec::new();
    let wait = |send: Act| vec![Act { kind: if send.kind == "SEND_F" { "WAIT_SEND_F" } else { "WAIT_SEND_B" }, ..send }];
    for cell in row {
        made.push(cell.clone());
        pending.extend(cell.iter().filter(|act| act.kind.starts_with("SEND")));
        for back in cell.iter().filter(|act| matches!(act.kind, "B" | "I")) {
            if let Some(place) = pending.iter().position(|send| *send == Act { kind: "SEND_F", ..*back }) {
                made.push(wait(pending.remove(place)));
            }
        }
    }
    made.extend(pending.into_iter().map(wait));
    made
}

/// `_simulate_comms_compute`: sends are buffered; a schedule without progress is an error. It knows no pairs.
fn simulate(rows: &[Vec<Cells>], homes: &BTreeMap<u32, usize>) {
    let last = homes.last_key_value().map_or(0, |(&stage, _)| stage);
    let mut done: BTreeSet<Act> = BTreeSet::new();
    let mut next = vec![0; rows.len()];
    while (0..rows.len()).any(|rank| next[rank] < rows[rank].len()) {
        let before = next.clone();
        for (rank, row) in rows.iter().enumerate() {
            let Some(act) = row.get(next[rank]).map(|cell| cell[0]) else { continue };
            let has = |stage: u32, kind| done.contains(&Act { stage, kind, ..act });
            let ready = match act.kind {
                "F" => act.stage == 0 || has(act.stage, "RECV_F") || has(act.stage - 1, "F"),
                "B" | "I" => act.stage == last || has(act.stage, "RECV_B") || has(act.stage + 1, "I") || has(act.stage + 1, "B"),
                "SEND_F" => has(act.stage, "F"),
                "SEND_B" => has(act.stage, "I") || has(act.stage, "B"),
                "RECV_F" => has(act.stage - 1, "SEND_F"),
                "RECV_B" => has(act.stage + 1, "SEND_B"),
                "WAIT_SEND_F" => has(act.stage, "SEND_F") && has(act.stage + 1, "RECV_F"),
                "WAIT_SEND_B" => has(act.stage, "SEND_B") && has(act.stage - 1, "RECV_B"),
                "W" => true,
                kind => panic!("unsupported action type {kind}"),
            };
            if ready {
                done.insert(act);
                next[rank] += 1;
            }
        }
        assert_ne!(next, before, "the schedule is not progressing");
    }
}

/// Loads a plan in both formats.
fn load(plan: &Plan, stages: u32, micro_batches: usize, what: &str) {
    let alone = rows(&plan.to_string());
    let homes = validate(&alone, stages, micro_batches);
    let compute = |act: &Act| matches!(act.kind, "F" | "B" | "I" | "W");
    assert!(alone.iter().flatten().flatten().all(compute), "{what}: a compute-only sheet has compute actions alone");
    let sheet = Sheet::with_messages(plan).unwrap_or_else(|errors| panic!("{what}: {errors:?}"));
    let whole = rows(&sheet.to_string());
    assert_eq!(validate(&whole, stages, micro_batches), homes, "{what}");
    validate_waits(&whole);
    assert_eq!(lowered(&alone, &homes), whole, "{what}: PyTorch's lowering and ours");
    if !whole.iter().flatten().any(|cell| cell.len() > 1) {
        simulate(&whole, &homes);
    }
}

#[test]
fn pytorch_loads_what_is_exported() {
    let mut loaded = 0;
    for schedule in SCHEDULES.iter().filter(|schedule| schedule.placement != Placement::TwoWay) {
        for (ranks, micro_batches) in [(1, 2), (2, 4), (3, 6), (4, 8), (4, 12), (5, 10), (8, 16)] {
            let chunks = schedule.placement.usual_chunks();
            let size = Size { ranks, chunks, segments: schedule.usual_segments(), micro_batches };
            if schedule.check(size).is_err() {
                continue;
            }
            let pieces = (micro_batches * size.segments) as usize;
            load(&(schedule.plan)(size), size.stages(), pieces, &format!("{} {size:?}", schedule.name));
            loaded += 1;
        }
    }
    assert!(loaded > 80, "{loaded}");
}
