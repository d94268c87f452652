//! The terminal's guard: whatever it switched on it switches off again, in reverse, exactly once.

use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange};
use crossterm::style::force_color_output;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{Command, queue};

/// The modes of this process's terminal. Static, because the panic hook and the signal thread must reach them.
static MODES: Modes = Modes::none();

/// Owns the terminal while the screen is up; dropping it gives the terminal back.
pub struct Term {
    previous_hook: Arc<Hook>,
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

impl Term {
    /// Claims the terminal and installs the panic hook that gives it back.
    ///
    /// Colour is this program's own decision (a theme may be colourless): the terminal library's reading of `NO_COLOR`
    /// would turn a colour change into a full reset and lose reverse video.
    ///
    /// # Errors
    /// If the terminal refuses raw mode or cannot be written to; then nothing stays switched on.
    pub fn enter() -> io::Result<Self> {
        force_color_output(true);
        let term = Self { previous_hook: Arc::from(panic::take_hook()) };
        term.hook_panics();
        claim()?;
        Ok(term)
    }

    /// The calling thread is the screen's: its panic gives the terminal back before the message is printed. A worker's
    /// panic prints nothing over the picture; whoever started the worker reports it.
    fn hook_panics(&self) {
        let screen = thread::current().id();
        let previous = Arc::clone(&self.previous_hook);
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == screen {
                restore();
                previous(info);
            }
        }));
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        restore();
        if !thread::panicking() {
            let previous = Arc::clone(&self.previous_hook);
            panic::set_hook(Box::new(move |info| previous(info)));
        }
    }
}

/// Switches the screen's modes on: at the start, and again after the program was stopped and continued.
///
/// # Errors
/// As [`Term::enter`].
pub fn claim() -> io::Result<()> {
    MODES.claim(&mut io::stdout()).inspect_err(|_| restore())
}

/// Gives the terminal back. May be called at any time, from any thread, any number of times.
pub fn restore() {
    // Nobody is left to tell: the terminal is gone, or the program is ending because of something worse.
    let _ = MODES.restore(&mut io::stdout());
}

/// One thing that was switched on, in the order of switching on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Raw,
    AlternateScreen,
    HiddenCursor,
    BracketedPaste,
    FocusEvents,
}

impl Mode {
    const ORDER: [Self; 5] = [Self::Raw, Self::AlternateScreen, Self::HiddenCursor, Self::BracketedPaste, Self::FocusEvents];

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    fn switch_on(self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Raw => enable_raw_mode(),
            Self::AlternateScreen => send(out, EnterAlternateScreen),
            Self::HiddenCursor => send(out, Hide),
            Self::BracketedPaste => send(out, EnableBracketedPaste),
            Self::FocusEvents => send(out, EnableFocusChange),
        }
    }

    fn switch_off(self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Raw => disable_raw_mode(),
            Self::AlternateScreen => send(out, LeaveAlternateScreen),
            Self::HiddenCursor => send(out, Show),
            Self::BracketedPaste => send(out, DisableBracketedPaste),
            Self::FocusEvents => send(out, DisableFocusChange),
        }
    }
}

fn send(out: &mut impl Write, command: impl Command) -> io::Result<()> {
    queue!(out, command)
}

/// Which modes are on, one bit each: taking them all at once is what makes giving back idempotent.
struct Modes(AtomicU8);

impl Modes {
    const fn none() -> Self {
        Self(AtomicU8::new(0))
    }

    fn claim(&self, out: &mut impl Write) -> io::Result<()> {
        for mode in Mode::ORDER {
            // Marked before it is switched on: if that fails halfway, it is undone too.
            self.0.fetch_or(mode.bit(), Ordering::SeqCst);
            mode.switch_on(out)?;
        }
        out.flush()
    }

    /// Undoes everything even if one undoing fails; reports the first failure.
    fn restore(&self, out: &mut impl Write) -> io::Result<()> {
        let on = self.0.swap(0, Ordering::SeqCst);
        let mut outcome = Ok(());
        for mode in Mode::ORDER.into_iter().rev().filter(|mode| on & mode.bit() != 0) {
            outcome = outcome.and(mode.switch_off(out));
        }
        outcome.and(out.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched_on(modes: &[Mode]) -> Modes {
        Modes(AtomicU8::new(modes.iter().fold(0, |bits, mode| bits | mode.bit())))
    }

    #[test]
    fn restoring_undoes_in_reverse_and_only_what_is_on() {
        let check = |modes: &[Mode], expected: &str| {
            let modes = switched_on(modes);
            let mut first = Vec::new();
            modes.restore(&mut first).unwrap();
            assert_eq!(String::from_utf8(first).unwrap(), expected);
            let mut second = Vec::new();
            modes.restore(&mut second).unwrap();
            assert_eq!(second, b"", "the second time there is nothing left to undo");
        };
        check(&[], "");
        check(&[Mode::AlternateScreen], "\x1b[?1049l");
        check(&[Mode::HiddenCursor, Mode::AlternateScreen], "\x1b[?25h\x1b[?1049l");
        check(
            &[Mode::FocusEvents, Mode::BracketedPaste, Mode::HiddenCursor, Mode::AlternateScreen],
            "\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[?1049l",
        );
    }
}
