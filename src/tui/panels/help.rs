//! The help page: every key from the command table in two columns, what the numbers' names mean, then the glyphs. It filters by text or
//! key.

use ratatui::layout::Rect;

use super::popup::centred;
use super::timeline;
use crate::tui::commands::{self, Binding, Command, Group, TABLE};
use crate::tui::model::{Model, View};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

enum Line {
    Blank,
    Heading(&'static str),
    Keys(String, &'static str),
}

/// The page from line `scroll` on, with only the lines that contain `filter`.
pub fn draw(model: &Model, filter: &str, scroll: usize, pen: &mut Pen<'_>) {
    let (width, height) = (pen.width().saturating_sub(4).min(110), pen.height().saturating_sub(2));
    let mut panel = centred(pen, width, height);
    let mut inside = panel.framed(&format!("Help  type to filter: {filter}_   Up and Down scroll, Esc closes"), true);
    let legend = if inside.width() >= 100 { 3 } else { 4 };
    let body = inside.height().saturating_sub(legend);
    let lines = lines(model, filter);
    let columns = if inside.width() >= 100 && filter.is_empty() { 2 } else { 1 };
    let column_width = inside.width() / columns;
    let parts = if columns == 2 { lines.split_at(middle(&lines)) } else { (lines.as_slice(), [].as_slice()) };
    let scroll = scroll.min(parts.0.len().max(parts.1.len()).saturating_sub(usize::from(body)));
    for (column, part) in (0..).zip([parts.0, parts.1]) {
        let mut place = inside.part(Rect::new(column * column_width, 0, column_width, body));
        for (y, line) in (0..body).zip(part.iter().skip(scroll)) {
            draw_line(line, y, &mut place);
        }
    }
    glyphs(&mut inside.part(Rect::new(0, body, width, legend)));
}

/// The beginning of the group that is nearest to the middle.
fn middle(lines: &[Line]) -> usize {
    let headings = (1..lines.len()).filter(|&place| matches!(lines[place], Line::Heading(_)));
    headings.min_by_key(|&place| place.abs_diff(lines.len().div_ceil(2))).unwrap_or(lines.len())
}

fn draw_line(line: &Line, y: u16, pen: &mut Pen<'_>) {
    match line {
        Line::Blank => {}
        Line::Heading(title) => _ = pen.say(1, y, title, Role::Strong),
        Line::Keys(keys, help) => {
            pen.say(3, y, keys, Role::Strong);
            pen.say(15, y, help, Role::Text);
        }
    }
}

/// Groups with their lines; a pair of commands is one line. What the numbers' names mean stands in the middle, which evens the columns.
fn lines(model: &Model, filter: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    for group in Group::ALL {
        let entries = TABLE.iter().filter(|binding| binding.group == group && binding.exists_in(model.view));
        add(&mut lines, group.title(), entries.filter_map(|binding| entry(binding, filter)).collect());
        if group == Group::Run {
            let words = WORDS.iter().filter(|(word, meaning)| contains(word, filter) || contains(meaning, filter));
            add(&mut lines, "NUMBERS", words.map(|&(word, meaning)| Line::Keys(word.to_owned(), meaning)).collect());
        }
    }
    lines
}

/// Adds a group, if it has lines.
fn add(lines: &mut Vec<Line>, title: &'static str, entries: Vec<Line>) {
    if !entries.is_empty() {
        lines.extend((!lines.is_empty()).then_some(Line::Blank));
        lines.push(Line::Heading(title));
        lines.extend(entries);
    }
}

fn contains(text: &str, filter: &str) -> bool {
    text.to_lowercase().contains(&filter.to_lowercase())
}

/// What the numbers of the metrics are.
const WORDS: [(&str, &str); 13] = [
    ("u", "a slot, the unit of modelled time"),
    ("clock", "modelled: costs say how long ops take"),
    ("L0 L1 L2", "lanes: ops have labels, cells, or share"),
    ("comp net", "lanes: what computes, what moves data"),
    ("P G O A", "memory; B buckets M messages S scratch"),
    ("bubble", "idle between its ops, for data"),
    ("ramp", "idle before its first, behind its last"),
    ("exposed", "idle while what it needs is moving"),
    ("overlap", "traffic that computing hides"),
    ("MFU", "FLOPs the model needs, of the peak"),
    ("HFU", "the same with those computed again"),
    ("in flight", "forwards whose backward is to come"),
    ("Psi", "how many parameters there are"),
];

/// Commands that share a line while nothing is filtered: the first of them, their keys, what they do.
const FOLDS: [(Command, &str, &str); 2] = [
    (Command::Show(View::Lesson), "1 .. 9  E", "the views, as the tabs name them"),
    (Command::GoToEvent, "g ..", "go to event, time, rank, bubble ..."),
];

/// Whether `line` shares its line with others.
fn is_folded(line: &Binding) -> bool {
    let jumps = line.keys.first().is_some_and(|keys| keys.starts_with("g ")) && line.pair.is_none();
    jumps || matches!(line.command, Command::Show(_))
}

fn entry(line: &'static Binding, filter: &str) -> Option<Line> {
    if is_folded(line) && filter.is_empty() {
        let first = FOLDS.iter().find(|fold| fold.0 == line.command);
        return first.map(|(_, keys, help)| Line::Keys((*keys).to_owned(), help));
    }
    let is_second = TABLE.iter().any(|first| first.pair.is_some_and(|(other, _)| other == line.command));
    if is_second || line.keys.is_empty() {
        return None;
    }
    let (keys, help) = match line.pair {
        Some((other, help)) => (format!("{}  {}", line.shown_key(), commands::binding(other).shown_key()), help),
        None => (line.keys.join("  "), line.help),
    };
    (contains(&keys, filter) || contains(help, filter) || contains(line.name, filter)).then_some(Line::Keys(keys, help))
}

/// What the glyphs mean, in as many lines as they need; none is cut.
fn glyphs(pen: &mut Pen<'_>) {
    pen.say(1, 0, "GLYPHS", Role::Strong);
    let mut entries = timeline::kinds(pen, |_| true);
    entries.push((pen.tier.mixed(), pen.theme.style(Role::Text), "mixed".to_owned()));
    entries.push(('!', pen.theme.style(Role::Alert), "alert".to_owned()));
    timeline::listed(&entries, (9, 0), 9, pen);
}
