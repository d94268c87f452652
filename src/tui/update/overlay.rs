//! What lies over the view: help, palette, search, knobs, lists. Keys go there first; Esc closes.

use super::{Effect, execute};
use crate::tui::commands::{Binding, Command, TABLE};
use crate::tui::keys::{Key, Name};
use crate::tui::layout::Layout;
use crate::tui::model::{EXPORT_FORMATS, Model, Overlay, Pane};
use crate::tui::update::{run, timeline};

/// Opens what a command stands for.
pub fn open(model: &mut Model, command: Command) {
    model.overlay = match command {
        Command::Help => Overlay::Help { filter: String::new(), scroll: 0 },
        Command::Palette => Overlay::Palette { text: String::new(), selected: 0 },
        Command::Find => Overlay::Find { text: String::new() },
        Command::ListBreaks => Overlay::Breaks { selected: 0 },
        Command::Export => Overlay::Export { selected: 0 },
        Command::Knobs if model.knobs.is_empty() => {
            model.say("this run has no knobs");
            Overlay::None
        }
        Command::Knobs => Overlay::Knobs { selected: 0, values: model.knobs.iter().map(|knob| knob.value.clone()).collect() },
        _ => Overlay::None,
    };
}

/// A key while something is open.
pub fn press(model: &mut Model, key: Key) -> Option<Effect> {
    if matches!(key, Key::Named(Name::Esc)) || (key == Key::Char('q') && !takes_text(&model.overlay)) {
        model.overlay = Overlay::None;
        return None;
    }
    if key == Key::Named(Name::Enter) {
        return enter(model);
    }
    let matching = matches(model).len();
    match &mut model.overlay {
        Overlay::None => {}
        Overlay::Help { filter, scroll } => {
            if !scrolled(scroll, key, usize::MAX) && typed(filter, key) {
                *scroll = 0;
            }
        }
        Overlay::Palette { text, selected } => {
            if !scrolled(selected, key, matching.saturating_sub(1)) && typed(text, key) {
                *selected = 0;
            }
        }
        Overlay::Find { text } => _ = typed(text, key),
        Overlay::Knobs { .. } => turn_knob(model, key),
        Overlay::Breaks { selected } => _ = listed(selected, key, model.breaks.len()),
        Overlay::Export { selected } => _ = listed(selected, key, EXPORT_FORMATS.len()),
    }
    None
}

/// Pasted text goes where text is typed; line breaks become blanks.
pub fn paste(model: &mut Model, pasted: &str) {
    let line: String = pasted.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    if let Overlay::Help { filter: text, .. } | Overlay::Palette { text, .. } | Overlay::Find { text } = &mut model.overlay {
        text.push_str(&line);
    }
}

/// The commands that the palette's text begins or contains, those that begin with it first.
#[must_use]
pub fn matches(model: &Model) -> Vec<&'static Binding> {
    let Overlay::Palette { text, .. } = &model.overlay else { return Vec::new() };
    let name = text.split(' ').next().unwrap_or_default();
    let exists = || TABLE.iter().filter(|binding| binding.exists_in(model.view));
    let begins = |binding: &&Binding| binding.name.starts_with(name);
    let contains = |binding: &&Binding| !begins(binding) && (binding.name.contains(name) || binding.help.contains(name));
    exists().filter(begins).chain(exists().filter(contains)).collect()
}

/// Copies what is under the cursor, or the page of the lesson, as text.
pub fn copy(model: &mut Model) -> Option<Effect> {
    let layout = Layout::of(model);
    let text = match layout.focused(model).map(|placed| placed.pane) {
        Some(Pane::Text) => crate::tui::panels::text::page_text(model),
        _ => crate::tui::panels::selected::text(model),
    };
    model.say(format!("copied {} lines", text.lines().count()));
    Some(Effect::Copy { text })
}

fn takes_text(overlay: &Overlay) -> bool {
    matches!(overlay, Overlay::Help { .. } | Overlay::Palette { .. } | Overlay::Find { .. })
}

fn enter(model: &mut Model) -> Option<Effect> {
    match std::mem::take(&mut model.overlay) {
        Overlay::None | Overlay::Help { .. } => None,
        Overlay::Palette { text, selected } => run_palette(model, text, selected),
        Overlay::Find { text } => {
            find(model, &text);
            None
        }
        Overlay::Knobs { values, .. } => apply_knobs(model, values),
        Overlay::Breaks { selected } => {
            let event = model.breaks.iter().nth(selected).copied()?;
            run::seek(model, event)
        }
        Overlay::Export { selected } => {
            let format = EXPORT_FORMATS.get(selected)?.0.to_owned();
            Some(Effect::Export { format })
        }
    }
}

