//! Lists, pages of text, panes.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Effect;
use crate::tui::commands::Command;
use crate::tui::layout::Layout;
use crate::tui::lesson::{Action, actions};
use crate::tui::model::{Model, Pane, View};
use crate::tui::panels::{shelf, text};
use crate::tui::update::{rows, runs};

/// Runs a command of this file and breaks; goes on if it is another's.
pub fn execute(model: &mut Model, command: Command) -> ControlFlow<Option<Effect>> {
    let in_list = model.view == View::Lessons;
    match command {
        Command::Open if in_list => return ControlFlow::Break(open_selected(model)),
        Command::Open if model.view == View::Lesson => return ControlFlow::Break(act(model)),
        Command::Open => rows::open(model),
        Command::NextPage => return ControlFlow::Break(turn(model, true)),
        Command::PreviousPage => return ControlFlow::Break(turn(model, false)),
        Command::NextPane => focus(model, 1),
        Command::PreviousPane => focus(model, -1),
        Command::Maximise => model.maximised = !model.maximised,
        Command::Up => lines(model, -1),
        Command::Down => lines(model, 1),
        Command::PageUp | Command::PageDown if !in_list && on_text(model) => {
            return ControlFlow::Break(turn(model, command == Command::PageDown));
        }
        Command::HalfPageUp | Command::PageUp => lines(model, -half_page(model)),
        Command::HalfPageDown | Command::PageDown => lines(model, half_page(model)),
        Command::Start => lines(model, isize::MIN),
        Command::End => lines(model, isize::MAX),
        _ => return ControlFlow::Continue(()),
    }
    ControlFlow::Break(None)
}

fn on_text(model: &Model) -> bool {
    Layout::of(model).focused(model).is_some_and(|placed| placed.pane == Pane::Text)
}

fn open_selected(model: &mut Model) -> Option<Effect> {
    let library = Arc::clone(&model.shelf.contents);
    if model.setup.plan.is_some() && is_open(model) {
        model.view = View::Lesson;
        return None;
    }
    if let Some(lesson) = library.lessons().get(model.shelf.selected) {
        return Some(runs::open(model, Arc::new(lesson.clone())));
    }
    model.say("this lesson cannot be read: mend what is listed, and start again");
    None
}

/// Whether the selected lesson is the open one. With an edited plan it is found as it was left; else it begins anew.
pub fn is_open(model: &Model) -> bool {
    let selected = model.shelf.contents.lessons().get(model.shelf.selected);
    let is_here = selected.is_some_and(|lesson| lesson.name == model.lesson.lesson.name);
    is_here && (model.run.number > 0 || model.asked.is_some())
}

/// The next thing on the page: a value to try, or an answer.
fn act(model: &mut Model) -> Option<Effect> {
    let lesson = Arc::clone(&model.lesson.lesson);
    let Some(page) = lesson.pages.get(model.lesson.page) else {
        model.say("a scenario without a lesson: 2 to 9 show its run");
        return None;
    };
    let next = actions(page).nth(model.lesson.taken());
    // An answer speaks of the page's own run.
    if next.is_some() && model.asked.is_some() {
        model.say("still running");
        return None;
    }
    if let Some(next) = next.filter(|_| !text::next_is_seen(model)) {
        reveal(model, next);
        return None;
    }
    let effect = match next {
        Some(Action::Set { key, value }) => Some(runs::try_value(model, key, value)),
        Some(Action::Answer) => None,
        None if actions(page).next().is_some() => {
            let turned = if model.setup.is_turned() { ", Bksp puts the knobs back" } else { "" };
            model.say(format!("all on this page is done; ] turns it{turned}"));
            return None;
        }
        None => return turn(model, true),
    };
    *model.lesson.done.entry(model.lesson.page).or_insert(0) += 1;
    model.lesson.scroll = text::scroll_to_done(model);
    effect
}

/// Brings what Enter would do next onto the screen, and says what it is.
fn reveal(model: &mut Model, next: Action) {
    if !text::is_seen(model) {
        model.view = View::Lesson;
        let place = Layout::of(model).panes.iter().position(|placed| placed.pane == Pane::Text);
        model.focus[View::Lesson as usize] = place.unwrap_or(0);
    }
    model.lesson.scroll = text::scroll_to_next(model);
    model.say(match next {
        Action::Answer => "here is the question; Enter shows its answer".to_owned(),
        Action::Set { key, value } => format!("here is what to try; Enter runs it with {key} = {value}"),
    });
}

/// The page behind the present one, or before it; at the ends the present one.
pub fn neighbour(model: &Model, forward: bool) -> usize {
    let last = model.lesson.lesson.pages.len().saturating_sub(1);
    if forward { (model.lesson.page + 1).min(last) } else { model.lesson.page.saturating_sub(1) }
}

fn turn(model: &mut Model, forward: bool) -> Option<Effect> {
    let next = neighbour(model, forward);
    if next == model.lesson.page {
        model.say(if forward { "this is the last page" } else { "this is the first page" });
        return None;
    }
    let reading = on_text(model);
    model.lesson.page = next;
    model.lesson.scroll = 0;
    // Pages have different panes beside them: who was reading goes on reading.
    let text = Layout::of(model).panes.iter().position(|placed| placed.pane == Pane::Text);
    model.focus[View::Lesson as usize] = text.filter(|_| reading).unwrap_or(0);
    runs::turned(model)
}

fn focus(model: &mut Model, step: isize) {
    let panes = Layout::of(model).panes.len();
    let place = &mut model.focus[model.view as usize];
    *place = (*place).min(panes.saturating_sub(1));
    *place = match panes {
        0 => 0,
        _ if step > 0 => (*place + 1) % panes,
        _ => (*place + panes - 1) % panes,
    };
}

/// Moves in the list of lessons, in the text of the page, or in a panel: one row of its table up or down; in the debugger a page scrolls the
/// program.
fn lines(model: &mut Model, distance: isize) {
    let view = model.view as usize;
    match Layout::of(model).focused(model).map(|placed| placed.pane) {
        Some(Pane::Lessons | Pane::About) => {
            let last = shelf::entries(&model.shelf.contents).saturating_sub(1);
            model.shelf.selected = model.shelf.selected.saturating_add_signed(distance).min(last);
        }
        Some(Pane::Text) => {
            let last = text::lines_below(model);
            model.lesson.scroll = model.lesson.scroll.saturating_add_signed(distance).min(last);
        }
        Some(Pane::Debugger) if distance.unsigned_abs() > 1 => {
            model.scroll[view] = model.scroll[view].saturating_add_signed(distance).min(MOST_LINES);
        }
        Some(Pane::Differences) => {
            let last = model.pinned.as_ref().map_or(0, |pinned| pinned.compared.rows().saturating_sub(1));
            model.scroll[view] = model.scroll[view].saturating_add_signed(distance).min(last);
        }
        _ => rows::choose(model, distance),
    }
}

/// A panel is never longer.
const MOST_LINES: usize = 100_000;

fn half_page(model: &Model) -> isize {
    let layout = Layout::of(model);
    let height = layout.focused(model).map_or(1, |placed| placed.inside().height);
    isize::try_from(height / 2).unwrap_or(1).max(1)
}
