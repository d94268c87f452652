//! Two runs on one time axis: the pinned one above, the one that is shown below; between them a mark wherever they differ. Beside them, how
//! they differ in numbers.

use ratatui::layout::Rect;

use super::parts::{Line, first_row, left as words, paragraph, right, table};
use super::timeline::{cell, labels, ruler};
use crate::base::Ticks;
use crate::base::units::{Clock, gcd};
use crate::observe::export::comparison::{cells, sentence};
use crate::tui::axis::{Scale, Window};
use crate::tui::compare::Pinned;
use crate::tui::data::RunData;
use crate::tui::model::{Model, Shown};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;
use crate::tui::update::compare::NONE;

/// The title of the runs' pane.
#[must_use]
pub fn title(model: &Model) -> String {
    let link = model.pinned.as_ref().map(|pinned| format!("  A pinned, B shown  linked by {}", pinned.link.name()));
    format!("Compare{}", link.unwrap_or_default())
}

/// The runs.
pub fn runs(model: &Model, pen: &mut Pen<'_>) {
    let Some(pinned) = &model.pinned else {
        let y = paragraph(pen, 0, NONE, Role::Text);
        paragraph(pen, y, "then turn a knob (o), edit the plan (E), or open another lesson: its run is B", Role::Quiet);
        return;
    };
    let (a, b) = (&*pinned.run.data, &*model.run.data);
    if a.clock().unit() != b.clock().unit() {
        paragraph(pen, 0, "A counts slots and B nanoseconds, or the reverse: they have no common axis", Role::Text);
        return;
    }
    let left = 3 + a.rank_width().max(b.rank_width());
    let width = pen.width().saturating_sub(left);
    let window = window(model, a, width);
    let shown = [in_ticks_of(window, b.clock(), a.clock()), window];
    let room = pen.height().saturating_sub(4);
    let rows = [rows(a), rows(b)];
    let above = u16::try_from(rows[0].len()).unwrap_or(u16::MAX).min(room.div_ceil(2));
    let below = room.saturating_sub(above).min(u16::try_from(rows[1].len()).unwrap_or(u16::MAX));
    let longer = if a.clock().in_unit(a.end()) > b.clock().in_unit(b.end()) { (a, &shown[0]) } else { (b, &shown[1]) };
    ruler(longer.0, longer.1, left, &mut pen.part(Rect::new(0, 0, pen.width(), 1)));
    let focus = model.focus_rank().index();
    let cursor = model.timeline.cursor;
    let linked = pinned.linked(b, (cursor.row, Ticks(cursor.time)), model.cursor_op());
    let parts = [(a, 1, above, linked), (b, above + 3, below, Some((cursor.row, Ticks(cursor.time))))];
    for ((place, name), (data, y, height, marked)) in [(0, "A"), (1, "B")].into_iter().zip(parts) {
        let heading =
            if place == 0 { pinned.compared.comparison.names[0].as_str() } else { &pinned.compared.comparison.names[1] };
        let x = pen.say(1, y, name, Role::Strong);
        let end = data.clock().show(data.metrics.makespan);
        let heading = pen.cut(heading, pen.width().saturating_sub(x + 4 + u16::try_from(end.len()).unwrap_or(0)));
        let x = pen.say(x + 1, y, &heading, Role::Text);
        pen.say_right(x + 1, y, 1, &end, Role::Quiet);
        let first = first_row(focus, rows[place].len(), usize::from(height));
        for (line, &row) in (0..height).zip(rows[place].iter().skip(first)) {
            let area = Rect::new(left, y + 1 + line, width, 1);
            lane(data, row, &shown[place], area, pen);
            let marked = marked.filter(|(of, _)| *of == row).and_then(|(_, time)| shown[place].visible(time.0, width));
            if let Some(column) = marked {
                pen.restyle(left + column, y + 1 + line, 1, pen.theme.style(Role::Selected));
            }
        }
    }
    differ(pinned, b, &shown, Rect::new(left, above + 2, width, 1), pen);
}

/// The compute rows.
fn rows(data: &RunData) -> Vec<usize> {
    (0..data.rows.len()).filter(|&row| data.rows[row].compute).collect()
}

fn lane(data: &RunData, row: usize, window: &Window, area: Rect, pen: &mut Pen<'_>) {
    let id = data.rows[row];
    pen.say(1, area.y, &data.program().whole(id.rank).to_string(), Role::Text);
    pen.put(area.x.saturating_sub(1), area.y, pen.tier.bar(), pen.theme.style(Role::Frame));
    for (column, shown) in (0..area.width).zip(data.coverage.rows[row].columns(window, area.width)) {
        cell(shown, false, (area.x + column, area.y), pen);
    }
    labels(data, id, window, area, false, pen);
}

