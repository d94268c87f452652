//! Exports: a run as text, CSV, SVG, or Perfetto's trace format.

pub mod comparison;
pub mod csv;
pub mod file;
pub mod perfetto;
pub mod summary;
pub mod svg;
mod svg_style;
pub mod text;

use super::Observed;
use super::report::{Given, Report};
use super::slack::Slack;

/// A form that a run can be exported in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The lanes as a picture of characters, and the summary.
    Text,
    /// The report.
    Json,
    /// Chrome's trace format, for ui.perfetto.dev.
    Perfetto,
    /// A figure.
    Svg,
    /// One row per op.
    Csv,
    /// Everything that happened, to be compared with other runs.
    Trace,
}

impl Format {
    /// All forms with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Text, "text"),
        (Self::Json, "json"),
        (Self::Perfetto, "perfetto"),
        (Self::Svg, "svg"),
        (Self::Csv, "csv"),
        (Self::Trace, "trace"),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }

    /// The form called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(format, _)| *format)
    }
}

/// Columns of the text picture in an export.
const TEXT_WIDTH: usize = 120;

/// A run in the form `format`; of it no more is learnt than that form needs.
#[must_use]
pub fn export(observed: &Observed, given: Given, format: Format) -> String {
    let run = &observed.run;
    match format {
        Format::Text => {
            let summary = summary::summary(run, observed.metrics(), &given);
            format!("{}\n{summary}", text::picture(run, observed.lanes(), TEXT_WIDTH))
        }
        Format::Json => json(&Report::new(run, observed.metrics(), &Slack::new(run), given)),
        Format::Perfetto => perfetto::trace(run, observed.lanes(), observed.ledger(), &given),
        Format::Svg => svg::figure(run, observed.lanes(), observed.metrics(), &given),
        Format::Csv => csv::table(run),
        Format::Trace => trace(run),
    }
}

/// The record of the run, line by line.
///
/// # Panics
/// Never: memory takes every line.
#[must_use]
pub fn trace(run: &super::Run) -> String {
    let mut lines = Vec::new();
    crate::program::record::write(run.program, run.trace, &mut lines).expect("memory takes every line");
    String::from_utf8_lossy(&lines).into_owned()
}

/// The report as an indented document.
///
/// # Panics
/// Never: a report holds nothing that JSON cannot.
#[must_use]
pub fn json(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report has string keys only");
    text.push('\n');
    text
}
