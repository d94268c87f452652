//! Collectives that run as one op: they have a price and no messages, so no wire carries them. What the rank in focus sends in them.

use std::collections::BTreeMap;

use super::parts::{Cut, Head, Line, first_row, left, ops, pane, paragraph, right, table};
use crate::base::words::counted;
use crate::base::{Bytes, OpId, Rank};
use crate::observe::state::{At, State};
use crate::observe::traffic::{collective_of, sent};
use crate::program::OpKind;
use crate::program::head::head;
use crate::tui::data::PanelView;
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// What a rank sends in its collectives of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Collectives.
    pub count: u64,
    /// In those that have begun.
    pub so_far: Bytes,
    /// In all of them.
    pub all: Bytes,
}

impl Sent {
    fn add(&mut self, at: &At, op: OpId) {
        let bytes = sent(at.run, op);
        self.count += 1;
        self.all += bytes;
        if at.has_started(op) {
            self.so_far += bytes;
        }
    }
}

/// The step in which the position is.
fn step_of(at: &At) -> u32 {
    at.event.checked_sub(1).map_or(0, |event| at.run.program.op(at.run.trace.events[event].op).origin.step)
}

/// The collectives of `rank` that move data as one op each, in the step of the position and in the order in which it issues them.
fn collectives(at: &At, rank: Rank) -> Vec<OpId> {
    let (run, step) = (at.run, step_of(at));
    let is_whole = |op: &OpId| matches!(run.program.kind(*op), OpKind::Collective(_)) && collective_of(run, *op).is_some();
    run.program.order[rank.index()].iter().copied().filter(|&op| run.of_step(op, step)).filter(is_whole).collect()
}

/// What `rank` sends in them; `None` where it has none.
#[must_use]
pub fn of_rank(at: &At, rank: Rank) -> Option<Sent> {
    let mut all = Sent::default();
    collectives(at, rank).into_iter().for_each(|op| all.add(at, op));
    (all.count > 0).then_some(all)
}

/// Draws what the rank in focus sends, by kind and payload, and its collectives around the position.
pub fn draw(at: &At, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let ops = collectives(at, view.focus);
    let mut rest = Cut::of(pen);
    let height = rest.0.height;
    let above = rest.top(if height < 12 { height } else { height / 2 });
    let (rank, step) = (view.focus, step_of(at));
    let title = format!("Links  collectives of {} in step {step}", at.run.program.whole(rank));
    pane(pen, above, &title, view.focused, |inside| sums(at, rank, &ops, inside));
    pane(pen, rest.0, "Collectives  one op each", false, |inside| list(at, &ops, inside));
}

const SUMS: [Head; 6] =
    [left("collective"), right("ranks"), right("how many"), right("payload"), right("sends"), right("so far")];

fn sums(at: &At, rank: Rank, ops: &[OpId], pen: &mut Pen<'_>) {
    let program = at.run.program;
    let mut kinds: BTreeMap<(&str, usize, Bytes), Sent> = BTreeMap::new();
    let mut all = Sent::default();
    for &op in ops {
        let OpKind::Collective(id) = program.kind(op) else { continue };
        let collective = &program.collectives[id.index()];
        kinds.entry((collective.kind.name(), program.group_of(id).size(), collective.bytes)).or_default().add(at, op);
        all.add(at, op);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, sent)| std::cmp::Reverse(sent.all));
    let line = |((kind, ranks, payload), sent): &((&str, usize, Bytes), Sent)| Line {
        role: Role::Text,
        cells: vec![
            (*kind).to_owned(),
            ranks.to_string(),
            sent.count.to_string(),
            payload.to_string(),
            sent.all.to_string(),
            sent.so_far.to_string(),
        ],
    };
    // Two lines below say what they are, and there is the table's head.
    let room = usize::from(pen.height().saturating_sub(4)).max(1);
    let mut lines: Vec<Line> = kinds.iter().take(room).map(line).collect();
    let left_out = kinds.len().saturating_sub(room);
    let name = if left_out == 0 { "all".to_owned() } else { format!("all, with {left_out} more") };
    let cells = [name, String::new(), all.count.to_string(), String::new(), all.all.to_string(), all.so_far.to_string()];
    lines.push(Line { role: Role::Strong, cells: cells.into() });
    let y = table(pen, 0, &SUMS, &lines);
    let rank = at.run.program.whole(rank);
    let what = format!("what {rank} sends. Each is one op with a price, and no messages: no single wire is listed");
    paragraph(pen, y, &what, Role::Quiet);
}

const LIST: [Head; 5] = [ops("collective"), left("now"), right("sends"), right("start"), right("time")];

/// The collectives around the one that comes next.
fn list(at: &At, all: &[OpId], pen: &mut Pen<'_>) {
    let next = all.iter().position(|&op| at.state(op) < State::Done).unwrap_or(all.len());
    let room = usize::from(pen.height().saturating_sub(2)).max(1);
    let first = first_row(next, all.len(), room);
    let clock = at.run.trace.clock;
    let line = |&op: &OpId| {
        let (state, times) = (at.state(op), at.run.times(op));
        let now = match state {
            State::Done => "done",
            State::Running => "moving",
            _ => "",
        };
        Line {
            role: if state == State::Running { Role::Strong } else { Role::Text },
            cells: vec![
                head(at.run.program, op).to_string(),
                now.to_owned(),
                sent(at.run, op).to_string(),
                times.map_or_else(String::new, |times| clock.show(times.start)),
                times.map_or_else(String::new, |times| clock.show(times.end - times.start)),
            ],
        }
    };
    let lines: Vec<Line> = all.iter().skip(first).take(room).map(line).collect();
    let y = table(pen, 0, &LIST, &lines);
    let more = all.len().saturating_sub(first + lines.len());
    if more > 0 {
        pen.say(1, y, &format!("... {} more", counted(more as u64, "collective")), Role::Quiet);
    }
}
