//! Writes text and glyphs into a rectangle of the screen. A text that does not fit is cut off, and ends with dots that say so.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::glyphs::Tier;
use super::theme::{Role, Theme};

/// A rectangle of the screen and the look to draw with. Coordinates count from the rectangle's top left corner.
pub struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    /// Colours.
    pub theme: Theme,
    /// Glyphs.
    pub tier: Tier,
}

impl<'a> Pen<'a> {
    /// A pen for `area`, as much of it as lies on the screen.
    pub fn new(buffer: &'a mut Buffer, area: Rect, theme: Theme, tier: Tier) -> Self {
        let area = area.intersection(buffer.area);
        Self { buffer, area, theme, tier }
    }

    /// The same look for a part of this rectangle.
    pub fn part(&mut self, part: Rect) -> Pen<'_> {
        let moved = Rect { x: self.area.x.saturating_add(part.x), y: self.area.y.saturating_add(part.y), ..part };
        Pen { area: moved.intersection(self.area), buffer: self.buffer, theme: self.theme, tier: self.tier }
    }

    /// Columns.
    #[must_use]
    pub fn width(&self) -> u16 {
        self.area.width
    }

    /// Rows.
    #[must_use]
    pub fn height(&self) -> u16 {
        self.area.height
    }

    /// One character.
    pub fn put(&mut self, x: u16, y: u16, character: char, style: Style) {
        if x < self.area.width
            && y < self.area.height
            && let Some(cell) = self.buffer.cell_mut((self.area.x + x, self.area.y + y))
        {
            cell.set_char(character).set_style(style);
        }
    }

    /// A text that begins at column `x`; returns the column after it.
    pub fn text(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let room = self.area.width - x;
        let (x, y) = (self.area.x + x, self.area.y + y);
        let (end, _) = if width_of(text) <= room {
            self.buffer.set_stringn(x, y, text, usize::from(room), style)
        } else {
            self.buffer.set_stringn(x, y, ended(text, room, self.tier), usize::from(room), style)
        };
        end - self.area.x
    }

    /// A text in at most `width` columns: what is cut off is cut at a word, and marked.
    #[must_use]
    pub fn cut(&self, text: &str, width: u16) -> String {
        if width_of(text) <= width {
            return text.to_owned();
        }
        let mark = self.tier.dots();
        let fits = |end: &usize| width_of(&text[..*end]) + 1 + width_of(mark) <= width;
        let end = text.match_indices(' ').map(|(place, _)| place).take_while(fits).last().unwrap_or(0);
        format!("{} {mark}", &text[..end]).trim_start().to_owned()
    }

    /// A text in a role.
    pub fn say(&mut self, x: u16, y: u16, text: &str, role: Role) -> u16 {
        self.text(x, y, text, self.theme.style(role))
    }

    /// A text that ends at the right edge, `margin` columns before it; dropped if it would begin before `from`.
    pub fn say_right(&mut self, from: u16, y: u16, margin: u16, text: &str, role: Role) {
        let width = width_of(text);
        if let Some(x) = self.area.width.checked_sub(width.saturating_add(margin)).filter(|&x| x >= from) {
            self.say(x, y, text, role);
        }
    }

    /// Changes the style of cells, not their characters.
    pub fn restyle(&mut self, x: u16, y: u16, width: u16, style: Style) {
        let wanted = Rect::new(self.area.x.saturating_add(x), self.area.y.saturating_add(y), width, 1);
        self.buffer.set_style(wanted.intersection(self.area), style);
    }

    /// Blanks everything in the rectangle.
    pub fn clear(&mut self) {
        for y in self.area.top()..self.area.bottom() {
            for x in self.area.left()..self.area.right() {
                self.buffer[(x, y)].reset();
            }
        }
    }

    /// Draws a frame with a title and returns the pen for what is inside.
    pub fn framed(&mut self, title: &str, focus: bool) -> Pen<'_> {
        let (width, height) = (self.area.width, self.area.height);
        let glyphs = self.tier.frame(focus);
        let style = self.theme.style(if focus { Role::Focus } else { Role::Frame });
        let (right, bottom) = (width.saturating_sub(1), height.saturating_sub(1));
        for x in 1..right {
            self.put(x, 0, glyphs.horizontal, style);
            self.put(x, bottom, glyphs.horizontal, style);
        }
        for y in 1..bottom {
            self.put(0, y, glyphs.vertical, style);
            self.put(right, y, glyphs.vertical, style);
        }
        let places = [(0, 0), (right, 0), (right, bottom), (0, bottom)];
        for ((x, y), corner) in places.into_iter().zip(glyphs.corners) {
            self.put(x, y, corner, style);
        }
        self.title(2, title, right.saturating_sub(1), focus);
        self.part(Rect::new(1, 1, width.saturating_sub(2), height.saturating_sub(2)))
    }

    /// Draws a rule with a title, for narrow screens, and returns the pen for what is below it.
    pub fn ruled(&mut self, title: &str, focus: bool) -> Pen<'_> {
        let (width, height) = (self.area.width, self.area.height);
        let style = self.theme.style(if focus { Role::Focus } else { Role::Frame });
        for x in 0..width {
            self.put(x, 0, self.tier.frame(focus).horizontal, style);
        }
        self.title(2, title, width.saturating_sub(1), focus);
        self.part(Rect::new(1, 1, width.saturating_sub(2), height.saturating_sub(1)))
    }

    /// The title in a frame's or rule's line, between blanks; the part after the first double blank is quiet.
    fn title(&mut self, x: u16, title: &str, end: u16, focus: bool) {
        if title.is_empty() || end <= x {
            return;
        }
        let mut line = self.part(Rect::new(x, 0, end - x, 1));
        let room = line.width().saturating_sub(2);
        let title = if width_of(title) <= room { title.to_owned() } else { ended(title, room, line.tier) };
        let (name, rest) = title.split_at(title.find("  ").unwrap_or(title.len()));
        let role = if focus { Role::Strong } else { Role::Text };
        let x = line.say(0, 0, " ", role);
        let x = line.say(x, 0, name, role);
        let x = line.say(x, 0, rest, Role::Quiet);
        line.say(x, 0, " ", role);
    }
}

