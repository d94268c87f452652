//! How much of any stretch of time each kind covers, at any zoom, without visiting the spans in it.
//!
//! Running totals at every eighth span: the answer for a stretch is the difference of two totals, exact to the tick. Built once per run,
//! off the screen's thread; a query costs one search and at most seven additions. (A pyramid of buckets would answer as fast, but only
//! roughly, and would have to know the zoom levels beforehand.) A large run does not fit the processor's caches, so that what counts is
//! how much memory a query touches: spans are kept packed, and totals of the kinds alone that their row has.

use std::ops::Range;

use super::axis::{Edge, Window};
use crate::observe::Kind;
use crate::observe::rows::{Row, Span};

const STRIDE: usize = 8;
const KINDS: usize = Kind::ALL.len();

/// Ticks that each kind covers, and the free messages of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Ticks by kind, times the scale's columns when asked for columns.
    pub ticks: [u64; KINDS],
    /// Spans without duration, by kind.
    pub instants: [u32; KINDS],
}

/// The totals of one row, and its spans once more, packed: a query reads one stride of each.
#[derive(Clone, Debug, Default)]
pub struct RowCoverage {
    /// The kinds that occur in the row.
    kinds: Vec<Kind>,
    strides: Vec<Stride>,
    /// Of the first i strides, kind by kind: at place i * the number of kinds.
    totals: Vec<(u64, u32)>,
}

/// Some spans that follow each other; what is missing in the last stride never starts.
#[derive(Clone, Copy, Debug)]
struct Stride {
    starts: [u64; STRIDE],
    ends: [u64; STRIDE],
    kinds: [Kind; STRIDE],
}

/// A span, as far as coverage goes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    end: u64,
    kind: Kind,
}

/// The totals of a whole run.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// One for each row of the timeline.
    pub rows: Vec<RowCoverage>,
    /// How many compute streams are busy.
    pub busy: Busy,
}

/// What one column of a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The kind it shows, if anything.
    pub kind: Option<Kind>,
    /// No kind prevails: `kind` is only the largest.
    pub mixed: bool,
    /// Several spans lie wholly within it: it cannot show each.
    pub shared: bool,
}

impl Coverage {
    /// Of the timeline's rows, and of all compute rows together. Linear in the spans but for one sort of their ends.
    #[must_use]
    pub fn of<'a>(timeline: &[&'a Row], compute: impl Iterator<Item = &'a Row>) -> Self {
        let rows: Vec<RowCoverage> = timeline.iter().map(|row| RowCoverage::of(row)).collect();
        Self { busy: Busy::of(compute), rows }
    }
}

