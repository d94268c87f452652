//! The timeline: ruler, playhead, lanes, utilisation, legend. Written cell by cell.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::facts;
use crate::base::units::{Clock, Ticks, short_number};
use crate::observe::Kind;
use crate::observe::kind;
use crate::tui::axis::Window;
use crate::tui::coverage::Column;
use crate::tui::data::{RowId, RunData};
use crate::tui::model::Model;
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;
use crate::tui::update::timeline::window;

/// Lines above the lanes (ruler, playhead) and below them (playhead).
const AROUND: u16 = 3;
/// Lines of utilisation and legend, where there is room.
const BELOW: u16 = 2;
/// More spans than this in a lane's window, and labels are not looked for: none would fit.
const MOST_LABELS: usize = 4096;

/// How exactly the lanes show the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every op has room for its label.
    #[default]
    Labelled,
    /// Every op has a cell of its own.
    Cells,
    /// Several ops share a cell.
    Bucketed,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Labelled => "exact (L0)",
            Self::Cells => "exact (L1)",
            Self::Bucketed => "bucketed (L2)",
        }
    }
}

/// The height that shows `rows` lanes and everything around them.
#[must_use]
pub fn wanted_height(rows: usize) -> u16 {
    u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(AROUND + BELOW)
}

/// The lanes that fit into `height` lines.
#[must_use]
pub fn lane_count(height: u16) -> usize {
    let below = if height >= AROUND + BELOW + 4 { BELOW } else { 0 };
    usize::from(height.saturating_sub(AROUND + below))
}

/// The columns of the time axis beside the names of the lanes.
#[must_use]
pub fn axis_width(data: &RunData, width: u16) -> u16 {
    width.saturating_sub(label_width(data))
}

/// The marker, the longest name, the upright line.
#[must_use]
pub fn label_width(data: &RunData) -> u16 {
    7 + data.rank_width()
}

/// The rows that the cursor can reach on `lanes` lanes: all if they fit or have to be scrolled, else the compute streams.
#[must_use]
pub fn reachable_rows(data: &RunData, lanes: usize) -> Vec<usize> {
    let all = 0..data.rows.len();
    let compute: Vec<usize> = all.clone().filter(|&row| data.rows[row].compute).collect();
    if all.len() > lanes && !compute.is_empty() && compute.len() <= lanes { compute } else { all.collect() }
}

/// The rows that are shown in `lanes` lanes, the first of them `first` if they have to be scrolled.
#[must_use]
pub fn shown_rows(data: &RunData, first: usize, lanes: usize) -> Vec<usize> {
    let reachable = reachable_rows(data, lanes);
    let skipped = if reachable.len() > lanes { first } else { 0 };
    reachable.into_iter().skip(skipped).take(lanes).collect()
}

/// Draws everything and returns the pane's title, which says how exact the picture is.
pub fn draw(model: &Model, pen: &mut Pen<'_>) -> String {
    let data = &*model.run.data;
    if data.rows.is_empty() {
        pen.say(1, 1, no_run(model), Role::Quiet);
        return "Timeline".to_owned();
    }
    let left = label_width(data);
    let width = pen.width().saturating_sub(left);
    let window = window(model, width);
    let lanes = lane_count(pen.height());
    let shown = shown_rows(data, model.timeline.first_row, lanes);
    ruler(data, &window, left, pen);
    playhead(model, &window, left, 1, pen.tier.playhead(), pen);
    let (mut level, mut mixed) = (Level::default(), false);
    let mut y = 2;
    for &row in &shown {
        let of_lane = lane(model, row, &window, Rect::new(left, y, width, 1), pen);
        (level, mixed) = (level.max(of_lane.0), mixed || of_lane.1);
        y += 1;
    }
    alerts(data, &shown, &window, left, pen);
    playhead(model, &window, left, y, pen.tier.playfoot(), pen);
    let has_legend = lanes < usize::from(pen.height().saturating_sub(AROUND));
    if has_legend {
        let computes = data.coverage.busy.streams > 0;
        if computes {
            utilisation(model, &window, left, y + 1, pen);
        }
        legend(model, &shown, mixed || level == Level::Bucketed, y + 1 + u16::from(computes), pen);
    }
    let rule = if level == Level::Bucketed && !has_legend { ", its largest kind" } else { "" };
    title(data, shown.len(), level, &window) + rule
}

