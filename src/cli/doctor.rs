//! `ranklab doctor`: what this terminal and this machine can do, and where files are looked for.

use std::fmt::Write;
use std::io::IsTerminal;

use super::failure::print;
use super::{Exit, Outcome, machine};
use crate::teach::library;

/// Nothing to choose.
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// Variables that decide how the screen looks.
const VARIABLES: [&str; 8] = ["TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "SSH_CONNECTION", "TMUX", "RANKLAB_LESSONS"];

/// Prints what is found.
pub fn run(_: &Arguments) -> Outcome {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<18}{value}");
    };
    line("version", env!("CARGO_PKG_VERSION"));
    line(
        "standard output",
        if std::io::stdout().is_terminal() { "a terminal" } else { "no terminal: the lab needs one, run and export do not" },
    );
    for name in VARIABLES {
        line(name, &std::env::var(name).unwrap_or_else(|_| "(not set)".to_owned()));
    }
    line("device", "CPU, through candle; no other device is supported yet");
    line(
        "memory",
        &machine::available_memory()
            .map_or("unknown: large runs are not refused".to_owned(), |bytes| format!("{bytes} available")),
    );
    line("own lessons", &library::user_folder().map_or("(no folder)".to_owned(), |folder| folder.display().to_string()));
    line("blocks ruler", "|█▓▒░▁▂▃▄| ten columns wide, if blocks are one column each");
    line("ascii ruler", "|FB#+~.<>| ten columns wide");
    print(&text)?;
    Ok(Exit::Done)
}