impl RowCoverage {
    /// Whether something of this kind occurs in the row.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    fn of(row: &Row) -> Self {
        let mut occurs = [false; KINDS];
        row.spans.iter().for_each(|span| occurs[span.kind as usize] = true);
        let kinds = Kind::ALL.into_iter().filter(|&kind| occurs[kind as usize]).collect();
        let mut coverage = Self { kinds, strides: Vec::new(), totals: Vec::new() };
        let mut sum = Totals::default();
        coverage.push(&sum);
        for spans in row.spans.chunks(STRIDE) {
            let stride = Stride::of(spans);
            (0..spans.len()).for_each(|place| sum.add(stride.piece(place), u64::MAX));
            coverage.strides.push(stride);
            coverage.push(&sum);
        }
        coverage
    }

    fn push(&mut self, sum: &Totals) {
        let of_kind = |&kind: &Kind| (sum.ticks[kind as usize], sum.instants[kind as usize]);
        self.totals.extend(self.kinds.iter().map(of_kind));
    }

    fn piece(&self, place: usize) -> Piece {
        self.strides[place / STRIDE].piece(place % STRIDE)
    }

    /// Of the first `stride` strides.
    fn totals(&self, stride: usize) -> Totals {
        let mut totals = Totals::default();
        let place = stride * self.kinds.len();
        for (&kind, &(ticks, instants)) in self.kinds.iter().zip(&self.totals[place..]) {
            (totals.ticks[kind as usize], totals.instants[kind as usize]) = (ticks, instants);
        }
        totals
    }

    /// How many spans start before `tick`, if at least `from` do: looks near `from` first.
    fn started(&self, from: usize, tick: u64) -> usize {
        let (mut low, mut step) = (from / STRIDE, 1);
        while self.strides.get(low + step).is_some_and(|stride| stride.starts[0] < tick) {
            low += step;
            step *= 2;
        }
        let high = (low + step + 1).min(self.strides.len());
        let behind = low + self.strides[low.min(high)..high].partition_point(|stride| stride.starts[0] < tick);
        let Some(place) = behind.checked_sub(1) else { return from };
        from.max(place * STRIDE + self.strides[place].starts.partition_point(|&start| start < tick))
    }

    /// What lies before `tick`, before which the first `started` spans start.
    fn before(&self, started: usize, tick: u64) -> Totals {
        let mut sum = self.totals(started / STRIDE);
        for place in started / STRIDE * STRIDE..started {
            sum.add(self.piece(place), tick);
        }
        // Only the last span that started can still run at `tick`; if it is the last of its stride it was added whole.
        if started > 0 && started.is_multiple_of(STRIDE) {
            sum.cut(self.piece(started - 1), tick);
        }
        sum
    }

    /// What lies before `edge`, in parts of a tick; the first `started` spans start before it.
    fn before_edge(&self, started: usize, edge: Edge, parts: u64) -> Totals {
        if edge.part == 0 {
            return self.before(started, edge.tick).times(parts);
        }
        // Within one tick nothing changes, so that what covers it grows evenly.
        let begun = (0..started).rev().take_while(|&place| self.piece(place).start >= edge.tick).count();
        let sum = self.before(started - begun, edge.tick);
        let here = self.before(started, edge.tick + 1).since(&sum);
        sum.times(parts).plus(&here, edge.part)
    }

    /// What each of the first `width` columns of `window` shows.
    pub fn columns<'a>(&'a self, window: &'a Window, width: u16) -> impl Iterator<Item = Column> + 'a {
        let parts = window.scale.columns;
        let first = window.edge(0);
        let mut left = Border { edge: first, started: self.started(0, first.ceiling()), before: None };
        (1..=width).map(move |column| {
            let edge = window.edge(column);
            let mut right = Border { edge, started: self.started(left.started, edge.ceiling()), before: None };
            let touching = self.touching(&left, &right);
            let shown = if touching.is_empty() {
                Column { kind: None, mixed: false, shared: false }
            } else if touching.len() <= FEW {
                few(&touching.map(|place| self.piece(place)), left.edge, right.edge, window)
            } else {
                let within = right.totals(self, parts).since(&left.totals(self, parts));
                many(&within, window.scale.ticks)
            };
            left = right;
            shown
        })
    }

    /// The spans that touch the stretch between two borders.
    fn touching(&self, from: &Border, to: &Border) -> Range<usize> {
        let runs_on = |place: &usize| self.piece(*place).end > from.edge.tick;
        let first = from.started.checked_sub(1).filter(runs_on).unwrap_or(from.started);
        first..to.started
    }
}

impl Stride {
    fn of(spans: &[Span]) -> Self {
        let mut stride = Self { starts: [u64::MAX; STRIDE], ends: [u64::MAX; STRIDE], kinds: [Kind::Forward; STRIDE] };
        for (place, span) in spans.iter().enumerate() {
            (stride.starts[place], stride.ends[place], stride.kinds[place]) = (span.start.0, span.end.0, span.kind);
        }
        stride
    }

    fn piece(&self, place: usize) -> Piece {
        Piece { start: self.starts[place], end: self.ends[place], kind: self.kinds[place] }
    }
}

/// An edge between two columns of a row. The totals before it are worked out when they are asked for, and once.
struct Border {
    edge: Edge,
    /// Spans that start before it.
    started: usize,
    before: Option<Totals>,
}

impl Border {
    fn totals(&mut self, coverage: &RowCoverage, parts: u64) -> Totals {
        *self.before.get_or_insert_with(|| coverage.before_edge(self.started, self.edge, parts))
    }
}

/// Up to so many spans in a column are added up one by one, and an op that lies wholly inside shows; above, running totals answer.
const FEW: usize = 2;

