//! The rows of the data panels' tables: the arrows choose one, Enter goes to what it speaks of.

use std::sync::Arc;

use super::run;
use super::timeline::{keep_in_view, to_rank};
use crate::base::{OpId, Rank, Ticks};
use crate::observe::kind::label;
use crate::observe::state::{At, Doing, State};
use crate::program::head::head;
use crate::tui::data::RunData;
use crate::tui::layout::Layout;
use crate::tui::model::{Model, Pane, View};
use crate::tui::panels::{graph, links, wires};

/// Chooses another row, `distance` further down; the first and the last one are the ends.
pub fn choose(model: &mut Model, distance: isize) {
    let data = Arc::clone(&model.run.data);
    let run = data.run();
    let at = data.at(&run, model.now.event);
    let moved = |place: usize, all: usize| place.saturating_add_signed(distance).min(all.saturating_sub(1));
    let chosen = model.chosen[model.view as usize];
    match pane(model) {
        Some(Pane::Links) => {
            let all = links::rows(&data, &at, (model.focus_rank(), model.cursor_op()));
            model.chosen[model.view as usize] = moved(chosen.min(all.saturating_sub(1)), all);
        }
        Some(Pane::Metrics) => {
            let chosen = moved(chosen, data.prepared.gaps.len());
            model.chosen[model.view as usize] = chosen;
            // The bars above the gaps mark the same rank.
            data.prepared.gaps.get(chosen).into_iter().for_each(|gap| to_rank(model, gap.rank));
        }
        Some(Pane::Waits) => choose_rank(model, &blocked(&at), distance),
        _ => choose_rank(model, &(0..data.ranks()).map(Rank::new).collect::<Vec<_>>(), distance),
    }
    keep_in_view(model);
}

/// The panel that has the focus.
fn pane(model: &Model) -> Option<Pane> {
    Layout::of(model).focused(model).map(|placed| placed.pane)
}

/// The ranks that the waits panel lists: the blocked ones; if none is, all.
fn blocked(at: &At) -> Vec<Rank> {
    let blocked = graph::Graph::new(at).blocked;
    if blocked.is_empty() {
        (0..at.run.program.ranks()).map(Rank::new).collect()
    } else {
        blocked.iter().map(|edge| edge.rank).collect()
    }
}

/// Goes on from the focus rank; if that is not listed, the first step leads to its neighbour in the list.
fn choose_rank(model: &mut Model, ranks: &[Rank], distance: isize) {
    let focus = model.focus_rank();
    let place = match ranks.binary_search(&focus) {
        Ok(place) => place.saturating_add_signed(distance),
        Err(behind) if distance > 0 => behind.saturating_add_signed(distance - 1),
        Err(behind) => behind.saturating_add_signed(distance),
    };
    if let Some(&rank) = ranks.get(place.min(ranks.len().saturating_sub(1))) {
        to_rank(model, rank);
    }
}

/// Goes to what the chosen row speaks of, and says what that is.
pub fn open(model: &mut Model) {
    let data = Arc::clone(&model.run.data);
    if data.ranks() == 0 {
        return model.say("there is no run yet");
    }
    match pane(model) {
        Some(Pane::Debugger) => to_stand(model, &data, View::Timeline),
        Some(Pane::Waits | Pane::Mesh) => to_stand(model, &data, View::Debugger),
        Some(Pane::Links) => to_message(model, &data),
        Some(Pane::Memory) => to_peak(model, &data),
        Some(Pane::Metrics) => to_gap(model, &data),
        _ => to_span(model),
    }
    keep_in_view(model);
}

/// To the op at which the focus rank stands, in `view`.
fn to_stand(model: &mut Model, data: &RunData, view: View) {
    let (run, rank) = (data.run(), model.focus_rank());
    let at = data.at(&run, model.now.event);
    let Some(stand) = at.stand(rank) else {
        return model.say(format!("{} has nothing left to do", run.program.whole(rank)));
    };
    if let Some((row, time)) = data.place_of(stand.op) {
        (model.timeline.cursor.row, model.timeline.cursor.time) = (row, time.0);
    }
    let doing = match stand.doing {
        Doing::Computing | Doing::Moving => "which runs",
        Doing::Ready => "which starts next",
        Doing::Blocked(_) => "and waits",
    };
    model.view = view;
    model.say(format!("{} stands at `{}`, {doing}", run.program.whole(rank), head(run.program, stand.op)));
}

