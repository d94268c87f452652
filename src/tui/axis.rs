//! The time axis: which ticks a column shows, in whole numbers, and the steps of zooming.

use crate::base::units::{Clock, Ticks};

/// How ticks map to columns: `ticks` ticks take `columns` columns. One of the two is 1 or they share no factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Ticks.
    pub ticks: u64,
    /// Columns.
    pub columns: u64,
}

/// A point on the axis between two ticks: `tick` and `part` parts of `Scale::columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The whole ticks.
    pub tick: u64,
    /// The rest, in parts of a tick.
    pub part: u64,
}

/// What of the time axis is shown: from where, and how wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first tick.
    pub start: u64,
    /// Ticks to columns.
    pub scale: Scale,
}

impl Edge {
    /// The first whole tick at or after the edge.
    #[must_use]
    pub fn ceiling(self) -> u64 {
        self.tick + u64::from(self.part > 0)
    }
}

impl Window {
    /// The left edge of a column.
    #[must_use]
    pub fn edge(&self, column: u16) -> Edge {
        let ticks = u64::from(column).saturating_mul(self.scale.ticks);
        Edge { tick: self.start.saturating_add(ticks / self.scale.columns), part: ticks % self.scale.columns }
    }

    /// The column of a tick; negative before the window.
    #[must_use]
    pub fn column(&self, tick: u64) -> i64 {
        let distance = i128::from(tick) - i128::from(self.start);
        let column = (distance * i128::from(self.scale.columns)).div_euclid(i128::from(self.scale.ticks));
        i64::try_from(column).unwrap_or(if column < 0 { i64::MIN } else { i64::MAX })
    }

    /// The column of a tick if it lies within the first `width` columns.
    #[must_use]
    pub fn visible(&self, tick: u64, width: u16) -> Option<u16> {
        u16::try_from(self.column(tick)).ok().filter(|&column| column < width)
    }

    /// The column boundary nearest to a tick; exactly between two, the left one.
    #[must_use]
    pub fn nearest(&self, tick: u64) -> i64 {
        let distance = i128::from(tick) - i128::from(self.start);
        let (doubled, ticks) = (2 * distance * i128::from(self.scale.columns), i128::from(self.scale.ticks));
        let column = (doubled - ticks).div_euclid(2 * ticks) + i128::from((doubled - ticks).rem_euclid(2 * ticks) > 0);
        i64::try_from(column).unwrap_or(if column < 0 { i64::MIN } else { i64::MAX })
    }

    /// The ticks that `width` columns show, at least 1.
    #[must_use]
    pub fn length(&self, width: u16) -> u64 {
        (u64::from(width).saturating_mul(self.scale.ticks) / self.scale.columns).max(1)
    }

    /// The whole run in `width` columns, at the finest step that shows it all.
    #[must_use]
    pub fn fit(clock: Clock, end: Ticks, width: u16) -> Self {
        let shows_all = |scale: &Scale| Self { start: 0, scale: *scale }.column(end.0) <= i64::from(width);
        let coarsest = Scale { ticks: end.0.max(1), columns: 1 };
        Self { start: 0, scale: scales(clock, fine_numbers()).find(shows_all).unwrap_or(coarsest) }
    }

    /// One step finer or coarser, with `anchor` staying in its column; the window stays at the ends of the run.
    #[must_use]
    pub fn zoomed(&self, finer: bool, anchor: u64, (clock, end, width): (Clock, Ticks, u16)) -> Self {
        let scale = if finer {
            steps(clock).take_while(|step| is_finer(step, &self.scale)).last()
        } else {
            let limit = Self::fit(clock, end, width).scale;
            let coarser = steps(clock).find(|step| is_finer(&self.scale, step));
            coarser.map(|step| if is_finer(&limit, &step) { limit } else { step })
        };
        let Some(scale) = scale else { return *self };
        let column = self.column(anchor).clamp(0, i64::from(width.saturating_sub(1))).unsigned_abs();
        let before = column.saturating_mul(scale.ticks) / scale.columns;
        Self { start: anchor.saturating_sub(before), scale }.within(end, width)
    }

    /// The window moved so that it does not show what lies behind the end, as far as possible.
    #[must_use]
    pub fn within(self, end: Ticks, width: u16) -> Self {
        Self { start: self.start.min(end.0.saturating_sub(self.length(width).saturating_sub(1))), ..self }
    }

    /// Whether a column shows more than one of `other` does.
    #[must_use]
    pub fn is_coarser(&self, other: &Self) -> bool {
        is_finer(&other.scale, &self.scale)
    }

    /// The distance of the ruler's numbers: the smallest round step that leaves room for `room` columns.
    #[must_use]
    pub fn ruler_step(&self, clock: Clock, room: u64) -> u64 {
        let needed = u128::from(room) * u128::from(self.scale.ticks);
        let wide_enough = |ticks: &u64| u128::from(*ticks) * u128::from(self.scale.columns) >= needed;
        round_numbers().map(|number| number.saturating_mul(unit(clock))).find(wide_enough).unwrap_or(u64::MAX)
    }

