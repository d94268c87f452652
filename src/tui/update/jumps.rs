//! Jumps: the cursor goes to the next bubble, wait, alert, op of the critical path, or to the peak of a rank's memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Effect;
use super::timeline::keep_in_view;
use crate::base::{OpId, Ticks};
use crate::observe::Kind;
use crate::observe::kind::label;
use crate::observe::why::Step;
use crate::tui::commands::Command;
use crate::tui::data::RunData;
use crate::tui::model::Model;

/// Runs a command of this file and breaks; goes on if it is another's.
pub fn execute(model: &mut Model, command: Command) -> ControlFlow<Option<Effect>> {
    match command {
        Command::GoToBubble => next_gap(model, |kind| matches!(kind, Kind::Bubble | Kind::ExposedCommunication)),
        Command::GoToWait => next_gap(model, |kind| kind == Kind::Waiting),
        Command::GoToAlert => next_alert(model),
        Command::GoToCritical => next_critical(model),
        Command::MarkCritical => mark_critical(model),
        Command::GoToPeak => peak(model),
        _ => return ControlFlow::Continue(()),
    }
    keep_in_view(model);
    ControlFlow::Break(None)
}

/// To the next gap of a kind, in this lane after the cursor, then in the lanes below, round to this one.
fn next_gap(model: &mut Model, wanted: fn(Kind) -> bool) {
    let data = Arc::clone(&model.run.data);
    let cursor = model.timeline.cursor;
    let first_after = |row: usize, after: Option<u64>| {
        let spans = &data.row(data.rows[row]).spans;
        let from = after.map_or(0, |after| spans.partition_point(|span| span.start.0 <= after));
        spans[from..].iter().find(|span| wanted(span.kind)).map(|span| (row, span.start))
    };
    let rows = data.rows.len();
    let here = (cursor.row < rows).then(|| first_after(cursor.row, Some(cursor.time))).flatten();
    let mut others = (cursor.row + 1..rows).chain(0..(cursor.row + 1).min(rows));
    match here.or_else(|| others.find_map(|row| first_after(row, None))) {
        Some(place) => {
            go(model, place);
            describe_gap(model, &data);
        }
        None => model.say("there is none in this run"),
    }
}

fn describe_gap(model: &mut Model, data: &RunData) {
    let (Some((_, span)), Some(op)) = (model.cursor_span(), model.cursor_op()) else { return };
    let length = data.clock().show(span.end - span.start);
    let kind = span.kind.name();
    let run = data.run();
    let why = run.cause(op).map(|wait| Step { op, wait, until: None }.sentence(&run)).unwrap_or_default();
    model.say(format!("{kind} of {length}: {why}"));
}

/// To the next op that something is wrong with, round and round.
fn next_alert(model: &mut Model) {
    let data = Arc::clone(&model.run.data);
    let here = (Ticks(model.timeline.cursor.time), model.timeline.cursor.row);
    match data.alerts.iter().find(|alert| (alert.time, alert.row) > here).or(data.alerts.first()) {
        Some(alert) => {
            go(model, (alert.row, alert.time));
            model.say(alert.text.clone());
        }
        None => model.say("nothing is wrong in this run"),
    }
}

/// To the next op of the critical path, in time; from its end round to its start.
fn next_critical(model: &mut Model) {
    let data = Arc::clone(&model.run.data);
    let here = Ticks(model.timeline.cursor.time);
    let places = || data.critical.ops.iter().filter_map(|&op| Some((op, data.place_of(op)?)));
    let run = data.run();
    let lasts = |op: OpId| run.times(op).is_some_and(|times| times.end > times.start);
    let next = places().find(|(op, (_, time))| *time > here && lasts(*op)).or_else(|| places().find(|(op, _)| lasts(*op)));
    match next {
        Some((op, place)) => {
            go(model, place);
            let rank = data.program().whole_rank_of(op);
            model.say(format!("critical path: {rank} {}", label(&run, op)));
        }
        None => model.say("this run has no critical path"),
    }
}

/// Draws what has slack hollow, or everything full again.
fn mark_critical(model: &mut Model) {
    model.timeline.critical = !model.timeline.critical;
    model.say(match (model.timeline.critical, model.run.data.critical.ops.is_empty()) {
        (false, _) => "all ops are full again",
        (true, true) => "this run has no critical path",
        (true, false) => "full: any delay delays the step; hollow: has slack, which stands beside its time",
    });
}

/// To the op that makes the focus rank hold the most.
fn peak(model: &mut Model) {
    let data = Arc::clone(&model.run.data);
    let rank = model.focus_rank();
    let Some(account) = data.ledger.ranks.get(rank.index()) else { return };
    let (peak, rank) = (account.peak(), data.program().whole(rank));
    let total = peak.total();
    match peak.op.and_then(|op| Some((op, data.place_of(op)?))) {
        Some((op, place)) => {
            go(model, place);
            model.say(format!("{rank} holds the most, {total}, from the start of {} on", label(&data.run(), op)));
        }
        None => model.say(format!("{rank} holds the most, {total}, from the start of the run on")),
    }
}

fn go(model: &mut Model, (row, time): (usize, Ticks)) {
    model.timeline.cursor.row = row;
    model.timeline.cursor.time = time.0;
}
