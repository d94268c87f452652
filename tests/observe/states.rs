//! States at every event, against the session that stands there.

use super::scenes;
use ranklab::base::{OpId, Rank};
use ranklab::engine::session::Session;
use ranklab::engine::world::State as Engine;
use ranklab::observe::Run;
use ranklab::observe::state::{At, Doing, Flight, Progress, State};
use ranklab::program::trace::{Outcome, WaitGraph};
use ranklab::program::{OpKind, Trace, Wait};

/// Visits every event of every scene but the last, behind which a session that was stepped there has not ended what still runs.
fn at_every_event(mut visit: impl FnMut(&str, &Session, At)) {
    for (name, mut session) in scenes::all() {
        let (program, trace): (_, Trace) = (session.program().clone(), session.trace().clone());
        let run = Run::new(&program, &trace);
        let progress = Progress::new(&run);
        let events = trace.events.len();
        visit(&name, &session, progress.at(&run, events));
        for event in (0..events).step_by(1 + events / 150) {
            session.seek(event).expect("shapes cannot fail");
            visit(&name, &session, progress.at(&run, event));
        }
    }
}

/// Whether the engine's op waits for something of its own rank.
fn owes(session: &Session, op: OpId) -> bool {
    matches!(session.blocked(op), Some(Wait::Stream(_) | Wait::Event(_)))
}

#[test]
fn states_are_the_sessions() {
    at_every_event(|name, session, at| {
        if matches!(session.trace().outcome, Outcome::OutOfMemory { .. }) && at.event == session.trace().events.len() {
            return;
        }
        for op in session.program().all() {
            let expected = match session.state(op) {
                Engine::Done | Engine::Delivered => State::Done,
                Engine::Running => State::Running,
                // A session looks at ops one by one: whether it has come to this one yet is no state of the run.
                _ if owes(session, op) => State::Waiting,
                _ => State::Posted,
            };
            assert_eq!(at.state(op), expected, "{name} event {} {op}", at.event);
        }
    });
}

#[test]
fn waits_are_the_sessions() {
    at_every_event(|name, session, at| {
        for op in session.program().all() {
            let (expected, found) = (session.blocked(op), at.wait(op));
            // Both may start now, and the session has not looked at them yet.
            let met = |on: OpId| found.is_none() && at.state(on) == State::Posted;
            let same = match expected {
                Some(Wait::Peer(on)) => found == expected || met(on),
                Some(Wait::Member(on)) => found == expected || at.state(on) == State::Posted,
                // That a message is there shows when it is taken.
                Some(Wait::Message(_)) | None => found == expected || matches!(found, None | Some(Wait::Message(_))),
                _ => found == expected,
            };
            assert!(same, "{name} event {} {op}: {found:?}, not {expected:?}", at.event);
        }
    });
}

#[test]
fn heads_are_the_sessions() {
    at_every_event(|name, session, at| {
        for rank in (0..session.program().ranks()).map(Rank::new) {
            assert_eq!(at.heads(rank), session.heads(rank), "{name} event {} {rank}", at.event);
        }
    });
}

#[test]
fn a_rank_stands_at_an_op_of_its_own_that_is_open() {
    at_every_event(|name, session, at| {
        for rank in (0..session.program().ranks()).map(Rank::new) {
            let Some(stand) = at.stand(rank) else {
                assert!(at.heads(rank).is_empty(), "{name} event {} {rank}", at.event);
                continue;
            };
            assert_eq!(session.program().rank_of(stand.op), rank);
            let state = at.state(stand.op);
            let fits = match stand.doing {
                Doing::Computing | Doing::Moving => state == State::Running,
                Doing::Ready | Doing::Blocked(_) => state == State::Posted,
            };
            assert!(fits, "{name} event {} {stand:?} {state:?}", at.event);
        }
    });
}

#[test]
fn the_graph_at_the_end_is_the_engines() {
    let sorted = |graph: &WaitGraph| {
        let mut edges = graph.edges.clone();
        edges.sort_by_key(|edge| edge.op);
        let mut cycles = graph.cycles.clone();
        cycles.sort();
        (edges, cycles)
    };
    let mut deadlocks = 0;
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let found = Progress::new(&run).at(&run, run.trace.events.len()).wait_graph();
        match &run.trace.outcome {
            Outcome::Deadlocked(expected) => {
                deadlocks += 1;
                assert_eq!(sorted(&found), sorted(expected), "{name}");
            }
            Outcome::Completed => assert_eq!(found, WaitGraph::default(), "{name}"),
            Outcome::OutOfMemory { .. } => {}
        }
    }
    assert!(deadlocks > 0, "some scene deadlocks");
}

#[test]
fn in_flight_is_what_has_left_and_is_not_taken() {
    at_every_event(|name, session, at| {
        let mut found = at.in_flight();
        found.sort_by_key(|flight| flight.send);
        let run = at.run;
        let open = |op: OpId| at.state(op) < State::Done;
        let mut expected: Vec<Flight> = Vec::new();
        for send in session.program().all().filter(|&op| matches!(run.program.kind(op), OpKind::Send(_))) {
            let receive = run.links.peer(send);
            if at.state(send) >= State::Running && (open(send) || receive.is_some_and(open)) {
                expected.push(Flight { send, receive });
            }
        }
        expected.sort_by_key(|flight| flight.send);
        assert_eq!(found, expected, "{name} event {}", at.event);
    });
}
