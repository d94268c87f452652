//! Parts that the data panels share: panes with frames, tables with aligned columns, wrapped lines, bars, and short names of ops.

use ratatui::layout::Rect;

use crate::base::OpId;
use crate::program::Program;
use crate::program::head::head;
use crate::tui::glyphs::Tier;
use crate::tui::pen::{Pen, beginning, width_of};
use crate::tui::theme::Role;

/// A rectangle from whose sides pieces are cut off; a piece never exceeds what is left.
#[derive(Clone, Copy, Debug)]
pub struct Cut(pub Rect);

impl Cut {
    /// All of a pen's rectangle.
    #[must_use]
    pub fn of(pen: &Pen<'_>) -> Self {
        Self(Rect::new(0, 0, pen.width(), pen.height()))
    }

    /// The upper `height` lines.
    pub fn top(&mut self, height: u16) -> Rect {
        let height = height.min(self.0.height);
        let piece = Rect { height, ..self.0 };
        self.0 = Rect { y: self.0.y + height, height: self.0.height - height, ..self.0 };
        piece
    }

    /// The lower `height` lines.
    pub fn bottom(&mut self, height: u16) -> Rect {
        let height = height.min(self.0.height);
        self.0.height -= height;
        Rect { y: self.0.y + self.0.height, height, ..self.0 }
    }

    /// The left `width` columns.
    pub fn left(&mut self, width: u16) -> Rect {
        let width = width.min(self.0.width);
        let piece = Rect { width, ..self.0 };
        self.0 = Rect { x: self.0.x + width, width: self.0.width - width, ..self.0 };
        piece
    }

    /// `count` columns of equal width, the left ones one wider where it does not divide.
    #[must_use]
    pub fn columns(mut self, count: u16) -> Vec<Rect> {
        let (width, rest) = (self.0.width / count.max(1), self.0.width % count.max(1));
        (0..count).map(|column| self.left(width + u16::from(column < rest))).collect()
    }
}

/// Draws a framed pane; where there is no room for a frame, what is inside alone.
pub fn pane(pen: &mut Pen<'_>, area: Rect, title: &str, focus: bool, draw: impl FnOnce(&mut Pen<'_>)) {
    let mut part = pen.part(area);
    if area.height < 3 || area.width < 8 {
        return draw(&mut part);
    }
    draw(&mut part.framed(title, focus));
}

/// The heading of a table's column.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    title: &'static str,
    right: bool,
    ops: bool,
}

/// A column of words.
#[must_use]
pub const fn left(title: &'static str) -> Head {
    Head { title, right: false, ops: false }
}

/// A column of numbers.
#[must_use]
pub const fn right(title: &'static str) -> Head {
    Head { title, right: true, ops: false }
}

/// A column of ops: those that do not fit are squeezed.
#[must_use]
pub const fn ops(title: &'static str) -> Head {
    Head { title, right: false, ops: true }
}

/// A line of a table.
#[derive(Clone, Debug)]
pub struct Line {
    /// How it is drawn.
    pub role: Role,
    /// Its cells; there may be fewer than columns.
    pub cells: Vec<String>,
}

/// Columns of the last cell that are worth showing when the rest is cut off.
const WORTH: u16 = 8;

/// Draws headings and lines from line `y` on, as many columns as fit, the first ones first; returns the line below.
pub fn table(pen: &mut Pen<'_>, y: u16, heads: &[Head], lines: &[Line]) -> u16 {
    let shown = &lines[..lines.len().min(usize::from(pen.height().saturating_sub(y + 1)))];
    let widths: Vec<u16> = (0..heads.len()).map(|column| column_width(heads, shown, column)).collect();
    // Of words the beginning may do; half a number is another one.
    let needed: Vec<u16> =
        heads.iter().zip(&widths).map(|(head, &width)| if head.right { width } else { width.min(WORTH) }).collect();
    let fits = fitting(&widths, &needed, pen.width());
    let cells = heads[..fits].iter().map(|head| head.title.to_owned()).collect();
    row(pen, y, heads, &widths[..fits], &Line { role: Role::Quiet, cells });
    let mut y = y + 1;
    for line in shown {
        row(pen, y, heads, &widths[..fits], line);
        y += 1;
    }
    y
}

/// The first row to show of `all`, of which `room` fit, so that the row at `chosen` is among them, in the middle if it can be.
#[must_use]
pub fn first_row(chosen: usize, all: usize, room: usize) -> usize {
    chosen.saturating_sub(room / 2).min(all.saturating_sub(room))
}