/// A mark in each column in which a slot of B stands that runs at another time or on another rank than in A.
fn differ(pinned: &Pinned, b: &RunData, shown: &[Window; 2], area: Rect, pen: &mut Pen<'_>) {
    pen.say(1, area.y, "d", Role::Quiet);
    for &(time, row) in &pinned.compared.places {
        let spans = &b.row(b.rows[row]).spans;
        let at = spans.get(spans.partition_point(|span| span.start < time)).filter(|span| span.start == time);
        let end = at.map_or(time, |span| span.end);
        let (from, to) = (shown[1].column(time.0), shown[1].column(end.0.saturating_sub(1).max(time.0)));
        for column in from.max(0)..=to.min(i64::from(area.width) - 1) {
            if let Ok(column) = u16::try_from(column) {
                pen.put(area.x + column, area.y, 'd', pen.theme.style(Role::Mark));
            }
        }
    }
}

/// What is shown of the axis, in ticks of the run that is shown: as in the timeline, but that the longer of the two runs fits.
fn window(model: &Model, a: &RunData, width: u16) -> Window {
    let b = &model.run.data;
    let longer = |of_a: Ticks, of_b: Ticks| {
        let (a_units, b_units) = (a.clock().in_unit(of_a), b.clock().in_unit(of_b));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are not negative, and far below 2^53")]
        let in_b = (a_units / b.clock().in_unit(Ticks(1))).ceil() as u64;
        if a_units > b_units { Ticks(in_b) } else { of_b }
    };
    match model.timeline.shown {
        Shown::Run => Window::fit(b.clock(), longer(a.end(), b.end()), width),
        Shown::Step => Window::fit(b.clock(), longer(a.metrics.makespan, b.metrics.makespan), width),
        Shown::At(window) => window,
    }
}

/// The same stretch in ticks of another clock of the same unit.
fn in_ticks_of(window: Window, from: Clock, to: Clock) -> Window {
    let (Clock::Slots { ticks_per_slot: from }, Clock::Slots { ticks_per_slot: to }) = (from, to) else { return window };
    let Scale { ticks, columns } = window.scale;
    let (ticks, columns) = (ticks.saturating_mul(to), columns.saturating_mul(from));
    let common = gcd(ticks.max(1), columns.max(1));
    let start = u128::from(window.start) * u128::from(to) / u128::from(from.max(1));
    Window { start: u64::try_from(start).unwrap_or(u64::MAX), scale: Scale { ticks: ticks / common, columns: columns / common } }
}

/// How they differ: numbers, words, knobs, the first event that is not the same.
pub fn differences(model: &Model, pen: &mut Pen<'_>) {
    let Some(pinned) = &model.pinned else {
        pen.say(1, 0, "nothing to compare yet", Role::Quiet);
        return;
    };
    let comparison = &pinned.compared.comparison;
    let numbers = comparison.measures.iter().map(|measure| {
        let [a, b, change] = cells(measure);
        let role = if measure.change.is_some_and(|change| change != 0.0) { Role::Text } else { Role::Quiet };
        Line { role, cells: vec![measure.name.to_owned(), a, b, change] }
    });
    let said = pinned.compared.words().map(|words| Line {
        role: Role::Text,
        cells: vec![words.name.to_owned(), words.a.clone(), words.b.clone(), String::new()],
    });
    let knobs = pinned
        .compared
        .knobs
        .iter()
        .map(|(path, a, b)| Line { role: Role::Strong, cells: vec![path.clone(), a.clone(), b.clone(), String::new()] });
    let mut lines: Vec<Line> = knobs.chain(said).chain(numbers).collect();
    // What is the same in both stands last.
    lines.sort_by_key(|line| line.role == Role::Quiet);
    lines.drain(..model.scroll[model.view as usize].min(lines.len()));
    let heads = [words(""), right("A"), right("B"), right("B-A")];
    let y = table(pen, 0, &heads, &lines);
    let mut y = y + u16::from(y + 3 < pen.height());
    for line in sentence(comparison).lines() {
        y = paragraph(pen, y, line, Role::Text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_same_stretch_in_other_ticks() {
        let window = Window { start: 12, scale: Scale { ticks: 6, columns: 4 } };
        let (from, to) = (Clock::Slots { ticks_per_slot: 6 }, Clock::Slots { ticks_per_slot: 10 });
        let other = in_ticks_of(window, from, to);
        assert_eq!(other, Window { start: 20, scale: Scale { ticks: 5, columns: 2 } });
        for column in 0..9 {
            let (one, two) = (window.edge(column), other.edge(column));
            assert_eq!((one.tick * 4 + one.part) * 10, (two.tick * 2 + two.part) * 6 * 2, "column {column}");
        }
        assert_eq!(in_ticks_of(window, Clock::Nanoseconds, Clock::Nanoseconds), window);
    }
}
