//! What is wrong with a lesson: the file, the line, and what would be right.

use std::fmt;

/// One thing that is wrong with a lesson.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as a path from where the lesson lies: `11-1f1b/lesson.md`.
    pub file: String,
    /// The line, from 1; 0 if the whole file is meant.
    pub line: usize,
    /// What is wrong, with the value.
    pub message: String,
    /// What is allowed, or what to do; empty if the message says it.
    pub hint: String,
}

impl Problem {
    /// A problem of `file` at `line`.
    #[must_use]
    pub(super) fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into(), hint: String::new() }
    }

    /// The same with a hint.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Problem {
    /// `11-1f1b/lesson.md:14: a quote begins with LOOK, TRY or ASK`, and the hint in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

/// The line of the byte `offset` in `text`, if the text's first line is `first`.
#[must_use]
pub(super) fn line_at(text: &str, offset: usize, first: usize) -> usize {
    first + text.char_indices().take_while(|(at, _)| *at < offset).filter(|(_, letter)| *letter == '\n').count()
}
