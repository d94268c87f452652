//! Keys move the learner through the run: (keys, where they lead).

use super::{ASCII_MONO, Lab};
use ranklab::base::units::{Clock, Ticks};
use ranklab::base::{OpId, Rank};
use ranklab::observe::kind;
use ranklab::observe::state::State;
use ranklab::tui::layout::Layout;
use ranklab::tui::model::{Pane, Shown, View};
use ranklab::tui::update::{Effect, Message};
use std::time::Duration;

fn lab() -> Lab {
    Lab::opened((120, 36), ASCII_MONO)
}

fn ticks_per_slot(lab: &Lab) -> u64 {
    match lab.model.run.data.clock() {
        Clock::Slots { ticks_per_slot } => ticks_per_slot,
        Clock::Nanoseconds => panic!("unit costs"),
    }
}

#[test]
fn stepping_goes_to_the_event_and_back() {
    let check = |keys: &str, event: usize| {
        let mut lab = lab();
        lab.press(keys);
        assert_eq!(lab.model.now.event, event, "{keys}");
        assert_eq!(lab.model.now, lab.model.run.data.position(event), "{keys}: the time belongs to the event");
    };
    let events = lab().model.run.data.events();
    check("", 0);
    check("s s s", 3);
    check("s s s S", 2);
    check("S", 0);
    check("c", events);
    check("c C", 0);
    check("c r", 0);
    check("c s", events);
}

/// Whether the event behind which the learner stands starts an op of `rank`.
fn concerns(lab: &Lab, event: usize, rank: Rank) -> bool {
    let data = &lab.model.run.data;
    data.program().order[rank.index()].iter().any(|&op| data.record.trace.event_of(op) == Some(event))
}

#[test]
fn an_op_step_moves_the_rank_under_the_cursor() {
    let mut lab = lab();
    lab.press("Tab j j j j");
    assert_eq!(lab.model.focus_rank(), Rank(2));
    for _ in 0..20 {
        let before = lab.model.now.event;
        lab.press("n");
        let now = lab.model.now.event;
        assert!(concerns(&lab, now, Rank(2)), "event {now}");
        assert!((before + 1..now).all(|event| !concerns(&lab, event, Rank(2))), "no event of rank 2 between {before} and {now}");
    }
    let last = lab.model.now.event;
    lab.press("N");
    assert_eq!(lab.model.now.event, last - 1, "back to just before it");
}

#[test]
fn finishing_goes_to_the_end_of_the_slot_and_back_before_its_start() {
    let mut lab = lab();
    let in_slot = |lab: &Lab, label: &str| {
        let data = &lab.model.run.data;
        let run = data.run();
        let of_slot = |op: &&OpId| kind::label(&run, **op) == label && data.program().op(**op).origin.step == 0;
        let at = data.at(&run, lab.model.now.event);
        let states: Vec<State> = data.program().order[0].iter().filter(of_slot).map(|&op| at.state(op)).collect();
        assert!(states.len() > 3, "{label} has several ops");
        states
    };
    let enter = |lab: &mut Lab, label: &str| {
        while in_slot(lab, label).iter().all(|&state| state < State::Running) {
            lab.press("n");
        }
    };
    for label in ["F0", "F1", "F2"] {
        enter(&mut lab, label);
        lab.press("F");
        assert!(in_slot(&lab, label).iter().all(|&state| state < State::Running), "F stands before {label}");
        enter(&mut lab, label);
        lab.press("f");
        assert!(in_slot(&lab, label).iter().all(|&state| state == State::Done), "f ends {label}");
        lab.press("S");
        assert!(in_slot(&lab, label).contains(&State::Running), "and no later than that");
    }
}

#[test]
fn a_breakpoint_stops_a_continued_run_in_both_directions() {
    let mut lab = lab();
    lab.press("Tab . . b");
    let stop = lab.model.breaks.list()[0].hits[0];
    lab.press("c");
    assert_eq!(lab.model.now.event, stop);
    lab.press("c C");
    assert_eq!(lab.model.now.event, stop);
    lab.press("b c");
    assert_eq!(lab.model.now.event, lab.model.run.data.events(), "removed again");
}

