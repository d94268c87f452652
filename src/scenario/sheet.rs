//! A plan of one's own: PyTorch's pipelining CSV, named by `pipeline.csv`, written there, or in place of a scenario.
//!
//! What the sheet settles need not be written: ranks, micro-batches and stages are its own, and what is written must agree.

use std::sync::Arc;

use toml::de::DeTable;

use super::keys::{Key, batch, model, parallel, pipeline};
use super::load;
use super::problem::Problem;
use super::value::Value;
use super::written::Written;
use crate::program::plan::Plan;
use crate::program::sheet::{Sheet, SheetError};

/// Reads the sheet that stands in place of the scenario, or that it names, and lets its sizes count as written.
pub(super) fn read(written: &mut Written, in_place: Option<&str>) {
    let (name, text) = match in_place {
        Some(text) => (None, text.to_owned()),
        None => match asked(written) {
            Some(asked) => asked,
            None => return,
        },
    };
    match Sheet::parse(&text) {
        Ok(sheet) => {
            settle(written, &sheet.plan());
            written.sheet = Some(Arc::new(sheet));
        }
        Err(errors) => errors.iter().for_each(|error| refuse(written, name.as_deref(), error)),
    }
}

/// The text that `pipeline.csv` has, or that of the file that it names, beside the scenario's own file; with that name.
fn asked(written: &mut Written) -> Option<(Option<String>, String)> {
    let name = written.text(&pipeline::CSV).filter(|name| name != "none")?;
    if name.contains('\n') {
        return Some((None, name));
    }
    match load::read(&written.beside(&name)) {
        Ok(source) => Some((Some(name), source.text)),
        Err(problems) => {
            written.refuse(&[&pipeline::CSV], Problem::new(format!("`{name}`: {}", problems.first())));
            None
        }
    }
}

/// `text`, a scenario, with the sheet that it names in place of its name, if `find` has one: it needs no file beside it then.
#[must_use]
pub fn with_sheet(text: &str, find: impl Fn(&str) -> Option<String>) -> String {
    let (table, _) = DeTable::parse_recoverable(text);
    let csv = table.get_ref().get("pipeline").and_then(|section| section.get_ref().get(pipeline::CSV.name));
    let named = csv.and_then(|csv| Some((csv.span(), find(csv.get_ref().as_str()?)?)));
    named.map_or_else(|| text.to_owned(), |(span, sheet)| [&text[..span.start], &in_lines(&sheet), &text[span.end..]].concat())
}

/// A text that has line breaks, as TOML.
fn in_lines(sheet: &str) -> String {
    Value::Text(format!("{}\n", sheet.trim_end())).toml()
}

fn refuse(written: &mut Written, name: Option<&str>, error: &SheetError) {
    let name = name.map_or(String::new(), |name| format!("{name}: "));
    written.refuse(&[&pipeline::CSV], Problem::new(format!("{name}{error}")).allowed(error.expected.as_str()));
}

/// The plan's own sizes, in place of those that are not written.
fn settle(written: &mut Written, plan: &Plan) {
    let (ranks, stages) = (plan.rows.len(), plan.stages());
    for key in [&pipeline::SCHEDULE, &pipeline::CHUNKS] {
        if written.has(key, 0) {
            let problem = Problem::new(format!("the plan is given by a sheet, and `{}` would make another", key.name));
            written.refuse(&[key], problem.hint("leave one of the two out"));
        }
    }
    let sizes: [(&'static Key, usize, &str); 2] =
        [(&parallel::PIPELINE, ranks, "rows"), (&batch::MICRO_BATCHES, plan.micro_batches(), "micro-batches")];
    for (key, size, what) in sizes {
        if written.has(key, 0) {
            if written.size(key).is_some_and(|asked| asked != size) {
                let problem = Problem::new(format!("the sheet has {size} {what}, and `{}` is another number", key.name));
                written.refuse(&[key], problem.hint("leave it out: the sheet settles it"));
            }
        } else {
            written.imply(key, Value::Integer(i64::try_from(size).unwrap_or(i64::MAX)));
        }
    }
    let usual = super::presets::PRESETS.first().map_or(0, |preset| preset.model.layers);
    if !written.has(&model::LAYERS, 0) && !written.has(&model::PRESET, 0) && stages > usual {
        written.imply(&model::LAYERS, Value::Integer(i64::try_from(stages).unwrap_or(i64::MAX)));
    }
}
