//! The list of lessons, and what the selected one is about.

use super::text;
use crate::teach::library::Broken;
use crate::teach::{Lesson, Library};
use crate::tui::glyphs::Tier;
use crate::tui::lesson::{LINE, Line as Words, text_lines};
use crate::tui::model::Model;
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// The lessons under their chapters; the selected one stays in view.
pub fn list(model: &Model, pen: &mut Pen<'_>) {
    let library = &model.shelf.contents;
    let lines = lines(library);
    let selected = lines.iter().position(|line| matches!(line, Line::Entry(index) if *index == model.shelf.selected));
    let is_cut = lines.len() > usize::from(pen.height());
    let height = pen.height() - u16::from(is_cut && pen.height() > 0);
    let first = (selected.unwrap_or(0) + 2).saturating_sub(usize::from(height)).min(lines.len());
    if lines.is_empty() {
        pen.say(1, 0, "no lessons found", Role::Quiet);
    }
    if is_cut {
        pen.say(1, height, &elsewhere(&lines, first..first + usize::from(height), pen.tier), Role::Quiet);
    }
    for (y, line) in (0..height).zip(&lines[first..]) {
        match line {
            Line::Blank => {}
            Line::Chapter(name) => _ = pen.say(1, y, name, Role::Strong),
            Line::Entry(index) => entry(library, *index, *index == model.shelf.selected, y, pen),
        }
    }
}

/// How many lessons stand above the shown lines, and how many below.
fn elsewhere(lines: &[Line], shown: std::ops::Range<usize>, tier: Tier) -> String {
    let count = |lines: &[Line]| lines.iter().filter(|line| matches!(line, Line::Entry(_))).count();
    let (above, below) = (count(&lines[..shown.start]), count(&lines[shown.end.min(lines.len())..]));
    let parts = [(above, "above"), (below, "below")].into_iter().filter(|part| part.0 > 0);
    let parts: Vec<String> = parts.map(|(count, place)| format!("{count} more {place}")).collect();
    format!("{} {}", tier.dots(), parts.join(", "))
}

/// How many lines can be selected: lessons, and behind them those that could not be read.
#[must_use]
pub fn entries(library: &Library) -> usize {
    library.lessons().len() + library.broken().len()
}

#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Blank,
    Chapter(&'a str),
    Entry(usize),
}

fn lines(library: &Library) -> Vec<Line<'_>> {
    let of_lesson = library.lessons().iter().map(|lesson| lesson.module.as_str());
    let chapters = of_lesson.chain(library.broken().iter().map(|_| "Cannot be read"));
    let mut lines = Vec::new();
    let mut before = None;
    for (index, chapter) in chapters.enumerate() {
        if before.replace(chapter) != Some(chapter) {
            lines.extend((index > 0).then_some(Line::Blank));
            lines.push(Line::Chapter(chapter));
        }
        lines.push(Line::Entry(index));
    }
    lines
}

fn entry(library: &Library, index: usize, selected: bool, y: u16, pen: &mut Pen<'_>) {
    let mark = if selected { '>' } else { ' ' };
    match (library.lessons().get(index), broken(library, index)) {
        (Some(lesson), _) => {
            let x = pen.say(1, y, &format!("{mark}{:>3}  {}", lesson.number, lesson.title), Role::Text);
            pen.say_right(x + 2, y, 2, &format!("{} min", lesson.minutes), Role::Quiet);
        }
        (None, Some(broken)) => _ = pen.say(1, y, &format!("{mark} !   {}", broken.name), Role::Text),
        (None, None) => {}
    }
    if selected {
        pen.restyle(1, y, pen.width().saturating_sub(2), pen.theme.style(Role::Selected));
    }
}

/// What the selected lesson is about, or what is wrong with it.
pub fn about(model: &Model, pen: &mut Pen<'_>) {
    let library = &model.shelf.contents;
    let (title, lines) = match (library.lessons().get(model.shelf.selected), broken(library, model.shelf.selected)) {
        (Some(lesson), _) => (&lesson.title, lesson_lines(lesson, pen)),
        (None, Some(broken)) => (&broken.name, broken_lines(broken, pen)),
        (None, None) => return,
    };
    pen.say(1, 1, title, Role::Strong);
    for (y, line) in (3..pen.height()).zip(lines) {
        text::line(&line, 1, y, pen);
    }
}

fn lesson_lines(lesson: &Lesson, pen: &Pen<'_>) -> Vec<Words> {
    let width = pen.width().saturating_sub(2).min(LINE);
    let mut lines = text_lines(&lesson.goal, width, Role::Text);
    let pages = format!("{} pages, {} minutes. Enter opens it.", lesson.pages.len(), lesson.minutes);
    lines.extend([Words::new()].into_iter().chain(text_lines(&pages, width, Role::Quiet)));
    if !lesson.sources.is_empty() {
        lines.push(Words::new());
        lines.extend(text_lines("Sources", width, Role::Quiet));
        lines.extend(lesson.sources.iter().flat_map(|source| text_lines(source, width, Role::Quiet)));
    }
    lines
}

fn broken_lines(broken: &Broken, pen: &Pen<'_>) -> Vec<Words> {
    let width = pen.width().saturating_sub(2).min(76);
    broken.problems.iter().flat_map(|problem| text_lines(&problem.to_string(), width, Role::Text)).collect()
}

fn broken(library: &Library, index: usize) -> Option<&Broken> {
    index.checked_sub(library.lessons().len()).and_then(|place| library.broken().get(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chapter_stands_once_above_its_lessons() {
        let library = Library::shipped();
        let lines = lines(&library);
        let chapters: Vec<&Line> = lines.iter().filter(|line| matches!(line, Line::Chapter(_))).collect();
        let entries = lines.iter().filter(|line| matches!(line, Line::Entry(_))).count();
        assert_eq!(entries, library.lessons().len());
        assert!(chapters.len() > 1 && chapters.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(matches!(lines[..2], [Line::Chapter(_), Line::Entry(0)]));
    }
}
