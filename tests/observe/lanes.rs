//! Lanes: what every row must be, whatever the run, and that its parts add up to the metrics.

use super::scenes::{self, Scene, pipeline};
use ranklab::base::{OpId, Ticks};
use ranklab::observe::rows::Row;
use ranklab::observe::{Kind, Lanes, Ledger, Metrics, Run};
use ranklab::program::{OpKind, Wait};

fn total(row: &Row, which: impl Fn(Kind) -> bool) -> Ticks {
    row.spans.iter().filter(|span| which(span.kind)).map(|span| span.end - span.start).sum()
}

fn check_order(name: &str, row: &Row) {
    for pair in row.spans.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{name}: {pair:?} overlap");
        assert!(pair[0].start <= pair[0].end, "{name}: {pair:?}");
    }
}

#[test]
fn rows_are_in_order_and_nothing_overlaps() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        for rank in Lanes::new(&run).ranks {
            let name = format!("{name} {}", rank.rank);
            for row in [&rank.compute, &rank.communication].into_iter().chain(rank.streams.iter().map(|(_, row)| row)) {
                check_order(&name, row);
            }
        }
    }
}

#[test]
fn every_op_that_takes_time_is_found_in_its_row() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let lanes = Lanes::new(&run);
        for op in run.program.all() {
            let Some(times) = run.times(op) else { continue };
            let rank = &lanes.ranks[run.program.rank_of(op).index()];
            let stream = run.program.stream_of(op);
            let row = match run.computes(op) {
                true if times.start == times.end => continue,
                true => &rank.compute,
                false => &rank.streams.iter().find(|(known, _)| *known == stream).expect("its stream has a row").1,
            };
            let place = row.place_of(&run, op).unwrap_or_else(|| panic!("{name}: {op} has no span"));
            let span = &row.spans[place];
            assert!(span.start <= times.start && times.end <= span.end, "{name}: {op} {span:?}");
            assert_eq!(span.kind, Kind::of(&run, op), "{name}: {op}");
        }
    }
}

#[test]
fn rows_of_one_step_add_up_to_the_metrics() {
    for table in [false, true] {
        for (schedule, stages, replicas) in [("1f1b", 4, 1), ("gpipe", 3, 2), ("naive", 5, 1), ("1f1b", 1, 3)] {
            let session = Scene { steps: 1, replicas, table, ..pipeline(schedule, stages, 5) }.record();
            let run = Run::new(session.program(), session.trace());
            let metrics = Metrics::new(&run, &Ledger::new(&run));
            for (lanes, metrics) in Lanes::new(&run).ranks.iter().zip(&metrics.ranks) {
                let row = &lanes.compute;
                assert_eq!(total(row, Kind::is_compute), metrics.busy, "{schedule} {}", lanes.rank);
                assert_eq!(total(row, |kind| kind == Kind::Bubble), metrics.bubble, "{schedule} {}", lanes.rank);
                assert_eq!(
                    total(row, |kind| kind == Kind::ExposedCommunication),
                    metrics.exposed_comm,
                    "{schedule} {}",
                    lanes.rank
                );
                let (start, end) = lanes.own_span().expect("it computes");
                assert_eq!(run.makespan() - (end - start), metrics.ramp, "{schedule} {}", lanes.rank);
            }
        }
    }
}

#[test]
fn idle_splits_into_ramp_bubble_and_exposed_communication() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let metrics = Metrics::new(&run, &Ledger::new(&run));
        for rank in &metrics.ranks {
            assert_eq!(rank.idle, metrics.makespan - rank.busy, "{name}");
            assert_eq!(rank.idle, rank.ramp + rank.bubble + rank.exposed_comm, "{name}");
            assert!(rank.overlapped <= rank.communication && rank.overlapped <= rank.busy, "{name}");
        }
        let sent: u64 = metrics.ranks.iter().map(|rank| rank.messages_sent).sum();
        assert_eq!(metrics.wires.iter().map(|wire| wire.messages).sum::<u64>(), sent, "{name}");
    }
}

#[test]
fn a_gap_is_exposed_while_its_message_moves() {
    let session = Scene { steps: 1, table: true, ..pipeline("1f1b", 2, 1) }.record();
    let run = Run::new(session.program(), session.trace());
    let lanes = Lanes::new(&run);
    // Rank 0 waits for the gradient: while rank 1 works it is a bubble, then the gradient moves. A stage's first op ends its gap.
    let idle: Vec<_> = lanes.ranks[0].compute.spans.iter().filter(|span| span.kind.is_idle()).collect();
    let gradient = lanes.arrows.iter().find(|arrow| arrow.kind == Kind::SendGradient).expect("one gradient");
    let activation = lanes.arrows.iter().find(|arrow| arrow.kind == Kind::SendActivation).expect("one activation");
    assert_eq!(gradient.end - gradient.start, Ticks(5_000 + 7 * 24 * 4));
    assert_eq!((idle[0].start, idle[0].kind), (activation.start, Kind::Bubble));
    assert_eq!((idle[1].start, idle[1].end, idle[1].kind), (gradient.start, gradient.end, Kind::ExposedCommunication));
    let wait = lanes.ranks[0].compute.wait(&run, idle[1]);
    assert_eq!(wait, Some(Wait::Event(gradient.receive)));
}

#[test]
fn every_message_that_ran_has_an_arrow() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let arrows = Lanes::new(&run).arrows;
        let ran = |op: &OpId| run.times(*op).is_some();
        let receives = run.program.all().filter(|&op| run.program.kind(op).receives()).filter(ran).count();
        assert_eq!(arrows.len(), receives, "{name}");
        for arrow in &arrows {
            assert!(
                matches!(run.program.kind(arrow.send), OpKind::Send(_)) && run.program.kind(arrow.receive).receives(),
                "{name}"
            );
            assert!(arrow.start <= arrow.end, "{name}: {arrow:?}");
        }
        assert!(arrows.is_sorted_by_key(|arrow| arrow.start), "{name}");
    }
}
