//! From a scenario to a finished run: compile, run, judge against one device. What the command line and the screen both call.

pub mod blame;
mod check;
mod collective;
mod diagnosis;
pub mod experts;
pub mod fingerprint;
pub mod layer;
pub mod nan;
pub mod reference;
mod repair;
pub mod search;
pub mod semantics;
mod report;
pub mod snapshot;
pub mod verdict;

use std::sync::Arc;

use crate::base::OpId;
use crate::compile::{self, Compiled};
use crate::engine::session::{Numbers, Session};
use crate::engine::state::Whole;
use crate::program::plan::Plan;
use crate::program::trace::Outcome;
use crate::program::trouble::Trouble;
use crate::program::{Program, head};
use crate::scenario::{Scenario, Task, Training, Values};
pub use check::{Checked, check};
pub use diagnosis::Diagnosis;
use fingerprint::Looks;
use reference::References;
pub use repair::repairs;
use snapshot::Snapshots;
pub use verdict::{Difference, Verdict};

/// A finished run.
pub struct Run {
    /// What was asked.
    pub scenario: Scenario,
    /// The pipeline's plan; `None` for a bare piece.
    pub plan: Option<Plan>,
    /// The run, at its end; it can be stepped back.
    pub session: Session,
    /// Mean loss of every step; empty for shapes and bare collectives.
    pub losses: Vec<f64>,
    /// How the numbers compare with one device's.
    pub verdict: Verdict,
    /// The op whose result is the first that is no number, if any is none.
    pub first_nan: Option<OpId>,
    /// What is wrong, and where it comes from.
    pub diagnosis: Vec<Diagnosis>,
    /// What a wrong layer looks like.
    pub looks: Option<Looks>,
}

/// Why a scenario could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A trouble rule fits no op of the program.
    #[error("the trouble `{kind}`{} meets no op{}", with(op), if hint.is_empty() { String::new() } else { format!(": {hint}") })]
    IdleTrouble {
        /// Its place among the scenario's rules.
        index: usize,
        /// The rule's kind.
        kind: &'static str,
        /// The rule's op text.
        op: String,
        /// A nearby op; empty if there is none.
        hint: String,
    },
    /// A kernel failed.
    #[error("a kernel failed: {0}")]
    Kernel(#[from] crate::engine::Error),
}

/// Runs scenarios, and remembers the one-device runs that it compared them with.
#[derive(Default)]
pub struct Lab {
    references: References,
}

impl Lab {
    /// A lab that remembers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `scenario` to its end, and judges it.
    ///
    /// # Errors
    /// If a trouble rule fits no op, or a kernel fails.
    pub fn run(&mut self, scenario: &Scenario) -> Result<Run, LabError> {
        self.run_from(scenario, None)
    }

    /// Runs `scenario`, which goes on from the state `start`, to its end, and judges it. One device goes on from the same state.
    ///
    /// # Errors
    /// If a trouble rule fits no op, or a kernel fails.
    pub fn run_from(&mut self, scenario: &Scenario, start: Option<&Arc<Whole>>) -> Result<Run, LabError> {
        let Compiled { plan, program, idle_trouble } = compile::compile(scenario);
        if let Some(&index) = idle_trouble.first() {
            return Err(idle(&program, scenario, index));
        }
        let program = Arc::new(program);
        let numbers = start.map_or_else(|| numbers(scenario), |start| Numbers::From(start));
        let mut snapshots = Snapshots::default();
        let mut on_end = |world: &crate::engine::world::World, op| snapshots.take(world, op);
        let session = Session::record(program, &scenario.hardware, &scenario.trouble, numbers, &mut on_end)?;
        snapshots.join_shards(session.program())?;
        if let Task::Train(training) = &scenario.task {
            snapshots.join_slices(session.program(), &training.mesh, &training.model.parameters())?;
        }
        let losses = snapshot::mean_losses(session.values().losses(), &session.program().setting);
        let mut looks = None;
        let (verdict, factor) = match (&scenario.task, numbers, &session.trace().outcome) {
            (_, Numbers::Shape, _) | (_, _, Outcome::Deadlocked(_) | Outcome::OutOfMemory { .. }) => (Verdict::None, None),
            (Task::Train(training), ..) => self.judge((scenario, training, start), &session, &snapshots)?,
            (Task::Collective(_), ..) => (collective::judge(&session)?, None),
            (Task::Experts(layer), ..) => (experts::judge(scenario, layer, &session)?, None),
            (Task::Layer(layer), ..) => {
                let (verdict, found) = layer::judge(scenario, layer, &session)?;
                looks = found;
                (verdict, None)
            }
        };
        let first_nan = nan::first(scenario, &session, numbers)?;
        let (scenario_of_run, diagnosis) = (scenario.clone(), Vec::new());
        let mut run = Run { scenario: scenario_of_run, plan, session, losses, verdict, first_nan, diagnosis, looks };
        if run.is_suspect() {
            let observed = crate::observe::Run::new(run.session.program(), run.session.trace());
            run.diagnosis = diagnosis::diagnose(scenario, &observed, &run.verdict, factor);
        }
        Ok(run)
    }

