//! Rows of the data panels: the arrows choose one, Enter goes to what it speaks of; messages and keys have their places at every size.

use super::{ASCII_MONO, Lab, pictures::text};
use ranklab::base::Rank;
use ranklab::observe::state::State;
use ranklab::teach::Library;
use ranklab::tui::model::View;

fn lab(keys: &str) -> Lab {
    let mut lab = Lab::opened((120, 36), ASCII_MONO);
    lab.press(keys);
    lab
}

/// The text of line `from_below` above the last one.
fn line(lab: &Lab, from_below: usize) -> String {
    let shown = super::pictures::text(&lab.model);
    shown.lines().rev().nth(from_below).unwrap_or_default().to_owned()
}

#[test]
fn arrows_choose_ranks_links_and_gaps() {
    let check = |keys: &str, focus: u32, chosen: usize| {
        let lab = lab(keys);
        let of_view = lab.model.chosen[lab.model.view as usize];
        assert_eq!((lab.model.focus_rank(), of_view), (Rank(focus), chosen), "{keys}");
    };
    check("3 j j", 2, 0);
    check("3 j j k", 1, 0);
    check("5 j j j j j", 3, 0);
    check("4 j j k j", 0, 2);
    check("4 G", 0, 5);
    check("4 G g g", 0, 0);
    check("6 j j", 1, 2);
    check("6 k", 0, 0);
    // Before the first event nobody is blocked; behind r0's first ops r1, r2 and r3 are.
    check("7 j", 1, 0);
    check("n n 7 j j", 2, 0);
    check("n n 7 j j k k k", 1, 0);
}

#[test]
fn a_chosen_row_is_marked_without_colour() {
    for (view, mark) in [("3 j", ">r1"), ("4 j", ">r1->r0"), ("5 j", ">r1"), ("6 j", ">r3    27u"), ("n n 7 j", ">r1")] {
        let lab = lab(view);
        assert!(super::pictures::text(&lab.model).contains(mark), "{view}: {mark}");
    }
}

#[test]
fn enter_in_the_debugger_and_the_waits_goes_to_the_op_of_the_rank() {
    for (keys, view) in [("n n 3 j Enter", View::Timeline), ("n n 7 j Enter", View::Debugger)] {
        let lab = lab(keys);
        assert_eq!((lab.model.view, lab.model.focus_rank()), (view, Rank(1)), "{keys}");
        assert!(lab.model.message.starts_with("r1 stands at `recv x2.0 <- r0`, and waits"), "{}", lab.model.message);
        let data = &lab.model.run.data;
        let run = data.run();
        let stand = data.at(&run, lab.model.now.event).stand(Rank(1)).expect("r1 waits").op;
        let place = (lab.model.timeline.cursor.row, lab.model.timeline.cursor.time);
        assert_eq!(data.place_of(stand).map(|(row, time)| (row, time.0)), Some(place), "{keys}");
    }
}

#[test]
fn enter_on_a_link_goes_from_message_to_message() {
    let mut lab = lab("4 j");
    for number in 0..3 {
        lab.press("Enter");
        let data = &lab.model.run.data;
        let run = data.run();
        let wire =
            ranklab::tui::panels::links::wires(data, &data.at(&run, lab.model.now.event), (Rank(0), lab.model.cursor_op()));
        assert_eq!((wire.all[1].from, wire.all[1].to), (Rank(1), Rank(0)));
        assert_eq!(wire.all[1].carried.messages, number + 1, "one more has left");
        assert!(lab.model.message.starts_with(&format!("r1 -> r0: g{number} leaves at ")), "{}", lab.model.message);
    }
}

#[test]
fn enter_on_a_rank_of_the_memory_goes_to_its_peak() {
    let lab = lab("5 j j Enter");
    let data = &lab.model.run.data;
    let account = data.ledger.rank(Rank(2));
    assert_eq!(account.after(lab.model.now.event).total(), account.peak().total());
    assert!(lab.model.message.starts_with("r2 holds the most, "), "{}", lab.model.message);
}

#[test]
fn enter_on_a_gap_shows_it_in_the_timeline() {
    let lab = lab("6 j j Enter");
    let gap = lab.model.run.data.prepared.gaps[2];
    assert_eq!((lab.model.view, lab.model.focus_rank()), (View::Timeline, gap.rank));
    assert_eq!((lab.model.timeline.cursor.time, lab.model.now.time), (gap.start.0, gap.start));
    assert!(lab.model.cursor_span().is_none_or(|(_, span)| span.kind.is_idle()), "the cursor stands in the gap");
}