fn few(touching: &(impl ExactSizeIterator<Item = Piece> + Clone), from: Edge, to: Edge, window: &Window) -> Column {
    let parts = window.scale.columns;
    let at = |tick: u64| tick.saturating_mul(parts);
    let (left, right) = (at(from.tick) + from.part, at(to.tick) + to.part);
    let mut within = Totals::default();
    let (mut whole, mut wholly): (Option<(bool, u64, Kind)>, usize) = (None, 0);
    for piece in touching.clone() {
        let (start, end) = (at(piece.start), at(piece.end));
        let fill = end.min(right).saturating_sub(start.max(left));
        within.ticks[piece.kind as usize] += fill;
        if start >= left && end <= right {
            wholly += usize::from(fill > 0);
            whole = whole.max(Some((!piece.kind.is_idle(), fill, piece.kind)));
        }
    }
    // Two ops that meet in a column are no mixture: the larger one shows. But of two that lie within it each would vanish.
    let (shared, gap) = (wholly > 1, touching.clone().any(|piece| piece.kind.is_idle()));
    let shown = prevailing(&within, right - left).map(|(kind, mixed)| (kind, mixed && (gap || shared)));
    let shown = shown.or(whole.map(|(.., kind)| (kind, false)));
    let shown = match whole {
        // An op that would vanish otherwise.
        Some((true, _, kind)) if !shared && shown.is_none_or(|(shown, mixed)| mixed || shown.is_idle()) => Some((kind, false)),
        _ => shown,
    };
    Column { kind: shown.map(|(kind, _)| kind), mixed: shown.is_some_and(|(_, mixed)| mixed), shared }
}

/// What prevails. Where nothing lasts a free message shows.
fn many(within: &Totals, column_ticks: u64) -> Column {
    let (ops, _) = Kind::ALL.split_at(Kind::Waiting as usize);
    let moves = ops.iter().any(|&kind| within.ticks[kind as usize] > 0);
    let messages = || Kind::ALL.into_iter().filter(|&kind| within.instants[kind as usize] > 0);
    let message = messages().max_by_key(|&kind| within.instants[kind as usize]).filter(|_| !moves);
    let shown = message.map(|message| (message, messages().count() > 1)).or_else(|| prevailing(within, column_ticks));
    Column { kind: shown.map(|(kind, _)| kind), mixed: shown.is_some_and(|(_, mixed)| mixed), shared: true }
}

/// What a column of `column` ticks shows, and whether it is a mixture. Work beats idleness: from a fifth of the column on its largest kind
/// shows, mixed if that is below 60 % of the work; from a tenth on the column is mixed with the gap around it; less than that is a gap.
/// What moves among waiting shows as a mixture whatever its share. A gap shows if it fills half of the column.
fn prevailing(within: &Totals, column: u64) -> Option<(Kind, bool)> {
    let ticks = |kind: Kind| within.ticks[kind as usize];
    let most = |kinds: &[Kind]| kinds.iter().copied().filter(|&kind| ticks(kind) > 0).max_by_key(|&kind| ticks(kind));
    let sum = |kinds: &[Kind]| kinds.iter().map(|&kind| u128::from(ticks(kind))).sum::<u128>();
    let (ops, gaps) = Kind::ALL.split_at(Kind::Waiting as usize);
    let (work, idle, column) = (sum(ops), sum(gaps), u128::from(column));
    let gap = most(gaps).filter(|_| idle * 2 >= column);
    let Some(op) = most(ops) else { return gap.map(|gap| (gap, false)) };
    let mixture = u128::from(ticks(op)) * 10 < work * 6;
    match gap {
        _ if work * 5 >= column => Some((op, mixture)),
        Some(Kind::Waiting) => Some((op, true)),
        _ if work * 10 >= column => Some((op, true)),
        gap => gap.map(|gap| (gap, false)),
    }
}

impl Totals {
    /// Adds the part of `piece` that lies before `tick`.
    fn add(&mut self, piece: Piece, tick: u64) {
        let kind = piece.kind as usize;
        self.ticks[kind] += piece.end.min(tick) - piece.start;
        self.instants[kind] += u32::from(piece.start == piece.end);
    }

    /// Takes away the part of `piece` that lies after `tick`.
    fn cut(&mut self, piece: Piece, tick: u64) {
        self.ticks[piece.kind as usize] -= piece.end.saturating_sub(tick);
    }

    fn times(mut self, factor: u64) -> Self {
        for ticks in &mut self.ticks {
            *ticks *= factor;
        }
        self
    }

    fn plus(mut self, more: &Self, times: u64) -> Self {
        for (sum, more) in self.ticks.iter_mut().zip(more.ticks) {
            *sum += more * times;
        }
        for (sum, more) in self.instants.iter_mut().zip(more.instants) {
            *sum += more;
        }
        self
    }

    fn since(mut self, earlier: &Self) -> Self {
        for (now, then) in self.ticks.iter_mut().zip(earlier.ticks) {
            *now = now.saturating_sub(then);
        }
        for (now, then) in self.instants.iter_mut().zip(earlier.instants) {
            *now = now.saturating_sub(then);
        }
        self
    }
}

