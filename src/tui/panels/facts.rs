//! What is known of a run at a glance: facts for the title line, a sentence for the message line.

use crate::base::units::short_number;
use crate::base::words::counted;
use crate::observe::{Report, VerdictKind};
use crate::program::trace::Outcome;
use crate::tui::data::RunData;

/// So many facts say what the run is; those behind them how it went.
pub const BEFORE_NUMBERS: usize = 2;

/// Short facts, the most important first.
#[must_use]
pub fn facts(data: &RunData) -> Vec<String> {
    if data.ranks() == 0 {
        return Vec::new();
    }
    let mut facts = vec!["[MODEL clock]".to_owned(), ranks(data)];
    let outcome = &data.record.trace.outcome;
    if *outcome == Outcome::Completed {
        facts.push(step_time(data, ""));
    }
    facts.push(judgement(data));
    facts.retain(|fact| !fact.is_empty());
    facts
}

/// How the run ended, with its first numbers: the most important part first.
#[must_use]
pub fn sentence(data: &RunData) -> String {
    let report = &data.report;
    let mut parts = Vec::new();
    if data.record.trace.outcome == Outcome::Completed {
        // A bare collective has no training steps.
        parts.push(step_time(data, if data.program().setting.model.is_some() { " a step" } else { "" }));
        if let Some(ratio) = report.bubble.ratio {
            parts.push(format!("bubble {} ({})", percent(report.bubble.fraction), of_work(ratio)));
        }
    }
    // What went wrong comes first; that nothing did, behind the numbers.
    let is_good = data.record.trace.outcome == Outcome::Completed && report.verdict.kind != VerdictKind::Wrong;
    parts.insert(if is_good { parts.len() } else { 0 }, verdict(data));
    parts.extend(loss(report).filter(|_| data.record.trace.outcome == Outcome::Completed));
    parts.join(", ")
}

/// What the first step takes `of` it, and what a later one takes if that is another time.
fn step_time(data: &RunData, of: &str) -> String {
    let show = |time| data.clock().show(time);
    let first = data.metrics.makespan;
    match data.metrics.step_period.filter(|&period| period != first) {
        Some(period) => format!("{}, then {}{of}", show(first), show(period)),
        None => format!("{}{of}", show(first)),
    }
}

/// How many ranks there are, and how many are followed where one stands for several.
#[must_use]
pub fn ranks(data: &RunData) -> String {
    let followed = data.ranks();
    let all = followed * data.program().setting.folding.size();
    let text = counted(all as u64, "rank");
    if followed == all { text } else { format!("{text}, {followed} followed") }
}

/// The outcome if it is a bad one, otherwise the verdict.
fn judgement(data: &RunData) -> String {
    match (&data.record.trace.outcome, data.report.verdict.kind) {
        (Outcome::Deadlocked(_), _) => "DEADLOCK".to_owned(),
        (Outcome::OutOfMemory { rank, .. }, _) => format!("OUT OF MEMORY on {}", data.program().whole(*rank)),
        (Outcome::Completed, VerdictKind::Equal) if data.report.verdict.delayed_weights => {
            "= one device of old weights".to_owned()
        }
        (Outcome::Completed, VerdictKind::Equal) => "= one device".to_owned(),
        (Outcome::Completed, VerdictKind::ExpectedDrift) => "~ one device".to_owned(),
        (Outcome::Completed, VerdictKind::Wrong) => "WRONG NUMBERS".to_owned(),
        (Outcome::Completed, VerdictKind::None) => "shapes only".to_owned(),
    }
}

fn verdict(data: &RunData) -> String {
    let verdict = &data.report.verdict;
    let drift = verdict.max_abs_diff.unwrap_or(0.0);
    match (&data.record.trace.outcome, verdict.kind) {
        (Outcome::Deadlocked(graph), _) => match graph.cycles.first() {
            Some(cycle) => {
                let ranks: Vec<String> = cycle.iter().map(|(rank, _)| data.program().whole(*rank).to_string()).collect();
                format!("deadlock: {} wait for each other", ranks.join(" and "))
            }
            None => match graph.edges.iter().find(|edge| edge.on_op.is_none()) {
                Some(edge) => format!("deadlock: {} waits for {}, which never comes", edge.rank, edge.on_rank),
                None => "deadlock: nothing can move".to_owned(),
            },
        },
        (Outcome::OutOfMemory { rank, needed, limit, .. }, _) => {
            format!("out of memory: {} would hold {}", data.program().whole(*rank), needed.out_of(*limit))
        }
        (Outcome::Completed, VerdictKind::Equal) => format!("equals {} bit for bit", verdict.device()),
        (Outcome::Completed, VerdictKind::ExpectedDrift) => {
            format!("equals {} within rounding ({drift:.0e})", verdict.device())
        }
        (Outcome::Completed, VerdictKind::Wrong) if verdict.looks.is_some() => verdict.looks.clone().unwrap_or_default(),
        (Outcome::Completed, VerdictKind::Wrong) => match &verdict.first_difference {
            Some(first) => {
                format!("wrong: at r{} `{}` in step {}, {} differs first", first.rank, first.op, first.step, first.tensor)
            }
            None => "wrong numbers".to_owned(),
        },
        (Outcome::Completed, VerdictKind::None) => "completed, shapes only".to_owned(),
    }
}

fn loss(report: &Report) -> Option<String> {
    let (first, last) = (report.loss.first()?, report.loss.last()?);
    Some(if report.loss.len() == 1 { format!("loss {first:.3}") } else { format!("loss {first:.3} to {last:.3}") })
}

/// Idle time as a share of the work: `of the work 37.5 %`; from ten times on `18 times the work`.
#[must_use]
pub fn of_work(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("of the work {}", percent(ratio))
    } else {
        format!("{} times the work", short_number(ratio.round()))
    }
}

/// `27.3 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{} %", short_number((share * 1000.0).round() / 10.0))
}
