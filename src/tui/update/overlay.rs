//! What lies over the view: help, palette, search, knobs, lists. Keys go there first; Esc closes.

use std::sync::Arc;

use super::{Effect, edit, execute, runs, why};
use crate::base::{OpId, Ticks};
use crate::observe::kind::label;
use crate::observe::rows::Span;
use crate::program::head::head;
use crate::tui::commands::{Binding, Command, TABLE};
use crate::tui::keys::{Key, Name};
use crate::tui::knobs::knobs;
use crate::tui::layout::Layout;
use crate::tui::model::{Cursor, EXPORTS, Model, Overlay, Pane};
use crate::tui::update::{run, timeline};

/// Opens what a command stands for.
pub fn open(model: &mut Model, command: Command) {
    let overlay = match command {
        Command::Help => Overlay::Help { filter: String::new(), scroll: 0 },
        Command::Palette => Overlay::Palette { text: String::new(), selected: 0 },
        Command::Find => Overlay::Find { text: String::new() },
        Command::ListBreaks => Overlay::Breaks { selected: 0 },
        Command::Export => Overlay::Export { selected: 0 },
        Command::Knobs => Overlay::Knobs { selected: 0, problem: String::new() },
        Command::Why => {
            let text = why::sentences(model);
            if text.is_none() && model.asked.is_some() {
                model.say("still computing ...");
            } else if text.is_none() {
                model.say("nothing under the cursor has to wait");
            }
            text.map_or(Overlay::None, |text| Overlay::Why { text, scroll: 0 })
        }
        _ => Overlay::None,
    };
    model.overlay = overlay;
}

/// Opens what nobody asked for just now, such as what is wrong with a run: only where nothing is being typed or chosen, else behind it.
/// So no letter that was meant for one thing is taken by another.
pub fn present(model: &mut Model, overlay: Overlay) {
    model.waiting.push(overlay);
    present_next(model);
}

/// Opens what waits for that, once it can.
pub fn present_next(model: &mut Model) {
    let is_free = matches!(model.overlay, Overlay::None | Overlay::Problem { .. }) && model.prefix.is_none();
    if is_free && let Some(next) = model.waiting.pop() {
        model.overlay = next;
    }
}

