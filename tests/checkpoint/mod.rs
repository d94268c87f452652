//! Checkpoints: what is saved is what was there, whoever goes on from it, and whatever goes wrong.

mod damage;
mod export;
mod folder;
mod resume;
mod saving;

use ranklab::checkpoint::{self, Checkpoint};
use ranklab::lab::{Lab, Run};
use ranklab::program::trace::Outcome;
use ranklab::scenario::Scenario;

use crate::support::{SMALL, scenario};
use folder::Memory;

/// Small buckets: several of them, none of which divides by the ranks.
const BUCKETS: &str = "bucket_mib = 0.01\nfirst_bucket_mib = 0.004\n";

/// A training of the small model.
fn text(strategy: &str, (data, pipeline): (usize, usize), micro_batches: u32, steps: u32, settings: &str) -> String {
    let batch = format!("[batch]\nmicro_batches = {micro_batches}\nsteps = {steps}\n");
    let parallel = format!("[parallel]\ndata = {data}\npipeline = {pipeline}\n");
    format!("{SMALL}{batch}{parallel}[data_parallel]\nstrategy = \"{strategy}\"\n{BUCKETS}{settings}")
}

/// A completed run of `scenario`, and what it would save.
fn finish(scenario: &Scenario) -> (Run, Checkpoint) {
    let run = Lab::new().run(scenario).expect("a run");
    let state = state(&run);
    (run, state)
}

fn state(run: &Run) -> Checkpoint {
    assert_eq!(run.session.trace().outcome, Outcome::Completed);
    let training = checkpoint::training("test", &run.scenario).expect("a training");
    Checkpoint::of(run, training).expect("tensors that can be read")
}

/// What is read back of `state`, once it was saved.
fn stored(state: &Checkpoint) -> Checkpoint {
    let mut folder = Memory::default();
    let manifest = checkpoint::save(&mut folder, state).expect("memory is large");
    let loaded = checkpoint::load("test", &folder).unwrap_or_else(|broken| panic!("{}", broken.problems()));
    assert_eq!(loaded.manifest, manifest);
    assert!(loaded.ranks == state.ranks, "what is read is what was written");
    loaded
}

/// `scenario` from where `state` stands.
fn go_on(state: &Checkpoint, scenario: &Scenario) -> Run {
    let start = checkpoint::start("test", &stored(state), scenario).unwrap_or_else(|problems| panic!("{problems}"));
    Lab::new().run_from(&start.scenario, Some(&start.state)).expect("a run")
}

/// A small checkpoint of three ranks, none of which has all.
fn small() -> Checkpoint {
    finish(&scenario(&text("zero-3", (3, 1), 1, 1, ""))).1
}
