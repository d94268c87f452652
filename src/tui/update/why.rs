//! Why: the chain from the op under the cursor to the op that held all others up, in sentences.

use crate::base::{OpId, Ticks};
use crate::observe::explain::idle;
use crate::observe::kind::label;
use crate::observe::run::Run;
use crate::observe::why::{Chain, Step, chain};
use crate::program::Wait;
use crate::program::head::head;
use crate::tui::model::Model;

/// Why the op under the cursor did not start earlier; where nothing runs, why that is. `None` if nothing there waits.
#[must_use]
pub fn sentences(model: &Model) -> Option<String> {
    let data = &model.run.data;
    let run = data.run();
    let row = model.cursor_row()?;
    let (heading, chain) = match (model.cursor_op(), model.cursor_span()) {
        (Some(op), Some((place, span))) if !span.kind.is_idle() => {
            (String::new(), chain(&run, op, since(model, place, span.start)))
        }
        _ => {
            let found = idle(&run, data.row(row), (row.rank, row.compute), Ticks(model.timeline.cursor.time));
            if let Some(idle) = found {
                (idle.heading(&run), idle.chain)
            } else {
                let stands = data.at(&run, data.events()).heads(row.rank);
                (String::new(), chain(&run, *stands.first()?, data.end()))
            }
        }
    };
    let words = if chain.steps.is_empty() { String::new() } else { in_words(&run, chain) };
    let lines: Vec<String> = [heading, words].into_iter().filter(|part| !part.is_empty()).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// From when on the op that starts at `start` waited: the start of the gap before it, otherwise just before its own start.
fn since(model: &Model, place: usize, start: Ticks) -> Ticks {
    let before = model.cursor_row().zip(place.checked_sub(1)).map(|(row, before)| model.run.data.row(row).spans[before]);
    match before {
        Some(before) if before.kind.is_idle() && before.end == start => before.start,
        _ => Ticks(start.0.saturating_sub(1)),
    }
}

/// The chain in sentences. Ops of one slot that stand behind each other on their stream are one sentence.
fn in_words(run: &Run, chain: Chain) -> String {
    let mut lines = Vec::new();
    let mut kept = chain;
    let last = kept.steps.len() - 1;
    let within_slot = |step: &Step| match step.wait {
        Wait::Stream(on) => same_slot(run, step.op, on),
        _ => false,
    };
    let mut place = 0;
    while place <= last {
        let first = place;
        while place < last && within_slot(&kept.steps[place]) && within_slot(&kept.steps[place + 1]) {
            place += 1;
        }
        let step = kept.steps[place];
        lines.push(if place > first { slot_sentence(run, kept.steps[first].op, step) } else { step.sentence(run) });
        place += 1;
    }
    kept.steps.clear();
    lines.push(kept.sentences(run).to_string());
    lines.join("\n")
}

fn same_slot(run: &Run, op: OpId, on: OpId) -> bool {
    let slot = |op: OpId| run.program.op(op).origin;
    slot(op).slot.is_some() && slot(op) == slot(on)
}

/// Several ops of one slot, the last of them first: `r1 B0 runs until 10u, from its op ... on`.
fn slot_sentence(run: &Run, last: OpId, first: Step) -> String {
    let until = run.times(last).map_or_else(String::new, |times| format!(" until {}", run.trace.clock.show(times.end)));
    let on = first.wait.on().map_or_else(String::new, |on| head(run.program, on).to_string());
    format!("{} {} runs{until}, from its op `{on}` on", run.program.rank_of(last), label(run, last))
}
