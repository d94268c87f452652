//! The breakdown of one rank's memory: by use, now and at the peak; the peak's op, what it holds then, and who gives some of it back.

use std::collections::BTreeSet;

use super::memory::USES;
use super::parts::{Line, left, paragraph, percent, ratio, right, table};
use crate::base::{Bytes, OpId, Rank};
use crate::observe::held::Life;
use crate::program::head::head;
use crate::program::trace::Outcome;
use crate::program::{Name, Role as Use};
use crate::tui::data::{PanelView, RunData};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// Draws it for the focus rank.
pub fn draw(data: &RunData, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let account = data.ledger.rank(view.focus);
    let (now, peak) = (account.after(view.position.event), account.peak());
    let mut lines = Vec::new();
    for role in Use::ALL {
        let (now, peak_bytes) = (now.by_role[role as usize], peak.by_role[role as usize]);
        if now.0 + peak_bytes.0 > 0 {
            let (letter, name, _) = USES[role as usize];
            lines.push(line(Role::Text, &format!("{letter} {name}"), (now, peak_bytes), peak.total()));
        }
    }
    lines.push(line(Role::Strong, "total", (now.total(), peak.total()), peak.total()));
    let mut y = table(pen, 0, &[left("use"), right("now"), right("peak"), right("%")], &lines) + 1;
    for (text, role) in sentences(data, view.focus, view.position.event) {
        y = paragraph(pen, y, &text, role);
    }
}

fn line(role: Role, name: &str, (now, peak): (Bytes, Bytes), total: Bytes) -> Line {
    let share = percent(ratio(peak.0, total.0));
    Line { role, cells: vec![name.to_owned(), now.to_string(), peak.to_string(), share] }
}

fn sentences(data: &RunData, rank: Rank, event: usize) -> Vec<(String, Role)> {
    let mut sentences = Vec::new();
    let program = data.program();
    let text = |op: OpId| head(program, op).to_string();
    if let Outcome::OutOfMemory { rank: full, op, needed, limit } = &data.record.trace.outcome
        && *full == rank
    {
        let at = op.map_or_else(|| "before its first op".to_owned(), text);
        sentences.push((format!("OUT OF MEMORY: needs {}, at {at}", needed.out_of(*limit)), Role::Alert));
    }
    let peak = data.ledger.rank(rank).peak();
    let cause = peak.op.map_or_else(|| "before the first op".to_owned(), text);
    sentences.push((format!("peak at event {}: {cause}", peak.event), Role::Text));
    let held: Vec<Life> = data.prepared.lives.at_peak(rank).collect();
    let batches = micro_batches(data, &held);
    if !batches.is_empty() {
        sentences.push((format!("held then: activations of micro-batches {}", list(&batches)), Role::Text));
    }
    if let Some(largest) = largest(data, &held) {
        sentences.push((format!("largest then: {largest}"), Role::Text));
    }
    let next = data.prepared.lives.at(rank, event).filter_map(|life| Some((data.record.trace.event_of(life.freed_by?)?, life)));
    if let Some((event, life)) = next.min_by_key(|&(event, life)| (event, life.buffer)) {
        let by = life.freed_by.map_or_else(String::new, text);
        let name = program.buffers[life.buffer.index()].name;
        sentences.push((format!("given back next: {name}, by {by} (event {event})"), Role::Text));
    }
    sentences
}

/// The micro-batches of which something is kept for the backward.
fn micro_batches(data: &RunData, held: &[Life]) -> Vec<u32> {
    let of = |life: &Life| match data.program().buffers[life.buffer.index()].name {
        Name::Saved(_, micro_batch) | Name::Deferred(_, micro_batch) => Some(micro_batch),
        _ => None,
    };
    held.iter().filter_map(of).collect::<BTreeSet<u32>>().into_iter().collect()
}

fn list(numbers: &[u32]) -> String {
    const MOST: usize = 12;
    let shown: Vec<String> = numbers.iter().take(MOST).map(u32::to_string).collect();
    let more = if numbers.len() > MOST { format!(" and {} more", numbers.len() - MOST) } else { String::new() };
    format!("{}{more}", shown.join(" "))
}

/// The three largest buffers that are no state.
fn largest(data: &RunData, held: &[Life]) -> Option<String> {
    let program = data.program();
    let temporary = held.iter().map(|life| life.buffer).filter(|buffer| !program.buffers[buffer.index()].role.is_state());
    let mut sized: Vec<(Bytes, crate::base::BufferId)> = temporary.map(|buffer| (program.bytes(buffer), buffer)).collect();
    sized.sort_by_key(|&(bytes, buffer)| (std::cmp::Reverse(bytes), buffer));
    let name = |&(bytes, buffer): &(Bytes, crate::base::BufferId)| format!("{} {bytes}", program.buffers[buffer.index()].name);
    let shown: Vec<String> = sized.iter().take(3).map(name).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}
