//! The lanes as a picture of characters: `F0F1____B0##`, readable without colour at any width.
//!
//! A cell shows the kind that fills 60 % of it, `*` if several ops share it. Labels stand where two cells or more are free.

use std::fmt::Write;

use crate::base::Ticks;
use crate::base::units::Clock;
use crate::observe::kind::Kind;
use crate::observe::rows::Row;
use crate::observe::{Lanes, Run};

/// Ranks that are drawn; a line says how many are not.
const RANKS: usize = 64;

/// The lanes in lines of at most `width` characters; at least 40 are used.
#[must_use]
pub fn picture(run: &Run, lanes: &Lanes, width: usize) -> String {
    let shown = &lanes.ranks[..lanes.ranks.len().min(RANKS)];
    let digits = shown.len().saturating_sub(1).to_string().len();
    let name = format!("t {:<6}", if lanes.clock == Clock::Nanoseconds { "" } else { "slots" }).len().max(digits + 7);
    let scale = Scale::new(lanes.clock, lanes.end, width.max(40) - name - 2);
    let mut text = format!("{:<name$} {}\n", axis_name(lanes.clock), scale.axis());
    let mut busy = vec![0; scale.cells];
    let mut kinds = vec![false; Kind::ALL.len()];
    for rank in shown {
        let mut line = |name_text: String, row: &Row| {
            row.spans.iter().for_each(|span| kinds[span.kind as usize] = true);
            let _ = writeln!(text, "{name_text:<name$}|{}", draw(run, row, &scale).trim_end());
        };
        line(format!("r{:<digits$} comp", rank.rank.0), &rank.compute);
        if !rank.communication.spans.is_empty() {
            line(format!(" {:digits$} net", ""), &rank.communication);
        }
        add_busy(&mut busy, &rank.compute, &scale);
    }
    if lanes.ranks.len() > shown.len() {
        let _ = writeln!(text, "... and {} ranks more", lanes.ranks.len() - shown.len());
    }
    let all = scale.ticks * shown.len() as u64;
    let digit = |ticks: &u64| char::from_digit(u32::try_from((ticks * 9 + all / 2) / all).unwrap_or(9), 10).unwrap_or('9');
    let _ = writeln!(text, "{:<name$}|{}", "util", busy.iter().map(digit).collect::<String>());
    text + &legend(&kinds)
}

/// How time maps to cells.
struct Scale {
    clock: Clock,
    ticks: u64,
    cells: usize,
    /// Cells that there is room for.
    columns: usize,
}

impl Scale {
    /// Up to four cells for a slot, or as many slots or nanoseconds for a cell as it takes.
    fn new(clock: Clock, end: Ticks, room: usize) -> Self {
        let columns = room.max(1) as u64;
        let end = end.0.max(1);
        let ticks = match clock {
            Clock::Slots { ticks_per_slot } => {
                let fits = |cells: &u64| ticks_per_slot.is_multiple_of(*cells) && end.div_ceil(ticks_per_slot / cells) <= columns;
                let slots = end.div_ceil(columns).div_ceil(ticks_per_slot);
                (1..=4).rev().find(fits).map_or(slots * ticks_per_slot, |cells| ticks_per_slot / cells)
            }
            Clock::Nanoseconds => end.div_ceil(columns),
        };
        Self { clock, ticks, cells: usize::try_from(end.div_ceil(ticks)).unwrap_or(1), columns: room }
    }

    fn cell(&self, time: Ticks) -> usize {
        usize::try_from(time.0 / self.ticks).unwrap_or(usize::MAX)
    }

    /// The cell edge that is nearest to `time`.
    fn edge(&self, time: Ticks) -> usize {
        self.cell(Ticks(time.0 + self.ticks / 2))
    }

