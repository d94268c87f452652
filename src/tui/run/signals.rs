//! The threads that turn key presses and signals into messages.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use crossterm::event::{self, Event};

use super::super::keys;
use super::super::update::Message;

/// Starts the thread that waits for keys, pastes, resizes and focus changes. It ends with the terminal or the channel.
pub fn listen_to_keys(sender: Sender<Message>) {
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if let Some(message) = translate(event)
                && sender.send(message).is_err()
            {
                break;
            }
        }
    });
}

fn translate(event: Event) -> Option<Message> {
    match event {
        Event::Key(event) => keys::pressed(event).map(Message::Key),
        Event::Paste(text) => Some(Message::Paste(text)),
        Event::Resize(width, height) => Some(Message::Resize(width, height)),
        Event::FocusGained => Some(Message::Focus(true)),
        Event::FocusLost => Some(Message::Focus(false)),
        Event::Mouse(_) => None,
    }
}

/// Starts the thread that waits for the signals which end, stop and continue the program. The second signal to end ends
/// it at once, in case the screen's thread hangs.
///
/// # Errors
/// If the signal handlers cannot be installed.
#[cfg(unix)]
pub fn listen_to_signals(sender: Sender<Message>) -> io::Result<()> {
    use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
    use signal_hook::iterator::Signals;

    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGCONT])?;
    thread::spawn(move || {
        let mut ending = false;
        for signal in signals.forever() {
            let message = match signal {
                SIGTSTP => Message::Suspend,
                SIGCONT => Message::Continued,
                _ if ending => end_at_once(signal),
                _ => {
                    ending = true;
                    Message::Terminate(signal)
                }
            };
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    Ok(())
}

#[cfg(unix)]
fn end_at_once(signal: i32) -> ! {
    super::terminal::restore();
    die_by(signal);
    std::process::exit(128 + signal)
}

/// Ends the process by `signal`, as if it had never been caught, if whoever sent it expects that: a terminal that hung up, or someone who
/// wants the process to die with its memory. Comes back for the signals that ask for an orderly end.
#[cfg(unix)]
pub fn die_by(signal: i32) {
    use signal_hook::consts::{SIGHUP, SIGQUIT};
    if matches!(signal, SIGHUP | SIGQUIT) {
        // It comes back only if the system refuses; then the exit code still says what happened.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// There are no such signals here.
#[cfg(not(unix))]
pub fn die_by(_: i32) {}

/// There are no such signals here.
#[cfg(not(unix))]
pub fn listen_to_signals(_: Sender<Message>) -> io::Result<()> {
    Ok(())
}

/// Stops the whole job, as the shell would: the parent (`cargo run`, `time`) stops too. The signal that continues it
/// arrives as [`Message::Continued`].
#[cfg(unix)]
#[expect(unsafe_code, reason = "there is no safe way to signal one's own process group")]
pub fn stop_process_group() {
    // SAFETY: `kill` touches no memory of this process; group 0 is the caller's own.
    unsafe { libc::kill(0, libc::SIGSTOP) };
}

/// There are no jobs here.
#[cfg(not(unix))]
pub fn stop_process_group() {}
