//! The screen's loop: waits for messages, updates the model, draws once if something changed. It does not tick.

mod files;
mod pace;
mod screen;
mod signals;
mod terminal;
mod values;
pub mod worker;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::model::Model;
use super::update::{Effect, Message, look, update};
use super::view::view;
use crate::base::Bytes;
use pace::Pace;
use screen::Screen;

/// How the screen ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The learner left.
    Quit,
    /// A signal asked the program to end; its number. Some signals end the process by themselves, once the terminal is given back.
    Signal(i32),
}

impl Exit {
    /// The process's exit code: 0, or 128 + the signal's number as shells count.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Quit => 0,
            Self::Signal(number) => u8::try_from(128 + number).unwrap_or(1),
        }
    }
}

/// Whether there is a terminal to draw on and to read keys from.
#[must_use]
pub fn is_terminal() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// The terminal's size in cells (width, height), 80x24 if it does not say.
#[must_use]
pub fn terminal_size() -> (u16, u16) {
    crossterm::terminal::size().unwrap_or((80, 24))
}

/// Shows `model` until the learner leaves. `first` is asked of the worker before the first key; `memory` is what this machine has for
/// real values.
///
/// # Errors
/// If the terminal cannot be claimed or written to.
pub fn run(model: Model, first: Option<Effect>, memory: Option<Bytes>) -> io::Result<Exit> {
    let (sender, receiver) = mpsc::channel();
    signals::listen_to_signals(sender.clone())?;
    let worker = worker::start(memory, sender.clone());
    if let Some(effect) = first {
        ask(&worker, effect);
    }
    let term = terminal::Term::enter()?;
    signals::listen_to_keys(sender);
    let mut lab = Loop::new(model, worker)?;
    let ended = lab.run(&receiver);
    drop(term);
    let (exit, keep) = ended?;
    if let Exit::Signal(signal) = exit {
        signals::die_by(signal);
    }
    if keep {
        writeln!(io::stdout(), "{}", lab.screen.text())?;
    }
    Ok(exit)
}

/// Hands an effect to the worker.
fn ask(worker: &Sender<Effect>, effect: Effect) {
    // It lives as long as its channel: it catches its own panics.
    let _ = worker.send(effect);
}

/// A frame waits so long for values that belong to it: nobody sees the difference.
const SOON: Duration = Duration::from_millis(12);

struct Loop {
    model: Model,
    worker: Sender<Effect>,
    screen: Screen<File>,
    pace: Pace,
    /// When playing, the moment up to which the position has followed the clock.
    played_until: Option<Instant>,
}

/// Why the loop ends, and whether the last frame stays in the shell.
type End = (Exit, bool);

impl Loop {
    fn new(model: Model, worker: Sender<Effect>) -> io::Result<Self> {
        let remote = std::env::var_os("SSH_CONNECTION").is_some();
        let screen = Screen::new(terminal_output()?, model.size);
        Ok(Self { model, worker, screen, pace: Pace::new(remote), played_until: None })
    }

    fn run(&mut self, receiver: &Receiver<Message>) -> io::Result<End> {
        loop {
            self.draw_if_due()?;
            let Some(first) = self.wait(receiver) else { continue };
            for message in newest(std::iter::once(first).chain(receiver.try_iter())) {
                if let Some(end) = self.handle(message)? {
                    return Ok(end);
                }
            }
            if let Some(end) = self.look(receiver)? {
                return Ok(end);
            }
        }
    }

    /// Asks for the values of where the learner stands. They are there in no time, and one frame with them is better than two.
    fn look(&mut self, receiver: &Receiver<Message>) -> io::Result<Option<End>> {
        let Some(effect) = look(&mut self.model) else { return Ok(None) };
        ask(&self.worker, effect);
        receiver.recv_timeout(SOON).map_or(Ok(None), |message| self.handle(message))
    }

    /// Blocks until there is something to do: a message, or the moment of a frame that is owed. Without either it blocks
    /// for good, which costs nothing.
    fn wait(&mut self, receiver: &Receiver<Message>) -> Option<Message> {
        if !self.model.dirty && !self.model.playing() {
            self.played_until = None;
            return receiver.recv().ok();
        }
        match receiver.recv_timeout(self.pace.wait(now())) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => self.elapsed().map(Message::Elapsed),
        }
    }

    /// The time that playing has to catch up with, if it plays.
    fn elapsed(&mut self) -> Option<Duration> {
        let now = now();
        let since = self.played_until.replace(now).unwrap_or(now);
        self.model.playing().then(|| now.saturating_duration_since(since))
    }

    fn draw_if_due(&mut self) -> io::Result<()> {
        let start = now();
        if self.model.dirty && self.pace.wait(start).is_zero() {
            self.screen.draw(|buffer| view(&self.model, buffer))?;
            self.pace.drew(start, now());
            self.model.dirty = false;
        }
        Ok(())
    }

    fn handle(&mut self, message: Message) -> io::Result<Option<End>> {
        match &message {
            Message::Resize(width, height) => self.screen.forget((*width, *height)),
            Message::Focus(focused) => self.pace.focus(*focused),
            Message::Continued => self.reclaim()?,
            Message::Terminate(signal) => return Ok(Some((Exit::Signal(*signal), false))),
            _ => {}
        }
        match update(&mut self.model, message) {
            None => {}
            Some(Effect::Quit { keep_frame }) => return Ok(Some((Exit::Quit, keep_frame))),
            Some(Effect::Suspend) => {
                terminal::restore();
                signals::stop_process_group();
            }
            Some(Effect::Redraw) => self.screen.forget(self.model.size),
            Some(Effect::Copy { text }) => copy(&text)?,
            Some(effect) => ask(&self.worker, effect),
        }
        Ok(None)
    }

    /// After a stop the terminal belonged to others, and may have another size.
    fn reclaim(&mut self) -> io::Result<()> {
        terminal::restore();
        terminal::claim()?;
        self.model.size = terminal_size();
        self.screen.forget(self.model.size);
        Ok(())
    }
}

/// Asks the terminal to put `text` on the learner's clipboard; it works across SSH where the terminal allows it.
fn copy(text: &str) -> io::Result<()> {
    crossterm::execute!(io::stdout(), crossterm::clipboard::CopyToClipboard::to_clipboard_from(text))
}

/// All messages in order, of the resizes only the last.
fn newest(messages: impl Iterator<Item = Message>) -> Vec<Message> {
    let messages: Vec<Message> = messages.collect();
    let is_resize = |message: &Message| matches!(message, Message::Resize(..));
    let last = messages.iter().rposition(is_resize);
    let keep = |(index, message): (usize, Message)| (!is_resize(&message) || Some(index) == last).then_some(message);
    messages.into_iter().enumerate().filter_map(keep).collect()
}

/// An unbuffered second handle of the terminal: the standard one would split a frame at its line ends.
#[cfg(unix)]
fn terminal_output() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
fn terminal_output() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(File::from(io::stdout().as_handle().try_clone_to_owned()?))
}

#[expect(clippy::disallowed_methods, reason = "the screen's loop is where the wall clock is read")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_resizes_only_the_last_counts() {
        let burst =
            [Message::Resize(80, 24), Message::Continued, Message::Resize(81, 25), Message::Suspend, Message::Resize(90, 30)];
        let kept: Vec<String> = newest(burst.into_iter()).iter().map(|message| format!("{message:?}")).collect();
        assert_eq!(kept, ["Continued", "Suspend", "Resize(90, 30)"]);
    }
}
