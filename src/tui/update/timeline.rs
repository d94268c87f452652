//! Moving about in the timeline: cursor, window, rows.

use std::ops::ControlFlow;

use super::Effect;
use super::run::parsed;
use crate::base::units::Clock;
use crate::base::{Rank, Ticks};
use crate::observe::rows::Span;
use crate::tui::axis::Window;
use crate::tui::commands::Command;
use crate::tui::layout::{Class, Layout};
use crate::tui::model::{Model, Pane, Shown};
use crate::tui::panels::timeline as panel;

/// Runs a command of this file and breaks; goes on if it is another's, or the focus is elsewhere.
pub fn execute(model: &mut Model, command: Command, argument: &str) -> ControlFlow<Option<Effect>> {
    match command {
        Command::GoToTime => return ControlFlow::Break(parsed(model, argument.trim_end_matches('u'), "a time", go_to_time)),
        Command::GoToRank => return ControlFlow::Break(parsed(model, argument.trim_start_matches('r'), "a rank", go_to_rank)),
        Command::PanLeft => pan(model, false),
        Command::PanRight => pan(model, true),
        Command::ZoomIn => zoom(model, true),
        Command::ZoomOut => zoom(model, false),
        Command::ZoomFit => model.timeline.shown = Shown::Run,
        Command::ZoomSelection => zoom_to_selection(model),
        Command::NextInLane => in_lane(model, true),
        Command::PreviousInLane => in_lane(model, false),
        Command::Left => sideways(model, false),
        Command::Right => sideways(model, true),
        _ if !on_timeline(model) => return ControlFlow::Continue(()),
        Command::Up => rows(model, -1),
        Command::Down => rows(model, 1),
        Command::HalfPageUp => rows(model, -half_page(model)),
        Command::HalfPageDown => rows(model, half_page(model)),
        Command::PageUp => rows(model, -2 * half_page(model)),
        Command::PageDown => rows(model, 2 * half_page(model)),
        Command::Start => model.timeline.cursor.time = 0,
        Command::End => model.timeline.cursor.time = model.run.data.end().0,
        _ => return ControlFlow::Continue(()),
    }
    keep_in_view(model);
    ControlFlow::Break(None)
}

/// Whether up and down move the cursor of the timeline: in all panes that belong to it.
fn on_timeline(model: &Model) -> bool {
    let focused = Layout::of(model).focused(model).map(|placed| placed.pane);
    matches!(focused, Some(Pane::Timeline | Pane::Held | Pane::Selected))
}

/// The shown stretch of time in `width` columns.
#[must_use]
pub fn window(model: &Model, width: u16) -> Window {
    let data = &model.run.data;
    match model.timeline.shown {
        Shown::Run => Window::fit(data.clock(), data.end(), width),
        Shown::Step => Window::fit(data.clock(), data.metrics.makespan, width),
        Shown::At(window) => window,
    }
}

/// Moves rows and window so that the cursor is seen and lies within the run.
pub fn keep_in_view(model: &mut Model) {
    let layout = Layout::of(model);
    let data = &model.run.data;
    let cursor = &mut model.timeline.cursor;
    cursor.row = cursor.row.min(data.rows.len().saturating_sub(1));
    cursor.time = cursor.time.min(data.end().0);
    let (row, lanes) = (cursor.row, layout.lane_count());
    let whole = Window::fit(data.clock(), data.end(), layout.axis_width(data));
    if let Shown::At(window) = model.timeline.shown
        && window.is_coarser(&whole)
    {
        // It comes from a screen with fewer columns.
        model.timeline.shown = Shown::Run;
    }
    model.timeline.first_row = model.timeline.first_row.clamp((row + 1).saturating_sub(lanes), row);
    show_time(model, model.timeline.cursor.time);
}

/// While the run plays or is stepped the page stays; when the playhead leaves it, it is turned by four fifths.
pub fn follow_playhead(model: &mut Model) {
    show_time(model, model.now.time.0);
}

fn show_time(model: &mut Model, time: u64) {
    // Where nothing is shown there are no columns to go by.
    if model.timeline.shown == Shown::Run || Class::of(model.size) == Class::TooSmall {
        return;
    }
    let width = Layout::of(model).axis_width(&model.run.data);
    let shown = window(model, width);
    if shown.visible(time, width).is_some() {
        // A view with more columns does not show what lies behind the end.
        if let Shown::At(window) = &mut model.timeline.shown {
            *window = window.within(model.run.data.end(), width);
        }
        return;
    }
    let page = shown.length(width);
    let lead = if time < shown.start { page - page / 5 } else { page / 5 };
    let start = time.saturating_sub(lead);
    model.timeline.shown = Shown::At(Window { start, ..shown }.within(model.run.data.end(), width));
}

