//! Micro-batches that each rank holds: one digit a column, the whole run from left to right.

use crate::tui::axis::Window;
use crate::tui::model::Model;
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// A step function: (tick, count from it on), in order.
type Steps = [(u64, u32)];

/// One line a rank, with a blank line between where there is room; the peaks on the right.
pub fn draw(model: &Model, pen: &mut Pen<'_>) {
    let held = &*model.run.held;
    let ranks = u16::try_from(held.len()).unwrap_or(u16::MAX);
    let apart: u16 = if ranks.saturating_mul(2).saturating_add(1) <= pen.height() { 2 } else { 1 };
    let right = pen.width().saturating_sub(9);
    for (y, (rank, steps)) in (0..pen.height()).step_by(usize::from(apart)).zip(held.iter().enumerate()) {
        let selected = u32::try_from(rank) == Ok(model.focus_rank());
        let name = format!("{}r{rank}", if selected { '>' } else { ' ' });
        let x = pen.say(0, y, &name, if selected { Role::Strong } else { Role::Text }).max(4);
        pen.put(x, y, pen.tier.bar(), pen.theme.style(Role::Frame));
        digits(model, steps, x + 1, right, y, pen);
        let peak = steps.iter().map(|step| step.1).max().unwrap_or(0);
        pen.say_right(right, y, 0, &format!("peak {peak}"), Role::Quiet);
    }
    let note = "digit = micro-batches held, + is ten or more";
    let below = ranks.saturating_mul(apart);
    if below < pen.height() {
        pen.say(0, pen.height().saturating_sub(1), note, Role::Quiet);
    }
}

fn digits(model: &Model, steps: &Steps, left: u16, right: u16, y: u16, pen: &mut Pen<'_>) {
    let picture = &model.run.picture;
    let width = right.saturating_sub(left + 1);
    let window = Window::fit(picture.clock, picture.end, width);
    let now = window.column(model.now.time.0);
    for column in 0..width {
        let (from, to) = (window.edge(column).tick, window.edge(column + 1).ceiling());
        if from >= picture.end.0 {
            break;
        }
        let here = i64::from(column) == now;
        let role = if here { Role::Selected } else { Role::Text };
        pen.put(left + column, y, glyph(most(steps, from, to)), pen.theme.style(role));
    }
}

/// The largest count between two ticks.
fn most(steps: &Steps, from: u64, to: u64) -> u32 {
    let first = steps.partition_point(|step| step.0 <= from).saturating_sub(1);
    let last = steps.partition_point(|step| step.0 < to).max(first);
    let started = |step: &&(u64, u32)| step.0 < to;
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
        let steps = [(2, 1), (5, 3), (6, 2), (9, 0)];
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
