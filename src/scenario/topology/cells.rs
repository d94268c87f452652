//! The words of the table, one behind the other, whatever stands between them: devices, connections, digits.

use super::{Connection, WORDS};

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells<'a> {
    text: &'a str,
    /// Bytes before this place in the whole text.
    pub at: usize,
}

/// A connection as read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub connection: Connection,
    /// Its place and length in the whole text.
    pub span: (usize, usize),
    /// Whether digits of what follows may be glued to its number.
    pub is_open: bool,
}

impl<'a> Cells<'a> {
    pub(super) fn new(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    /// What is left, behind blanks and the marks of underlined text.
    pub(super) fn rest(&mut self) -> &'a str {
        loop {
            let blank = self.text.len() - self.text.trim_start().len();
            let mark = self.text[blank..].strip_prefix('\u{1b}').and_then(|rest| Some(rest.strip_prefix('[')?.find('m')? + 3));
            self.skip(blank + mark.unwrap_or(0));
            if mark.is_none() {
                return self.text;
            }
        }
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.text = &self.text[bytes..];
        self.at += bytes;
    }

    /// Reads a device: `GPU0`, `NIC1`, `mlx5_2`, `mlx5_bond_0`.
    pub(super) fn device(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let stem = ["GPU", "NIC", "mlx5_bond_", "mlx5_"].into_iter().find(|stem| rest.starts_with(stem))?;
        let length = stem.len() + digits(&rest[stem.len()..]);
        if length == stem.len() {
            return None;
        }
        self.skip(length);
        Some(&rest[..length])
    }

    /// Reads a connection.
    pub(super) fn connection(&mut self) -> Option<Cell> {
        let rest = self.rest();
        let start = self.at;
        if let Some(count) = rest.strip_prefix("NV") {
            let length = digits(count);
            let links = count[..length].parse().ok()?;
            self.skip(2 + length);
            let is_open = !count[length..].starts_with(char::is_whitespace) && !count[length..].is_empty();
            return Some(Cell { connection: Connection::NvLink(links), span: (start, self.at), is_open });
        }
        let &(word, connection) = WORDS.iter().find(|(word, _)| rest.starts_with(word))?;
        self.skip(word.len());
        Some(Cell { connection, span: (start, self.at), is_open: false })
    }

    /// The next word, for a message: up to a blank.
    pub(super) fn word(&mut self) -> (&'a str, (usize, usize)) {
        let rest = self.rest();
        let word = rest.split(|c: char| c.is_whitespace() || c == '\u{1b}').next().unwrap_or_default();
        (word, (self.at, self.at + word.len()))
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}
