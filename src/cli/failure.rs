//! How a command ends: exit codes, and failures with their messages.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::base::Bytes;
use crate::lab::{Run, Verdict};
use crate::program::trace::Outcome;
use crate::scenario::Problems;

/// How a command ended; the exit codes are documented in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Completed and not wrong.
    Done,
    /// Anything else.
    Unexpected,
    /// Malformed or impossible input.
    Input,
    /// A check failed.
    CheckFailed,
    /// The run deadlocked.
    Deadlocked,
    /// The modelled card is full.
    OutOfMemory,
    /// Wrong numbers.
    Wrong,
    /// The screen was closed, with this code: 0, or 128 and a signal's number.
    Screen(u8),
}

/// Columns of a message.
const WIDTH: usize = 100;

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failure {
    /// The scenario has problems.
    Scenario(Problems),
    /// The input is impossible for another reason.
    Input(String),
    /// A run that did not end well saves nothing; its own exit code, and where it would have saved.
    NotSaved(Exit, String),
    /// A file could not be written, or something else outside went wrong.
    Io(String),
    /// The reader of standard output went away: nothing is wrong.
    Closed,
}

/// Says something beside the output, on standard error. Nobody may listen.
pub fn note(text: fmt::Arguments) {
    _ = writeln!(io::stderr(), "{text}");
}

impl Exit {
    /// The code of a finished run.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        match (&run.session.trace().outcome, &run.verdict) {
            (Outcome::Deadlocked(_), _) => Self::Deadlocked,
            (Outcome::OutOfMemory { .. }, _) => Self::OutOfMemory,
            (Outcome::Completed, Verdict::Wrong { .. }) => Self::Wrong,
            (Outcome::Completed, _) => Self::Done,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Unexpected => 1,
            Exit::Input => 2,
            Exit::CheckFailed => 10,
            Exit::Deadlocked => 11,
            Exit::OutOfMemory => 12,
            Exit::Wrong => 13,
            Exit::Screen(code) => code,
        })
    }
}

impl Failure {
    /// The code that it ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Scenario(_) | Self::Input(_) => Exit::Input,
            Self::NotSaved(exit, _) => *exit,
            Self::Io(_) => Exit::Unexpected,
            Self::Closed => Exit::Done,
        }
    }

    /// Standard output could not take so many bytes.
    #[must_use]
    pub fn of_output(error: &io::Error, bytes: usize) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(format!("cannot write {} to standard output: {error}", Bytes(bytes as u64))),
        }
    }

    /// Prints it to standard error.
    pub fn report(&self) {
        let mut out = io::stderr().lock();
        let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        // Where standard error is gone there is nobody left to tell.
        let _ = match self {
            Self::Scenario(problems) => writeln!(out, "{}", problems.render(colour, WIDTH)),
            Self::Input(message) | Self::Io(message) => writeln!(out, "error: {}", printable(message)),
            Self::NotSaved(_, folder) => {
                writeln!(out, "note: nothing was saved in `{}`: the run did not complete", printable(folder))
            }
            Self::Closed => Ok(()),
        };
    }
}

/// `message` without what would steer the terminal: it may quote a name that came from outside.
fn printable(message: &str) -> String {
    message.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Scenario(problems)
    }
}

/// Writes `text` to standard output.
///
/// # Errors
/// If standard output cannot take it; a closed pipe is [`Failure::Closed`].
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let end: &[u8] = if text.ends_with('\n') { b"" } else { b"\n" };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end)).and_then(|()| out.flush());
    written.map_err(|error| Failure::of_output(&error, text.len()))
}
