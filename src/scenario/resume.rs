//! Going on from a checkpoint: the scenario's steps that are left, and the data that was not seen yet.

use super::problem::{Problem, Problems};
use super::{Before, Scenario, Task};
use crate::base::words::grouped;
use crate::program::tables::Padded;

impl Scenario {
    /// The rest of this scenario behind `steps` steps that took `samples` sequences: `batch.steps` counts all steps, and those that were
    /// done are not done again. `name` names the checkpoint in problems.
    ///
    /// # Errors
    /// If nothing is left to do, or the data does not go on at a micro-batch's begin.
    pub fn behind(&self, name: &str, steps: u32, samples: u64) -> Result<Self, Problems> {
        let refuse = |problem: Problem| Err(Problems::of_file(name, problem));
        let mut scenario = self.clone();
        let Task::Train(training) = &mut scenario.task else {
            return refuse(Problem::new("a bare [collective] has no state to go on from"));
        };
        // Rules count steps as the scenario does; what met an earlier step has happened.
        scenario.trouble.retain(|rule| rule.step.is_none_or(|step| step >= steps));
        scenario.trouble.iter_mut().for_each(|rule| rule.step = rule.step.map(|step| step - steps));
        let batch = &mut training.batch;
        if steps >= batch.steps {
            let message = format!("the checkpoint stands behind step {steps}, and `batch.steps = {}` ends there", batch.steps);
            let hint = format!("`batch.steps` counts all steps of a training: --steps {} does one more", u64::from(steps) + 1);
            return refuse(Problem::new(message).hint(hint));
        }
        let size = batch.micro_batch_size as u64;
        if !samples.is_multiple_of(size) {
            let message = format!("{} sequences were seen, which are no whole micro-batches of {size}", grouped(samples.into()));
            return refuse(Problem::new(message).allowed("a divisor of it as `batch.micro_batch_size`"));
        }
        let rest = batch.steps - steps;
        let left = u64::from(rest) * u64::from(batch.micro_batches) * training.mesh.ranks() as u64;
        match u32::try_from(samples / size) {
            Ok(before) if u32::try_from(u64::from(before) + left).is_ok() => {
                batch.before = Before { steps, micro_batches: before };
                batch.steps = rest;
                batch.padded = batch.padded.map(|padded| Padded { first: before, ..padded });
                Ok(scenario)
            }
            _ => refuse(Problem::new(format!("{} sequences are more than a run can count", grouped(samples.into())))),
        }
    }
}
