//! Who waits for whom: the circles and chains of the wait-for graph, the blocked ranks, and what would help.

use super::debugger::{self, blocked_sentence, message_text};
use super::graph::{Graph, Part};
use super::parts::{Cut, Line, choice, first_row, left, mark, message_head, ops, pane, paragraph, right, table};
use crate::base::{OpId, Rank};
use crate::observe::state::{At, Doing, State};
use crate::program::trace::WaitEdge;
use crate::program::{OpKind, Wait};
use crate::tui::data::{PanelView, RunData};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// Draws it at the position of `view`.
pub fn draw(data: &RunData, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    if data.lanes.ranks.is_empty() {
        return;
    }
    let run = data.run();
    let at = data.progress.at(&run, view.position.event);
    let graph = Graph::new(&at);
    let mut rest = Cut::of(pen);
    let wide = rest.0.width >= 100;
    let title = "Wait-for graph  double line = cycle";
    if !wide {
        let lower = if rest.0.height < 10 { 0 } else { rest.0.height / 2 };
        let mut below = Cut(rest.bottom(lower));
        pane(pen, rest.0, title, view.focused, |inside| picture(&at, &graph, view, inside));
        // The boxes of a circle name its ranks: what would resolve it has the room.
        if graph.cycles().next().is_none() {
            let ranks = below.left(below.0.width / 2);
            pane(pen, ranks, "Blocked ranks", false, |inside| blocked(&at, &graph, view, inside));
        }
        pane(pen, below.0, "What would help", false, |inside| help(data, &at, &graph, inside));
        return;
    }
    let lower = if rest.0.height < 20 { 0 } else { rest.0.height * 2 / 5 };
    let mut below = Cut(rest.bottom(lower));
    let split = rest.0.width * 58 / 100;
    let (above, programs) = (rest.left(split), below.left(split));
    pane(pen, above, title, view.focused, |inside| picture(&at, &graph, view, inside));
    pane(pen, rest.0, "Blocked ranks", false, |inside| blocked(&at, &graph, view, inside));
    let name = if graph.cycles().next().is_some() { "Programs at the cycle" } else { "Programs" };
    pane(pen, programs, name, false, |inside| side_by_side(&at, &graph, view, inside));
    pane(pen, below.0, "What would help", false, |inside| help(data, &at, &graph, inside));
}

/// The parts of the graph, cycles first; below each, what its waits mean.
fn picture(at: &At, graph: &Graph, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    if graph.parts.is_empty() {
        return nobody(at, view, pen);
    }
    // Boxes while they fit; with many parts, one row for each.
    let large = |part: &Part| part.boxes_fit(at, pen.width()) && graph.parts.len() * 7 <= usize::from(pen.height()).max(7);
    let boxes = graph.parts.iter().all(large) && pen.height() >= 7;
    let mut y = u16::from(boxes && pen.height() > 10);
    for part in &graph.parts {
        if y >= pen.height() {
            return;
        }
        y = if boxes { part.draw_boxes(at, y, pen) } else { part.draw_row(at, y, pen) };
        for sentence in part.edges.iter().take(4).map(|edge| meaning(at, edge)).filter(|_| boxes) {
            y = paragraph(pen, y, &sentence, Role::Text);
        }
        if boxes && part.cycle {
            y = paragraph(pen, y, "None of these is reached: each stands behind a wait of this circle.", Role::Strong);
        }
        y += u16::from(boxes);
    }
}

/// Nothing is blocked: what every rank does.
fn nobody(at: &At, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    pen.say(1, 0, "No rank is blocked.", Role::Strong);
    let (all, room) = (at.run.program.ranks(), usize::from(pen.height().saturating_sub(2)));
    let first = first_row(view.focus.index(), all, room);
    let lines = (first..all).map(Rank::new).take(room).map(|rank| {
        let stand = at.stand(rank);
        let doing = stand.map_or("has nothing left to do", |stand| match stand.doing {
            Doing::Computing => "computes",
            Doing::Moving => "waits for its own transfer, which is moving",
            Doing::Ready => "is about to start",
            Doing::Blocked(_) => debugger::BLOCKED,
        });
        let op = stand.map_or_else(String::new, |stand| head(at, stand.op));
        let chosen = rank == view.focus;
        Line {
            role: choice(chosen, view.focused),
            cells: vec![format!("{}{}", mark(chosen), at.run.program.whole(rank)), doing.to_owned(), op],
        }
    });
    table(pen, 1, &[left("rank"), left("state"), ops("op")], &lines.collect::<Vec<_>>());
}