#[test]
fn playing_follows_the_clock_and_stops_at_the_end() {
    let mut lab = lab();
    lab.press("spc");
    assert!(lab.model.playing());
    lab.send(Message::Elapsed(Duration::from_millis(500)));
    let (slow, event) = (lab.model.now.time, lab.model.now.event);
    let per_slot = ticks_per_slot(&lab);
    assert_eq!(slow, Ticks(2 * per_slot), "half a second at eight columns a second, two columns a slot");
    assert_eq!(event, lab.model.run.data.events_until(slow));
    lab.press(">");
    lab.send(Message::Elapsed(Duration::from_millis(500)));
    assert_eq!(lab.model.now.time, Ticks(6 * per_slot), "twice as fast");
    lab.send(Message::Elapsed(Duration::from_secs(61)));
    assert_eq!(lab.model.now.event, lab.model.run.data.events());
    assert!(!lab.model.playing());
}

#[test]
fn small_steps_of_time_add_up() {
    let mut lab = lab();
    lab.press("spc < < <");
    for _ in 0..1000 {
        lab.send(Message::Elapsed(Duration::from_millis(3)));
    }
    let half = ticks_per_slot(&lab) / 2;
    assert_eq!(lab.model.now.time, Ticks(3 * half), "three seconds at one column a second");
}

#[test]
fn the_page_stays_while_the_playhead_moves_and_turns_when_it_leaves() {
    let mut lab = lab();
    lab.press("2 + + +");
    let window = |lab: &Lab| match lab.model.timeline.shown {
        Shown::At(window) => window,
        shown => panic!("zoomed, not {shown:?}"),
    };
    let first = window(&lab);
    lab.press("s s s");
    assert_eq!(window(&lab), first, "still on the page");
    lab.press("c");
    let turned = window(&lab);
    assert!(turned.start > first.start && turned.scale == first.scale);
}

#[test]
fn the_end_is_the_last_screenful_whatever_view_was_shown_between() {
    for keys in ["2 G", "2 G 3 2", "2 G z 4 5 z 2 z", "2 3 G 2 G 1 2"] {
        let mut lab = Lab::start((120, 36), ASCII_MONO);
        lab.choose(4);
        lab.press(keys);
        let data = &lab.model.run.data;
        let Shown::At(window) = lab.model.timeline.shown else { panic!("{keys}: a part of the run") };
        let width = Layout::of(&lab.model).axis_width(data);
        assert_eq!(window.visible(lab.model.timeline.cursor.time, width), Some(width - 1), "{keys}");
        let shown = super::pictures::text(&lab.model);
        let ticks = shown.lines().find(|line| line.contains("| t us")).expect("a ruler");
        assert!(ticks.split_whitespace().count() > 6, "{keys}: {ticks}");
    }
}

#[test]
fn the_values_follow_the_position_and_the_focus_rank() {
    let mut lab = lab();
    let shown = |lab: &Lab| lab.model.values.as_ref().map(|values| (values.event, values.rank));
    assert_eq!(shown(&lab), Some((0, Rank(0))));
    lab.press("s s s");
    assert_eq!(shown(&lab), Some((3, Rank(0))));
    lab.press("Tab j j S");
    assert_eq!(shown(&lab), Some((2, Rank(1))));
    lab.press("spc");
    lab.send(Message::Elapsed(Duration::from_secs(1)));
    assert_eq!(shown(&lab), Some((2, Rank(1))), "not while it plays");
    assert_eq!(lab.press("r S"), None);
    assert_eq!(lab.model.message, "this is the start of the run");
}

#[test]
fn the_palette_runs_commands_with_arguments() {
    let mut lab = lab();
    lab.palette("event 17");
    assert_eq!(lab.model.now.event, 17);
    lab.palette("step 3");
    assert_eq!(lab.model.now.event, 20);
    lab.palette("rank 3");
    assert_eq!(lab.model.focus_rank(), Rank(3));
    lab.palette("time 4.5");
    assert_eq!(lab.model.timeline.cursor.time, ticks_per_slot(&lab) * 9 / 2);
    lab.palette("event many");
    assert_eq!(lab.model.message, "many is not an event's number");
    lab.palette("nonsense");
    assert_eq!(lab.model.message, "there is no command nonsense; ? lists them");
    assert_eq!(lab.palette("quit-keep"), Some(Effect::Quit { keep_frame: true }));
}

