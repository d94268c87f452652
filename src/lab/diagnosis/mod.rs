//! Diagnosis: from what a run shows to the rank, the op and the cause.
//!
//! The rules of trouble are not asked, but for how the model is saved, which no program says. A hang is read off the wait-for graph and the program, a full device off the outcome, wrong numbers
//! off the comparison with one device, a straggler off the times that the hardware table leads one to expect.

mod experts;
mod hang;
mod memory;
mod numbers;
mod pace;
mod pipeline;
mod tensor;

use crate::base::{OpId, Rank};
use crate::observe::Run;
use crate::program::trace::Outcome;
use crate::program::{OpKind, Program};
use crate::scenario::Scenario;

use super::Verdict;

pub(super) use numbers::factor;

/// What is wrong with a run, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The rank that is to blame.
    pub rank: Rank,
    /// Its op, where it is one; it may be one that was left out.
    pub op: Option<OpId>,
    /// Why, as a sentence about the rank: `it leaves out ...`.
    pub cause: String,
}

/// What is wrong with a run of `scenario`; nothing, if nothing is. `factor` is that by which all gradients of the first wrong step are too
/// large.
pub(super) fn diagnose(scenario: &Scenario, run: &Run, verdict: &Verdict, factor: Option<f64>) -> Vec<Diagnosis> {
    let mut all = match &run.trace.outcome {
        Outcome::Deadlocked(graph) => {
            experts::disagrees(run.program).map_or_else(|| hang::diagnose(run.program, graph), |found| vec![found])
        }
        Outcome::OutOfMemory { rank, op, needed, limit } => {
            vec![memory::diagnose(run, (*rank, *op), (*needed, *limit), scenario.hardware.memory)]
        }
        Outcome::Completed => {
            let of_experts = experts::diagnose(run.program, verdict);
            if of_experts.is_empty() { numbers::diagnose(run.program, verdict, factor) } else { of_experts }
        }
    };
    all.extend(numbers::repeated_sums(scenario, run.program));
    all.extend(numbers::saved_alone(scenario, run.program));
    all.extend(pace::diagnose(scenario, run));
    all
}

/// `r0`, `r0 and r2`, `r0, r1 and 4 more`.
fn ranks(program: &Program, all: &[Rank]) -> String {
    let name = |rank: &Rank| program.whole(*rank);
    match all {
        [] => "nobody".to_owned(),
        [only] => name(only).to_string(),
        [first, second] => format!("{} and {}", name(first), name(second)),
        [first, second, rest @ ..] => format!("{}, {} and {} more", name(first), name(second), rest.len()),
    }
}

/// Whether `rank` does nothing in `step`: its ops are left out, or there are none.
fn is_idle_in(program: &Program, rank: Rank, step: u32) -> bool {
    let mut of_step = program.order[rank.index()].iter().filter(|&&op| program.op(op).origin.step == step);
    of_step.all(|&op| matches!(program.kind(op), OpKind::Skipped(_)))
}
