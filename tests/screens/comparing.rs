//! Two runs on one axis, breakpoints by condition, critical ops: the debugger's other keys.

use super::{ASCII_MONO, Lab};
use ranklab::base::Rank;
use ranklab::tui::compare::Link;
use ranklab::tui::model::{Overlay, View};

fn lab() -> Lab {
    Lab::opened((120, 36), ASCII_MONO)
}

fn turn(lab: &mut Lab, key: &str, value: &str) {
    let effect = ranklab::tui::update::runs::turn(&mut lab.model, key, value);
    let answer = lab.worker.answer(effect).expect("an answer");
    lab.send(answer);
}

#[test]
fn a_pinned_run_stays_beside_the_next_ones() {
    let mut lab = lab();
    lab.press("9 g d");
    assert_eq!(lab.model.message, "no run is pinned; a pins this one as A");
    lab.press("a g d");
    assert_eq!(lab.model.message, "every slot runs when it does in A, and on the same rank");
    assert!(lab.model.pinned.as_ref().expect("A").compared.comparison.equal);
    turn(&mut lab, "pipeline.schedule", "gpipe");
    let compared = lab.model.pinned.as_ref().expect("A").compared.clone();
    assert!(!compared.comparison.equal);
    assert_eq!(compared.knobs, [("pipeline.schedule".to_owned(), "1f1b".to_owned(), "gpipe".to_owned())]);
    let change =
        |name: &str| compared.comparison.measures.iter().find(|measure| measure.name == name).and_then(|measure| measure.change);
    assert_eq!((change("makespan"), change("peak in flight"), change("messages")), (Some(0.0), Some(4.0), Some(0.0)));
    let first = compared.comparison.first_difference.as_ref().expect("another order");
    let text = super::pictures::text(&lab.model);
    assert!(text.contains(&format!("event {}", first.event)), "{text}");
    lab.press("g d");
    assert!(lab.model.message.starts_with("difference 1 of "), "{}", lab.model.message);
    let here = lab.model.timeline.cursor;
    lab.press("g d");
    assert_ne!(lab.model.timeline.cursor, here);
    turn(&mut lab, "pipeline.schedule", "1f1b");
    assert!(lab.model.pinned.as_ref().expect("A").compared.comparison.equal, "the same again");
}

#[test]
fn a_place_is_linked_by_time_event_or_micro_batch() {
    let mut lab = lab();
    lab.press("a");
    turn(&mut lab, "pipeline.schedule", "gpipe");
    lab.press("9");
    lab.palette("rank 0");
    lab.press("/");
    lab.type_text("B3");
    lab.press("Enter");
    let linked = |lab: &Lab| {
        let pinned = lab.model.pinned.as_ref().expect("A");
        let cursor = lab.model.timeline.cursor;
        let place = (cursor.row, ranklab::base::Ticks(cursor.time));
        let (row, time) = pinned.linked(&lab.model.run.data, place, lab.model.cursor_op()).expect("a place");
        let a = &pinned.run.data;
        let op = a.row(a.rows[row]).place_at(time).map(|place| a.row(a.rows[row]).spans[place]);
        let label = op.map(|span| a.row(a.rows[row]).label(&a.run(), &span));
        (a.rows[row].rank, time, label)
    };
    let here = lab.model.timeline.cursor.time;
    assert_eq!(lab.model.focus_rank(), Rank(0));
    let (rank, time, _) = linked(&lab);
    assert_eq!((rank, time.0), (Rank(0), here), "by time");
    lab.press("A");
    assert_eq!(lab.model.pinned.as_ref().expect("A").link, Link::Event);
    let event = lab.model.run.data.record.trace.event_of(lab.model.cursor_op().expect("an op")).expect("it ran");
    let a = lab.model.pinned.as_ref().expect("A").run.data.clone();
    assert_eq!(linked(&lab).1, a.record.trace.events[event - 1].time, "by event");
    lab.press("A");
    let (rank, _, label) = linked(&lab);
    assert_eq!((rank, label.as_deref()), (Rank(0), Some("B3")), "by micro-batch");
    lab.press("A");
    assert_eq!(lab.model.pinned.as_ref().expect("A").link, Link::Time);
}

#[test]
fn breakpoints_are_conditions_that_outlive_a_run() {
    let mut lab = lab();
    lab.palette("break r2 op 2B1");
    assert_eq!(lab.model.message, "breakpoint set: r2 op 2B1; met 2 times");
    lab.press("c");
    assert!(lab.model.message.starts_with("stopped at r2 op 2B1: ev "), "{}", lab.model.message);
    let stop = lab.model.now.event;
    lab.press("r c");
    assert_eq!(lab.model.now.event, stop);
    turn(&mut lab, "pipeline.schedule", "gpipe");
    assert_eq!(lab.model.breaks.list()[0].hits.len(), 2, "it is met in the next run, too");
    assert_ne!(lab.model.breaks.list()[0].hits[0], stop);
    for (text, met) in [("mb 7", true), ("time 12", true), ("memory 1 B", false), ("nan", false), ("r3", true)] {
        lab.palette(&format!("break {text}"));
        let hits = lab.model.breaks.list().last().expect("it is set").hits.len();
        assert_eq!(hits > 0, met, "{text}: {}", lab.model.message);
    }
    lab.palette("break whenever");
    assert!(lab.model.message.starts_with("`whenever` says nothing of a run; a breakpoint is"), "{}", lab.model.message);
    lab.press("B");
    let all = lab.model.breaks.list().len();
    lab.press("x x");
    assert_eq!(lab.model.breaks.list().len(), all - 2);
    lab.press("Enter");
    assert_eq!(lab.model.overlay, Overlay::None);
}

#[test]
fn among_programs_the_cursor_is_an_op() {
    let mut lab = lab();
    lab.press("3 . . .");
    let op = lab.model.cursor_op().expect("an op");
    lab.press("t");
    assert_eq!(lab.model.view, View::Debugger);
    assert_eq!(lab.model.run.data.record.trace.event_of(op), Some(lab.model.now.event), "just behind the event that starts it");
}

#[test]
fn every_idle_place_can_be_asked() {
    let mut lab = lab();
    for (keys, expected) in [("2 j j j j j j", "r3 `3F0"), ("2 G", "r0"), ("2 j j j j j j G", "r3 has done all its work")] {
        lab.press(keys);
        if keys.ends_with('G') {
            lab.press("h");
        }
        lab.press("w");
        let Overlay::Why { text, .. } = &lab.model.overlay else { panic!("{keys}: {}", lab.model.message) };
        assert!(text.contains(expected), "{keys}: {text}");
        lab.press("Esc g g");
        lab.palette("rank 0");
    }
}

#[test]
fn critical_ops_stand_out_and_slack_is_told() {
    let mut lab = lab();
    let before = super::pictures::text(&lab.model);
    lab.press("2 K");
    let marked = super::pictures::text(&lab.model);
    assert!(marked.contains("has slack"), "{marked}");
    assert!(marked.matches('-').count() > before.matches('-').count(), "hollow ops");
    lab.palette("rank 3");
    lab.press(". .");
    assert!(super::pictures::text(&lab.model).contains("critical: no slack"));
    lab.palette("rank 0");
    lab.press("g g . .");
    assert!(super::pictures::text(&lab.model).contains("slack "), "{}", super::pictures::text(&lab.model));
    lab.press("K");
    assert!(!super::pictures::text(&lab.model).contains("has slack"));
}