    /// The scale in words: `1 col = 0.5u`.
    #[must_use]
    pub fn scale_text(&self, clock: Clock) -> String {
        let Scale { ticks, columns } = self.scale;
        if columns == 1 {
            format!("1 col = {}", clock.show(Ticks(ticks)))
        } else {
            let unit = clock.show(Ticks(ticks));
            match clock {
                Clock::Slots { .. } => format!("1 col = {}u", crate::base::units::short_number(share(clock, self.scale))),
                Clock::Nanoseconds => format!("{columns} col = {unit}"),
            }
        }
    }
}

/// Slots in one column.
#[expect(clippy::cast_precision_loss, reason = "a number on the screen")]
fn share(clock: Clock, scale: Scale) -> f64 {
    clock.in_unit(Ticks(scale.ticks)) / scale.columns as f64
}

fn is_finer(first: &Scale, second: &Scale) -> bool {
    u128::from(first.ticks) * u128::from(second.columns) < u128::from(second.ticks) * u128::from(first.columns)
}

/// Zoom steps from fine to coarse.
fn steps(clock: Clock) -> impl Iterator<Item = Scale> {
    scales(clock, round_numbers())
}

/// Parts of a unit a column, then `numbers` of units a column.
fn scales(clock: Clock, numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = Scale> {
    const COLUMNS_PER_UNIT: [u64; 8] = [32, 16, 12, 8, 6, 4, 3, 2];
    let unit = unit(clock);
    let finer = COLUMNS_PER_UNIT.into_iter().map(move |columns| Scale { ticks: unit, columns });
    finer.chain(numbers.map(move |number| Scale { ticks: number.saturating_mul(unit), columns: 1 }))
}

/// The ticks of one slot, or one nanosecond.
fn unit(clock: Clock) -> u64 {
    match clock {
        Clock::Slots { ticks_per_slot } => ticks_per_slot.max(1),
        Clock::Nanoseconds => 1,
    }
}

/// 1, 2, 3, 5, 10, 20, 30, 50, 100 ...
fn round_numbers() -> impl Iterator<Item = u64> {
    (0..=18).flat_map(|power| [1, 2, 3, 5].map(|digit| 10_u64.pow(power).saturating_mul(digit)))
}

/// Numbers of two digits that are still easy to read, for a run that is to fill its columns: 1 to 10, 12, 15, 20, 25, 30, 40 ...
fn fine_numbers() -> impl Iterator<Item = u64> {
    const TENTHS: [u64; 11] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 90];
    (1..10).chain((0..=17).flat_map(|power| TENTHS.map(|tenth| 10_u64.pow(power).saturating_mul(tenth))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: Clock = Clock::Slots { ticks_per_slot: 6 };

    #[test]
    fn fitting_takes_the_finest_round_step() {
        let check = |clock, end, width, expected: &str| {
            let window = Window::fit(clock, Ticks(end), width);
            assert_eq!(window.scale_text(clock), expected, "{end} ticks in {width} columns");
            assert!(window.column(end) <= i64::from(width));
        };
        check(SLOTS, 33 * 6, 68, "1 col = 0.5u");
        check(SLOTS, 33 * 6, 66, "1 col = 0.5u");
        check(SLOTS, 33 * 6, 65, "1 col = 1u");
        check(SLOTS, 33 * 6, 140, "1 col = 0.25u");
        check(SLOTS, 33 * 6, 10, "1 col = 4u");
        check(Clock::Nanoseconds, 1_234_567, 100, "1 col = 15 us");
        check(Clock::Nanoseconds, 7, 80, "8 col = 1 ns");
        check(SLOTS, 0, 80, "1 col = 0.03u");
    }

    #[test]
    fn columns_and_edges_are_inverse() {
        for scale in [Scale { ticks: 6, columns: 4 }, Scale { ticks: 30, columns: 1 }, Scale { ticks: 1, columns: 8 }] {
            let window = Window { start: 7, scale };
            for column in 0..50 {
                let edge = window.edge(column);
                let first = edge.ceiling();
                assert!(window.column(first) >= i64::from(column), "{scale:?} {column}");
                assert!(first == 0 || window.column(first - 1) < i64::from(column), "{scale:?} {column}");
            }
        }
    }

    #[test]
    fn zooming_keeps_the_anchor_in_its_column_and_comes_back() {
        let run = (SLOTS, Ticks(33 * 6), 68);
        let whole = Window::fit(run.0, run.1, run.2);
        let near = whole.zoomed(true, 60, run);
        assert!(near.length(68) < whole.length(68));
        assert_eq!(near.column(60), whole.column(60));
        assert_eq!(near.zoomed(false, 60, run).scale, whole.scale);
        assert_eq!(whole.zoomed(false, 60, run), whole, "no coarser than the whole run");
        let finest = (0..20).fold(whole, |window, _| window.zoomed(true, 60, run));
        assert_eq!(finest.scale, Scale { ticks: 6, columns: 32 });
    }

    #[test]
    fn the_ruler_has_room_for_its_numbers() {
        let window = Window { start: 0, scale: Scale { ticks: 6, columns: 2 } };
        assert_eq!(window.ruler_step(SLOTS, 6), 3 * 6, "every three slots, six columns apart");
        assert_eq!(window.ruler_step(SLOTS, 7), 5 * 6);
    }
}