/// To the start of the message that moves on the chosen wire, or of the next one, or of the last.
fn to_message(model: &mut Model, data: &RunData) {
    let run = data.run();
    let at = data.at(&run, model.now.event);
    let wires = links::wires(data, &at, (model.focus_rank(), model.cursor_op()));
    let chosen = model.chosen[model.view as usize].min(wires.all.len().saturating_sub(1));
    let Some(wire) = wires.all.get(chosen) else { return model.say("no single wire carries anything in this run") };
    let wire_name = format!("{} -> {}", run.program.whole(wire.from), run.program.whole(wire.to));
    match next_message(data, &at, wire) {
        Some(send) => {
            go_to(model, data, send);
            let time = data.clock().show(model.now.time);
            model.say(format!("{wire_name}: {} leaves at {time}", label(&run, send)));
        }
        None => model.say(format!("nothing ever moves from {wire_name}")),
    }
}

/// The first message of `wire` that has not left yet, else its last.
fn next_message(data: &RunData, at: &At, wire: &wires::Wire) -> Option<OpId> {
    let of_wire =
        |flow: &&crate::observe::flow::Flow| (flow.from, flow.to, flow.collective) == (wire.from, wire.to, wire.collective);
    let sends = &data.prepared.flows.iter().find(of_wire)?.sends;
    sends.iter().find(|&&send| at.state(send) < State::Running).or(sends.last()).copied()
}

/// To the moment at which the focus rank holds the most.
fn to_peak(model: &mut Model, data: &RunData) {
    let rank = model.focus_rank();
    let peak = data.ledger.rank(rank).peak();
    run::seek(model, peak.event as usize);
    if let Some((row, _)) = peak.op.and_then(|op| data.place_of(op)) {
        model.timeline.cursor.row = row;
    }
    let from = peak.op.map_or_else(|| "the start of the run".to_owned(), |op| format!("`{}`", head(data.program(), op)));
    model.say(format!("{} holds the most, {}, from {from} on", data.program().whole(rank), peak.total()));
}

/// To the start of the chosen gap, in the timeline.
fn to_gap(model: &mut Model, data: &RunData) {
    let gaps = &data.prepared.gaps;
    let chosen = model.chosen[model.view as usize].min(gaps.len().saturating_sub(1));
    let Some(gap) = gaps.get(chosen) else { return model.say("this run has no gaps") };
    run::go_to_time(model, gap.start);
    if let Some(row) = data.rows.iter().position(|row| row.rank == gap.rank) {
        model.timeline.cursor.row = row;
    }
    model.view = View::Timeline;
    let (length, why) = (data.clock().show(gap.end - gap.start), if gap.op.is_some() { "; w says why" } else { "" });
    model.say(format!("{} of {}: {length}{why}", gap.kind.name(), data.program().whole(gap.rank)));
}

/// To the event that starts what is under the timeline's cursor.
fn to_span(model: &mut Model) {
    let Some((_, &span)) = model.cursor_span() else { return model.say("no op under the cursor: move it onto one") };
    if span.event == 0 {
        return model.say("this op never starts");
    }
    let row = model.timeline.cursor.row;
    run::seek(model, span.event as usize);
    model.timeline.cursor = crate::tui::model::Cursor { row, time: span.start.0 };
}

/// Stands behind the event that starts `op`, the cursor on it.
fn go_to(model: &mut Model, data: &RunData, op: OpId) {
    if let Some(event) = data.record.trace.event_of(op) {
        run::seek(model, event);
    }
    if let Some((row, Ticks(time))) = data.place_of(op) {
        (model.timeline.cursor.row, model.timeline.cursor.time) = (row, time);
    }
}
