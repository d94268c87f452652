//! Micro-batches that each rank holds: one digit a column, below the timeline's columns.

use ratatui::layout::Rect;

use super::parts::{first_row, mark, more_ranks};
use super::timeline;
use crate::base::Rank;
use crate::tui::axis::Window;
use crate::tui::in_flight::InFlight;
use crate::tui::model::Model;
use crate::tui::pen::Pen;
use crate::tui::theme::Role;
use crate::tui::update::timeline::window;

/// The pane's title: the peaks.
#[must_use]
pub fn title(model: &Model) -> String {
    let peaks = model.run.data.in_flight.iter().take(MOST_PEAKS).map(|held| held.peak().to_string());
    let more = if model.run.data.in_flight.iter().any(|held| held.peak() > 9) { "  + is more than 9" } else { "" };
    format!("In flight  peaks {}{more}", peaks.collect::<Vec<_>>().join(" "))
}

/// Peaks for which a title has room.
const MOST_PEAKS: usize = 16;

/// One line a rank, with a blank line between where there is room; those around the focus rank if not all fit. In the width of the timeline
/// above, the digits stand below its columns.
pub fn draw(model: &Model, pen: &mut Pen<'_>) {
    let data = &*model.run.data;
    let ranks = &data.in_flight;
    let left = timeline::label_width(data);
    let width = pen.width().saturating_sub(left);
    let axis = window(model, width);
    let lines = u16::try_from(ranks.len()).unwrap_or(u16::MAX);
    let (apart, is_cut) = (if lines.saturating_mul(2) <= pen.height() + 1 { 2 } else { 1 }, lines > pen.height());
    let room = pen.height().saturating_sub(u16::from(is_cut));
    let shown = usize::from(room.div_ceil(apart));
    let first = first_row(model.focus_rank().index(), ranks.len(), shown);
    for (y, (rank, held)) in (0..room).step_by(usize::from(apart)).zip(ranks.iter().enumerate().skip(first)) {
        let selected = rank == model.focus_rank().index();
        let name = format!("{}{}", mark(selected), data.program().whole(Rank::new(rank)));
        pen.say(0, y, &name, if selected { Role::Strong } else { Role::Text });
        pen.put(left - 1, y, pen.tier.bar(), pen.theme.style(Role::Frame));
        digits(model, held, &axis, &mut pen.part(Rect::new(left, y, width, 1)));
    }
    if is_cut && pen.height() > 0 {
        more_ranks(pen, room, ranks.len() - shown);
    }
}

fn digits(model: &Model, held: &InFlight, axis: &Window, pen: &mut Pen<'_>) {
    let now = axis.column(model.now.time.0);
    for column in 0..pen.width() {
        let (from, to) = (axis.edge(column).tick, axis.edge(column + 1).ceiling());
        if from >= model.run.data.end().0 {
            break;
        }
        let role = if i64::from(column) == now { Role::Selected } else { Role::Text };
        pen.put(column, 0, glyph(held.most(from, to)), pen.theme.style(role));
    }
}

fn glyph(count: u32) -> char {
    match count {
        0 => '.',
        1..=9 => char::from_digit(count, 10).unwrap_or('+'),
        _ => '+',
    }
}
