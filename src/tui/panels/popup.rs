//! What lies over the view: a framed box with one line a choice.

use ratatui::layout::Rect;

use crate::observe::breakpoint::Breakpoint;
use crate::tui::commands::{self, Command};
use crate::tui::glyphs::Tier;
use crate::tui::knobs::{Knob, knobs};
use crate::tui::lesson::{plain_line, text_lines};
use crate::tui::model::{EXPORTS, Model, Overlay, Prefix};
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;
use crate::tui::update::overlay::matches;

/// Draws whatever is open.
pub fn draw(model: &Model, pen: &mut Pen<'_>) {
    match &model.overlay {
        Overlay::None => prefix(model, pen),
        Overlay::Help { filter, scroll } => super::help::draw(model, filter, *scroll, pen),
        Overlay::Palette { text, selected } => palette(model, text, *selected, pen),
        Overlay::Find { text } => line(&format!("/{text}_"), "find a rank, an op, a text: Enter finds, Esc ends", pen),
        Overlay::Knobs { selected, problem } => turn(model, *selected, problem, pen),
        Overlay::Why { text, scroll } => why(text, *scroll, pen),
        Overlay::Problem { text } => problem(text, pen),
        Overlay::Breaks { selected } => breaks(model, *selected, pen),
        Overlay::Export { selected } => export(*selected, pen),
        Overlay::Put { selected } => put(model, *selected, pen),
        Overlay::Overwrite { file, .. } => {
            line(&format!("{file} exists. Replace it? y / n"), "all but y leaves it as it is", pen);
        }
    }
}

/// A box of `width` x `height` in the middle, or as much as there is.
pub fn centred<'a>(pen: &'a mut Pen<'_>, width: u16, height: u16) -> Pen<'a> {
    let (width, height) = (width.min(pen.width()), height.min(pen.height()));
    let (x, y) = ((pen.width() - width) / 2, (pen.height() - height) / 2);
    let mut inside = pen.part(Rect::new(x, y, width, height));
    inside.clear();
    inside
}

/// A box of `width` x `height` at the bottom, above the keys' line.
fn at_bottom<'a>(pen: &'a mut Pen<'_>, width: u16, height: u16) -> Pen<'a> {
    let (width, height) = (width.min(pen.width()), height.min(pen.height()));
    let (x, y) = ((pen.width() - width) / 2, pen.height().saturating_sub(height + 1));
    let mut inside = pen.part(Rect::new(x, y, width, height));
    inside.clear();
    inside
}

/// One line at the bottom, where the eyes are when a text is typed.
fn line(typed: &str, hint: &str, pen: &mut Pen<'_>) {
    let last = pen.height().saturating_sub(1);
    let mut line = pen.part(Rect::new(0, last, pen.width(), 1));
    line.clear();
    let x = line.say(1, 0, &end_of(typed, line.width().saturating_sub(2), line.tier), Role::Strong);
    line.say_right(x + 2, 0, 1, hint, Role::Quiet);
}

/// The end of what is typed, where the next character appears, in at most `room` columns.
fn end_of(typed: &str, room: u16, tier: Tier) -> String {
    if width_of(typed) <= room {
        return typed.to_owned();
    }
    let room = room.saturating_sub(width_of(tier.dots()));
    let fits = |place: &usize| width_of(&typed[*place..]) <= room;
    let start = typed.char_indices().map(|(place, _)| place).find(fits).unwrap_or(typed.len());
    format!("{}{}", tier.dots(), &typed[start..])
}

/// The second keys of a prefix, above the keys' line.
fn prefix(model: &Model, pen: &mut Pen<'_>) {
    match model.prefix {
        None => {}
        Some(Prefix::SetMark) => line("m _", "a letter names the mark", pen),
        Some(Prefix::GoToMark) => {
            let known: String = model.marks.keys().collect();
            line("' _", &format!("marks: {known}"), pen);
        }
        Some(Prefix::Table(first)) => {
            let rows: Vec<(&str, &str)> = commands::behind(model.view, first).map(|(key, binding)| (key, binding.help)).collect();
            let height = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(2);
            let bottom = pen.height().saturating_sub(1);
            let area = Rect::new(1, bottom.saturating_sub(height), 44.min(pen.width().saturating_sub(1)), height);
            let mut panel = pen.part(area);
            panel.clear();
            let mut inside = panel.framed(&format!("{first} then"), true);
            for (y, (key, help)) in (0..).zip(rows) {
                inside.say(1, y, key, Role::Strong);
                inside.say(4, y, help, Role::Text);
            }
        }
    }
}

