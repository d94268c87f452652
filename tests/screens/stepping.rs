//! Keys move the learner through the run: (keys, where they lead).

use super::{ASCII_MONO, Lab};
use ranklab::base::units::Ticks;
use ranklab::tui::model::{Overlay, Pane, View};
use ranklab::tui::update::{Effect, Message};
use std::time::Duration;

fn lab() -> Lab {
    Lab::opened((120, 36), ASCII_MONO)
}

#[test]
fn stepping_goes_to_the_event_and_back() {
    let check = |keys: &str, event: u32| {
        let mut lab = lab();
        lab.press(keys);
        assert_eq!(lab.model.now.event, event, "{keys}");
        let time = lab.model.run.picture.time_after(event);
        assert_eq!(lab.model.now.time, time, "{keys}: the time belongs to the event");
    };
    let events = lab().model.run.picture.event_count();
    check("", 0);
    check("s s s", 3);
    check("s s s S", 2);
    check("S", 0);
    check("c", events);
    check("c C", 0);
    check("c r", 0);
    check("c s", events);
}

#[test]
fn an_op_step_moves_the_rank_under_the_cursor() {
    let mut lab = lab();
    lab.press("Tab j j j j");
    assert_eq!(lab.model.focus_rank(), 2);
    lab.press("n");
    let picture = std::sync::Arc::clone(&lab.model.run.picture);
    let last = picture.events[lab.model.now.event as usize - 1];
    assert_eq!(picture.rows[last.row as usize].rank, 2);
    let earlier = &picture.events[..lab.model.now.event as usize - 1];
    assert!(earlier.iter().all(|event| picture.rows[event.row as usize].rank != 2), "the first op of rank 2");
    lab.press("N");
    assert_eq!(lab.model.now.event, u32::try_from(earlier.len()).unwrap(), "back to just before it");
}

#[test]
fn a_breakpoint_stops_a_continued_run_in_both_directions() {
    let mut lab = lab();
    lab.press("Tab . . b");
    let stop = *lab.model.breaks.first().unwrap();
    lab.press("c");
    assert_eq!(lab.model.now.event, stop);
    lab.press("c C");
    assert_eq!(lab.model.now.event, stop);
    lab.press("b c");
    assert_eq!(lab.model.now.event, lab.model.run.picture.event_count(), "removed again");
}

#[test]
fn playing_follows_the_clock_and_stops_at_the_end() {
    let mut lab = lab();
    lab.press("spc");
    assert!(lab.model.playing());
    lab.send(Message::Elapsed(Duration::from_millis(500)));
    let (slow, event) = (lab.model.now.time, lab.model.now.event);
    assert_eq!(slow, Ticks(4), "half a second at eight columns a second, one tick a column");
    assert_eq!(event, lab.model.run.picture.events_until(slow));
    lab.press(">");
    lab.send(Message::Elapsed(Duration::from_millis(500)));
    assert_eq!(lab.model.now.time, Ticks(12), "twice as fast");
    lab.send(Message::Elapsed(Duration::from_secs(61)));
    assert_eq!(lab.model.now.event, lab.model.run.picture.event_count());
    assert!(!lab.model.playing());
}

#[test]
fn small_steps_of_time_add_up() {
    let mut lab = lab();
    lab.press("spc < < <");
    for _ in 0..1000 {
        lab.send(Message::Elapsed(Duration::from_millis(3)));
    }
    assert_eq!(lab.model.now.time, Ticks(3), "three seconds at one column a second");
}

#[test]
fn the_page_stays_while_the_playhead_moves_and_turns_when_it_leaves() {
    let mut lab = lab();
    lab.press("2 + + + +");
    let first = lab.model.timeline.window.unwrap();
    lab.press("s s s");
    assert_eq!(lab.model.timeline.window.unwrap(), first, "still on the page");
    lab.press("c");
    let turned = lab.model.timeline.window.unwrap();
    assert!(turned.start > first.start && turned.scale == first.scale);
}

#[test]
fn the_session_follows_the_position() {
    let mut lab = lab();
    assert_eq!(lab.press("s"), Some(Effect::Seek { event: 1 }));
    assert_eq!(lab.press("S"), Some(Effect::Seek { event: 0 }));
    assert_eq!(lab.press("S"), None, "nothing moved");
    assert_eq!(lab.model.message, "this is the start of the run");
}

#[test]
fn knobs_run_again_with_what_was_chosen() {
    let mut lab = lab();
    lab.press("o");
    assert!(matches!(lab.model.overlay, Overlay::Knobs { .. }));
    assert_eq!(lab.press("Right Esc"), None, "Esc forgets");
    let effect = lab.press("o Right Down Right Enter");
    let knobs = vec![("parallel.pipeline".to_owned(), "6".to_owned()), ("batch.micro_batches".to_owned(), "12".to_owned())];
    assert_eq!(effect, Some(Effect::Rerun { knobs }));
    assert_eq!(lab.model.run.picture.ranks, 6);
    assert_eq!(lab.model.now.event, 0, "a new run is shown from its start");
}

#[test]
fn the_palette_runs_commands_with_arguments() {
    let mut lab = lab();
    let palette = |lab: &mut Lab, text: &str| {
        lab.press(":");
        lab.type_text(text);
        lab.press("Enter")
    };
    palette(&mut lab, "event 17");
    assert_eq!(lab.model.now.event, 17);
    palette(&mut lab, "step 3");
    assert_eq!(lab.model.now.event, 20);
    palette(&mut lab, "rank 3");
    assert_eq!(lab.model.focus_rank(), 3);
    palette(&mut lab, "time 4.5");
    assert_eq!(lab.model.timeline.cursor.time, 9, "two ticks a slot");
    palette(&mut lab, "event many");
    assert_eq!(lab.model.message, "many is not an event's number");
    palette(&mut lab, "nonsense");
    assert_eq!(lab.model.message, "there is no command nonsense; ? lists them");
    assert_eq!(palette(&mut lab, "quit-keep"), Some(Effect::Quit { keep_frame: true }));
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
    assert!(!super::pictures::text(&lab.model).contains("start at once"));
    lab.press("Enter");
    assert!(super::pictures::text(&lab.model).contains("start at once"));
}

#[test]
fn marks_and_search_move_the_cursor() {
    let mut lab = lab();
    lab.press("Tab s s m a j j . . c ' a");
    assert_eq!((lab.model.now.event, lab.model.timeline.cursor.row), (2, 0));
    lab.press("/");
    lab.type_text("B3");
    lab.press("Enter");
    let text = |lab: &Lab| lab.model.run.picture.text(lab.model.cursor_span().unwrap()).to_owned();
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
    let mut lab = lab();
    let first = super::pictures::text(&lab.model);
    lab.press("c");
    let events = lab.model.run.picture.event_count();
    for _ in 0..events {
        lab.press("S");
    }
    assert_eq!(super::pictures::text(&lab.model), first);
}
