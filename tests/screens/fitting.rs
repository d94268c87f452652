//! What the screen says fits what it shows: labels, columns under each other, the words of the keys' line.

use super::{ASCII_MONO, BLOCKS_DARK, Lab, pictures::text};
use ranklab::tui::layout::Layout;
use ranklab::tui::lesson::actions;
use ranklab::tui::model::{LessonModel, Pane};
use ranklab::tui::panels::timeline::label_width;
use ranklab::tui::update::timeline::window;
use std::sync::Arc;

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
