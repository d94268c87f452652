//! Going on: a scenario and the state that a checkpoint has for it, on whatever ranks.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Checkpoint, Manifest};
use crate::compile;
use crate::engine::state::Whole;
use crate::scenario::problem::{Problem, Problems};
use crate::scenario::{Scenario, Training};

/// The rest of a training, and the state with which it begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// What is left to do.
    pub scenario: Scenario,
    /// The state of the whole model.
    pub state: Arc<Whole>,
}

/// How `scenario` goes on from `checkpoint`, which is called `name`. Ranks, strategy and schedule may be others than those that saved.
///
/// # Errors
/// If they are of different trainings, or nothing is left to do; all differences at once.
pub fn start(name: &str, checkpoint: &Checkpoint, scenario: &Scenario) -> Result<Start, Problems> {
    let training = super::training(name, scenario)?;
    let problems = mismatches(&checkpoint.manifest, scenario, training);
    if !problems.is_empty() {
        return Err(Problems::of_whole_file(name, problems));
    }
    let state = checkpoint.whole(name)?;
    let scenario = scenario.behind(name, checkpoint.manifest.step, checkpoint.manifest.samples)?;
    let lacking = state.lacks(&compile::compile(&scenario).program);
    if let Some((kept, parameter, dtype)) = lacking.first() {
        let parameter = &checkpoint.manifest.model.parameters()[parameter.index()].name;
        let problem =
            Problem::new(format!("the scenario keeps {kept}.{parameter} in {dtype}, which the checkpoint does not have"));
        return Err(Problems::of_file(name, problem.hint("types and optimizer must be those of the training that saved")));
    }
    Ok(Start { scenario, state })
}

/// What of `scenario` is not as it was when the checkpoint was saved, and has to be.
#[must_use]
pub fn mismatches(manifest: &Manifest, scenario: &Scenario, training: &Training) -> Vec<Problem> {
    let mut pairs = vec![
        ("seed".to_owned(), manifest.seed.to_string(), scenario.seed.to_string()),
        ("optimizer.kind".to_owned(), manifest.optimizer.to_string(), training.optimizer.kind.to_string()),
        ("model.parameter_dtype".to_owned(), manifest.dtype.to_string(), training.precision.parameter.to_string()),
    ];
    let [saved, asked] = [&manifest.model, &training.model].map(|model| serde_json::to_value(model).unwrap_or_default());
    // What one of the two has alone is null in the other.
    let keys: BTreeSet<&String> =
        [&saved, &asked].into_iter().filter_map(|model| model.as_object()).flat_map(|all| all.keys()).collect();
    pairs.extend(keys.into_iter().map(|key| (format!("model.{key}"), saved[key].to_string(), asked[key].to_string())));
    let differ = pairs.into_iter().filter(|(_, saved, asked)| saved != asked);
    differ.map(|(key, saved, asked)| mismatch(&key, &saved, &asked)).collect()
}

fn mismatch(key: &str, saved: &str, asked: &str) -> Problem {
    let problem = Problem::new(format!("the checkpoint was saved with {key} = {saved}, and the scenario has {asked}"));
    problem.hint(format!("--set {key}={}", saved.trim_matches('"')))
}
