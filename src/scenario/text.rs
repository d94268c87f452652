//! Texts made from the table of keys: the list of all keys, a new scenario, and a scenario with its overrides merged in.

use std::fmt::Write;

use super::keys::{Key, Kind, SECTIONS, Section, Unwritten};
use super::presets::PRESETS;
use super::problem::Problems;
use super::reader;
use super::value::Value;
use crate::base::precision::CONVENTIONS;
use crate::base::tables::TABLES;
use crate::program::trouble::FAULTS;
use crate::schedule::SCHEDULES;

/// Where the second column of a list starts.
const COLUMN: usize = 28;

/// All keys with their defaults and meaning, then what the names stand for.
#[must_use]
pub fn show_scenario() -> String {
    let mut out = String::from("Keys of a scenario with their defaults. On a command line: --set section.key=value\n");
    for (section, path, meaning) in &SECTIONS {
        out.push('\n');
        if path.is_empty() {
            out.push_str("above the sections\n");
        } else {
            row(&mut out, "", &section.header(), meaning);
        }
        for key in section.keys() {
            show_key(&mut out, key);
        }
    }
    let named = |out: &mut String, title: &str, rows: Vec<(&str, &str)>| {
        let _ = write!(out, "\n{title}\n");
        for (name, meaning) in rows {
            row(out, "  ", name, meaning);
        }
    };
    named(&mut out, "presets", PRESETS.iter().map(|preset| (preset.name, preset.meaning)).collect());
    named(&mut out, "bytes for each parameter", CONVENTIONS.iter().map(|row| (row.name, row.meaning)).collect());
    named(&mut out, "schedules", SCHEDULES.iter().map(|schedule| (schedule.name, schedule.meaning)).collect());
    named(&mut out, "troubles", FAULTS.iter().map(|fault| (fault.name, fault.meaning)).collect());
    named(&mut out, "hardware tables", TABLES.iter().map(|table| (table.name, table.meaning)).collect());
    for entry in &TABLES {
        let table = entry.table();
        let sources = [("device", &table.device.source), ("inside", &table.inside.source), ("between", &table.between.source)];
        let _ = write!(out, "\nsources of {}\n", entry.name);
        for (what, source) in sources {
            row(&mut out, "  ", what, source);
        }
    }
    out
}

/// A commented scenario with every key; it means what a scenario without any key means.
#[must_use]
pub fn new_scenario() -> String {
    let mut out = String::from(
        "# A scenario for ranklab: what is trained, on which ranks, at what cost.\n\
         # Every key stands here with its default; a line behind a single # is an example.\n\
         # Run it:  ranklab run FILE     Look at it:  ranklab learn FILE\n\n",
    );
    for (section, path, meaning) in &SECTIONS {
        let optional = matches!(
            section,
            Section::Experts
                | Section::Trouble
                | Section::Collective
                | Section::Layer
                | Section::Device
                | Section::Inside
                | Section::Between
        );
        if !path.is_empty() {
            let header = if optional { format!("# {}", section.header()) } else { section.header() };
            let _ = write!(out, "\n{header:<COLUMN$}  # {meaning}\n");
        }
        for key in section.keys() {
            new_key(&mut out, key, optional);
        }
    }
    out
}

/// `text` with `overrides` merged in, as a scenario without comments: what a changed knob is saved as.
///
/// # Errors
/// All problems of the text and the overrides, as in [`super::Scenario::parse`].
pub fn merged(name: &str, text: &str, overrides: &[String]) -> Result<String, Problems> {
    reader::scenario(name, text, overrides)?;
    let written = reader::read(name, text, overrides)?;
    let mut out = String::new();
    for (section, path, _) in &SECTIONS {
        let copies = if *section == Section::Trouble { written.troubles } else { 1 };
        for index in 0..copies {
            let keys = section.keys().filter(|key| written.has(key, index));
            let mut lines: Vec<String> =
                keys.filter_map(|key| Some(format!("{} = {}\n", key.name, written.value(key, index)?.toml()))).collect();
            if let (Section::Pipeline, Some(sheet)) = (section, written.sheet_in_place()) {
                lines.push(format!("csv = {}\n", Value::Text(sheet).toml()));
            }
            let is_named = !path.is_empty() && (written.section(*section).is_some() || !lines.is_empty());
            if is_named {
                let _ = write!(out, "\n{}\n", section.header());
            }
            out.extend(lines);
        }
    }
    Ok(out)
}

fn show_key(out: &mut String, key: &Key) {
    let (left, allowed) = match key.unwritten {
        Unwritten::Is(_) => (format!("{} = {}", key.name, example(key)), key.allowed()),
        Unwritten::Like(_, default) => (key.name.to_owned(), format!("{}; default: {default}", key.allowed())),
    };
    row(out, "  ", &left, key.meaning);
    row(out, "  ", "", &allowed);
}

fn new_key(out: &mut String, key: &Key, optional: bool) {
    let (mark, default) = match key.unwritten {
        Unwritten::Is(_) => (if optional { "# " } else { "" }, String::new()),
        Unwritten::Like(_, default) => ("# ", format!("; default: {default}")),
    };
    let line = format!("{mark}{} = {}", key.name, example(key));
    let _ = writeln!(out, "{line:<COLUMN$}  # {} ({}{default})", key.meaning, key.allowed());
}

/// The default as TOML, or a value that could be written.
fn example(key: &Key) -> String {
    let (Unwritten::Is(text) | Unwritten::Like(text, _)) = key.unwritten;
    match key.kind {
        Kind::Text | Kind::Sheet | Kind::Choice(_) | Kind::Preset => format!("\"{text}\""),
        _ => text.to_owned(),
    }
}

/// Two columns; the second is folded at 100 characters. A long first column has a line of its own.
fn row(out: &mut String, indent: &str, left: &str, right: &str) {
    const WIDTH: usize = 100 - COLUMN;
    let mut left = format!("{indent}{left}");
    if left.len() + 2 > COLUMN {
        let _ = writeln!(out, "{left}");
        left.clear();
    }
    let mut line = String::new();
    for word in right.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{left:<COLUMN$}{line}");
            left.clear();
            line.clear();
        }
        line.push_str(if line.is_empty() { "" } else { " " });
        line.push_str(word);
    }
    let _ = writeln!(out, "{left:<COLUMN$}{line}");
}
