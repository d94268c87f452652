//! `ranklab search FILE`: a better schedule for a scenario's pipeline, beside the named ones.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::export::write_new;
use super::failure::{note, print};
use super::input::Input;
use super::{Exit, Failure, Outcome};
use crate::base::units::short_number;
use crate::base::words::shell_word;
use crate::lab::search::{Row, Search, search};

/// What to search for.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Micro-batches, of all its layers, that a rank may hold from forward to weights; default: as many as ranks, like 1F1B's first
    #[arg(long, value_name = "N")]
    room: Option<f64>,
    /// Write the best plan that was found to a new file, as `PyTorch`'s CSV
    #[arg(long, value_name = "OUT")]
    save: Option<PathBuf>,
    /// Print one JSON document, `ranklab.search/1`
    #[arg(long)]
    json: bool,
}

/// Prints the table; every row was compiled and run.
pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(room) = arguments.room.filter(|room| !(0.1..=1e6).contains(room)) {
        return Err(Failure::Input(format!("--room {room} is out of range: 0.1 to 1,000,000 micro-batches are allowed")));
    }
    let (source, overrides) = arguments.input.text()?;
    let found = search(&source.name, &source.text, &overrides, arguments.room)?;
    print(&if arguments.json { json(&found) } else { table(&found) })?;
    if let Some(path) = &arguments.save {
        let Some(best) = found.best_found() else {
            return Err(Failure::Input(format!(
                "nothing was found that holds at most {} micro-batches: nothing to save",
                found.room
            )));
        };
        write_new(path, best.plan.to_string())?;
        note(format_args!(
            "wrote {} ({}); next: ranklab run {}",
            path.display(),
            best.name,
            shell_word(&path.display().to_string())
        ));
    }
    Ok(Exit::Done)
}

fn table(found: &Search) -> String {
    let mut text = format!("{:<14} {:>9} {:>8} {:>6}\n", "schedule", found.unit, "bubble", "peak");
    let best = found.best().map(|best| best.name.clone());
    for row in &found.rows {
        let Row { name, from, makespan, bubble, peak, fits, .. } = row;
        let mut note = from.as_ref().map_or_else(String::new, |from| format!("  from {from}"));
        note.push_str(match (fits, best.as_deref() == Some(name.as_str())) {
            (false, _) => "  holds more than it may",
            (true, true) => "  best",
            (true, false) => "",
        });
        let _ =
            writeln!(text, "{name:<14} {:>9} {:>7.2}% {:>6}{note}", short_number(*makespan), bubble * 100.0, short_number(*peak));
    }
    for (name, why) in &found.refused {
        let _ = writeln!(text, "{name:<14} {why}");
    }
    let _ = write!(
        text,
        "peak: micro-batches of all layers of a rank, from forward to weights; at most {} here. Each row was compiled and run",
        short_number(found.room)
    );
    text
}

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    unit: &'static str,
    room: f64,
    best: Option<&'a str>,
    rows: Vec<Entry<'a>>,
    refused: Vec<Refused<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    makespan: f64,
    bubble_fraction: f64,
    peak: f64,
    fits: bool,
    plan: String,
}

#[derive(Serialize)]
struct Refused<'a> {
    name: &'a str,
    why: &'a str,
}

fn json(found: &Search) -> String {
    let rows = found.rows.iter().map(|row| Entry {
        name: &row.name,
        found: row.from.is_some(),
        from: row.from.as_deref(),
        makespan: row.makespan,
        bubble_fraction: row.bubble,
        peak: row.peak,
        fits: row.fits,
        plan: row.plan.to_string(),
    });
    let refused = found.refused.iter().map(|(name, why)| Refused { name, why });
    let document = Document {
        schema: "ranklab.search/1",
        unit: found.unit,
        room: found.room,
        best: found.best().map(|best| best.name.as_str()),
        rows: rows.collect(),
        refused: refused.collect(),
    };
    serde_json::to_string_pretty(&document).unwrap_or_default()
}
