//! What the screen says fits what it shows: labels, columns under each other, the words of the keys' line.

use super::{ASCII_MONO, BLOCKS_DARK, Lab, pictures::text};
use ranklab::tui::layout::Layout;
use ranklab::tui::lesson::actions;
use ranklab::tui::model::{LessonModel, Pane};
use ranklab::tui::panels::timeline::label_width;
use ranklab::tui::update::Message;
use ranklab::tui::update::timeline::window;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_label_stands_whole_or_not_at_all() {
    let mut lab = Lab::opened((80, 24), BLOCKS_DARK);
    lab.press("o Down Right Esc");
    assert_eq!(lab.model.setup.changes[0].1, "16");
    let shown = text(&lab.model);
    let lanes: Vec<&str> = shown.lines().filter_map(|line| Some(line.split_once("comp│")?.1)).collect();
    assert!(lanes.len() == 4 && lanes.iter().all(|lane| lane.contains("B9")), "{shown}");
    for lane in lanes {
        let cells: Vec<char> = lane.chars().collect();
        let alone = cells.windows(2).find(|pair| pair[0].is_ascii_uppercase() && !pair[1].is_ascii_digit());
        assert_eq!(alone, None, "a letter without its number: {lane}");
    }
}

#[test]
fn what_is_in_flight_stands_below_the_columns_of_the_timeline() {
    for (lesson, keys) in [(4, ""), (4, "2 +"), (11, ""), (11, "2 + + l l"), (11, "2 0")] {
        let mut lab = Lab::start((120, 36), ASCII_MONO);
        lab.choose(lesson);
        lab.press(keys);
        let layout = Layout::of(&lab.model);
        let place = |pane| layout.panes.iter().find(|placed| placed.pane == pane).expect("the pane").inside();
        let (timeline, held) = (place(Pane::Timeline), place(Pane::Held));
        assert_eq!((timeline.x, timeline.width), (held.x, held.width), "{lesson} {keys}");
        let data = &lab.model.run.data;
        let width = layout.axis_width(data);
        let window = window(&lab.model, width);
        let shown = text(&lab.model);
        let line: Vec<char> = shown.lines().nth(usize::from(held.y)).expect("a line").chars().collect();
        for column in (0..width).take_while(|&column| window.edge(column).tick < data.end().0) {
            let most = data.in_flight[0].most(window.edge(column).tick, window.edge(column + 1).ceiling());
            let digit = if most == 0 { '.' } else { char::from_digit(most, 10).expect("a digit") };
            assert_eq!(line[usize::from(held.x + label_width(data) + column)], digit, "{lesson} {keys}: column {column}");
        }
    }
}

/// The line of the keys.
fn keys_line(lab: &Lab) -> String {
    text(&lab.model).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn enter_offers_an_answer_only_to_a_question_that_is_seen() {
    for size in [(79, 24), (80, 23), (60, 18)] {
        let mut lab = Lab::opened_fast(size, ASCII_MONO);
        assert!(keys_line(&lab).contains("Tab text  Enter to ASK  "), "{size:?}: {}", keys_line(&lab));
        lab.press("Enter");
        assert!(text(&lab.model).contains("ASK  "), "{size:?}: the question is there");
        assert!(keys_line(&lab).contains("Enter answer  "), "{size:?}: {}", keys_line(&lab));
    }
    let mut lab = Lab::opened((79, 24), ASCII_MONO);
    lab.press("] ] ] ]");
    assert!(keys_line(&lab).contains("Enter to TRY  "), "{}", keys_line(&lab));
}

#[test]
fn on_the_last_page_enter_offers_nothing_once_all_is_done() {
    let mut lab = Lab::opened_fast((120, 36), ASCII_MONO);
    for lesson in lab.model.shelf.contents.clone().lessons() {
        lab.model.lesson = LessonModel::of(Arc::new(lesson.clone()));
        let last = lesson.pages.len() - 1;
        lab.model.lesson.page = last;
        lab.model.lesson.done.insert(last, actions(&lesson.pages[last]).count());
        assert!(!keys_line(&lab).contains("Enter"), "{}: {}", lesson.title, keys_line(&lab));
    }
    let mut lab = Lab::opened_fast((120, 36), ASCII_MONO);
    lab.press("]");
    assert!(keys_line(&lab).contains("Enter go on"), "{}", keys_line(&lab));
}

#[test]
fn ranks_that_are_followed_for_others_have_one_name_everywhere() {
    let mut lab = Lab::start((120, 36), ASCII_MONO);
    lab.choose(18);
    lab.press("] ] ]");
    assert_eq!((lab.model.run.data.ranks(), lab.model.run.data.program().fold()), (4, 16));
    for (view, shown) in
        [("2", "r48 comp"), ("3", " r16 stage 1 "), ("4", ">r0->r16"), ("5", " r48 |"), ("6", "r32"), ("8", "r16")]
    {
        lab.press(view);
        let picture = text(&lab.model);
        assert!(picture.contains(shown), "{shown} in view {view}:\n{picture}");
    }
    lab.press("4");
    assert!(text(&lab.model).contains("link: InfiniBand"), "stages stand on nodes of their own");
    lab.palette("rank 48");
    assert_eq!(lab.model.focus_rank().0, 3);
    lab.palette("rank 17");
    assert_eq!(lab.model.focus_rank().0, 1);
    assert!(lab.model.message.contains("same as r16"), "{}", lab.model.message);
    lab.palette("rank 64");
    assert!(lab.model.message.contains("the run has 64"), "{}", lab.model.message);
}

#[test]
fn what_plays_unseen_changes_no_zoom() {
    let mut lab = Lab::opened((80, 24), BLOCKS_DARK);
    let scale = |lab: &Lab| {
        window(&lab.model, Layout::of(&lab.model).axis_width(&lab.model.run.data)).scale_text(lab.model.run.data.clock())
    };
    let before = scale(&lab);
    lab.press("spc");
    lab.send(Message::Resize(10, 3));
    for _ in 0..40 {
        lab.send(Message::Elapsed(Duration::from_secs(1)));
    }
    lab.send(Message::Resize(80, 24));
    assert_eq!(scale(&lab), before);
}

#[test]
fn the_keys_line_has_the_keys_of_what_is_open() {
    let mut lab = Lab::opened((80, 24), ASCII_MONO);
    for (open, keys) in [("o", "Left/Right turn"), ("?", "to filter"), ("e", "Enter writes"), ("B", "x takes it away")] {
        lab.press(open);
        assert!(keys_line(&lab).contains(keys) && !keys_line(&lab).contains("n/N"), "{open}: {}", keys_line(&lab));
        lab.press("Esc");
    }
    lab.press(">");
    assert_eq!(lab.model.message, "plays at speed 2");
}
