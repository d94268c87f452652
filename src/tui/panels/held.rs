//! Micro-batches that each rank holds: one digit a column, the whole run from left to right.

use ratatui::layout::Rect;

use super::timeline;
use crate::base::Ticks;
use crate::tui::axis::Window;
use crate::tui::layout::{Class, Layout};
use crate::tui::model::Model;
use crate::tui::pen::Pen;
use crate::tui::theme::Role;
use crate::tui::update::timeline::window;

/// A step function: (time, count from it on), in order.
type Steps = [(Ticks, u32)];

/// The pane's title: the peaks.
#[must_use]
pub fn title(model: &Model) -> String {
    let peaks = model.run.data.in_flight.iter().take(MOST_PEAKS).map(|steps| peak(steps).to_string());
    format!("In flight  peaks {}", peaks.collect::<Vec<_>>().join(" "))
}

/// Peaks for which a title has room.
const MOST_PEAKS: usize = 16;

/// One line a rank, with a blank line between where there is room. Where the timeline stands above, in the same width, the
/// digits stand below its columns; elsewhere they show the whole run.
pub fn draw(model: &Model, pen: &mut Pen<'_>) {
    let data = &*model.run.data;
    let held = &data.in_flight;
    let below_timeline = Layout::of(model).class < Class::Large;
    let left = if below_timeline { timeline::label_width(data) } else { 5 };
    let width = pen.width().saturating_sub(left);
    let axis = if below_timeline { window(model, width) } else { Window::fit(data.clock(), data.end(), width) };
    let lines = u16::try_from(held.len()).unwrap_or(u16::MAX);
    let apart = if lines.saturating_mul(2) <= pen.height() + 1 { 2 } else { 1 };
    for (y, (rank, steps)) in (0..pen.height()).step_by(apart).zip(held.iter().enumerate()) {
        let selected = rank == model.focus_rank().index();
        let name = format!("{}r{rank}", if selected { '>' } else { ' ' });
        pen.say(0, y, &name, if selected { Role::Strong } else { Role::Text });
        pen.put(left - 1, y, pen.tier.bar(), pen.theme.style(Role::Frame));
        digits(model, steps, &axis, &mut pen.part(Rect::new(left, y, width, 1)));
    }
}

fn peak(steps: &Steps) -> u32 {
    steps.iter().map(|step| step.1).max().unwrap_or(0)
}

fn digits(model: &Model, steps: &Steps, axis: &Window, pen: &mut Pen<'_>) {
    let now = axis.column(model.now.time.0);
    for column in 0..pen.width() {
        let (from, to) = (axis.edge(column).tick, axis.edge(column + 1).ceiling());
        if from >= model.run.data.end().0 {
            break;
        }
        let role = if i64::from(column) == now { Role::Selected } else { Role::Text };
        pen.put(column, 0, glyph(most(steps, from, to)), pen.theme.style(role));
    }
}

/// The largest count between two ticks.
fn most(steps: &Steps, from: u64, to: u64) -> u32 {
    let first = steps.partition_point(|step| step.0.0 <= from).saturating_sub(1);
    let last = steps.partition_point(|step| step.0.0 < to).max(first);
    let started = |step: &&(Ticks, u32)| step.0.0 < to;
    steps[first.min(steps.len())..last].iter().filter(started).map(|step| step.1).max().unwrap_or(0)
}

fn glyph(count: u32) -> char {
    match count {
        0 => '.',
        1..=9 => char::from_digit(count, 10).unwrap_or('+'),
        _ => '+',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_shows_its_largest_count() {
        let steps = [(2, 1), (5, 3), (6, 2), (9, 0)].map(|(tick, count)| (Ticks(tick), count));
        let check = |from, to, expected| assert_eq!(most(&steps, from, to), expected, "{from}..{to}");
        check(0, 2, 0);
        check(0, 3, 1);
        check(3, 4, 1);
        check(4, 7, 3);
        check(6, 9, 2);
        check(9, 20, 0);
        assert_eq!(most(&[], 0, 9), 0);
    }
}
