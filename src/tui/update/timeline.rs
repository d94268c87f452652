//! Moving about in the timeline: cursor, window, rows.

use std::ops::ControlFlow;

use super::Effect;
use super::run::parsed;
use crate::base::units::{Clock, Ticks};
use crate::tui::axis::Window;
use crate::tui::commands::Command;
use crate::tui::layout::Layout;
use crate::tui::model::{Model, Pane};
use crate::tui::panels::timeline as panel;
use crate::tui::picture::{Kind, Span};

/// Runs a command of this file and breaks; goes on if it is another's, or the focus is elsewhere.
pub fn execute(model: &mut Model, command: Command, argument: &str) -> ControlFlow<Option<Effect>> {
    match command {
        Command::GoToTime => return ControlFlow::Break(parsed(model, argument.trim_end_matches('u'), "a time", go_to_time)),
        Command::GoToRank => return ControlFlow::Break(parsed(model, argument.trim_start_matches('r'), "a rank", go_to_rank)),
        Command::GoToBubble => go_to_next(model, |kind| matches!(kind, Kind::Bubble | Kind::ExposedCommunication)),
        Command::GoToWait => go_to_next(model, |kind| kind == Kind::Waiting),
        Command::PanLeft => pan(model, false),
        Command::PanRight => pan(model, true),
        Command::ZoomIn => zoom(model, true),
        Command::ZoomOut => zoom(model, false),
        Command::ZoomFit => model.timeline.window = None,
        Command::ZoomSelection => zoom_to_selection(model),
        Command::NextInLane => in_lane(model, true),
        Command::PreviousInLane => in_lane(model, false),
        Command::Left => sideways(model, false),
        Command::Right => sideways(model, true),
        _ if Layout::of(model).focused(model).is_none_or(|placed| placed.pane == Pane::Text) => return ControlFlow::Continue(()),
        Command::Up => rows(model, -1),
        Command::Down => rows(model, 1),
        Command::HalfPageUp => rows(model, -half_page(model)),
        Command::HalfPageDown => rows(model, half_page(model)),
        Command::PageUp => rows(model, -2 * half_page(model)),
        Command::PageDown => rows(model, 2 * half_page(model)),
        Command::Start => model.timeline.cursor.time = 0,
        Command::End => model.timeline.cursor.time = model.run.picture.end.0,
        _ => return ControlFlow::Continue(()),
    }
    keep_in_view(model);
    ControlFlow::Break(None)
}

/// The shown stretch of time in `width` columns.
#[must_use]
pub fn window(model: &Model, width: u16) -> Window {
    let picture = &model.run.picture;
    model.timeline.window.unwrap_or_else(|| Window::fit(picture.clock, picture.end, width))
}

/// Moves rows and window so that the cursor is seen and lies within the run.
pub fn keep_in_view(model: &mut Model) {
    let layout = Layout::of(model);
    let picture = &model.run.picture;
    let cursor = &mut model.timeline.cursor;
    cursor.row = cursor.row.min(picture.rows.len().saturating_sub(1));
    cursor.time = cursor.time.min(picture.end.0);
    let (row, lanes) = (cursor.row, layout.lane_count());
    model.timeline.first_row = model.timeline.first_row.clamp((row + 1).saturating_sub(lanes), row);
    show_time(model, model.timeline.cursor.time);
}

/// While the run plays or is stepped the page stays; when the playhead leaves it, it is turned by four fifths.
pub fn follow_playhead(model: &mut Model) {
    show_time(model, model.now.time.0);
}

fn show_time(model: &mut Model, time: u64) {
    let Some(shown) = model.timeline.window else { return };
    let width = Layout::of(model).axis_width(&model.run.picture);
    if shown.visible(time, width).is_some() {
        return;
    }
    let page = shown.length(width);
    let lead = if time < shown.start { page - page / 5 } else { page / 5 };
    let start = time.saturating_sub(lead);
    model.timeline.window = Some(Window { start, ..shown }.within(model.run.picture.end, width));
}

fn zoom(model: &mut Model, finer: bool) {
    let width = Layout::of(model).axis_width(&model.run.picture);
    let (clock, end) = (model.run.picture.clock, model.run.picture.end);
    let shown = window(model, width);
    let zoomed = shown.zoomed(finer, model.timeline.cursor.time, (clock, end, width));
    let whole = Window::fit(clock, end, width);
    model.timeline.window = (zoomed.scale != whole.scale).then_some(zoomed);
}

/// Steps finer until the selected span would no longer fit.
fn zoom_to_selection(model: &mut Model) {
    let Some(span) = model.cursor_span().copied() else {
        model.say("nothing under the cursor to zoom to");
        return;
    };
    let width = Layout::of(model).axis_width(&model.run.picture);
    let (clock, end) = (model.run.picture.clock, model.run.picture.end);
    let mut shown = Window::fit(clock, end, width);
    let room = |window: &Window| window.column(span.end) - window.column(span.start) <= i64::from(width);
    loop {
        let finer = shown.zoomed(true, span.start, (clock, end, width));
        if finer == shown || !room(&finer) {
            break;
        }
        shown = finer;
    }
    model.timeline.window = Some(Window { start: span.start, ..shown }.within(end, width));
}