/// A key while something is open: that takes it, or closes and passes it on. So a command that is typed is always one.
pub fn press(model: &mut Model, key: Key) -> Option<Effect> {
    if !takes(&model.overlay, key) {
        let left = leave(model);
        let effect = super::press(model, key);
        if let Some(left) = left.filter(|_| model.message.is_empty()) {
            model.say(left);
        }
        return effect;
    }
    if let Overlay::Overwrite { .. } = model.overlay {
        return asked(model, key);
    }
    if closes(&model.overlay, key) {
        model.overlay = Overlay::None;
        return None;
    }
    if key == Key::Named(Name::Enter) {
        return enter(model);
    }
    let matching = matches(model).len();
    match &mut model.overlay {
        Overlay::None | Overlay::Problem { .. } | Overlay::Overwrite { .. } => {}
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
        Overlay::Knobs { .. } => return turn_knob(model, key),
        Overlay::Why { scroll, .. } => _ = listed(scroll, key, usize::MAX),
        Overlay::Breaks { selected } if matches!(key, Key::Char('x') | Key::Named(Name::Backspace)) => {
            model.breaks.remove(*selected);
            *selected = (*selected).min(model.breaks.list().len().saturating_sub(1));
        }
        Overlay::Breaks { selected } => _ = listed(selected, key, model.breaks.list().len()),
        Overlay::Export { selected } => _ = listed(selected, key, EXPORTS.len()),
        Overlay::Put { selected } => {
            let editing = model.editing.as_ref();
            let cells = editing.map_or(0, |editing| editing.editor.shelf_of(editing.cursor.row).count());
            _ = listed(selected, key, cells);
        }
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

/// The commands that the palette's text names, then those that begin with it, then those that contain it.
#[must_use]
pub fn matches(model: &Model) -> Vec<&'static Binding> {
    let Overlay::Palette { text, .. } = &model.overlay else { return Vec::new() };
    let name = text.split(' ').next().unwrap_or_default();
    let exists = || TABLE.iter().filter(|binding| binding.exists_in(model.view));
    let begins = |binding: &&Binding| binding.name.starts_with(name);
    let contains = |binding: &&Binding| !begins(binding) && (binding.name.contains(name) || binding.help.contains(name));
    let is_it = |binding: &&Binding| binding.name == name;
    let others = |binding: &&Binding| begins(binding) && !is_it(binding);
    exists().filter(is_it).chain(exists().filter(others)).chain(exists().filter(contains)).collect()
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

/// Whether what is open does something with a key.
fn takes(overlay: &Overlay, key: Key) -> bool {
    use Name::{Backspace, Down, Enter, Left, PageDown, PageUp, Right, Up};
    let moves = matches!(key, Key::Named(Up | Down | PageUp | PageDown) | Key::Char('j' | 'k'));
    let own = match overlay {
        Overlay::None | Overlay::Problem { .. } => false,
        Overlay::Help { .. } | Overlay::Palette { .. } | Overlay::Find { .. } => true,
        Overlay::Knobs { .. } => moves || matches!(key, Key::Named(Left | Right | Backspace) | Key::Char('h' | 'l')),
        Overlay::Breaks { .. } => moves || matches!(key, Key::Named(Backspace) | Key::Char('x')),
        Overlay::Why { .. } | Overlay::Export { .. } | Overlay::Put { .. } => moves,
        Overlay::Overwrite { .. } => matches!(key, Key::Char('y' | 'n')),
    };
    own || key == Key::Named(Enter) || closes(overlay, key)
}

/// Closes what is open, and says what that means for a file that was asked about.
fn leave(model: &mut Model) -> Option<String> {
    match std::mem::take(&mut model.overlay) {
        Overlay::Overwrite { file, .. } => Some(format!("{file} is left as it is")),
        _ => None,
    }
}

/// Esc closes; q does where it is not typed, and so does the key that opened it.
fn closes(overlay: &Overlay, key: Key) -> bool {
    let own = match overlay {
        Overlay::Help { .. } => '?',
        Overlay::Knobs { .. } => 'o',
        Overlay::Why { .. } => 'w',
        Overlay::Breaks { .. } => 'B',
        Overlay::Export { .. } => 'e',
        Overlay::Put { .. } => 'p',
        Overlay::None | Overlay::Palette { .. } | Overlay::Find { .. } | Overlay::Problem { .. } | Overlay::Overwrite { .. } => {
            'q'
        }
    };
    let nothing_typed = matches!(overlay, Overlay::Help { filter, .. } if filter.is_empty());
    let quits = key == Key::Char('q') && (nothing_typed || !takes_text(overlay));
    let is_own = key == Key::Char(own) && own != 'q';
    key == Key::Named(Name::Esc) || quits || is_own
}

fn takes_text(overlay: &Overlay) -> bool {
    matches!(overlay, Overlay::Help { .. } | Overlay::Palette { .. } | Overlay::Find { .. })
}

fn enter(model: &mut Model) -> Option<Effect> {
    match std::mem::take(&mut model.overlay) {
        Overlay::None
        | Overlay::Help { .. }
        | Overlay::Knobs { .. }
        | Overlay::Why { .. }
        | Overlay::Problem { .. }
        | Overlay::Overwrite { .. } => None,
        Overlay::Put { selected } => edit::put_chosen(model, selected),
        Overlay::Palette { text, selected } => run_palette(model, text, selected),
        Overlay::Find { text } => {
            find(model, &text);
            None
        }
        Overlay::Breaks { selected } => {
            let one = model.breaks.list().get(selected)?;
            match one.next(model.now.event).or(one.hits.first().copied()) {
                Some(event) => run::seek(model, event),
                None => model.say("this run never meets it"),
            }
            None
        }
        Overlay::Export { selected } => {
            let (format, _) = *EXPORTS.get(selected)?;
            Some(Effect::Export { format })
        }
    }
}

/// `y` replaces the file; everything else leaves it as it is.
fn asked(model: &mut Model, key: Key) -> Option<Effect> {
    match &model.overlay {
        Overlay::Overwrite { file, plan } if key == Key::Char('y') => {
            let effect = Effect::SavePlan { file: file.clone(), plan: Arc::clone(plan), overwrite: true };
            model.overlay = Overlay::None;
            Some(effect)
        }
        _ => {
            model.message = leave(model).unwrap_or_default();
            None
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

/// Left and Right turn the chosen knob, and the run is made again at once.
fn turn_knob(model: &mut Model, key: Key) -> Option<Effect> {
    let knobs = knobs(model);
    let Overlay::Knobs { selected, .. } = &mut model.overlay else { return None };
    if listed(selected, key, knobs.len()) {
        return None;
    }
    let up = match key {
        Key::Named(Name::Left) | Key::Char('h') => false,
        Key::Named(Name::Right) | Key::Char('l') => true,
        Key::Named(Name::Backspace) => return runs::reset(model),
        _ => return None,
    };
    let knob = knobs.get(*selected)?;
    let value = knob.turned(up)?;
    Some(runs::turn(model, &knob.key.path(), &value))
}

/// The next row or op whose label or head contains `text`, from the cursor on and round.
fn find(model: &mut Model, text: &str) {
    let text = if text.is_empty() { std::mem::take(&mut model.sought) } else { text.to_owned() };
    text.clone_into(&mut model.sought);
    let data = Arc::clone(&model.run.data);
    let run = data.run();
    let cursor = model.timeline.cursor;
    let fits = |op: OpId| label(&run, op) == text || head(run.program, op).to_string().contains(&text);
    let in_row = |row: usize, spans: &[Span]| {
        let wanted = |span: &&Span| !span.kind.is_idle() && data.row(data.rows[row]).ops_of(span).iter().any(|&op| fits(op));
        spans.iter().find(wanted).map(|span| Cursor { row, time: span.start.0 })
    };
    let spans = |row: usize| data.row(data.rows[row]).spans.as_slice();
    let behind = |row: usize| &spans(row)[spans(row).partition_point(|span| span.start.0 <= cursor.time)..];
    let here = data.rows.get(cursor.row).and_then(|_| in_row(cursor.row, behind(cursor.row)));
    let mut others = (cursor.row + 1..data.rows.len()).chain(0..(cursor.row + 1).min(data.rows.len()));
    let by_name = || data.rows.iter().position(|&row| data.row_name(row).contains(&text)).map(|row| Cursor { row, ..cursor });
    // What takes no time leaves nothing in a row.
    let free = || {
        let places = data.program().all().filter(|&op| fits(op)).filter_map(|op| data.place_of(op));
        let places = places.map(|(row, time)| (row, time.0));
        let next = places.min_by_key(|&place| (place <= (cursor.row, cursor.time), place));
        next.map(|(row, time)| Cursor { row, time })
    };
    match here.or_else(|| others.find_map(|row| in_row(row, spans(row)))).or_else(by_name).or_else(free) {
        Some(place) => {
            model.timeline.cursor = place;
            let (row, time) = (data.row_name(data.rows[place.row]), data.clock().show(Ticks(place.time)));
            model.say(format!("found {text}: {row} at t={time}; / and Enter finds the next"));
            timeline::keep_in_view(model);
        }
        None => model.say(format!("nowhere in this run: {text}")),
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