/// `r0 cannot finish send x4.1 until r1 posts recv x4.1 <- r0 (op 19)`.
fn meaning(at: &At, edge: &WaitEdge) -> String {
    let what = message_head(at.run.program, edge.op);
    let [rank, on_rank] = [edge.rank, edge.on_rank].map(|rank| at.run.program.whole(rank));
    match (edge.why, edge.on_op) {
        (Wait::Message(_), _) => format!("{rank}: {what} waits for a message that is on its way from {on_rank}"),
        (_, Some(on)) => format!("{rank} cannot finish {what} until {on_rank} posts {} (op {})", head(at, on), at.place(on)),
        (_, None) => format!("{rank} cannot finish {what}: {on_rank} never issues its part"),
    }
}

fn blocked(at: &At, graph: &Graph, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let room = usize::from(pen.height().saturating_sub(5)).max(1);
    let edges: Vec<&WaitEdge> = graph.blocked.iter().collect();
    let focus = edges.iter().position(|edge| edge.rank == view.focus).unwrap_or(0);
    let first = first_row(focus, edges.len(), room);
    let lines: Vec<Line> = edges[first..].iter().take(room).map(|edge| blocked_line(at, graph, view, edge)).collect();
    let mut y = 0;
    if !lines.is_empty() {
        let heads = [left("rank"), right("op"), ops("waits in"), left("for"), right("since"), right("until"), left("note")];
        y = table(pen, 0, &heads, &lines);
    }
    let mut fact = |name: &str, value: &str| {
        let text = format!("{name:<10} {value}");
        y = paragraph(pen, y, text.trim_end(), Role::Text);
    };
    fact(&blocked_sentence(at), "");
    let unmatched = list(graph.unmatched.iter().map(|&op| format!("{} {}", at.run.program.rank_of(op), head(at, op))));
    let mut facts = [
        ("in flight", list(at.in_flight().iter().map(|flight| message_text(at, flight.send)))),
        ("posted", list(posted_receives(at))),
        ("unmatched", unmatched),
    ];
    // What never comes is what to know first.
    if !graph.unmatched.is_empty() {
        facts.rotate_right(1);
    }
    facts.iter().for_each(|(name, value)| fact(name, value));
}

fn head(at: &At, op: OpId) -> String {
    crate::program::head::head(at.run.program, op).to_string()
}

fn blocked_line(at: &At, graph: &Graph, view: &PanelView<'_>, edge: &WaitEdge) -> Line {
    let chosen = edge.rank == view.focus;
    let clock = at.run.trace.clock;
    let until = at.run.times(edge.op).map_or_else(|| "never".to_owned(), |times| clock.show(times.start));
    let cells = vec![
        format!("{}{}", mark(chosen), at.run.program.whole(edge.rank)),
        at.place(edge.op).to_string(),
        message_head(at.run.program, edge.op),
        at.run.program.whole(edge.on_rank).to_string(),
        clock.show(at.posted(edge.op)),
        until,
        graph.note(edge.rank).to_owned(),
    ];
    Line { role: choice(chosen, view.focused), cells }
}

/// The receives that have posted and whose message is not there.
fn posted_receives(at: &At) -> impl Iterator<Item = String> {
    let heads = (0..at.run.program.ranks()).flat_map(|rank| at.heads(Rank::new(rank)));
    let posted = heads.filter(|&op| at.run.program.kind(op).receives() && at.state(op) == State::Posted);
    posted.map(|op| format!("{} {}", at.run.program.rank_of(op), head(at, op)))
}