/// How many compute streams are busy, as a running integral over time.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// At each moment at which it changes: (tick, busy ticks of all streams before it, streams busy from it on).
    steps: Vec<(u64, u64, u32)>,
    /// Compute streams.
    pub streams: u32,
}

impl Busy {
    fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let (mut changes, mut streams) = (Vec::new(), 0);
        for row in rows {
            streams += u32::from(!row.spans.is_empty());
            let ops = row.spans.iter().filter(|span| span.kind.is_compute() && !span.is_mark());
            changes.extend(ops.flat_map(|span| [(span.start.0, true), (span.end.0, false)]));
        }
        changes.sort_unstable();
        let mut steps: Vec<(u64, u64, u32)> = Vec::new();
        let (mut tick, mut sum, mut busy) = (0, 0, 0_u32);
        for (next, starts) in changes {
            sum += (next - tick) * u64::from(busy);
            tick = next;
            busy = if starts { busy + 1 } else { busy - 1 };
            match steps.last_mut() {
                Some(last) if last.0 == tick => *last = (tick, sum, busy),
                _ => steps.push((tick, sum, busy)),
            }
        }
        Self { steps, streams }
    }

    /// Busy stream-ticks before `edge`, in parts of a tick.
    fn before(&self, edge: Edge, parts: u64) -> u64 {
        let started = self.steps.partition_point(|step| step.0 <= edge.tick);
        let Some(&(tick, sum, busy)) = started.checked_sub(1).and_then(|last| self.steps.get(last)) else { return 0 };
        sum * parts + ((edge.tick - tick) * parts + edge.part) * u64::from(busy)
    }

    /// The share of busy streams in each column, in tenths that stay below ten: 9 is (nearly) all.
    pub fn tenths<'a>(&'a self, window: &'a Window, width: u16) -> impl Iterator<Item = u8> + 'a {
        let parts = window.scale.columns;
        (0..width).map(move |column| {
            let busy = self.before(window.edge(column + 1), parts) - self.before(window.edge(column), parts);
            let all = u64::from(self.streams.max(1)) * window.scale.ticks;
            u8::try_from((busy * 9 + all / 2) / all).unwrap_or(9)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Ticks;
    use crate::tui::axis::Scale;
    use proptest::prelude::*;

    fn row(spans: Vec<Span>) -> Row {
        Row { spans, ops: Vec::new() }
    }

    /// Spans that do not overlap, of random kinds; some without duration.
    fn spans() -> impl Strategy<Value = Vec<Span>> {
        prop::collection::vec((0_u64..5, 0_u64..7, 0..KINDS), 0..150).prop_map(|pieces| {
            let mut now = 0;
            let place = |(index, (pause, length, kind)): (usize, (u64, u64, usize))| {
                let start = now + pause;
                now = start + length;
                let event = u32::try_from(index).unwrap();
                Span { event, ..span(start, now, Kind::ALL[kind]) }
            };
            pieces.into_iter().enumerate().map(place).collect()
        })
    }

    /// The same by visiting every tick of every span.
    fn sweep(spans: &[Span], from: u64, to: u64) -> Totals {
        let mut totals = Totals::default();
        for span in spans {
            let covered = (span.start.0..span.end.0).filter(|tick| (from..to).contains(tick)).count();
            totals.ticks[span.kind as usize] += covered as u64;
            let here = span.start == span.end && (from..to).contains(&span.start.0);
            totals.instants[span.kind as usize] += u32::from(here);
        }
        totals
    }

    proptest! {
        #[test]
        fn running_totals_equal_the_sweep(spans in spans(), start in 0_u64..400, ticks in 1_u64..90, columns in 1_u64..5) {
            let row = row(spans);
            let coverage = RowCoverage::of(&row);
            let window = Window { start, scale: Scale { ticks, columns } };
            for column in 0..6 {
                let (from, to) = (window.edge(column), window.edge(column + 1));
                let before = |edge: Edge| {
                    let started = row.spans.partition_point(|span| span.start.0 < edge.ceiling());
                    assert_eq!(coverage.started(0, edge.ceiling()), started);
                    coverage.before_edge(started, edge, columns)
                };
                let within = before(to).since(&before(from));
                prop_assert!(within.ticks.iter().sum::<u64>() <= ticks, "no more than the column");
                if (from.part, to.part) == (0, 0) {
                    let swept = sweep(&row.spans, from.tick, to.tick);
                    prop_assert_eq!(within.ticks, swept.ticks.map(|sum| sum * columns));
                    prop_assert_eq!(within.instants, swept.instants);
                }
            }
        }

        #[test]
        fn busy_streams_equal_the_sweep(rows in prop::collection::vec(spans(), 1..4), at in 0_u64..300) {
            let rows: Vec<Row> = rows.into_iter().map(row).collect();
            let ops = |row: &Row| row.spans.iter().filter(|span| span.kind.is_compute()).copied().collect::<Vec<_>>();
            let expected: u64 = rows.iter().map(|row| sweep(&ops(row), 0, at).ticks.iter().sum::<u64>()).sum();
            prop_assert_eq!(Busy::of(rows.iter()).before(Edge { tick: at, part: 0 }, 1), expected);
        }
    }

    fn span(start: u64, end: u64, kind: Kind) -> Span {
        Span { start: Ticks(start), end: Ticks(end), kind, event: 0, first: 0, count: 1 }
    }

    #[test]
    fn a_column_shows_what_prevails() {
        use Kind::{Backward, Bubble, Forward, SendActivation, SendGradient, Waiting};
        let check = |spans: &[Span], expected: (Option<Kind>, bool)| {
            let row = row(spans.to_vec());
            let window = Window { start: 10, scale: Scale { ticks: 10, columns: 1 } };
            let shown = RowCoverage::of(&row).columns(&window, 1).next().unwrap();
            assert_eq!((shown.kind, shown.mixed), expected, "{spans:?}");
        };
        check(&[], (None, false));
        check(&[span(0, 30, Forward)], (Some(Forward), false));
        check(&[span(0, 14, Forward)], (Some(Forward), false));
        check(&[span(0, 10, Forward), span(11, 14, Bubble)], (Some(Bubble), false));
        check(&[span(0, 15, Forward), span(15, 30, Backward)], (Some(Backward), false));
        check(&[span(0, 16, Forward), span(16, 30, Backward)], (Some(Forward), false));
        check(&[span(10, 15, Forward), span(15, 20, Backward)], (Some(Backward), true));
        check(&[span(10, 15, Bubble), span(15, 20, Backward)], (Some(Backward), false));
        check(&[span(10, 17, Forward), span(17, 20, Backward)], (Some(Forward), false));
        check(&[span(0, 12, Forward), span(12, 30, Bubble)], (Some(Forward), false));
        check(&[span(0, 11, Forward), span(11, 30, Bubble)], (Some(Forward), true));
        check(&[span(12, 13, Forward), span(13, 30, Bubble)], (Some(Forward), false));
        check(&[span(0, 14, Waiting), span(14, 14, SendGradient)], (Some(SendGradient), false));
        check(&[span(9, 11, Forward), span(11, 18, Backward), span(18, 21, Forward)], (Some(Backward), false));
        check(&[span(9, 14, Forward), span(14, 16, Bubble), span(16, 21, Backward)], (Some(Backward), true));
        let crossing = [span(9, 14, Waiting), span(14, 14, SendGradient), span(15, 15, SendActivation)];
        check(&crossing, (Some(SendGradient), true));
    }
    #[test]
    fn work_beats_idleness() {
        use Kind::{Backward, Bubble, ExposedCommunication, Forward, Transfer, Waiting};
        let check = |shares: &[(Kind, u64)], expected: Option<(Kind, bool)>| {
            let mut within = Totals::default();
            shares.iter().for_each(|&(kind, ticks)| within.ticks[kind as usize] = ticks);
            assert_eq!(prevailing(&within, 100), expected, "{shares:?}");
        };
        check(&[], None);
        check(&[(Bubble, 100)], Some((Bubble, false)));
        check(&[(Bubble, 49)], None);
        check(&[(Forward, 20), (Bubble, 80)], Some((Forward, false)));
        check(&[(Forward, 12), (Backward, 8), (Bubble, 80)], Some((Forward, false)));
        check(&[(Forward, 11), (Backward, 9), (ExposedCommunication, 80)], Some((Forward, true)));
        check(&[(Forward, 19), (Bubble, 81)], Some((Forward, true)));
        check(&[(Forward, 10), (Bubble, 90)], Some((Forward, true)));
        check(&[(Forward, 9), (Bubble, 91)], Some((Bubble, false)));
        check(&[(Transfer, 1), (Waiting, 99)], Some((Transfer, true)));
        check(&[(Transfer, 20), (Waiting, 80)], Some((Transfer, false)));
        check(&[(Forward, 50), (Backward, 50)], Some((Backward, true)));
    }
}
