//! Frames to the terminal: two buffers, their difference, one write a frame.

use std::io::{self, Write};

use crossterm::cursor::MoveTo;
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;

/// What the terminal shows, and the means to change it.
pub struct Screen<W: Write> {
    shown: Buffer,
    next: Buffer,
    /// The bytes of a frame, gathered here so that they reach the terminal in one write.
    bytes: Vec<u8>,
    out: W,
    /// The terminal's content is unknown: the next frame clears it and draws everything.
    stale: bool,
}

impl<W: Write> Screen<W> {
    /// A screen of (width, height) cells whose frames go to `out`.
    pub fn new(out: W, size: (u16, u16)) -> Self {
        let empty = Buffer::empty(area(size));
        Self { shown: empty.clone(), next: empty, bytes: Vec::with_capacity(256 * 1024), out, stale: true }
    }

    /// The terminal changed its size, or something else drew on it.
    pub fn forget(&mut self, size: (u16, u16)) {
        self.shown = Buffer::empty(area(size));
        self.next = self.shown.clone();
        self.stale = true;
    }

    /// Draws one frame with `view` and writes what differs from the last one: a single write inside a synchronized
    /// update. Nothing is written if nothing differs.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub fn draw(&mut self, view: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.next.reset();
        view(&mut self.next);
        let changes = self.shown.diff(&self.next);
        if self.stale || !changes.is_empty() {
            self.bytes.clear();
            encode(&mut self.bytes, self.stale, changes)?;
            self.out.write_all(&self.bytes)?;
            self.out.flush()?;
            self.stale = false;
        }
        std::mem::swap(&mut self.shown, &mut self.next);
        Ok(())
    }

    /// The shown frame as text without trailing blanks.
    pub fn text(&self) -> String {
        let width = usize::from(self.shown.area.width).max(1);
        let mut lines: Vec<String> = self.shown.content().chunks(width).map(line_of).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.join("\n")
    }
}

fn area((width, height): (u16, u16)) -> Rect {
    Rect::new(0, 0, width, height)
}

fn encode(mut bytes: &mut Vec<u8>, clear: bool, changes: Vec<(u16, u16, &Cell)>) -> io::Result<()> {
    queue!(bytes, BeginSynchronizedUpdate)?;
    if clear {
        queue!(bytes, MoveTo(0, 0), Clear(ClearType::All))?;
    }
    CrosstermBackend::new(&mut bytes).draw(changes.into_iter())?;
    queue!(bytes, EndSynchronizedUpdate)
}

fn line_of(cells: &[Cell]) -> String {
    cells.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Style;

    /// Remembers each write apart.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn says(x: u16, y: u16, text: &str) -> impl FnOnce(&mut Buffer) {
        move |buffer| {
            buffer.set_string(x, y, text, Style::new());
        }
    }

    #[test]
    fn a_frame_is_one_write_and_an_unchanged_frame_none() {
        let mut screen = Screen::new(Writes::default(), (20, 3));
        let mut draw = |text: &str, writes: usize| {
            screen.draw(says(1, 1, text)).unwrap();
            assert_eq!(screen.out.0.len(), writes, "after drawing {text:?}");
            assert_eq!(screen.text(), format!("\n {text}"));
        };
        draw("first", 1);
        draw("first", 1);
        draw("second", 2);
        for write in &screen.out.0 {
            assert!(write.starts_with(b"\x1b[?2026h") && write.ends_with(b"\x1b[?2026l"));
        }
    }

    #[test]
    fn after_forgetting_everything_is_drawn_again() {
        let mut screen = Screen::new(Writes::default(), (20, 3));
        screen.draw(says(0, 0, "kept")).unwrap();
        screen.forget((10, 2));
        screen.draw(says(0, 0, "kept")).unwrap();
        let last = String::from_utf8(screen.out.0.pop().unwrap()).unwrap();
        assert!(last.contains("\x1b[2J") && last.contains("kept"), "{last:?}");
    }
}