/// `text` without its end, and dots in place of that, so that it takes at most `room` columns and never less than the dots. Blanks at its end
/// are no loss.
fn ended(text: &str, room: u16, tier: Tier) -> String {
    let text = text.trim_end();
    if width_of(text) <= room {
        return text.to_owned();
    }
    let dots = tier.dots();
    format!("{}{dots}", beginning(text, room.saturating_sub(width_of(dots))))
}

/// As much of the beginning of `text` as takes at most `room` columns.
#[must_use]
pub fn beginning(text: &str, room: u16) -> &str {
    let fits = |end: &usize| width_of(&text[..*end]) <= room;
    let ends = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    &text[..ends.take_while(fits).last().unwrap_or(0)]
}

/// The columns that a text takes.
#[must_use]
pub fn width_of(text: &str) -> u16 {
    u16::try_from(ratatui::text::Span::raw(text).width()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::{Depth, Palette};

    fn drawn(width: u16, height: u16, draw: impl FnOnce(&mut Pen<'_>)) -> Vec<String> {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        let area = buffer.area;
        draw(&mut Pen::new(&mut buffer, area, Theme { palette: Palette::Mono, depth: Depth::True }, Tier::Ascii));
        let rows = buffer.content().chunks(usize::from(width).max(1));
        rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect()).collect()
    }

    #[test]
    fn a_frame_holds_its_title_and_cuts_what_does_not_fit() {
        let picture = drawn(16, 4, |pen| {
            let mut inside = pen.framed("Ranks  4", true);
            inside.say(0, 0, "much too long for it", Role::Text);
            inside.say(0, 9, "below", Role::Text);
        });
        assert_eq!(picture, ["+= Ranks  4 ===+", "|much too lo...|", "|              |", "+==============+"]);
    }

    #[test]
    fn what_is_cut_says_so() {
        let check = |text: &str, width, expected: &str| {
            let picture = drawn(width, 1, |pen| _ = pen.say(0, 0, text, Role::Text));
            assert_eq!(picture, [expected], "{text} in {width}");
        };
        check("exactly", 7, "exactly");
        check("blanks   ", 6, "blanks");
        check("too long", 7, "too ...");
        check("long", 3, "...");
        check("long", 2, "..");
        check("long", 1, ".");
        let title = drawn(16, 3, |pen| _ = pen.framed("Ring  all-gather 3 of 7", false));
        assert_eq!(title[0], "+- Ring  a... -+", "a title never runs into its frame");
    }

    #[test]
    fn any_size_is_drawn_without_panic() {
        for (width, height) in [(0, 0), (1, 1), (2, 1), (1, 5), (3, 3)] {
            drawn(width, height, |pen| {
                pen.framed("Title", false).say(0, 0, "text", Role::Text);
                pen.ruled("Title", true).put(5, 5, 'x', Style::new());
                pen.say_right(0, 0, 1, "right", Role::Quiet);
                pen.restyle(0, 0, 500, Style::new());
                pen.clear();
            });
        }
    }
}
