//! Slack against two oracles: the engine, which is given an op that takes longer, and a walk over all paths.

use super::scenes::{self, Scene, pipeline, trouble};
use ranklab::base::settings::{AllReduce, PointToPoint};
use ranklab::base::{OpId, Ticks};
use ranklab::engine::session::Session;
use ranklab::observe::Run;
use ranklab::observe::slack::Slack;
use ranklab::observe::why::critical_path;
use ranklab::program::head::head;
use ranklab::program::trace::Outcome;
use ranklab::program::trouble::TroubleKind;
use std::collections::BTreeMap;

/// When the first step of `scene` ends, if `op` of the first step takes `longer` ticks longer.
fn makespan(scene: &Scene, session: &Session, op: OpId, longer: u64) -> u64 {
    let (program, times) = (session.program(), session.trace().times(op).expect("it ran"));
    let took = (times.end - times.start).0;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand ticks")]
    let factor = (took + longer) as f64 / took as f64;
    let slow = trouble(TroubleKind::SlowRank, Some(program.rank_of(op).0), &head(program, op).to_string(), factor);
    let slowed = Scene { trouble: vec![slow], ..scene.clone() }.record();
    let again = slowed.trace().times(op).expect("it ran");
    assert_eq!((again.end - again.start).0, took + longer, "the op takes longer by that");
    Run::new(slowed.program(), slowed.trace()).makespan().0
}

#[test]
fn the_engine_agrees_op_by_op() {
    let scenes = [
        Scene { steps: 1, ..pipeline("1f1b", 3, 4) },
        pipeline("gpipe", 3, 3),
        Scene { p2p: PointToPoint::Buffered, ..pipeline("1f1b", 2, 5) },
        Scene { table: true, ..pipeline("1f1b", 3, 3) },
        Scene { table: true, p2p: PointToPoint::PairFifo, ..pipeline("gpipe", 2, 3) },
        Scene { replicas: 3, table: true, all_reduce: AllReduce::Ring, ..pipeline("1f1b", 2, 2) },
    ];
    let mut some_have_slack = false;
    for scene in scenes {
        let session = scene.record();
        let run = Run::new(session.program(), session.trace());
        let slack = Slack::new(&run);
        let end = run.makespan().0;
        let lasts = |op: &OpId| run.computes(*op) && run.times(*op).is_some_and(|times| times.end > times.start);
        let slotted = |op: &OpId| run.program.op(*op).origin.slot.is_some();
        let ops: Vec<OpId> = run.program.all().filter(|op| lasts(op) && slotted(op) && run.of_step(*op, 0)).collect();
        assert!(ops.iter().any(|&op| slack.is_critical(op)));
        some_have_slack |= ops.iter().any(|&op| !slack.is_critical(op));
        for &op in ops.iter().step_by(3) {
            let Ticks(room) = slack.of(op).expect("it ran");
            let name = format!(
                "{} p{} m{} {}: {} of {}",
                scene.schedule,
                scene.stages,
                scene.micro_batches,
                scene.p2p,
                head(run.program, op),
                run.program.rank_of(op)
            );
            assert_eq!(makespan(&scene, &session, op, room), end, "{name} has {room}");
            assert_eq!(makespan(&scene, &session, op, room + 7), end + 7, "{name} has {room} and no more");
        }
    }
    assert!(some_have_slack);
}

/// Per event, the longest way from its end to the end of the step, over every op that waits for it: by asking all ops what they wait for.
fn longest_ways(run: &Run, step: u32) -> BTreeMap<usize, u64> {
    let event = |op: OpId| run.trace.event_of(op).expect("a run that completed");
    let mut behind: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut took: BTreeMap<usize, u64> = BTreeMap::new();
    for rank in &run.program.order {
        let mut last: BTreeMap<usize, OpId> = BTreeMap::new();
        for &op in rank {
            let times = run.times(op).expect("it ran");
            took.insert(event(op), (times.end - times.start).0);
            let before = last.insert(run.program.stream_of(op).index(), op);
            for on in before.into_iter().chain(run.program.waits(op)) {
                behind.entry(event(on)).or_default().push(event(op));
            }
        }
    }
    let counted = |event: usize| run.program.all().any(|op| run.trace.event_of(op) == Some(event) && run.of_step(op, step));
    let mut ways = BTreeMap::new();
    for (&event, _) in took.iter().rev() {
        let longest = behind.get(&event).into_iter().flatten().filter_map(|next| Some(ways.get(next)? + took[next])).max();
        if let Some(way) = longest.or(counted(event).then_some(0)) {
            ways.insert(event, way);
        }
    }
    ways
}

#[test]
fn slack_is_what_the_longest_way_leaves() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        if run.trace.outcome != Outcome::Completed || name.contains("buffered") {
            continue;
        }
        let slack = Slack::new(&run);
        for step in 0..u32::try_from(run.step_ends.len()).expect("few steps") {
            let ways = longest_ways(&run, step);
            for op in run.program.all().filter(|&op| run.of_step(op, step)) {
                let (event, end) = (run.trace.event_of(op).expect("it ran"), run.times(op).expect("it ran").end);
                let expected = run.step_ends[step as usize].0 - end.0 - ways[&event];
                assert_eq!(slack.of(op), Some(Ticks(expected)), "{name}: {op} `{}`", head(run.program, op));
            }
        }
    }
}

#[test]
fn the_critical_path_has_no_slack() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        if run.trace.outcome != Outcome::Completed {
            continue;
        }
        let slack = Slack::new(&run);
        let path = critical_path(&run, 0);
        for &op in &path.ops {
            assert!(slack.is_critical(op), "{name}: {op} `{}` has {:?}", head(run.program, op), slack.of(op));
        }
    }
}

#[test]
fn a_run_that_stopped_has_no_slack_to_tell() {
    let session = Scene { p2p: PointToPoint::Blocking, ..pipeline("1f1b", 2, 4) }.record();
    let run = Run::new(session.program(), session.trace());
    let slack = Slack::new(&run);
    assert!(run.program.all().all(|op| slack.of(op).is_none() && !slack.is_critical(op)));
}