/// What stands in place of a run that is not there.
#[must_use]
pub fn no_run(model: &Model) -> &'static str {
    if model.asked.is_some() { "compiling and running ..." } else { "no run" }
}

fn title(data: &RunData, shown: usize, level: Level, window: &Window) -> String {
    let lanes = if shown < data.rows.len() { format!("{shown} of {} lanes", data.rows.len()) } else { String::new() };
    let scale = window.scale_text(data.clock());
    let parts = [facts::ranks(data), lanes, level.name().to_owned(), scale];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("Timeline  {}", parts.join("  "))
}

/// Numbers at round times.
pub(super) fn ruler(data: &RunData, window: &Window, left: u16, pen: &mut Pen<'_>) {
    let width = pen.width().saturating_sub(left);
    let (unit, name) = axis_unit(data.clock(), data.end());
    pen.say(1, 0, &format!("t {name}"), Role::Quiet);
    let step = window.ruler_step(data.clock(), 6);
    let last = window.start.saturating_add(window.length(width)).min(data.end().0);
    let mut time = window.start.div_ceil(step).saturating_mul(step);
    while time <= last {
        let number = in_unit(time, unit);
        if let Some(column) = window.visible(time, width).filter(|&column| column + width_of(&number) <= width) {
            pen.say(left + column, 0, &number, Role::Quiet);
        }
        let Some(next) = time.checked_add(step) else { break };
        time = next;
    }
}

