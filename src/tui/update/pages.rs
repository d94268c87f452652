//! Lists, pages of text, panes.

use std::ops::ControlFlow;

use super::Effect;
use crate::tui::commands::Command;
use crate::tui::layout::Layout;
use crate::tui::model::{LessonModel, Listed, Model, View};
use crate::tui::panels::text;

/// Runs a command of this file and breaks; goes on if it is another's.
pub fn execute(model: &mut Model, command: Command) -> ControlFlow<Option<Effect>> {
    let in_list = model.view == View::Lessons;
    match command {
        Command::Open if in_list => return ControlFlow::Break(open_selected(model)),
        Command::Open => answer(model),
        Command::NextPage => turn(model, true),
        Command::PreviousPage => turn(model, false),
        Command::NextPane => focus(model, 1),
        Command::PreviousPane => focus(model, -1),
        Command::Maximise => model.maximised = !model.maximised,
        Command::Up => lines(model, -1),
        Command::Down => lines(model, 1),
        Command::PageUp | Command::PageDown if !in_list => turn(model, command == Command::PageDown),
        Command::HalfPageUp | Command::PageUp => lines(model, -half_page(model)),
        Command::HalfPageDown | Command::PageDown => lines(model, half_page(model)),
        Command::Start => lines(model, isize::MIN),
        Command::End => lines(model, isize::MAX),
        _ => return ControlFlow::Continue(()),
    }
    ControlFlow::Break(None)
}

fn open_selected(model: &mut Model) -> Option<Effect> {
    let Listed { name, title, .. } = model.shelf.lessons.get(model.shelf.selected)?.clone();
    model.say(format!("opening {title}"));
    Some(Effect::Open { lesson: name })
}

fn answer(model: &mut Model) {
    let lesson = &mut model.lesson;
    let asks = lesson.document.pages.get(lesson.page).is_some_and(super::super::lesson::Page::asks);
    if asks && !lesson.answered.remove(&lesson.page) {
        lesson.answered.insert(lesson.page);
        // The answer stands at the end of the page.
        model.lesson.scroll = text::lines_below(model);
    }
}

fn turn(model: &mut Model, forward: bool) {
    let LessonModel { document, page, .. } = &model.lesson;
    let last = document.pages.len().saturating_sub(1);
    let next = if forward { (page + 1).min(last) } else { page.saturating_sub(1) };
    if next == *page {
        model.say(if forward { "this is the last page" } else { "this is the first page" });
    }
    model.lesson.page = next;
    model.lesson.scroll = 0;
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

/// Moves in the list of lessons, or in the text of the page.
fn lines(model: &mut Model, distance: isize) {
    if model.view == View::Lessons {
        let last = model.shelf.lessons.len().saturating_sub(1);
        model.shelf.selected = model.shelf.selected.saturating_add_signed(distance).min(last);
    } else {
        let last = text::lines_below(model);
        model.lesson.scroll = model.lesson.scroll.saturating_add_signed(distance).min(last);
    }
}

fn half_page(model: &Model) -> isize {
    let layout = Layout::of(model);
    let height = layout.focused(model).map_or(1, |placed| placed.inside().height);
    isize::try_from(height / 2).unwrap_or(1).max(1)
}
