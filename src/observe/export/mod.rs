//! Exports: a run as text, CSV, SVG, or Perfetto's trace format.

pub mod csv;
pub mod file;
pub mod perfetto;
pub mod summary;
pub mod svg;
mod svg_style;
pub mod text;

use super::report::{Given, Report};
use super::{Lanes, Ledger, Metrics, Run};

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
}

impl Format {
    /// All forms with their names.
    pub const ALL: [(Self, &'static str); 5] =
        [(Self::Text, "text"), (Self::Json, "json"), (Self::Perfetto, "perfetto"), (Self::Svg, "svg"), (Self::Csv, "csv")];

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

/// `run` in the form `format`.
#[must_use]
pub fn export(run: &Run, given: Given, format: Format) -> String {
    let ledger = Ledger::new(run);
    match format {
        Format::Text => {
            let summary = summary::summary(run, &Metrics::new(run, &ledger), &given);
            format!("{}\n{summary}", text::picture(run, &Lanes::new(run), TEXT_WIDTH))
        }
        Format::Json => json(&Report::new(run, &Metrics::new(run, &ledger), given)),
        Format::Perfetto => perfetto::trace(run, &Lanes::new(run), &ledger, &given),
        Format::Svg => svg::figure(run, &Lanes::new(run), &Metrics::new(run, &ledger), &given),
        Format::Csv => csv::table(run),
    }
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