#[test]
fn back_leads_out_step_by_step() {
    let mut lab = lab();
    lab.press("3 z");
    let check = |lab: &mut Lab, effect: Option<Effect>, view: View| {
        assert_eq!(lab.press("q"), effect);
        assert_eq!(lab.model.view, view);
    };
    check(&mut lab, None, View::Debugger);
    assert!(!lab.model.maximised);
    check(&mut lab, None, View::Lesson);
    check(&mut lab, None, View::Lessons);
    check(&mut lab, Some(Effect::Quit { keep_frame: false }), View::Lessons);
}

#[test]
fn the_answer_shows_when_it_is_asked_for() {
    let mut lab = lab();
    assert!(!super::pictures::text(&lab.model).contains("It saves none"));
    lab.press("Enter");
    assert!(super::pictures::text(&lab.model).contains("It saves none"));
}

#[test]
fn marks_and_search_move_the_cursor() {
    let mut lab = lab();
    lab.press("Tab s s m a j j . . c ' a");
    assert_eq!((lab.model.now.event, lab.model.timeline.cursor.row), (2, 0));
    lab.press("/");
    lab.type_text("B3");
    lab.press("Enter");
    let text = |lab: &Lab| kind::label(&lab.model.run.data.run(), lab.model.cursor_op().unwrap());
    assert_eq!(text(&lab), "B3");
    let first = lab.model.timeline.cursor;
    lab.press("/ Enter");
    assert_eq!(text(&lab), "B3");
    assert_ne!(lab.model.timeline.cursor, first, "the next one");
    lab.press("g b");
    assert!(lab.model.message.starts_with("bubble of"), "{}", lab.model.message);
}

#[test]
fn an_unbound_key_says_so_and_changes_nothing() {
    let mut lab = lab();
    let before = lab.model.now;
    lab.press("X");
    assert_eq!(lab.model.message, "X does nothing here; ? lists the keys");
    assert_eq!(lab.model.now, before);
}

#[test]
fn tab_goes_round_the_panes() {
    let mut lab = lab();
    let pane = |lab: &Lab| ranklab::tui::layout::Layout::of(&lab.model).focused(&lab.model).unwrap().pane;
    let round = [Pane::Text, Pane::Timeline, Pane::Held, Pane::Selected, Pane::Text];
    for expected in round {
        assert_eq!(pane(&lab), expected);
        lab.press("Tab");
    }
    lab.press("S-Tab S-Tab");
    assert_eq!(pane(&lab), Pane::Selected);
}

#[test]
fn stepping_to_the_end_and_back_draws_the_first_screen_again() {
    let mut lab = Lab::opened_fast((120, 36), ASCII_MONO);
    lab.press("0");
    let first = super::pictures::text(&lab.model);
    lab.press("c");
    for _ in 0..lab.model.run.data.events() {
        lab.press("S");
    }
    lab.model.message.clear();
    lab.model.timeline.shown = Shown::Run;
    assert_eq!(super::pictures::text(&lab.model), first);
}

#[test]
fn a_step_takes_the_cursor_along_and_names_its_event() {
    let mut lab = lab();
    lab.press("Tab j j . . . s");
    assert_eq!((lab.model.timeline.cursor.time, lab.model.now.event), (lab.model.now.time.0, 1));
    assert!(lab.model.message.starts_with("ev 1: r"), "{}", lab.model.message);
    lab.press("c");
    assert!(lab.model.message.ends_with("(the end of the run)"), "{}", lab.model.message);
    lab.press("h h h");
    assert_eq!(lab.model.now.event, lab.model.run.data.events(), "the cursor leaves the playhead behind");
    lab.palette("time 4.5");
    assert_eq!(lab.model.now.time.0, lab.model.timeline.cursor.time);
    assert_eq!(lab.model.now.event, lab.model.run.data.events_until(lab.model.now.time));
}

#[test]
fn a_run_key_closes_a_popup_and_acts() {
    for open in ["B", "e", "o"] {
        let mut lab = lab();
        lab.press(open);
        lab.press("s");
        assert_eq!((&lab.model.overlay, lab.model.now.event), (&ranklab::tui::model::Overlay::None, 1), "{open} s");
        lab.press(open);
        lab.press(open);
        assert_eq!(lab.model.overlay, ranklab::tui::model::Overlay::None, "{open} {open}");
    }
}
