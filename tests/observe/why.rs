//! Why ranks wait: chains end at a cause, the critical path is as long as the run.

use super::scenes::{self, Scene, pipeline};
use ranklab::base::Ticks;
use ranklab::base::settings::PointToPoint;
use ranklab::observe::explain::{IdleKind, idle};
use ranklab::observe::why::{End, chain, critical_path};
use ranklab::observe::{Lanes, Run};
use ranklab::program::trace::Outcome;

#[test]
fn the_critical_path_is_as_long_as_the_step() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let path = critical_path(&run, 0);
        assert_eq!(path.computing + path.communicating, run.makespan(), "{name}");
        assert!(path.ops.is_sorted_by_key(|&op| run.times(op).map(|times| times.start)), "{name}");
    }
}

#[test]
fn the_critical_path_reads_as_a_walk_over_ranks() {
    let check = |schedule, p, m, expected| {
        let session = Scene { steps: 1, ..pipeline(schedule, p, m) }.record();
        let run = Run::new(session.program(), session.trace());
        assert_eq!(critical_path(&run, 0).sentence(&run), expected);
    };
    check("1f1b", 4, 3, "r0 F0 > r1 F0 > r2 F0 > r3 F0 B0 F1 B1 F2 B2 > r2 B2 > r1 B2 > r0 B2");
    check("naive", 3, 2, "r0 F0 > r1 F0 > r2 F0 B0 > r1 B0 > r0 B0 F1 > r1 F1 > r2 F1 B1 > r1 B1 > r0 B1");
}

#[test]
fn every_gap_has_a_chain_to_its_cause() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        for rank in Lanes::new(&run).ranks {
            for span in rank.compute.spans.iter().filter(|span| span.kind.is_idle()) {
                let op = rank.compute.ops_of(span)[0];
                let chain = chain(&run, op, span.start);
                assert!(!chain.steps.is_empty(), "{name}: {op} waited");
                assert!(chain.steps.is_sorted_by_key(|step| std::cmp::Reverse(step.until)), "{name}: {:?}", chain.steps);
                assert_eq!(chain.steps[0].until, run.times(op).map(|times| times.start), "{name}");
                let root = run.times(chain.root).expect("it ran");
                assert!(root.start <= span.start || chain.end == End::Free, "{name}: {chain:?}");
            }
        }
    }
}

#[test]
fn a_chain_crosses_ranks_in_words() {
    let session = Scene { steps: 1, ..pipeline("1f1b", 3, 4) }.record();
    let run = Run::new(session.program(), session.trace());
    let lanes = Lanes::new(&run);
    let row = &lanes.ranks[0].compute;
    let gap = row.spans.iter().find(|span| span.kind.is_idle()).expect("rank 0 waits for its first gradient");
    let chain = chain(&run, row.ops_of(gap)[0], gap.start);
    assert_eq!(chain.brief(&run), "r0 B0 waits for g0 of r1, which waits for g0 of r2, where B0 was running");
    insta::assert_snapshot!(chain.sentences(&run).to_string());
}

#[test]
fn a_deadlock_is_a_circle() {
    let session = Scene { p2p: PointToPoint::Blocking, ..pipeline("1f1b", 2, 4) }.record();
    let run = Run::new(session.program(), session.trace());
    let Outcome::Deadlocked(graph) = &run.trace.outcome else { panic!("blocking sends deadlock") };
    assert_eq!(graph.cycles.len(), 1);
    let stuck = chain(&run, graph.edges[0].op, Ticks(u64::MAX));
    assert_eq!(stuck.end, End::Circle);
    assert_eq!(stuck.brief(&run), "r0 a1 waits for a1 of r1, which waits for g0 of r0: a circle");
    insta::assert_snapshot!(stuck.sentences(&run).to_string());
}

#[test]
fn a_missing_member_is_named() {
    let (_, session) = scenes::all().into_iter().find(|(name, _)| name.starts_with("skipped")).expect("it is there");
    let run = Run::new(session.program(), session.trace());
    let Outcome::Deadlocked(graph) = &run.trace.outcome else { panic!("the others wait for rank 1") };
    for edge in &graph.edges {
        let chain = chain(&run, edge.op, Ticks(u64::MAX));
        assert!(matches!(chain.end, End::Never(rank) if rank.0 == 1) || chain.end == End::Circle, "{chain:?}");
    }
    assert!(graph.edges.iter().any(|edge| edge.on_rank.0 == 1));
}

#[test]
fn every_idle_place_is_explained() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let end = run.trace.end();
        for rank in Lanes::new(&run).ranks {
            for (compute, row) in [(true, &rank.compute), (false, &rank.communication)] {
                let busy =
                    |time: Ticks| row.spans.iter().any(|span| !span.kind.is_idle() && span.start <= time && time < span.end);
                for time in (0..97).map(|part| Ticks(end.0 * part / 97)).filter(|&time| time < end) {
                    let found = idle(&run, row, (rank.rank, compute), time);
                    assert_eq!(found.is_none(), busy(time), "{name}: {} {compute} at {time:?}", rank.rank);
                    let Some(found) = found else { continue };
                    assert!(!found.brief(&run).is_empty(), "{name}: {} {compute} at {time:?}: {found:?}", rank.rank);
                    if let IdleKind::Next(op) = found.kind {
                        assert!(run.times(op).is_some_and(|times| times.start > time), "{name}: {op} comes later");
                        let root = run.times(found.chain.root).expect("a cause that ran");
                        let told = root.start <= time || matches!(found.chain.end, End::Free);
                        assert!(told, "{name}: {} {compute} at {time:?}: {found:?}", rank.rank);
                    }
                }
            }
        }
    }
}

#[test]
fn ramps_are_explained_in_words() {
    let session = Scene { steps: 1, ..pipeline("1f1b", 3, 4) }.record();
    let run = Run::new(session.program(), session.trace());
    let lanes = Lanes::new(&run);
    let why = |rank: usize, time: u64| {
        let found = idle(&run, &lanes.ranks[rank].compute, (lanes.ranks[rank].rank, true), Ticks(time * scenes::SLOT / 2));
        found.map_or_else(|| "it runs".to_owned(), |found| found.brief(&run))
    };
    assert_eq!(why(0, 0), "it runs");
    assert_eq!(why(2, 1), "r2 F0 waits for a0 of r1, which waits for a0 of r0, where F0 was running");
    assert_eq!(why(2, 3), "r2 F0 waits for a0 of r1, where F0 was running");
    let last = 2 * run.makespan().0 / scenes::SLOT - 1;
    assert_eq!(why(2, last), "r2 has done all its work; the run goes on until 18u, when B3 of r0 ends");
    assert_eq!(
        why(2, last - 4),
        "r2 has done all its work; the run goes on until 18u, when B3 of r0 ends: r0 B3 waits for g3 of r1, where B3 was running"
    );
}