/// What stands before the name in a row: the mark of the chosen one.
#[must_use]
pub fn mark(chosen: bool) -> char {
    if chosen { '>' } else { ' ' }
}

/// How the chosen row is drawn: reversed in the panel that has the focus, else strong.
#[must_use]
pub fn choice(chosen: bool, focused: bool) -> Role {
    match (chosen, focused) {
        (false, _) => Role::Text,
        (true, false) => Role::Strong,
        (true, true) => Role::Selected,
    }
}

fn column_width(heads: &[Head], lines: &[Line], column: usize) -> u16 {
    let cells = lines.iter().filter_map(|line| line.cells.get(column));
    cells.map(|cell| width_of(cell)).chain([width_of(heads[column].title)]).max().unwrap_or(0)
}

/// How many columns fit, two blanks apart: all but the last one whole, and of that what is `needed`.
fn fitting(widths: &[u16], needed: &[u16], room: u16) -> usize {
    let mut used = 1;
    for (place, (&width, &needed)) in widths.iter().zip(needed).enumerate() {
        if used + needed > room {
            return place.max(1).min(widths.len());
        }
        used = used.saturating_add(width + 2);
    }
    widths.len()
}

fn row(pen: &mut Pen<'_>, y: u16, heads: &[Head], widths: &[u16], line: &Line) {
    let mut x = 1;
    for ((head, &width), cell) in heads.iter().zip(widths).zip(&line.cells) {
        let start = if head.right { x + width.saturating_sub(width_of(cell)) } else { x };
        let room = pen.width().saturating_sub(start);
        let squeezed = head.ops.then(|| squeezed(cell, room, pen.tier));
        pen.say(start, y, squeezed.as_deref().unwrap_or(cell), line.role);
        x = x.saturating_add(width + 2);
    }
    if line.role == Role::Selected {
        let style = pen.theme.style(Role::Selected);
        pen.restyle(0, y, pen.width(), style);
    }
}

