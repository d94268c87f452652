//! A lesson's front matter: TOML between two lines `+++`.

use serde::Deserialize;
use toml::{Spanned, Value};

use super::lesson::Knob;
use super::page::View;
use super::problem::{Problem, line_at};

/// What the front matter says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Front {
    pub title: String,
    pub number: u32,
    pub module: String,
    pub minutes: u32,
    pub goal: String,
    pub view: View,
    pub knobs: Vec<Knob>,
    pub sources: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    title: Spanned<String>,
    number: Spanned<u32>,
    module: Spanned<String>,
    minutes: Spanned<u32>,
    goal: Spanned<String>,
    view: Spanned<String>,
    #[serde(default)]
    knobs: Vec<Spanned<WrittenKnob>>,
    #[serde(default)]
    sources: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKnob {
    key: String,
    values: Vec<Value>,
}

/// Front matter and the rest of a lesson's text, with the line on which the rest begins.
pub(super) fn split<'t>(file: &str, text: &'t str) -> Result<(&'t str, &'t str, usize), Problem> {
    let hint = "a lesson begins with its front matter, between two lines +++";
    let Some(rest) = text.strip_prefix("+++\n") else {
        return Err(Problem::new(file, 1, "the first line is not +++").hint(hint));
    };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "+++" {
            let behind = &rest[at + line.len()..];
            return Ok((&rest[..at], behind, line_at(rest, at + line.len(), 2)));
        }
        at += line.len();
    }
    Err(Problem::new(file, 1, "the front matter has no end").hint(hint))
}

/// Reads the front matter, whose first line is line 2 of `file`.
pub(super) fn parse(file: &str, text: &str) -> Result<Front, Vec<Problem>> {
    let written: Written = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_at(text, span.start, 2));
        vec![Problem::new(file, line, error.message().replace('\n', "; "))]
    })?;
    let mut check = Check { file, text, problems: Vec::new() };
    for field in [&written.title, &written.module, &written.goal] {
        check.require(field, |value| !value.trim().is_empty(), "this must say something", "");
    }
    check.require(&written.minutes, |minutes| (1..=240).contains(minutes), "a lesson takes minutes", "1 to 240");
    check.require(&written.number, |number| (1..=999).contains(number), "a lesson has a number", "1 to 999");
    let views = View::ALL.map(|(_, name)| name).join(", ");
    check.require(&written.view, |view| View::find(view).is_some(), "there is no such view", &views);
    for knob in &written.knobs {
        check.require(knob, |knob| !knob.key.is_empty(), "a knob needs its key", "such as pipeline.schedule");
        check.require(
            knob,
            |knob| knob.values.len() >= 2,
            "a knob with fewer than two values cannot be turned",
            "values = [4, 8]",
        );
    }
    if !check.problems.is_empty() {
        return Err(check.problems);
    }
    Ok(Front {
        title: written.title.into_inner(),
        number: written.number.into_inner(),
        module: written.module.into_inner(),
        minutes: written.minutes.into_inner(),
        goal: written.goal.into_inner(),
        view: View::find(written.view.get_ref()).unwrap_or_default(),
        knobs: written.knobs.into_iter().map(|knob| knob.into_inner().into()).collect(),
        sources: written.sources,
    })
}

struct Check<'a> {
    file: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn require<T>(&mut self, field: &Spanned<T>, holds: impl Fn(&T) -> bool, message: &str, hint: &str) {
        if !holds(field.get_ref()) {
            let line = line_at(self.text, field.span().start, 2);
            self.problems.push(Problem::new(self.file, line, message).hint(hint));
        }
    }
}

impl From<WrittenKnob> for Knob {
    /// Values as they are written behind `--set key=`: texts without quotes.
    fn from(written: WrittenKnob) -> Self {
        let shown = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        Self { key: written.key, values: written.values.into_iter().map(shown).collect() }
    }
}
