//! What a command works on: a file, standard input, a lesson, or a scenario that ships with ranklab; with overrides.

use std::path::Path;

use super::{Failure, machine};
use crate::lab::{self, LabError};
use crate::program::record::Record;
use crate::program::sheet::Sheet;
use crate::scenario::topology::Topology;
use crate::scenario::{self, Scenario, Source};
use crate::teach::library::NotFound;
use crate::teach::{self, Library, library};

/// The input of most commands.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// A scenario file, `-` for standard input, a lesson (number or name), or a scenario that ships with ranklab
    #[arg(value_name = "FILE|LESSON")]
    what: String,
    /// Override a key of the scenario, such as pipeline.schedule=gpipe; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Training steps; the same as --set batch.steps=N
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    steps: Option<String>,
}

/// A scenario with the text that it was read from.
pub struct Asked {
    /// The checked scenario.
    pub scenario: Scenario,
    source: Source,
    overrides: Vec<String>,
}

impl Asked {
    /// `error` as a failure: a rule that meets no op stands at its place in the text.
    pub fn failure(&self, error: LabError) -> Failure {
        match error {
            LabError::IdleTrouble { index, kind, op, hint } => {
                let message = format!("the trouble `{kind}`{} meets no op", lab::with(&op));
                Scenario::idle_trouble(&self.source, &self.overrides, index, &message, &hint).into()
            }
            LabError::Kernel(_) => Failure::Io(error.to_string()),
        }
    }
}

impl Input {
    /// The input called `what`, with these overrides.
    pub fn of(what: &str, set: Vec<String>) -> Self {
        Self { what: what.to_owned(), set, steps: None }
    }

    /// The topology, if a file holds the table of one and no scenario.
    ///
    /// # Errors
    /// If the file cannot be read, and all problems of the table.
    pub fn topology(&self) -> Result<Option<Topology>, Failure> {
        if !Path::new(&self.what).is_file() {
            return Ok(None);
        }
        let source = source(&self.what)?;
        Ok(if Topology::looks_like(&source.text) { Some(Topology::parse(&source.name, &source.text)?) } else { None })
    }

    /// The text, and the overrides.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn text(&self) -> Result<(Source, Vec<String>), Failure> {
        let steps = self.steps.as_ref().map(|steps| format!("batch.steps={steps}"));
        let source = source(&self.what)?;
        other(&source).map_or(Ok(()), |problem| Err(Failure::Input(problem)))?;
        Ok((source, self.set.iter().cloned().chain(steps).collect()))
    }

    /// The checked scenario. Real values that this machine's memory cannot hold are refused here, before anything is allocated.
    ///
    /// # Errors
    /// If there is no such input, and all problems of its text.
    pub fn scenario(&self) -> Result<Asked, Failure> {
        let (source, overrides) = self.text()?;
        let scenario = Scenario::parse(&source.name, &source.text, &overrides)?;
        if let Some(memory) = machine::available_memory() {
            scenario.fits(&source.name, memory)?;
        }
        Ok(Asked { scenario, source, overrides })
    }
}

/// The text that `what` names. A file comes first; a name without a dot or a slash that is no file is a lesson or a shipped scenario.
///
/// # Errors
/// If nothing is called so, with the nearest name.
pub fn source(what: &str) -> Result<Source, Failure> {
    let path = Path::new(what);
    if what == "-" || is_no_folder(path) || what.contains(['/', '\\']) || path.extension().is_some() {
        return Ok(scenario::read(what)?);
    }
    if let Some(shipped) = shipped(what) {
        return Ok(shipped);
    }
    let library = Library::open();
    let lesson = library.find(what).map_err(|error| Failure::Input(unknown(what, &error)))?;
    let scenario = lesson.scenario(teach::lesson::SCENARIO);
    let scenario =
        scenario.ok_or_else(|| Failure::Input(format!("lesson `{}` has no {}", lesson.name, teach::lesson::SCENARIO)))?;
    Ok(Source { name: format!("lessons/{}/{}", lesson.name, scenario.name), text: scenario.text.clone() })
}

/// Why nothing is called so, with the nearest name of all that there is.
fn unknown(what: &str, error: &NotFound) -> String {
    match error {
        _ if Path::new(what).is_dir() => {
            format!("`{what}` is a folder: a scenario is a file in it, such as {what}/scenario.toml")
        }
        NotFound::Unknown { nearest, .. } => {
            let hint = match (library::nearest_scenario(what), nearest) {
                (Some(scenario), _) => format!("did you mean the scenario `{scenario}`?"),
                (None, Some(lesson)) => format!("did you mean `{lesson}`?"),
                (None, None) => "`ranklab list` and `ranklab list scenarios` show all".to_owned(),
            };
            format!("there is no lesson and no scenario `{what}`: {hint}")
        }
        _ => error.to_string(),
    }
}

/// What a text is that is no scenario, if that can be seen.
fn other(source: &Source) -> Option<String> {
    let Source { name, text } = source;
    let is_csv = Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let is = match () {
        () if Record::is_likely(text) => "is a saved trace, which `ranklab compare` reads: this takes the scenario that it is of",
        () if text.trim_start().starts_with('{') => "is JSON, and a scenario is TOML: `ranklab new FILE` writes one",
        () if is_csv && !Sheet::is_likely(text) => "is no plan: that has a row of cells for each rank, such as 0F0,0F1,0B0,0B1",
        () => return None,
    };
    Some(format!("`{name}` {is}"))
}

/// The text of the saved trace that `what` names; `None` if it names something else.
///
/// # Errors
/// If the file cannot be read.
pub fn trace(what: &str) -> Result<Option<String>, Failure> {
    const BEGINNING: usize = 64;
    let path = Path::new(what);
    if !path.is_file() {
        return Ok(None);
    }
    let read = |error: std::io::Error| Failure::Io(format!("cannot read `{what}`: {error}"));
    let mut beginning = String::new();
    let mut file = std::io::BufReader::new(std::fs::File::open(path).map_err(read)?);
    // What is no text is no trace; the scenario's reader says what is wrong with it.
    let _ = std::io::Read::read_to_string(&mut std::io::Read::take(&mut file, BEGINNING as u64), &mut beginning);
    if Record::is_likely(&beginning) { std::fs::read_to_string(path).map(Some).map_err(read) } else { Ok(None) }
}

/// A file, or something that reads like one: a pipe with a name.
fn is_no_folder(path: &Path) -> bool {
    path.exists() && !path.is_dir()
}

/// The scenario called `name` that ships with ranklab.
pub fn shipped(name: &str) -> Option<Source> {
    let found = library::scenarios().find(|scenario| scenario.name.strip_suffix(".toml") == Some(name))?;
    Some(Source { name: format!("scenarios/{}", found.name), text: found.text })
}
