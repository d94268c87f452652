//! What a command works on: a file, standard input, a lesson, or a scenario that ships with ranklab; with overrides.

use std::path::Path;

use super::Failure;
use crate::scenario::{self, Scenario, Source};
use crate::teach;

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
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
}

impl Input {
    /// The checked scenario.
    ///
    /// # Errors
    /// If there is no such input, and all problems of its text.
    pub fn scenario(&self) -> Result<Scenario, Failure> {
        let source = self.source()?;
        let steps = self.steps.map(|steps| format!("batch.steps={steps}"));
        let overrides: Vec<String> = self.set.iter().cloned().chain(steps).collect();
        let scenario = Scenario::parse(&source.name, &source.text, &overrides)?;
        Ok(scenario)
    }

    /// The text: a file that exists comes first, so that a file called `11` can be run as `./11` or `11`.
    fn source(&self) -> Result<Source, Failure> {
        if self.what == "-" || Path::new(&self.what).is_file() {
            return Ok(scenario::read(&self.what)?);
        }
        let looks_like_a_file = self.what.contains(['/', '\\']) || Path::new(&self.what).extension().is_some();
        if looks_like_a_file {
            return Ok(scenario::read(&self.what)?);
        }
        teach::scenario_source(&self.what).map_err(|error| Failure::Input(error.to_string()))
    }
}
