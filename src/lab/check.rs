//! The check of a scenario without its numbers: its program's soundness, and a run of the shapes.

use std::sync::Arc;

use super::{LabError, idle};
use crate::base::words::counted;
use crate::compile::{self, Compiled};
use crate::engine::session::{self, Numbers};
use crate::observe::Run;
use crate::observe::why;
use crate::program::head::head;
use crate::program::trace::Outcome;
use crate::scenario::{Order, Scenario, Task};
use crate::schedule::Schedule;

/// What a check found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Sentences, one for each thing that is not as it should be; empty if all is well.
    pub findings: Vec<String>,
    /// What a plan was read from, where the scenario has one of its own.
    pub sheet: Option<String>,
    /// Ranks of the program.
    pub ranks: usize,
    /// Its ops.
    pub ops: usize,
}

/// Checks the program of `scenario`, and runs its shapes.
///
/// # Errors
/// If a trouble rule fits no op.
pub fn check(scenario: &Scenario) -> Result<Checked, LabError> {
    let Compiled { program, idle_trouble, .. } = compile::compile(scenario);
    if let Some(&index) = idle_trouble.first() {
        return Err(idle(&program, scenario, index));
    }
    let program = Arc::new(program);
    let mut findings: Vec<String> = crate::program::check::check(&program).iter().map(ToString::to_string).collect();
    let (_, trace) = session::run(program.clone(), &scenario.hardware, &scenario.trouble, Numbers::Shape, &mut |_, _| {})?;
    let run = Run::new(&program, &trace);
    match &trace.outcome {
        Outcome::Completed => {}
        Outcome::Deadlocked(graph) => {
            findings.push(format!("the run deadlocks after {} events", trace.events.len()));
            findings.extend(graph.edges.iter().map(|edge| why::edge_sentence(&run, edge)));
            findings.extend(why::cycles(&run));
        }
        Outcome::OutOfMemory { rank, op, needed, limit } => {
            let at = op.map_or("its state alone".to_owned(), |op| format!("`{}`", head(&program, op)));
            let (rank, [needed, limit]) = (program.whole(*rank), needed.beside(*limit));
            findings.push(format!("{rank} runs out of memory at {at}: it would hold {needed}, and its device has {limit}"));
        }
    }
    let sheet = sheet(scenario);
    Ok(Checked { findings, sheet, ranks: program.ranks(), ops: program.ops() })
}

fn sheet(scenario: &Scenario) -> Option<String> {
    let Task::Train(training) = &scenario.task else { return None };
    let Order::Sheet(sheet) = &training.pipeline.order else { return None };
    let ranks = counted(sheet.rows.len() as u64, "rank");
    let stages = counted(training.stages() as u64, "stage");
    let micro_batches = match training.batch.micro_batches {
        1 => "1 micro-batch".to_owned(),
        many => format!("{many} micro-batches"),
    };
    let known = Schedule::recognise(&sheet.plan()).map_or_else(String::new, |schedule| format!("; it is {}", schedule.title));
    Some(format!("{}; {ranks}, {stages}, {micro_batches}{known}", sheet.dialect.name()))
}