#[test]
fn enter_in_the_timeline_goes_to_the_op_under_the_cursor() {
    let mut lab = lab("2 j j . . .");
    let op = lab.model.cursor_op().expect("an op");
    lab.press("Enter");
    let data = &lab.model.run.data;
    let run = data.run();
    assert_eq!(data.at(&run, lab.model.now.event).state(op), State::Running);
    assert_eq!(lab.model.cursor_op(), Some(op));
}

#[test]
fn a_run_without_ranks_or_rows_has_nothing_to_choose() {
    let mut lab = Lab::start((120, 36), ASCII_MONO);
    let lesson = std::sync::Arc::new(lab.model.shelf.contents.find("11").expect("a lesson").clone());
    ranklab::tui::update::runs::open(&mut lab.model, lesson);
    for view in ["2", "3", "4", "5", "6", "7"] {
        lab.press(view);
        lab.press("j k G Enter");
    }
}

#[test]
fn a_message_never_hides_the_keys_and_the_verdict_comes_back() {
    for size in [(80, 24), (100, 30), (120, 36), (60, 18)] {
        let mut lab = Lab::opened(size, ASCII_MONO);
        // While the page asks for it, the verdict is not told.
        let (asked, verdict) = ("come with the answer", "equals one device bit for bit");
        let shown = [("", "", asked), ("n", "ev 1: r0", ""), ("X", "X does nothing here", ""), ("n 2", "", verdict)];
        for (keys, message, unsaid) in shown {
            lab.press(keys);
            assert!(line(&lab, 0).ends_with("? help  q back"), "{size:?} {keys}: {}", line(&lab, 0));
            // The smallest screens have no line for messages: one takes the scrubber's place, and no message is the scrubber.
            let expected = if size == (60, 18) || !message.is_empty() { message } else { unsaid };
            assert!(line(&lab, 1).contains(expected), "{size:?} {keys}: {}", line(&lab, 1));
            assert!(!message.is_empty() || !line(&lab, 1).ends_with("..."), "the verdict is not cut within a number");
        }
    }
}

#[test]
fn what_enter_runs_is_on_the_screen_first() {
    // All runs of a lesson take a while: sizes go round.
    let sizes = [(60, 18), (80, 24), (120, 36)].into_iter().cycle();
    for (lesson, size) in Library::shipped().lessons().iter().zip(sizes) {
        let mut lab = Lab::start(size, ASCII_MONO);
        lab.choose(lesson.number);
        for _ in 1..lab.model.lesson.lesson.pages.len() {
            acted_on_is_seen(&mut lab);
            lab.press("]");
        }
    }
}

/// Takes all actions of a page: before each, its hint is on the screen.
fn acted_on_is_seen(lab: &mut Lab) {
    let actions = ranklab::tui::lesson::actions(lab.model.lesson.page().expect("a page")).count();
    while lab.model.lesson.taken() < actions {
        let (taken, before) = (lab.model.lesson.taken(), super::pictures::text(&lab.model));
        lab.press("Enter");
        let seen = ["(Enter", "Enter runs it with", "Enter shows its answer"].iter().any(|hint| before.contains(hint));
        assert!(lab.model.lesson.taken() == taken || seen, "page {}: not seen in\n{before}", lab.model.lesson.page + 1);
    }
}

/// What the palette sets is what `--set` would: any key, whether or not a knob offers the value.
#[test]
fn any_key_can_be_set() {
    let mut lab = Lab::opened((120, 36), ASCII_MONO);
    lab.palette("set batch.micro_batches=5");
    assert_eq!(lab.model.setup.overrides(), ["batch.micro_batches=5"]);
    assert!(text(&lab.model).contains("F4") && !text(&lab.model).contains("F5"), "{}", text(&lab.model));
    lab.palette("set batch.micro_batch=5");
    let shown = text(&lab.model);
    assert!(shown.contains("batch.micro_batch") && shown.contains("did you mean"), "{shown}");
    lab.press("Esc");
    lab.palette("set 5");
    assert!(lab.model.message.starts_with("set KEY=VALUE"), "{}", lab.model.message);
    assert_eq!(lab.model.setup.overrides(), ["batch.micro_batches=5"]);
}

/// What takes no time has no place in a row, and is found all the same.
#[test]
fn ops_that_take_no_time_are_found() {
    let mut lab = Lab::opened((120, 36), ASCII_MONO);
    for (sought, row) in [("optimizer head", 3), ("zero-gradients", 0)] {
        lab.press("/");
        lab.type_text(sought);
        lab.press("Enter");
        assert!(lab.model.message.starts_with(&format!("found {sought}: r{row}")), "{}", lab.model.message);
    }
}
