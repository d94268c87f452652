//! The list of lessons, and what the selected one is about.

use super::text;
use crate::tui::lesson::{Document, LINE};
use crate::tui::model::{Listed, Model};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// The lessons under their chapters; the selected one stays in view.
pub fn list(model: &Model, pen: &mut Pen<'_>) {
    let lines = lines(&model.shelf.lessons);
    let selected = lines.iter().position(|line| matches!(line, Line::Lesson(index) if *index == model.shelf.selected));
    let height = usize::from(pen.height());
    let first = (selected.unwrap_or(0) + 2).saturating_sub(height);
    if lines.is_empty() {
        pen.say(1, 0, "no lessons found", Role::Quiet);
    }
    for (y, line) in (0..pen.height()).zip(&lines[first.min(lines.len())..]) {
        match line {
            Line::Blank => {}
            Line::Chapter(name) => _ = pen.say(1, y, name, Role::Strong),
            Line::Lesson(index) => lesson(&model.shelf.lessons[*index], *index == model.shelf.selected, y, pen),
        }
    }
}

enum Line<'a> {
    Blank,
    Chapter(&'a str),
    Lesson(usize),
}

fn lines(lessons: &[Listed]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut chapter = "";
    for (index, lesson) in lessons.iter().enumerate() {
        if lesson.chapter != chapter {
            chapter = &lesson.chapter;
            if !lines.is_empty() {
                lines.push(Line::Blank);
            }
            lines.push(Line::Chapter(chapter));
        }
        lines.push(Line::Lesson(index));
    }
    lines
}

fn lesson(lesson: &Listed, selected: bool, y: u16, pen: &mut Pen<'_>) {
    let text = format!("{}{:>3}  {}", if selected { '>' } else { ' ' }, lesson.number, lesson.title);
    pen.say(1, y, &text, Role::Text);
    if selected {
        pen.restyle(1, y, pen.width().saturating_sub(2), pen.theme.style(Role::Selected));
    }
}

/// What the selected lesson is about.
pub fn about(model: &Model, pen: &mut Pen<'_>) {
    let Some(lesson) = model.shelf.lessons.get(model.shelf.selected) else { return };
    let document = Document::parse(&lesson.about);
    let width = pen.width().saturating_sub(2).min(LINE);
    pen.say(1, 1, &lesson.title, Role::Strong);
    let mut y = 2;
    for line in document.pages.iter().flat_map(|page| page.lines(width, true)) {
        y += 1;
        text::line(&line, 1, y, pen);
    }
    pen.say(1, y + 2, "Enter opens it", Role::Quiet);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chapter_stands_once_above_its_lessons() {
        let named = |chapter: &str| Listed { chapter: chapter.into(), ..Listed::default() };
        let lessons = [named("A"), named("A"), named("B")];
        let shown: Vec<String> = lines(&lessons)
            .iter()
            .map(|line| match line {
                Line::Blank => String::new(),
                Line::Chapter(name) => (*name).to_owned(),
                Line::Lesson(index) => index.to_string(),
            })
            .collect();
        assert_eq!(shown, ["A", "0", "1", "", "B", "2"]);
    }
}
