//! Memory: what every rank holds now, what the focus rank holds over time, and where its bytes are.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::breakdown;
use super::parts::{Cut, first_row, mark, more_ranks, pane};
use crate::base::units::{gcd, short_number};
use crate::base::{Bytes, Rank, Ticks};
use crate::observe::Kind;
use crate::observe::ledger::Sample;
use crate::program::Role as Use;
use crate::tui::axis::{self, Window};
use crate::tui::data::{PanelView, RunData};
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// Uses of memory in the order of the ledger: letter, name in legends, what gives it its hue.
pub const USES: [(char, &str, Option<Kind>); 7] = [
    ('P', "parameters", None),
    ('G', "gradients", Some(Kind::Backward)),
    ('O', "optimizer", Some(Kind::Optimizer)),
    ('A', "activations", Some(Kind::Forward)),
    ('B', "buckets", Some(Kind::Collective)),
    ('M', "messages", Some(Kind::Transfer)),
    ('S', "scratch", Some(Kind::Bubble)),
];

/// From this height on, what is held over time stands below the bars.
const WITH_TIME: u16 = 12;

/// The height that it fills, of `room`: bars alone need no more than their lines.
#[must_use]
pub fn wanted_height(ranks: usize, room: u16) -> u16 {
    let bars = u16::try_from(ranks).unwrap_or(u16::MAX).saturating_add(3);
    if room < WITH_TIME { bars.min(room) } else { room }
}

/// Draws it at the position of `view`.
pub fn draw(data: &RunData, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let ranks = u16::try_from(data.lanes.ranks.len()).unwrap_or(u16::MAX);
    if ranks == 0 {
        return;
    }
    let mut rest = Cut::of(pen);
    let apart = u16::from(ranks.saturating_mul(2) + 3 <= rest.0.height * 2 / 5) + 1;
    let above = if rest.0.height < WITH_TIME { rest.0.height } else { (ranks.saturating_mul(apart) + 3).min(rest.0.height / 2) };
    let bars_area = rest.top(above);
    let scale = Scale::of_ranks(data);
    pane(pen, bars_area, &bars_title(data, view, &scale), view.focused, |inside| bars(data, view, &scale, apart, inside));
    if rest.0.height == 0 {
        return;
    }
    let breakdown = (rest.0.width / 3).max(46);
    let time = rest.left(if rest.0.width >= 100 { rest.0.width - breakdown } else { rest.0.width });
    let account = data.ledger.rank(view.focus);
    let scale = Scale::of_peak(data, account.peak().total());
    let (peak, focus) = (account.peak(), data.program().whole(view.focus));
    let when = format!("{focus} over time  {}, stacked; peak {} at event {}", scale.unit.1, peak.total(), peak.event);
    pane(pen, time, &when, false, |inside| over_time(data, view, &scale, inside));
    if rest.0.width > 0 {
        pane(pen, rest.0, &format!("{focus} breakdown"), false, |inside| breakdown::draw(data, view, inside));
    }
}

/// What a full bar or column means.
struct Scale {
    whole: Bytes,
    /// Whether what the device has lies within it.
    is_limit: bool,
    unit: (u64, &'static str),
}

const UNITS: [(u64, &str); 5] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];

impl Scale {
    /// The device's memory if it is ever near to full, else the largest peak.
    fn of_peak(data: &RunData, peak: Bytes) -> Self {
        let limit = data.prepared.asked.limit.filter(|limit| peak.0.saturating_mul(4) >= limit.0);
        let whole = limit.map_or(peak, |limit| limit.max(peak));
        let unit = UNITS.into_iter().find(|unit| whole.0 >= unit.0).unwrap_or(UNITS[4]);
        Self { whole: Bytes(whole.0.max(1)), is_limit: limit.is_some(), unit }
    }

    fn of_ranks(data: &RunData) -> Self {
        let peaks = data.ledger.ranks.iter().map(|account| account.peak().total());
        Self::of_peak(data, peaks.max().unwrap_or_default())
    }

    /// The column or row at which `bytes` end, of `room`.
    fn place(&self, bytes: Bytes, room: u16) -> u16 {
        let place = (u128::from(bytes.0) * u128::from(room) + u128::from(self.whole.0) / 2) / u128::from(self.whole.0);
        u16::try_from(place).unwrap_or(room).min(room)
    }

    /// A part of the whole in the scale's unit.
    #[expect(clippy::cast_precision_loss, reason = "a label on the screen")]
    fn number(&self, part: f64) -> String {
        let value = part * self.whole.0 as f64 / self.unit.0 as f64;
        if value >= 100.0 { format!("{value:.0}") } else { short_number((value * 10.0).round() / 10.0) }
    }
}

