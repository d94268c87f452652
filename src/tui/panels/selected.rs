//! What is under the cursor, in words.

use crate::base::units::Ticks;
use crate::tui::model::Model;
use crate::tui::pen::{Pen, width_of};
use crate::tui::picture::{Picture, Row, Span};
use crate::tui::theme::Role;

/// The pane's title.
#[must_use]
pub fn title(model: &Model) -> String {
    let Some(row) = model.cursor_row() else { return "Selected".to_owned() };
    let time = model.run.picture.clock.show(Ticks(model.timeline.cursor.time));
    format!("Selected  {}  t={time}", row.name().trim_start())
}

/// One fact a line.
pub fn draw(model: &Model, pen: &mut Pen<'_>) {
    let mut y = 0;
    for (name, value) in facts(model) {
        pen.say(1, y, name, Role::Quiet);
        for line in broken(&value, pen.width().saturating_sub(11)) {
            pen.say(10, y, &line, Role::Text);
            y += 1;
        }
    }
}

/// The same as plain text.
#[must_use]
pub fn text(model: &Model) -> String {
    let lines = facts(model).into_iter().map(|(name, value)| format!("{name:<9}{value}\n"));
    format!("{}\n{}", title(model), lines.collect::<String>())
}

fn facts(model: &Model) -> Vec<(&'static str, String)> {
    let picture = &*model.run.picture;
    let Some(row) = model.cursor_row() else { return vec![("", "no run".to_owned())] };
    let show = |tick: u64| picture.clock.show(Ticks(tick));
    let time = model.timeline.cursor.time;
    let Some(place) = row.place_at(time) else {
        let next = row.spans.partition_point(|span| span.start <= time);
        let ramp = if next == row.spans.len() { "after the last op" } else { "before the first op" };
        return vec![("ramp", format!("nothing to do {ramp} of this stream"))];
    };
    let span = &row.spans[place];
    let mut facts = vec![(if span.kind.is_idle() { "why" } else { "op" }, picture.text(span).to_owned())];
    facts.push(("kind", span.kind.name().to_owned()));
    if span.start == span.end {
        facts.push(("at", show(span.start)));
    } else {
        let length = show(span.end - span.start);
        facts.push(("time", format!("{} to {}  ({length})", show(span.start), show(span.end))));
    }
    facts.push(("event", (span.event + 1).to_string()));
    facts.extend(neighbours(picture, row, place));
    facts
}

fn neighbours(picture: &Picture, row: &Row, place: usize) -> Vec<(&'static str, String)> {
    let named = |span: &Span| {
        let text = picture.text(span);
        if span.kind.is_idle() { format!("{}: {text}", span.kind.name()) } else { text.to_owned() }
    };
    let before = place.checked_sub(1).and_then(|before| row.spans.get(before)).map(|span| ("before", named(span)));
    let after = row.spans.get(place + 1).map(|span| ("after", named(span)));
    before.into_iter().chain(after).collect()
}

/// Lines of at most `width` columns, broken between words.
fn broken(text: &str, width: u16) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && width_of(line) + 1 + width_of(word) > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reasons_are_broken_between_words() {
        assert_eq!(broken("B0 needs grad mb0 from r1", 12), ["B0 needs", "grad mb0", "from r1"]);
        assert_eq!(broken("unbreakable", 3), ["unbreakable"]);
        assert_eq!(broken("", 3), [""]);
    }
}