/// The first few of a list, and how many more there are.
fn list(items: impl Iterator<Item = String>) -> String {
    const MOST: usize = 4;
    let all: Vec<String> = items.collect();
    match all.len() {
        0 => "none".to_owned(),
        count if count > MOST => format!("{}, and {} more", all[..MOST].join(", "), count - MOST),
        _ => all.join(", "),
    }
}

/// The programs of the first cycle's ranks; without one, of the focus rank and of those that it waits for.
fn side_by_side(at: &At, graph: &Graph, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let room = usize::from((pen.width() / 30).max(1));
    let ranks = match graph.cycles().next() {
        Some(part) => part.edges.iter().map(|edge| edge.rank).take(room).collect(),
        None => debugger::shown(at, view.focus, room),
    };
    let columns = Cut::of(pen).columns(u16::try_from(ranks.len()).unwrap_or(1));
    for (area, rank) in columns.into_iter().zip(ranks) {
        let mut column = pen.part(area);
        column.say(1, 0, &at.run.program.whole(rank).to_string(), Role::Strong);
        let mut rest = Cut::of(&column);
        rest.top(1);
        debugger::program(at, view, rank, &mut column.part(rest.0));
    }
}

/// What would resolve the waits, in words.
fn help(data: &RunData, at: &At, graph: &Graph, pen: &mut Pen<'_>) {
    let mut y = 0;
    for sentence in advice(data, at, graph) {
        y = paragraph(pen, y, &sentence, Role::Text);
    }
}

fn advice(data: &RunData, at: &At, graph: &Graph) -> Vec<String> {
    if let Some(part) = graph.cycles().next() {
        return cycle_advice(data, at, part);
    }
    if let Some(edge) = graph.blocked.iter().find(|edge| edge.on_op.is_none()) {
        return vec![
            format!(
                "{} never issues the other end of {}.",
                at.run.program.whole(edge.on_rank),
                message_head(at.run.program, edge.op)
            ),
            "All ranks of a group must issue the same collectives, in the same order; every send needs its receive.".to_owned(),
            "On real devices this is a hang until a watchdog's timeout.".to_owned(),
        ];
    }
    let first = graph.blocked.iter().filter_map(|edge| Some((at.run.times(edge.op)?.start, edge))).min_by_key(|first| first.0);
    match first {
        None if graph.blocked.is_empty() => vec!["Nothing is blocked: nothing to resolve.".to_owned()],
        None => vec!["No event can run any more.".to_owned()],
        Some((time, edge)) => {
            let [rank, on_rank] = [edge.rank, edge.on_rank].map(|rank| at.run.program.whole(rank));
            let awaited = edge.on_op.map_or_else(|| on_rank.to_string(), |on| format!("{on_rank} {}", head(at, on)));
            vec![format!("Time: {rank} goes on at {}, when {awaited} is there.", at.run.trace.clock.show(time))]
        }
    }
}

/// What resolves the circles of a deadlock, each tried by the engine.
fn cycle_advice(data: &RunData, at: &At, part: &Part) -> Vec<String> {
    let sends = part.edges.iter().all(|edge| matches!(at.run.program.kind(edge.op), OpKind::Send(_)));
    let what = if sends { "All of them send first." } else { "The ranks issue their messages in orders that do not fit." };
    let waits = &data.report.waits;
    let mut advice = vec![what.to_owned()];
    if !waits.behind.is_empty() {
        let behind = waits.behind.iter().map(|rank| format!("r{rank}"));
        advice.push(format!("Only behind: {}.", list(behind)));
    }
    if waits.repairs.is_empty() {
        advice.push("No change of one pair of messages at a time resolves it.".to_owned());
    } else {
        advice.push("Each of these was tried, and the run completes:".to_owned());
        let clock = at.run.trace.clock;
        advice.extend(waits.repairs.iter().map(|repair| format!("- {}: {}", repair.what, clock.in_words(repair.makespan))));
    }
    if !data.prepared.asked.schedule.is_empty() {
        advice.push(format!("This run: {}.", data.prepared.asked.schedule));
    }
    advice.push("On real devices this is a hang until a watchdog's timeout, with no cycle named.".to_owned());
    advice
}