fn bars_title(data: &RunData, view: &PanelView<'_>, scale: &Scale) -> String {
    let time = data.lanes.clock.show(view.position.time);
    let limit = match data.prepared.asked.limit {
        Some(limit) if scale.whole == limit => format!("full bar = the device's {limit}"),
        Some(limit) if scale.is_limit => format!("full bar = {}; device has {limit}", scale.whole),
        Some(limit) => format!("full bar = peak {}; device has {limit}", scale.whole),
        None => format!("full bar = peak {}", scale.whole),
    };
    format!("Per rank at t={time}  {limit}")
}

/// A bar for each rank, those around the focus rank if not all fit, and the letters' meaning.
fn bars(data: &RunData, view: &PanelView<'_>, scale: &Scale, apart: u16, pen: &mut Pen<'_>) {
    let all = data.lanes.ranks.len();
    let lines = pen.height().saturating_sub(1).max(1);
    let left = all.saturating_sub(usize::from(lines.div_ceil(apart)));
    let lines = if left > 0 { lines.saturating_sub(1).max(1) } else { lines };
    let room = usize::from(lines.div_ceil(apart));
    let first = first_row(view.focus.index(), all, room);
    let texts: Vec<(Rank, String)> =
        (first..all).take(room).map(Rank::new).map(|rank| (rank, bar_text(data, view, rank))).collect();
    let text_width = texts.iter().map(|(_, text)| width_of(text)).max().unwrap_or(0);
    let label = 4 + data.rank_width();
    let width = pen.width().saturating_sub(label + text_width + 3);
    for (y, (rank, text)) in (0..lines).step_by(usize::from(apart)).zip(texts) {
        let focus = rank == view.focus;
        let role = if focus { Role::Strong } else { Role::Text };
        pen.say(1, y, &format!("{}{}", mark(focus), data.program().whole(rank)), role);
        let bar = Rect::new(label, y, width, 1);
        let sample = data.ledger.rank(rank).after(view.position.event);
        stacked(sample, scale, bar, pen);
        pen.put(label.saturating_sub(1), y, pen.tier.bar(), pen.theme.style(Role::Frame));
        pen.put(label + width, y, pen.tier.bar(), pen.theme.style(Role::Frame));
        pen.say(label + width + 2, y, &text, role);
        if focus && view.focused {
            let style = pen.theme.style(Role::Selected);
            pen.restyle(0, y, label.saturating_sub(1), style);
            pen.restyle(label + width + 1, y, pen.width(), style);
        }
    }
    if left > 0 && pen.height() > 2 {
        more_ranks(pen, pen.height() - 2, all - room);
    }
    legend(data, pen.height().saturating_sub(1), pen);
}

/// `74 GiB  peak 74 GiB`, and whether that is near to what the device has.
fn bar_text(data: &RunData, view: &PanelView<'_>, rank: Rank) -> String {
    let account = data.ledger.rank(rank);
    let (now, peak) = (account.after(view.position.event).total(), account.peak().total());
    let near = match data.prepared.asked.limit {
        Some(limit) if peak >= limit => "  ! full",
        Some(limit) if peak.0 >= limit.0 / 10 * 9 => "  near full",
        _ => "",
    };
    format!("{now:>10}  peak {peak:>10}{near}")
}

fn stacked(sample: &Sample, scale: &Scale, area: Rect, pen: &mut Pen<'_>) {
    let mut sum = Bytes::ZERO;
    let mut x = 0;
    for (role, bytes) in Use::ALL.into_iter().zip(sample.by_role) {
        sum += bytes;
        let end = scale.place(sum, area.width);
        for column in x..end {
            pen.put(area.x + column, area.y, USES[role as usize].0, style(role, pen));
        }
        x = x.max(end);
    }
    for column in x..area.width {
        pen.put(area.x + column, area.y, '.', pen.theme.style(Role::Quiet));
    }
}

/// The fill of a use.
#[must_use]
pub fn style(role: Use, pen: &Pen<'_>) -> Style {
    USES[role as usize].2.map_or_else(Style::new, |kind| pen.theme.fill(kind))
}

