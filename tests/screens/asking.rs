//! Runs that are asked for: pages, tries, knobs, problems, answers that come too late.

use std::fs;

use super::{ASCII_MONO, Lab};
use ranklab::base::Rank;
use ranklab::program::trace::Outcome;
use ranklab::schedule;
use ranklab::tui::in_flight::InFlight;
use ranklab::tui::layout::Layout;
use ranklab::tui::model::{Look, Overlay, Pane, View};
use ranklab::tui::update::{Effect, Message, update};

fn lab() -> Lab {
    Lab::opened((120, 36), ASCII_MONO)
}

/// Slots of the first step.
fn slots(lab: &Lab) -> f64 {
    lab.model.run.data.report.makespan
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn lesson_11_shows_its_run() {
    let lab = lab();
    let data = &lab.model.run.data;
    assert_eq!((lab.model.view, data.ranks(), data.rows.len()), (View::Lesson, 4, 8));
    assert!(is_close(slots(&lab), 33.0));
    let peaks: Vec<u32> = data.in_flight.iter().map(InFlight::peak).collect();
    assert_eq!(peaks, [4, 3, 2, 1]);
    assert_eq!(lab.model.message, "", "the page asks for what the run says");
}

#[test]
fn in_flight_agrees_with_the_metrics_in_the_first_step() {
    for lesson in [2, 10, 11] {
        let mut lab = Lab::start((80, 24), ASCII_MONO);
        lab.choose(lesson);
        let data = &lab.model.run.data;
        for (held, metrics) in data.in_flight.iter().zip(&data.metrics.ranks) {
            assert_eq!(held.peak(), metrics.peak_in_flight, "{lesson}: {}", metrics.rank);
        }
    }
}

#[test]
fn a_page_stands_where_it_says_and_runs_what_it_says() {
    let mut lab = lab();
    lab.press("]");
    let (op, data) = (lab.model.cursor_op().expect("an op"), &lab.model.run.data);
    let head = ranklab::program::head::head(data.program(), op).to_string();
    assert!(head.starts_with("0B0 "), "{head}");
    assert_eq!(data.record.trace.event_of(op), Some(lab.model.now.event));
    lab.press("] ]");
    assert_eq!(lab.model.setup.name, "gpipe.toml");
    assert_eq!(lab.model.now.event, lab.model.run.data.events(), "stop: end");
    lab.press("] ]");
    assert!(matches!(lab.model.run.data.record.trace.outcome, Outcome::Deadlocked(_)));
    lab.press("[ [ [ [ [");
    assert_eq!((lab.model.lesson.page, lab.model.setup.name.as_str()), (0, "scenario.toml"));
}

#[test]
fn who_reads_goes_on_reading_on_the_next_page() {
    for (size, keys) in [((120, 36), ""), ((80, 24), "Tab")] {
        let mut lab = Lab::opened(size, ASCII_MONO);
        lab.press(keys);
        for _ in 0..6 {
            lab.press("]");
            let focused = Layout::of(&lab.model).focused(&lab.model).expect("a pane");
            assert_eq!(focused.pane, Pane::Text, "page {} at {size:?}", lab.model.lesson.page);
        }
    }
}

#[test]
fn tries_are_run_one_after_the_other_from_the_pages_own_scenario() {
    let mut lab = lab();
    lab.press("] ] ] ]");
    let expected = [57.0, 105.0, 45.0];
    for slots_expected in expected {
        lab.press("Enter");
        assert!(is_close(slots(&lab), slots_expected), "{} instead of {slots_expected}", slots(&lab));
        assert_eq!(lab.model.setup.changes.len(), 1, "{:?}", lab.model.setup.changes);
    }
    assert!(!super::pictures::text(&lab.model).contains("2(m+p-1)"));
    lab.press("Enter");
    assert!(super::pictures::text(&lab.model).contains("2(m+p-1)"), "then the answer");
    lab.press("Enter");
    assert!(lab.model.message.starts_with("all on this page is done"));
    lab.press("Bksp");
    assert!(lab.model.setup.changes.is_empty() && is_close(slots(&lab), 33.0));
}

#[test]
fn a_knob_runs_at_once_and_what_was_turned_can_be_saved() {
    let mut lab = lab();
    let effect = lab.press("o Down Right");
    assert!(matches!(effect, Some(Effect::Run { .. })));
    assert_eq!(lab.model.setup.changes, [("batch.micro_batches".to_owned(), "16".to_owned())]);
    assert!(is_close(slots(&lab), 57.0) && matches!(lab.model.overlay, Overlay::Knobs { .. }));
    lab.press("Esc");
    let folder = std::env::temp_dir().join(format!("ranklab-{}-saved", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("turned.toml");
    lab.palette(&format!("save-scenario {}", file.display()));
    assert!(lab.model.message.starts_with("wrote "), "{}", lab.model.message);
    let text = fs::read_to_string(&file).expect("the file");
    assert!(text.contains("micro_batches = 16") && ranklab::scenario::Scenario::parse("turned", &text, &[]).is_ok());
    lab.palette(&format!("save-scenario {}", file.display()));
    assert!(lab.model.message.contains("exists, and is left as it is"), "{}", lab.model.message);
    fs::remove_dir_all(&folder).expect("the folder is there");
}

#[test]
fn a_bad_value_says_what_is_wrong_and_the_old_run_stays() {
    let mut lab = lab();
    lab.press("o Down Down");
    let before = lab.model.run.number;
    // Eight stages of eight layers run; the next step of the knob that counts layers is too few.
    lab.palette("");
    lab.press("Esc o");
    let layers =
        ranklab::tui::knobs::knobs(&lab.model).iter().position(|knob| knob.key.path() == "model.layers").expect("a knob");
    for _ in 0..layers {
        lab.press("Down");
    }
    lab.press("Right");
    for _ in 0..4 {
        lab.press("Left");
    }
    let Overlay::Knobs { problem, .. } = &lab.model.overlay else { panic!("the knobs are open") };
    assert!(problem.contains("stages"), "{problem}");
    assert!(lab.model.run.number >= before && is_close(slots(&lab), 33.0), "the last good run stays");
    assert_eq!(lab.model.setup, lab.model.run.setup, "the knob shows what runs");
}

#[test]
fn an_answer_that_comes_too_late_is_dropped() {
    let mut lab = lab();
    let first = update(&mut lab.model, Message::Key(ranklab::tui::keys::Key::Char('R'))).expect("a run");
    let second = update(&mut lab.model, Message::Key(ranklab::tui::keys::Key::Char('R'))).expect("a run");
    let answer = |lab: &mut Lab, effect: Effect| lab.worker.answer(effect).expect("an answer");
    let shown = lab.model.run.number;
    let late = answer(&mut lab, first);
    update(&mut lab.model, late);
    assert_eq!(lab.model.run.number, shown, "not the first one's");
    let right = answer(&mut lab, second);
    update(&mut lab.model, right);
    assert_eq!(lab.model.run.number, lab.model.requests);
}

#[test]
fn an_interrupt_stops_what_runs_and_keeps_the_old_run() {
    use ranklab::tui::keys::Key;
    for keys in ["R", "o j j j j j Right"] {
        let mut lab = Lab::start((120, 36), ASCII_MONO);
        lab.choose(4);
        let (shown, setup) = (lab.model.run.number, lab.model.setup.clone());
        let (before, last) = keys.rsplit_once(' ').unwrap_or(("", keys));
        lab.press(before);
        let effect = update(&mut lab.model, Message::Key(Key::parse(last).expect("a key"))).expect("a run");
        assert!(super::pictures::text(&lab.model).contains("[RUNNING]"), "{keys}");
        let late = lab.worker.answer(effect).expect("an answer");
        assert_eq!(lab.press("C-c"), Some(Effect::Abandon { shown }), "{keys}");
        assert_eq!((lab.model.run.number, &lab.model.setup), (shown, &setup), "{keys}");
        assert_eq!(lab.model.message, "stopped: the run before it stays");
        assert_eq!(lab.send(late), None);
        assert_eq!((lab.model.run.number, &lab.model.setup, lab.model.asked), (shown, &setup, None), "{keys}");
        let look = Look { number: shown, event: 1, rank: Rank(1) };
        let values = lab.worker.answer(Effect::Look(look));
        assert!(matches!(values, Some(Message::Values(of, _)) if of == look), "{keys}: the worker has the old run");
        assert_eq!(lab.press("C-c"), Some(Effect::Quit { keep_frame: false }), "{keys}");
    }
}

#[test]
fn enter_does_nothing_while_a_run_is_asked_for() {
    let mut lab = lab();
    lab.press("] ] ] ]");
    assert!(update(&mut lab.model, Message::Key(ranklab::tui::keys::Key::Named(ranklab::tui::keys::Name::Enter))).is_some());
    assert_eq!(lab.press("Enter"), None);
    assert_eq!(lab.model.message, "still running");
}

#[test]
fn every_schedule_can_be_turned_to_and_says_why_it_waits() {
    let mut lab = lab();
    for schedule in schedule::SCHEDULES {
        let effect = ranklab::tui::update::runs::turn(&mut lab.model, "pipeline.schedule", schedule.name);
        let answer = lab.worker.answer(effect).expect("an answer");
        lab.send(answer);
        assert!(lab.model.asked.is_none() && lab.model.setup.changes[0].1 == schedule.name);
        lab.press("g b w");
        assert!(
            matches!(&lab.model.overlay, Overlay::Why { text, .. } if text.contains("needs the result of")),
            "{}",
            schedule.name
        );
        lab.press("Esc");
    }
}

#[test]
fn jumps_find_alerts_peaks_and_the_critical_path() {
    let mut lab = lab();
    lab.press("g a");
    assert_eq!(lab.model.message, "nothing is wrong in this run");
    lab.press("g p");
    assert!(lab.model.message.starts_with("r0 holds the most"), "{}", lab.model.message);
    lab.press("g c g c");
    assert!(lab.model.message.starts_with("critical path: r"), "{}", lab.model.message);
    lab.press("] ] ] ] ] g a");
    assert!(lab.model.message.contains("meets its peer at"), "{}", lab.model.message);
}

#[test]
fn a_lesson_opens_as_if_none_had_been_open_before() {
    let mut lab = lab();
    let fresh = (lab.model.timeline, lab.model.now, lab.model.player);
    lab.press("Tab j j . . + + > > c q Enter");
    assert_eq!((lab.model.timeline, lab.model.now, lab.model.player), fresh);
}

#[test]
fn knobs_of_one_page_do_not_hold_where_the_next_has_its_own_run() {
    let mut lab = lab();
    lab.press("o Down Right Esc ]");
    assert!(lab.model.setup.changes.is_empty() && is_close(slots(&lab), 33.0));
    assert_eq!(lab.model.message, "the knobs of the last page were put back");
}

#[test]
fn a_command_that_is_typed_over_anything_is_one() {
    for open in ["", "o", "w", "B", "e", "R", "m", "g", "'"] {
        let mut lab = lab();
        lab.press(open);
        if open.is_empty() {
            lab.palette("set batch.micro_batches=0");
            assert!(matches!(lab.model.overlay, Overlay::Problem { .. }));
        }
        lab.palette("set batch.micro_batches=4");
        assert_eq!(lab.model.setup.changes, [("batch.micro_batches".to_owned(), "4".to_owned())], "behind {open}");
    }
}

#[test]
fn a_problem_waits_until_what_is_typed_is_typed() {
    let mut lab = lab();
    lab.press(":");
    lab.type_text("set batch.micro_batches=0");
    let key = |word| Message::Key(ranklab::tui::keys::Key::parse(word).expect("a key"));
    let effect = update(&mut lab.model, key("Enter")).expect("a run");
    let answer = lab.worker.answer(effect).expect("an answer");
    for typing in [":", "m", "g"] {
        update(&mut lab.model, key(typing));
        let number = lab.model.requests;
        lab.model.asked = Some(ranklab::tui::model::Asked { number, landing: ranklab::tui::model::Landing::Keep });
        let again = match &answer {
            Message::Ran(number, Err(text)) => Message::Ran(*number, Err(text.clone())),
            _ => panic!("it cannot be run"),
        };
        update(&mut lab.model, again);
        assert!(!matches!(lab.model.overlay, Overlay::Problem { .. }), "behind {typing}");
        update(&mut lab.model, key("Esc"));
        assert!(matches!(lab.model.overlay, Overlay::Problem { .. }), "behind {typing}");
        lab.press("Esc");
    }
}

#[test]
fn a_try_takes_the_cursor_along_with_the_playhead() {
    let mut lab = lab();
    lab.press("] ] ] ]");
    lab.press("Enter");
    let model = &lab.model;
    assert_eq!(model.now.event, model.run.data.events(), "at the end, as before");
    assert_eq!(model.timeline.cursor.time, model.now.time.0);
}