/// The axis's unit: its ticks, its name.
fn axis_unit(clock: Clock, end: Ticks) -> (u64, &'static str) {
    match clock {
        Clock::Slots { ticks_per_slot } => (ticks_per_slot.max(1), "u"),
        Clock::Nanoseconds => match end.0 {
            0..10_000 => (1, "ns"),
            10_000..10_000_000 => (1_000, "us"),
            10_000_000..10_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        },
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number on the screen")]
fn in_unit(time: u64, unit: u64) -> String {
    short_number(time as f64 / unit as f64)
}

fn playhead(model: &Model, window: &Window, left: u16, y: u16, glyph: char, pen: &mut Pen<'_>) {
    let width = pen.width().saturating_sub(left);
    // At the end of the run the playhead stands behind the last column: it is drawn on it.
    let column = match window.visible(model.now.time.0, width) {
        None if window.column(model.now.time.0) == i64::from(width) => width.checked_sub(1),
        column => column,
    };
    if let Some(column) = column {
        pen.put(left + column, y, glyph, pen.theme.style(Role::Mark));
    }
}

/// One row: its name and its cells within `area` (relative to the pen). Says how exact it is, and whether a cell is mixed.
fn lane(model: &Model, index: usize, window: &Window, area: Rect, pen: &mut Pen<'_>) -> (Level, bool) {
    let data = &*model.run.data;
    let (id, selected) = (data.rows[index], is_selected(model, index));
    name(data, id, selected, area, pen);
    let (mut level, mut mixed) = (Level::default(), false);
    for (column, shown) in (0..area.width).zip(data.coverage.rows[index].columns(window, area.width)) {
        if shown.shared {
            level = Level::Bucketed;
        }
        mixed |= shown.mixed;
        let hollow = model.timeline.critical && !is_critical(&data.critical_stretches[index], window, column);
        cell(shown, hollow, (area.x + column, area.y), pen);
    }
    level = level.max(labels(data, id, window, area, model.timeline.critical, pen));
    if selected && let Some(column) = window.visible(model.timeline.cursor.time, area.width) {
        pen.restyle(area.x + column, area.y, 1, pen.theme.style(Role::Selected));
    }
    (level, mixed)
}

/// A mark wherever something is wrong; what is wrong at the end of the run stands on its last column. Behind an op that waits for ever
/// its row shows the wait. A rank's communication row that is not shown shows its alerts on the row above.
fn alerts(data: &RunData, shown: &[usize], window: &Window, left: u16, pen: &mut Pen<'_>) {
    let width = pen.width().saturating_sub(left);
    let (style, waiting) = (pen.theme.style(Role::Alert), pen.theme.stroke(Kind::Waiting));
    let end = u16::try_from(window.column(data.end().0)).unwrap_or(0).min(width);
    for alert in data.alerts.iter().filter(|alert| !alert.is_skip) {
        let Some(place) = shown.partition_point(|&row| row <= alert.row).checked_sub(1) else { continue };
        let is_here = data.rows[shown[place]].rank == data.rows[alert.row].rank;
        let column = match window.column(alert.time.0) {
            last if last == i64::from(width) => width.checked_sub(1),
            _ => window.visible(alert.time.0, width),
        };
        let (true, Some(column), Ok(line)) = (is_here, column, u16::try_from(place)) else { continue };
        if alert.waits && shown[place] == alert.row {
            (column..end).for_each(|column| pen.put(left + column, 2 + line, pen.tier.fill(Kind::Waiting), waiting));
        }
        pen.put(left + column, 2 + line, '!', style);
    }
}

/// The row under the cursor; if that row is not shown, the compute row of its rank.
fn is_selected(model: &Model, index: usize) -> bool {
    let rows = &model.run.data.rows;
    let cursor = model.timeline.cursor.row;
    index == cursor || (rows[index].compute && rows.get(cursor).is_some_and(|row| row.rank == rows[index].rank && !row.compute))
}

fn name(data: &RunData, id: RowId, selected: bool, area: Rect, pen: &mut Pen<'_>) {
    let role = if selected { Role::Strong } else { Role::Text };
    pen.say(0, area.y, if selected { ">" } else { " " }, role);
    let x = if id.names_rank { pen.say(1, area.y, &data.program().whole(id.rank).to_string(), role) } else { 3 };
    pen.say(x + 1, area.y, id.stream(), if selected && id.names_rank { Role::Strong } else { Role::Quiet });
    pen.put(area.x.saturating_sub(1), area.y, pen.tier.bar(), pen.theme.style(Role::Frame));
}

/// Whether something without slack runs in `column`.
fn is_critical(stretches: &[(Ticks, Ticks)], window: &Window, column: u16) -> bool {
    let (from, to) = (window.edge(column), window.edge(column + 1));
    let first = stretches.partition_point(|stretch| stretch.1.0 <= from.tick);
    stretches.get(first).is_some_and(|stretch| stretch.0.0 < to.ceiling())
}

/// A cell of a lane; hollow if what runs there has slack, and critical ops are marked.
pub(super) fn cell(shown: Column, hollow: bool, (x, y): (u16, u16), pen: &mut Pen<'_>) {
    let Some(kind) = shown.kind else { return };
    if hollow && kind.is_compute() {
        return pen.put(x, y, pen.tier.hollow(), pen.theme.stroke(kind));
    }
    let glyph = if shown.mixed { pen.tier.mixed() } else { pen.tier.fill(kind) };
    pen.put(x, y, glyph, fill_style(kind, pen));
}

/// Compute fills its cell; what moves or idles is a stroke on the background.
fn fill_style(kind: Kind, pen: &Pen<'_>) -> Style {
    let block = pen.tier == crate::tui::glyphs::Tier::Blocks;
    if kind.is_compute() && !block { pen.theme.fill(kind) } else { pen.theme.stroke(kind) }
}

/// Writes the labels of ops that have two cells or more; in small letters those of ops with slack, if critical ones are `marked`. Says
/// whether all have.
pub(super) fn labels(data: &RunData, id: RowId, window: &Window, area: Rect, marked: bool, pen: &mut Pen<'_>) -> Level {
    let (run, row) = (data.run(), data.row(id));
    let end = window.edge(area.width).ceiling();
    let first = row.spans.partition_point(|span| span.end.0 <= window.start);
    let count = row.spans[first..].partition_point(|span| span.start.0 < end);
    if count > MOST_LABELS {
        return Level::Bucketed;
    }
    let mut level = Level::default();
    for span in row.spans[first..first + count].iter().filter(|span| !span.kind.is_idle() && !span.is_mark()) {
        let (from, to) = (window.nearest(span.start.0), window.nearest(span.end.0));
        if to - from < 2 {
            level = level.max(Level::Cells);
        } else if let (Ok(column), Ok(room)) = (u16::try_from(from.max(0)), u16::try_from(to - from.max(0))) {
            let text = kind::label(&run, data.op_of(id, span));
            let is_cut = width_of(&text) > room;
            level = if is_cut { level.max(Level::Cells) } else { level };
            let has_slack = || !row.ops_of(span).iter().any(|&op| data.slack.is_critical(op));
            if marked && span.kind.is_compute() && has_slack() {
                label(&text.to_lowercase(), pen.theme.stroke(span.kind), (column, room), area, pen);
            } else {
                label(&text, pen.theme.label(span.kind), (column, room), area, pen);
            }
        }
    }
    level
}

/// A label that does not fit, or is cut by the right edge, is left out: a cut number would be another number, and a letter alone looks as if
/// it were whole.
fn label(text: &str, style: Style, (column, room): (u16, u16), area: Rect, pen: &mut Pen<'_>) {
    let room = room.min(area.width.saturating_sub(column));
    if width_of(text) > room {
        return;
    }
    pen.part(Rect::new(area.x + column, area.y, room, 1)).text(0, 0, text, style);
}

fn utilisation(model: &Model, window: &Window, left: u16, y: u16, pen: &mut Pen<'_>) {
    let width = pen.width().saturating_sub(left);
    let quiet = pen.theme.style(Role::Quiet);
    pen.say(1, y, "util", Role::Quiet);
    pen.put(left.saturating_sub(1), y, pen.tier.bar(), pen.theme.style(Role::Frame));
    let end = window.column(model.run.data.end().0);
    for (column, tenth) in (0..width).zip(model.run.data.coverage.busy.tenths(window, width)) {
        if i64::from(column) < end {
            pen.put(left + column, y, char::from(b'0' + tenth), quiet);
        }
    }
}

/// A glyph with its style and its meaning.
pub(super) type Entry = (char, Style, String);

/// What stands in the shown lanes, in as many lines as there are: last the rule of cells that hold more than one thing, if there are any.
fn legend(model: &Model, shown: &[usize], shared: bool, y: u16, pen: &mut Pen<'_>) {
    let data = &*model.run.data;
    let text = pen.theme.style(Role::Text);
    let mut entries: Vec<Entry> = Vec::new();
    if model.timeline.critical {
        entries.push((pen.tier.hollow(), text, "f1 has slack".to_owned()));
    }
    entries.extend(kinds(pen, |kind| shown.iter().any(|&row| data.coverage.rows[row].has(kind))));
    if data.alerts.iter().any(|alert| !alert.is_skip) {
        entries.push(('!', pen.theme.style(Role::Alert), "alert".to_owned()));
    }
    if data.coverage.busy.streams > 0 {
        entries.push((' ', text, "blank ramp".to_owned()));
    }
    if shared {
        entries.push((pen.tier.mixed(), text, "no kind has 60 %, else the largest".to_owned()));
    }
    listed(&entries, (1, y), 1, pen);
}

/// The kinds that occur, each with its glyph; computations that share a glyph stand together.
pub(super) fn kinds(pen: &Pen<'_>, occurs: impl Fn(Kind) -> bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|&kind| occurs(kind)) {
        let glyph = pen.tier.fill(kind);
        match entries.last_mut() {
            Some(last) if last.0 == glyph && kind.is_compute() => last.2 = format!("{}, {}", last.2, kind.name()),
            _ => entries.push((glyph, fill_style(kind, pen), kind.name().to_owned())),
        }
    }
    entries
}

/// Writes glyphs and meanings from a place on; a line that is full goes on below, from column `first`. On the last one stands what fits, and
/// dots for what does not: the help has all.
pub(super) fn listed(entries: &[Entry], (mut x, mut y): (u16, u16), first: u16, pen: &mut Pen<'_>) {
    for (glyph, style, meaning) in entries {
        let wide = if *glyph == ' ' { 0 } else { 2 };
        let fits = |x: u16| x + wide + width_of(meaning) <= pen.width();
        if !fits(x) && y + 1 < pen.height() {
            (x, y) = (first, y + 1);
        }
        if !fits(x) {
            super::parts::more_below(pen);
            continue;
        }
        pen.put(x, y, *glyph, *style);
        x = pen.say(x + wide, y, meaning, Role::Quiet) + 2;
    }
}
