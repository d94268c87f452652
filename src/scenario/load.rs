//! Where a scenario's text comes from: a file, standard input, or bytes.

use std::fs::File;
use std::io::{self, Read};

use super::Scenario;
use super::problem::{Problem, Problems};
use super::reader::empty;
use crate::base::words::grouped;
use crate::program::sheet::Sheet;

pub use super::problem::Source;

/// No scenario is larger.
const MOST_BYTES: u64 = 1 << 20;
/// No sheet is larger: room for millions of cells.
const MOST_SHEET_BYTES: u64 = 1 << 26;

/// Reads and parses the scenario at `path`; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is no UTF-8, is empty or too large, and all problems of its text.
pub fn load(path: &str, overrides: &[String]) -> Result<Scenario, Problems> {
    let source = read(path)?;
    Scenario::parse(&source.name, &source.text, overrides)
}

/// Reads the text at `path`; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is no UTF-8, is empty or too large.
pub fn read(path: &str) -> Result<Source, Problems> {
    let name = if path == "-" { "<standard input>" } else { path };
    let bytes = read_bytes(path).map_err(|error| unreadable(name, &error))?;
    decode(name, bytes)
}

/// The text of `bytes`.
///
/// # Errors
/// If it is no UTF-8, is empty or too large.
pub fn decode(name: &str, bytes: Vec<u8>) -> Result<Source, Problems> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]);
    let is_sheet = Sheet::is_likely(&head);
    if bytes.len() as u64 > if is_sheet { MOST_SHEET_BYTES } else { MOST_BYTES } {
        let problem = Problem::new("the file is too large for a scenario");
        return Err(Problems::of_file(name, problem.allowed(format!("at most {} bytes", grouped(MOST_BYTES.into())))));
    }
    let text = String::from_utf8(bytes).map_err(|error| Problems::of_file(name, not_text(&error)))?;
    if text.trim().is_empty() {
        return Err(Problems::of_file(name, empty()));
    }
    Ok(Source { name: name.to_owned(), text })
}

/// One byte more than allowed is read at most: what is endless is too large.
fn read_bytes(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == "-" {
        io::stdin().lock().take(MOST_SHEET_BYTES + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(MOST_SHEET_BYTES + 1).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn unreadable(name: &str, error: &io::Error) -> Problems {
    let problem = Problem::new(format!("cannot read the scenario: {error}"));
    let problem = if error.kind() == io::ErrorKind::NotFound { problem.hint("`ranklab new FILE` writes one") } else { problem };
    Problems::of_file(name, problem)
}

fn not_text(error: &std::string::FromUtf8Error) -> Problem {
    let valid = error.utf8_error().valid_up_to();
    let line = error.as_bytes()[..valid].split(|byte| *byte == b'\n').count();
    let problem = Problem::new(format!("the file is not UTF-8 text: byte {} in line {line}", grouped(valid as i128 + 1)));
    match error.as_bytes() {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => problem.hint("it looks like UTF-16: save it as UTF-8"),
        _ => problem.hint("save it as UTF-8"),
    }
}