fn palette(model: &Model, text: &str, selected: usize, pen: &mut Pen<'_>) {
    let matching = matches(model);
    line(&format!(":{text}_"), "Enter runs, Up and Down choose, Esc closes", pen);
    let rows = pen.height().saturating_sub(3).min(12);
    let height = rows.min(u16::try_from(matching.len()).unwrap_or(u16::MAX)) + 2;
    let bottom = pen.height().saturating_sub(1);
    let mut panel = pen.part(Rect::new(1, bottom.saturating_sub(height), 78.min(pen.width().saturating_sub(2)), height));
    panel.clear();
    let mut inside = panel.framed("Commands", true);
    let first = (selected + 1).saturating_sub(usize::from(inside.height()));
    for (y, (place, binding)) in (0..inside.height()).zip(matching.iter().enumerate().skip(first)) {
        choice(&mut inside, y, place == selected, &[(1, binding.name), (20, binding.shown_key()), (28, binding.help)]);
    }
}

/// A line of columns (x, text); the chosen one is marked and reversed.
fn choice(pen: &mut Pen<'_>, y: u16, chosen: bool, columns: &[(u16, &str)]) {
    pen.say(0, y, if chosen { ">" } else { " " }, Role::Text);
    for &(x, text) in columns {
        pen.say(x, y, text, Role::Text);
    }
    if chosen {
        pen.restyle(0, y, pen.width(), pen.theme.style(Role::Selected));
    }
}

/// A knob a line: what it is, its value, what else it may be; below, what the chosen one means, or what is wrong with its value.
fn turn(model: &Model, selected: usize, problem: &str, pen: &mut Pen<'_>) {
    let knobs = knobs(model);
    let width = 94.min(pen.width());
    let problem: Vec<String> = problem.lines().flat_map(|line| hanging(line, width.saturating_sub(4))).collect();
    let below = u16::try_from(problem.len().min(12)).unwrap_or(0) + 2;
    let lines = u16::try_from(knobs.len()).unwrap_or(u16::MAX).saturating_add(below + 2);
    // The upper half stays free: the picture changes there with every turn.
    let height = lines.min((pen.height() / 2 - 1).max(below + 6)).min(pen.height().saturating_sub(2));
    let mut panel = at_bottom(pen, width, height);
    let mut inside = panel.framed("Knobs  Left and Right turn, Bksp puts all back, Esc closes", true);
    let bottom = inside.height().saturating_sub(below);
    let first = (selected + 1).saturating_sub(usize::from(bottom));
    for (y, (place, knob)) in (0..bottom).zip(knobs.iter().enumerate().skip(first)) {
        knob_line(model, knob, place == selected, y, &mut inside);
    }
    let Some(knob) = knobs.get(selected) else { return };
    let mut y = bottom;
    y += 1;
    let about = format!("{}  ({})", knob.key.meaning, knob.key.allowed());
    let about = inside.cut(&about, inside.width().saturating_sub(2));
    inside.say(1, y, &about, Role::Quiet);
    for line in problem {
        y += 1;
        inside.say(1, y, &line, Role::Text);
    }
}

fn knob_line(model: &Model, knob: &Knob, chosen: bool, y: u16, pen: &mut Pen<'_>) {
    let path = knob.key.path();
    let changed = model.setup.changes.iter().any(|change| change.0 == path);
    let arrow = |up| if knob.turned(up).is_some() { if up { '>' } else { '<' } } else { ' ' };
    let shown = format!("{} {} {}", arrow(false), knob.shown(), arrow(true));
    let others: Vec<&str> = knob.choices.iter().map(String::as_str).filter(|other| *other != knob.shown()).collect();
    let others = others.join(" ");
    let column = 55.max(36 + width_of(&shown) + 2);
    let marks = if changed { "*" } else { "" };
    let others = pen.cut(&others, pen.width().saturating_sub(column));
    choice(pen, y, chosen, &[(1, marks), (3, &path), (36, &shown), (column, &others)]);
    if !chosen && !knob.of_lesson {
        pen.restyle(3, y, 32, pen.theme.style(Role::Quiet));
    }
}

/// Sentences from an op to the cause of its wait.
fn why(text: &str, scroll: usize, pen: &mut Pen<'_>) {
    let width = pen.width().saturating_sub(4).min(100);
    let lines: Vec<String> = text.lines().flat_map(|line| hanging(line, width.saturating_sub(4))).collect();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(pen.height().saturating_sub(2));
    let mut panel = centred(pen, width, height);
    let mut inside = panel.framed("Why  Up and Down scroll, Esc closes", true);
    let last = lines.len().saturating_sub(usize::from(inside.height()));
    for (y, line) in (0..inside.height()).zip(lines.iter().skip(scroll.min(last))) {
        inside.say(1, y, line, Role::Text);
    }
}