fn run_palette(model: &mut Model, text: String, selected: usize) -> Option<Effect> {
    let argument = text.split_once(' ').map(|(_, argument)| argument.trim().to_owned()).unwrap_or_default();
    model.overlay = Overlay::Palette { text, selected };
    let chosen = matches(model).get(selected).map(|binding| binding.command);
    let Overlay::Palette { text, .. } = std::mem::take(&mut model.overlay) else { return None };
    if let Some(command) = chosen {
        return execute(model, command, &argument);
    }
    model.say(format!("there is no command {text}; ? lists them"));
    None
}

fn apply_knobs(model: &mut Model, values: Vec<String>) -> Option<Effect> {
    let changed = model.knobs.iter().zip(&values).any(|(knob, value)| knob.value != *value);
    if !changed {
        return None;
    }
    for (knob, value) in model.knobs.iter_mut().zip(values) {
        knob.value = value;
    }
    model.run.stale = true;
    Some(run::rerun(model))
}

fn turn_knob(model: &mut Model, key: Key) {
    let Overlay::Knobs { selected, values } = &mut model.overlay else { return };
    if listed(selected, key, model.knobs.len()) {
        return;
    }
    let (Some(knob), Some(value)) = (model.knobs.get(*selected), values.get_mut(*selected)) else { return };
    let place = knob.choices.iter().position(|choice| choice == value).unwrap_or(0);
    let next = match key {
        Key::Named(Name::Left) | Key::Char('h') => place.saturating_sub(1),
        Key::Named(Name::Right) | Key::Char('l') => place + 1,
        _ => return,
    };
    if let Some(choice) = knob.choices.get(next) {
        value.clone_from(choice);
    }
}

/// The next row or op whose text contains `text`, from the cursor on and round.
fn find(model: &mut Model, text: &str) {
    let text = if text.is_empty() { std::mem::take(&mut model.sought) } else { text.to_owned() };
    text.clone_into(&mut model.sought);
    let picture = &model.run.picture;
    let wanted: Vec<bool> = picture.texts.iter().map(|label| label.contains(&text)).collect();
    let cursor = model.timeline.cursor;
    let spans = picture.rows.iter().enumerate().flat_map(|(row, lane)| lane.spans.iter().map(move |span| (row, span)));
    let mut found = spans.filter(|(_, span)| wanted.get(span.text as usize) == Some(&true));
    let first = found.next();
    let later = |place: &(usize, &crate::tui::picture::Span)| (place.0, place.1.start) > (cursor.row, cursor.time);
    let next = first.filter(later).or_else(|| found.find(later)).or(first).map(|(row, span)| (row, span.start));
    let by_name = || picture.rows.iter().position(|row| row.name().contains(&text)).map(|row| (row, cursor.time));
    match next.or_else(by_name) {
        Some((row, time)) => {
            model.timeline.cursor = crate::tui::model::Cursor { row, time };
            model.say(format!("found {text}; / and Enter finds the next"));
            timeline::keep_in_view(model);
        }
        None => model.say(format!("{text} is nowhere in this run")),
    }
}

/// Adds a typed character or takes the last one away; whether the text changed.
fn typed(text: &mut String, key: Key) -> bool {
    match key {
        Key::Char(character) => text.push(character),
        Key::Named(Name::Backspace) => _ = text.pop(),
        Key::Ctrl('u') => text.clear(),
        _ => return false,
    }
    true
}

/// Moves a choice with the arrows; whether the key was one.
fn scrolled(place: &mut usize, key: Key, last: usize) -> bool {
    match key {
        Key::Named(Name::Down) => *place = place.saturating_add(1).min(last),
        Key::Named(Name::Up) => *place = place.saturating_sub(1),
        Key::Named(Name::PageDown) => *place = place.saturating_add(10).min(last),
        Key::Named(Name::PageUp) => *place = place.saturating_sub(10),
        _ => return false,
    }
    true
}

/// As [`scrolled`], where letters are not text.
fn listed(place: &mut usize, key: Key, length: usize) -> bool {
    let key = match key {
        Key::Char('j') => Key::Named(Name::Down),
        Key::Char('k') => Key::Named(Name::Up),
        other => other,
    };
    scrolled(place, key, length.saturating_sub(1))
}