/// Lines of at most `width` columns, broken between words; what follows the first is indented.
#[must_use]
pub fn wrapped(text: &str, width: u16, indent: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if !line.trim().is_empty() && width_of(line) + 1 + width_of(word) > width {
            lines.push(format!("{:indent$}{word}", ""));
        } else {
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// Writes a wrapped text from line `y` on; returns the line below. What lies below the last line leaves dots at its end.
pub fn paragraph(pen: &mut Pen<'_>, y: u16, text: &str, role: Role) -> u16 {
    let mut y = y;
    for line in wrapped(text, pen.width().saturating_sub(2), 2) {
        if y >= pen.height() {
            more_below(pen);
        }
        pen.say(1, y, &line, role);
        y += 1;
    }
    y
}

/// Says at the end of the last line that there is more below it.
pub fn more_below(pen: &mut Pen<'_>) {
    let dots = pen.tier.dots();
    if let Some(last) = pen.height().checked_sub(1) {
        pen.say_right(0, last, 0, dots, Role::Quiet);
    }
}

/// Says on line `y` how many ranks are not shown.
pub fn more_ranks(pen: &mut Pen<'_>, y: u16, left: usize) {
    pen.say(1, y, &format!("{} {left} more ranks", pen.tier.dots()), Role::Quiet);
}

/// `part` of `whole` in cells of `width`; something is never nothing.
#[must_use]
pub fn cells(part: u64, whole: u64, width: u16) -> u16 {
    if part == 0 || whole == 0 {
        return 0;
    }
    let cells = (u128::from(part) * u128::from(width) + u128::from(whole) / 2) / u128::from(whole);
    u16::try_from(cells).unwrap_or(width).clamp(1, width.max(1))
}

/// The cells of `width` that a share takes.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share between 0 and 1 of a screen's width")]
pub fn share_of(share: f64, width: u16) -> u16 {
    (share.clamp(0.0, 1.0) * f64::from(width)).round() as u16
}

/// A share as a whole percentage: `39%`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// `part` over `whole`; 0 if the whole is nothing.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a share on the screen")]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Words of heads and what stands for them where there is little room.
const SHORT: [(&str, &str); 9] = [
    ("backward-input", "bwd-in"),
    ("backward-weight", "bwd-w"),
    ("forward", "fwd"),
    ("load-tokens", "tokens"),
    ("load-targets", "targets"),
    ("recv-reduce", "recv+"),
    ("optimizer", "optim"),
    ("zero-gradients", "zero-grads"),
    ("embedding", "emb"),
];

/// What is shortened next, where short words are not enough.
const SHORTER: [(&str, &str); 4] = [("blocks.", "b"), ("chunk", "c"), (" -> ", ">"), (" <- ", "<")];

/// And at last: the arrow says who sends, and a pass has its letter.
const SHORTEST: [(&str, &str); 6] =
    [("send ", ""), ("recv+ ", "+"), ("recv ", ""), ("bwd-in ", "I "), ("bwd-w ", "W "), ("fwd ", "F ")];

/// The head of an op, squeezed into `room` columns.
#[must_use]
pub fn op_text(program: &Program, op: OpId, room: u16, tier: Tier) -> String {
    squeezed(&head(program, op).to_string(), room, tier)
}

/// The head of an op in at most `room` columns: with short words if it must be, else without its middle. What it does stands at its
/// beginning, with what and with whom at its end.
#[must_use]
pub fn squeezed(text: &str, room: u16, tier: Tier) -> String {
    let mut text = text.to_owned();
    for words in [SHORT.as_slice(), SHORTER.as_slice(), SHORTEST.as_slice()] {
        if width_of(&text) > room {
            text = words.iter().fold(text, |text, (long, short)| text.replace(long, short));
        }
    }
    let kept = room.saturating_sub(width_of(tier.dots()));
    if width_of(&text) <= room || kept == 0 {
        return text;
    }
    let front = beginning(&text, kept / 2);
    let back = text.len() - usize::from(kept) + front.len();
    format!("{front}{}{}", tier.dots(), text.get(back..).unwrap_or_default())
}

/// The head of a message or collective without its other end: `send x4.1`.
#[must_use]
pub fn message_head(program: &Program, op: OpId) -> String {
    let text = head(program, op).to_string();
    let end = text.find(" -> ").or_else(|| text.find(" <- ")).unwrap_or(text.len());
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_dropped_from_the_right() {
        let words = |widths: &[u16]| widths.iter().map(|&width| width.min(WORTH)).collect::<Vec<u16>>();
        let check =
            |widths: &[u16], room, expected| assert_eq!(fitting(widths, &words(widths), room), expected, "{widths:?} in {room}");
        check(&[4, 4, 20], 40, 3);
        check(&[4, 4, 20], 22, 3);
        check(&[4, 4, 20], 20, 2);
        check(&[4, 4, 20], 3, 1);
        check(&[], 3, 0);
        assert_eq!(fitting(&[4, 4, 9], &[4, 4, 9], 21), 2, "half a number is another one");
    }

    #[test]
    fn an_op_is_squeezed_to_what_tells_it_apart() {
        let check =
            |text: &str, room, expected: &str| assert_eq!(squeezed(text, room, Tier::Ascii), expected, "{text} in {room}");
        check("send chunk0 -> r1", 17, "send chunk0 -> r1");
        check("send chunk0 -> r1", 16, "send c0>r1");
        check("recv-reduce chunk12 <- r1023", 20, "recv+ c12<r1023");
        check("recv-reduce chunk12 <- r1023", 12, "+c12<r1023");
        check("recv-reduce chunk12 <- r1023", 9, "+c1...023");
        check("send x4.1 -> r1", 9, "x4.1>r1");
        check("1B3 backward-weight blocks.12", 20, "1B3 bwd-w blocks.12");
        check("1B3 backward-weight blocks.12", 16, "1B3 bwd-w b12");
        check("1B3 backward-weight blocks.12", 11, "1B3 W b12");
        check("1B3 backward-weight blocks.12", 8, "1B...b12");
        check("long", 2, "long");
        assert_eq!(squeezed("recv-reduce chunk12 <- r1023", 9, Tier::Blocks), "+c12\u{2026}1023");
    }

    #[test]
    fn something_is_never_nothing() {
        let check = |part, whole, width, expected| assert_eq!(cells(part, whole, width), expected, "{part}/{whole} of {width}");
        check(0, 10, 20, 0);
        check(1, 1000, 20, 1);
        check(5, 10, 20, 10);
        check(u64::MAX, u64::MAX, 20, 20);
        check(1, 2, 0, 1);
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 7, 2), ["one two", "  three"]);
        assert_eq!(wrapped("unbreakable", 3, 2), ["unbreakable"]);
    }
}