/// What is wrong with a scenario, as it is printed on the command line.
fn problem(text: &str, pen: &mut Pen<'_>) {
    let width = 96.min(pen.width());
    let lines: Vec<String> = text.lines().flat_map(|line| hanging(line, width.saturating_sub(4))).collect();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    let mut panel = centred(pen, width, height.min(pen.height().saturating_sub(2)));
    let mut inside = panel.framed("This cannot be run  Esc closes", true);
    for (y, line) in (0..inside.height()).zip(&lines) {
        inside.say(1, y, line, Role::Text);
    }
}

/// A sentence in lines, the later ones indented; what fits stays as it is.
fn hanging(sentence: &str, width: u16) -> Vec<String> {
    if width_of(sentence) <= width {
        return vec![sentence.to_owned()];
    }
    let lines = text_lines(sentence, width.saturating_sub(2), Role::Text);
    let indented = |(place, line): (usize, String)| if place == 0 { line } else { format!("  {line}") };
    lines.iter().map(|line| plain_line(line)).enumerate().map(indented).collect()
}

/// The breakpoints, each with how often it is met and where next; below, what may be one.
fn breaks(model: &Model, selected: usize, pen: &mut Pen<'_>) {
    let list = model.breaks.list();
    let lines = u16::try_from(list.len()).unwrap_or(u16::MAX).max(1);
    let below = u16::try_from(Breakpoint::FORMS.len()).unwrap_or(0) + 2;
    let mut panel = centred(pen, 78, lines.saturating_add(below + 2));
    let mut inside = panel.framed("Breakpoints  Enter goes to the next, x takes one away", true);
    if list.is_empty() {
        let key = commands::binding(Command::Break).shown_key();
        inside.say(1, 0, &format!("none; {key} sets one on what is under the cursor"), Role::Quiet);
    }
    let data = &model.run.data;
    let room = inside.height().saturating_sub(below);
    let first = (selected + 1).saturating_sub(usize::from(room));
    for (y, (place, one)) in (0..room).zip(list.iter().enumerate().skip(first)) {
        let next = one.next(model.now.event);
        let times = match one.hits.len() {
            0 => "never met".to_owned(),
            1 => "met once".to_owned(),
            times => format!("met {times} times"),
        };
        let next = next.map_or_else(String::new, |event| format!("next t={}", data.clock().show(data.position(event).time)));
        let words = inside.cut(&one.when.to_string(), 38);
        choice(&mut inside, y, place == selected, &[(2, &words), (42, &times), (59, &next)]);
    }
    let mut y = room + 1;
    inside.say(1, y, "a command sets any: `:break r2 op 2B3`", Role::Quiet);
    for (form, meaning) in Breakpoint::FORMS {
        y += 1;
        inside.say(3, y, form, Role::Strong);
        let meaning = inside.cut(meaning, inside.width().saturating_sub(20));
        inside.say(19, y, &meaning, Role::Quiet);
    }
}

/// The cells that were taken out of the row under the cursor.
fn put(model: &Model, selected: usize, pen: &mut Pen<'_>) {
    let Some(editing) = &model.editing else { return };
    let cells: Vec<usize> = editing.editor.shelf_of(editing.cursor.row).collect();
    let lines = u16::try_from(cells.len()).unwrap_or(u16::MAX).min(12);
    let mut panel = centred(pen, 48, lines + 2);
    let mut inside = panel.framed("Cells  Enter puts one before the cursor", true);
    let first = (selected + 1).saturating_sub(usize::from(inside.height()));
    for (y, (place, &number)) in (0..inside.height()).zip(cells.iter().enumerate().skip(first)) {
        choice(&mut inside, y, place == selected, &[(2, &editing.editor.shelf()[number].to_string())]);
    }
}

fn export(selected: usize, pen: &mut Pen<'_>) {
    let mut panel = centred(pen, 66, 8);
    let mut inside = panel.framed("Export  Enter writes a new file here", true);
    for (y, (place, (format, what))) in (0..).zip(EXPORTS.iter().enumerate()) {
        choice(&mut inside, y, place == selected, &[(2, format.name()), (14, what)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_last_is_seen() {
        let check =
            |typed: &str, room, expected: &str| assert_eq!(end_of(typed, room, Tier::Ascii), expected, "{typed} in {room}");
        check(":event 17_", 10, ":event 17_");
        check(":event 17_", 9, "...nt 17_");
        check(":\u{65e5}\u{672c}\u{8a9e}_", 7, "...\u{8a9e}_");
        check(":event 17_", 2, "...");
    }
}