fn pan(model: &mut Model, right: bool) {
    let width = Layout::of(model).axis_width(&model.run.picture);
    let shown = window(model, width);
    let half = shown.length(width) / 2;
    let start = if right { shown.start.saturating_add(half) } else { shown.start.saturating_sub(half) };
    let moved = Window { start, ..shown }.within(model.run.picture.end, width);
    if model.timeline.window.is_some() {
        model.timeline.window = Some(moved);
        let last = moved.start + moved.length(width).saturating_sub(1);
        let cursor = &mut model.timeline.cursor;
        cursor.time = cursor.time.clamp(moved.start, last);
    } else {
        model.say("the whole run is shown; + zooms in");
    }
}

/// One column; at least one tick.
fn sideways(model: &mut Model, right: bool) {
    let width = Layout::of(model).axis_width(&model.run.picture);
    let shown = window(model, width);
    let time = model.timeline.cursor.time;
    let column = shown.column(time);
    let next = if right { column + 1 } else { column - 1 };
    let edge = u16::try_from(next).map(|column| shown.edge(column).ceiling());
    model.timeline.cursor.time = match edge {
        Ok(edge) if edge != time => edge,
        Ok(_) if right => time + 1,
        _ => time.saturating_sub((shown.scale.ticks / shown.scale.columns).max(1)),
    };
}

/// Among the rows that can be reached on this screen.
fn rows(model: &mut Model, distance: isize) {
    let rows = panel::reachable_rows(&model.run.picture, Layout::of(model).lane_count());
    let place = rows.partition_point(|&row| row <= model.timeline.cursor.row).saturating_sub(1);
    let target = place.saturating_add_signed(distance).min(rows.len().saturating_sub(1));
    if let Some(&row) = rows.get(target) {
        model.timeline.cursor.row = row;
    }
}

fn half_page(model: &Model) -> isize {
    isize::try_from(Layout::of(model).lane_count() / 2).unwrap_or(1).max(1)
}

/// To the next or previous op of the lane; gaps are passed over.
fn in_lane(model: &mut Model, forward: bool) {
    let time = model.timeline.cursor.time;
    let Some(row) = model.cursor_row() else { return };
    let ops = |span: &&Span| !span.kind.is_idle();
    let found = if forward {
        let after = row.spans.partition_point(|span| span.start <= time);
        row.spans[after..].iter().find(ops)
    } else {
        let before = row.spans.partition_point(|span| span.start < time);
        row.spans[..before].iter().rev().find(ops)
    };
    match found.map(|span| span.start) {
        Some(start) => model.timeline.cursor.time = start,
        None => model.say("no more ops in this lane"),
    }
}

/// To the next gap of a kind, in this lane after the cursor, then in the lanes below, round to this one.
fn go_to_next(model: &mut Model, wanted: fn(Kind) -> bool) {
    let cursor = model.timeline.cursor;
    let rows = &model.run.picture.rows;
    let first_after = |row: usize, after: Option<u64>| {
        let later = |span: &&Span| wanted(span.kind) && after.is_none_or(|after| span.start > after);
        rows[row].spans.iter().find(later).map(|span| (row, span.start))
    };
    let here = (cursor.row < rows.len()).then(|| first_after(cursor.row, Some(cursor.time))).flatten();
    let others = (cursor.row + 1..rows.len()).chain(0..=cursor.row.min(rows.len().saturating_sub(1)));
    let found = here.or_else(|| others.filter(|&row| row < rows.len()).find_map(|row| first_after(row, None)));
    match found {
        Some((row, start)) => {
            model.timeline.cursor.row = row;
            model.timeline.cursor.time = start;
            describe_gap(model);
        }
        None => model.say("there is none in this run"),
    }
}

fn describe_gap(model: &mut Model) {
    let picture = &model.run.picture;
    if let Some(span) = model.cursor_span() {
        let length = picture.clock.show(Ticks(span.end - span.start));
        model.say(format!("{} of {length}: {}", span.kind.name(), picture.text(span)));
    }
}

/// A time in the clock's unit.
fn go_to_time(model: &mut Model, time: f64) -> Option<Effect> {
    let ticks = match model.run.picture.clock {
        Clock::Slots { ticks_per_slot } => {
            #[expect(clippy::cast_precision_loss, reason = "a typed number")]
            let per_slot = ticks_per_slot as f64;
            time * per_slot
        }
        Clock::Nanoseconds => time,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate, which is what is wanted")]
    let ticks = ticks.max(0.0) as u64;
    model.timeline.cursor.time = ticks;
    keep_in_view(model);
    None
}

fn go_to_rank(model: &mut Model, rank: u32) -> Option<Effect> {
    match model.run.picture.rows.iter().position(|row| row.rank == rank) {
        Some(row) => model.timeline.cursor.row = row,
        None => model.say(format!("there is no rank {rank}; the run has {}", model.run.picture.ranks)),
    }
    keep_in_view(model);
    None
}