/// The letters of the uses that occur in this run, and the dot of what is free; with short names where the whole ones do not fit.
fn legend(data: &RunData, y: u16, pen: &mut Pen<'_>) {
    let occurs = |role: &Use| {
        data.metrics.ranks.iter().any(|rank| rank.peak_by_role[*role as usize] > Bytes::ZERO)
            || data.ledger.ranks.iter().any(|account| account.samples[0].by_role[*role as usize] > Bytes::ZERO)
    };
    let uses: Vec<Use> = Use::ALL.into_iter().filter(occurs).collect();
    let long = |role: Use| USES[role as usize].1;
    let fits = uses.iter().map(|&role| width_of(long(role)) + 4).sum::<u16>() + width_of(FREE) < pen.width();
    let mut x = 1;
    for role in uses {
        pen.put(x, y, USES[role as usize].0, style(role, pen));
        x = pen.say(x + 2, y, if fits { long(role) } else { SHORT[role as usize] }, Role::Quiet) + 2;
    }
    pen.say(x, y, FREE, Role::Quiet);
}

const FREE: &str = ". free";

/// Names of the uses where there is little room.
const SHORT: [&str; 7] = ["par", "grad", "opt", "act", "bkt", "msg", "tmp"];

/// The focus rank's memory over the whole run: each column shows the most that was held within it.
fn over_time(data: &RunData, view: &PanelView<'_>, scale: &Scale, pen: &mut Pen<'_>) {
    let label = 7;
    let rows = pen.height().saturating_sub(2);
    let width = pen.width().saturating_sub(label + 1);
    if rows == 0 || width == 0 {
        return;
    }
    let window = whole_run(data.lanes.end, width);
    let account = data.ledger.rank(view.focus);
    let place = |time: u64| account.samples.partition_point(|sample| sample.time.0 <= time).saturating_sub(1);
    for column in 0..width {
        let (from, to) = (window.edge(column).tick, window.edge(column + 1).ceiling());
        // What does not even fit at the start is shown, too.
        if from >= data.lanes.end.0.max(1) {
            break;
        }
        let last = place(to.saturating_sub(1)).max(place(from));
        let most = data.prepared.peaks[view.focus.index()].largest(account, place(from), last);
        tower(&account.samples[most], scale, (label + column, rows), pen);
    }
    axes(data, view, scale, &window, (label, rows), pen);
}

/// The whole run in exactly `width` columns.
fn whole_run(end: Ticks, width: u16) -> Window {
    let (ticks, columns) = (end.0.max(1), u64::from(width.max(1)));
    let common = gcd(ticks, columns);
    Window { start: 0, scale: axis::Scale { ticks: ticks / common, columns: columns / common } }
}

/// One column of letters, from the axis up.
fn tower(sample: &Sample, scale: &Scale, (x, rows): (u16, u16), pen: &mut Pen<'_>) {
    let (mut sum, mut row) = (Bytes::ZERO, 0);
    for (role, bytes) in Use::ALL.into_iter().zip(sample.by_role) {
        sum += bytes;
        let end = scale.place(sum, rows);
        for row in row..end {
            pen.put(x, rows - 1 - row, USES[role as usize].0, style(role, pen));
        }
        row = row.max(end);
    }
}

/// Bytes on the left, times below, the playhead. A label stands whole or not at all.
fn axes(data: &RunData, view: &PanelView<'_>, scale: &Scale, window: &Window, (left, rows): (u16, u16), pen: &mut Pen<'_>) {
    let clock = data.lanes.clock;
    let apart = if rows > 8 { 2 } else { 1 };
    for row in 0..rows {
        let part = f64::from(rows - row) / f64::from(rows);
        if row % apart == 0 {
            pen.say(0, row, &format!("{:>5}", scale.number(part)), Role::Quiet);
        }
        pen.put(left - 1, row, pen.tier.bar(), pen.theme.style(Role::Frame));
    }
    if scale.is_limit {
        let limit = data.prepared.asked.limit.unwrap_or(scale.whole);
        let row = rows - scale.place(limit, rows).clamp(1, rows);
        pen.say(left + 1, row, "- - what the device has - -", Role::Quiet);
    }
    let width = pen.width().saturating_sub(left);
    for column in 0..width {
        pen.put(left + column, rows, pen.tier.axis(false), pen.theme.style(Role::Frame));
    }
    let step = window.ruler_step(clock, 10).max(1);
    let mut tick = 0;
    while let Some(column) = window.visible(tick, width).filter(|_| tick <= data.lanes.end.0) {
        let label = clock.show(Ticks(tick));
        if column + width_of(&label) <= width {
            pen.say(left + column, rows + 1, &label, Role::Quiet);
        }
        let Some(next) = u64::checked_add(tick, step) else { break };
        tick = next;
    }
    if let Some(column) = window.visible(view.position.time.0, width) {
        pen.put(left + column, rows, pen.tier.playfoot(), pen.theme.style(Role::Mark));
    }
}