fn zoom(model: &mut Model, finer: bool) {
    let width = Layout::of(model).axis_width(&model.run.data);
    let (clock, end) = (model.run.data.clock(), model.run.data.end());
    let shown = window(model, width);
    let zoomed = shown.zoomed(finer, model.timeline.cursor.time, (clock, end, width));
    let whole = Window::fit(clock, end, width);
    model.timeline.shown = if zoomed.scale == whole.scale { Shown::Run } else { Shown::At(zoomed) };
}

/// Steps finer until the selected span would no longer fit.
fn zoom_to_selection(model: &mut Model) {
    let Some((_, &span)) = model.cursor_span() else {
        model.say("nothing under the cursor to zoom to");
        return;
    };
    let width = Layout::of(model).axis_width(&model.run.data);
    let (clock, end) = (model.run.data.clock(), model.run.data.end());
    let mut shown = Window::fit(clock, end, width);
    let room = |window: &Window| window.column(span.end.0) - window.column(span.start.0) <= i64::from(width);
    loop {
        let finer = shown.zoomed(true, span.start.0, (clock, end, width));
        if finer == shown || !room(&finer) {
            break;
        }
        shown = finer;
    }
    model.timeline.shown = Shown::At(Window { start: span.start.0, ..shown }.within(end, width));
}

fn pan(model: &mut Model, right: bool) {
    let width = Layout::of(model).axis_width(&model.run.data);
    let shown = window(model, width);
    let half = shown.length(width) / 2;
    let start = if right { shown.start.saturating_add(half) } else { shown.start.saturating_sub(half) };
    let moved = Window { start, ..shown }.within(model.run.data.end(), width);
    if shown.length(width) < model.run.data.end().0 {
        model.timeline.shown = Shown::At(moved);
        let last = moved.start + moved.length(width).saturating_sub(1);
        let cursor = &mut model.timeline.cursor;
        cursor.time = cursor.time.clamp(moved.start, last);
    } else {
        model.say("the whole run is shown; + zooms in");
    }
}

/// One column; at least one tick.
fn sideways(model: &mut Model, right: bool) {
    let width = Layout::of(model).axis_width(&model.run.data);
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
    let rows = panel::reachable_rows(&model.run.data, Layout::of(model).lane_count());
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
    let Some(row) = model.cursor_row().map(|row| model.run.data.row(row)) else { return };
    let ops = |span: &&Span| !span.kind.is_idle();
    let found = if forward {
        let after = row.spans.partition_point(|span| span.start.0 <= time);
        row.spans[after..].iter().find(ops)
    } else {
        let before = row.spans.partition_point(|span| span.start.0 < time);
        row.spans[..before].iter().rev().find(ops)
    };
    match found.map(|span| span.start.0) {
        Some(start) => model.timeline.cursor.time = start,
        None => model.say("no more ops in this lane"),
    }
}

/// A time in the clock's unit.
fn go_to_time(model: &mut Model, time: f64) -> Option<Effect> {
    let ticks = match model.run.data.clock() {
        Clock::Slots { ticks_per_slot } => {
            #[expect(clippy::cast_precision_loss, reason = "a typed number")]
            let per_slot = ticks_per_slot as f64;
            time * per_slot
        }
        Clock::Nanoseconds => time,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate, which is what is wanted")]
    let ticks = ticks.max(0.0) as u64;
    super::run::go_to_time(model, Ticks(ticks));
    None
}

fn go_to_rank(model: &mut Model, rank: u32) -> Option<Effect> {
    let data = &model.run.data;
    let program = data.program();
    let followed = program.followed(Rank(rank));
    if let Some(row) = data.rows.iter().position(|row| Some(row.rank) == followed) {
        let whole = program.whole(data.rows[row].rank);
        model.timeline.cursor.row = row;
        if whole != Rank(rank) {
            model.say(format!("r{rank} does the same as {whole}, which is followed for it"));
        }
    } else {
        let all = program.whole_ranks();
        model.say(format!("there is no rank {rank}; the run has {all}"));
    }
    keep_in_view(model);
    None
}

/// To the row of `rank`, of the same kind as the present one if it has such a row.
pub fn to_rank(model: &mut Model, rank: Rank) {
    let rows = &model.run.data.rows;
    let compute = model.cursor_row().is_some_and(|row| row.compute);
    let of_rank = rows.iter().enumerate().filter(|(_, row)| row.rank == rank);
    if let Some((place, _)) = of_rank.max_by_key(|(_, row)| row.compute == compute) {
        model.timeline.cursor.row = place;
    }
}