    fn judge(
        &mut self,
        (scenario, training, start): (&Scenario, &Training, Option<&Arc<Whole>>),
        session: &Session,
        snapshots: &Snapshots,
    ) -> Result<(Verdict, Option<f64>), LabError> {
        let references = self.references.get(scenario, training, start)?;
        let verdict = verdict::judge(session, snapshots, references)?;
        let Verdict::Wrong { max_abs_diff, first_difference } = verdict else { return Ok((verdict, None)) };
        let factor = diagnosis::factor(snapshots, &references.own, first_difference.step)?;
        let numbers = start.map_or(Numbers::Real, |start| Numbers::From(start));
        let first_difference = blame::blame(scenario, (session.program(), numbers), references.program(), &first_difference)?;
        Ok((Verdict::Wrong { max_abs_diff, first_difference }, factor))
    }
}

impl Run {
    /// Whether there may be something to diagnose: a sound run of a sound scenario is not searched.
    fn is_suspect(&self) -> bool {
        let syncs_always = matches!(&self.scenario.task, Task::Train(training) if !training.data_parallel.no_sync);
        let is_wrong = matches!(self.verdict, Verdict::Wrong { .. }) || self.session.trace().outcome != Outcome::Completed;
        is_wrong || syncs_always || !self.scenario.trouble.is_empty()
    }
}

/// Whether the scenario computes.
fn numbers(scenario: &Scenario) -> Numbers<'static> {
    match scenario.numerics.values {
        Values::Real => Numbers::Real,
        Values::Shape => Numbers::Shape,
    }
}

/// The op of a rule in a message, where it has one.
#[must_use]
pub fn with(op: &str) -> String {
    if op.is_empty() { String::new() } else { format!(" with op `{op}`") }
}

/// The error for a rule that fits no op: where such an op stands, or the op that is written most like it.
fn idle(program: &Program, scenario: &Scenario, index: usize) -> LabError {
    let rule = &scenario.trouble[index];
    let fault = rule.kind.fault();
    if !fault.wants.is_empty() {
        let hint = format!("it needs {}", fault.wants);
        return LabError::IdleTrouble { index, kind: fault.name, op: rule.op.clone(), hint };
    }
    let here = program.all().find(|&op| head::fits(program, op, rule));
    let elsewhere = here.or_else(|| program.all().find(|&op| head::begins(program, op, &rule.op)));
    let hint = match elsewhere {
        Some(op) => {
            let view = program.op(op);
            let head = head::head(program, op);
            if head::fits(program, op, rule) {
                format!("{} does nothing to `{head}`", rule.kind.name())
            } else {
                format!("`{head}` stands on {} in step {}, where the rule does not look", view.rank, view.origin.step)
            }
        }
        None => nearest(program, rule).map_or_else(String::new, |head| format!("an op of it is `{head}`; words count whole")),
    };
    LabError::IdleTrouble { index, kind: rule.kind.name(), op: rule.op.clone(), hint }
}

fn nearest(program: &Program, rule: &Trouble) -> Option<String> {
    let similarity = |head: &str| strsim::jaro_winkler(head, &rule.op);
    // An all-reduce has been expanded to its messages by now, and is met by its own name all the same.
    let collectives = program.collectives.iter().map(|collective| format!("{} {}", collective.kind.name(), collective.label));
    let heads = collectives.chain(program.all().map(|op| head::head(program, op).to_string()));
    heads.max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
}