    /// Times over their cells, at round distances of eight cells or more.
    fn axis(&self) -> String {
        let unit = if let Clock::Slots { ticks_per_slot } = self.clock { ticks_per_slot } else { 1 };
        let apart = if unit == 1 { 12 } else { 6 };
        let round = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power) * unit));
        let step = round.take(60).find(|step| step / self.ticks >= apart).unwrap_or(u64::MAX);
        let mut axis = String::new();
        let times = (0..).map(|tick| Ticks(tick * step)).take_while(|time| self.cell(*time) < self.cells);
        for time in times {
            let label = if unit == 1 { self.clock.show(time) } else { (time.0 / unit).to_string() };
            let cell = self.cell(time);
            if cell + label.len() > self.columns {
                break;
            }
            let _ = write!(axis, "{:width$}{label}", "", width = cell.saturating_sub(axis.chars().count()));
        }
        axis
    }
}

fn axis_name(clock: Clock) -> &'static str {
    if clock == Clock::Nanoseconds { "t" } else { "t slots" }
}

fn draw(run: &Run, row: &Row, scale: &Scale) -> String {
    let mut cells = vec![Cell::default(); scale.cells];
    for span in &row.spans {
        if span.is_mark() {
            cells[scale.cell(span.start).min(scale.cells - 1)].mark = Some(span.kind);
        }
        each_cell(scale, (span.start, span.end), |cell, ticks| cells[cell].filled[span.kind as usize] += ticks);
    }
    let mut glyphs: Vec<char> = cells.iter().map(|cell| cell.glyph(scale.ticks)).collect();
    for span in row.spans.iter().filter(|span| !span.kind.is_idle()) {
        let (from, to) = (scale.edge(span.start), scale.edge(span.end).min(scale.cells));
        if to < from + 2 {
            continue;
        }
        let label = row.label(run, span);
        // A label that does not fit is its letter: a shortened number would be a wrong one.
        let shown = if label.len() <= to - from { label.as_str() } else { &label[..1] };
        for (cell, letter) in glyphs[from..to].iter_mut().zip(shown.chars()) {
            *cell = letter;
        }
    }
    glyphs.into_iter().collect()
}

/// What fills a cell.
#[derive(Clone, Default)]
struct Cell {
    filled: [u64; Kind::ALL.len()],
    mark: Option<Kind>,
}

impl Cell {
    fn glyph(&self, ticks: u64) -> char {
        let filled = |kind: &Kind| self.filled[*kind as usize];
        let ops = || Kind::ALL.into_iter().filter(|kind| !kind.is_idle() && filled(kind) > 0);
        if let (Some(mark), None) = (self.mark, ops().next()) {
            return mark.glyph();
        }
        let all: u64 = self.filled.iter().sum();
        let Some(most) = Kind::ALL.into_iter().filter(|kind| filled(kind) > 0).max_by_key(filled) else { return ' ' };
        let prevails = filled(&most) * 10 >= ticks * 6;
        match ops().count() {
            _ if prevails => most.glyph(),
            0 if all * 2 < ticks => ' ',
            0 | 1 => ops().next().unwrap_or(most).glyph(),
            _ => '*',
        }
    }
}

fn add_busy(busy: &mut [u64], row: &Row, scale: &Scale) {
    for span in row.spans.iter().filter(|span| span.kind.is_compute()) {
        each_cell(scale, (span.start, span.end), |cell, ticks| busy[cell] += ticks);
    }
}

/// Calls `visit` with every cell that the stretch touches, and the ticks of it that lie there.
fn each_cell(scale: &Scale, (start, end): (Ticks, Ticks), mut visit: impl FnMut(usize, u64)) {
    let mut from = start.0;
    while from < end.0 {
        let cell = scale.cell(Ticks(from));
        let until = end.0.min((cell as u64 + 1) * scale.ticks);
        visit(cell, until - from);
        from = until;
    }
}

fn legend(kinds: &[bool]) -> String {
    let shown = Kind::ALL.into_iter().filter(|kind| kinds[*kind as usize]);
    let entry = |kind: Kind| {
        let letter = if kind.is_idle() { "" } else { kind.letter() };
        format!("{letter}{} {}", kind.glyph(), kind.name())
    };
    shown.map(entry).chain(["blank = ramp".to_owned()]).collect::<Vec<_>>().join("   ") + "\n"
}
