//! Running and stepping: the position in the run moves from event to event.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::Effect;
use super::timeline;
use crate::base::{OpId, Rank, Ticks};
use crate::observe::breakpoint::{Breakpoint, Condition};
use crate::observe::lanes::in_compute_row;
use crate::observe::state::State;
use crate::observe::traffic::collective_of;
use crate::program::head::head;
use crate::tui::breaks::Break;
use crate::tui::commands::Command;
use crate::tui::data::Position;
use crate::tui::keys::Key;
use crate::tui::layout::Layout;
use crate::tui::model::{Model, Prefix, View};

/// At speed 1 the playhead crosses so many columns in a second.
const COLUMNS_PER_SECOND: u128 = 8;
const SPEEDS: std::ops::RangeInclusive<i8> = -3..=6;

/// Runs a command of this file and breaks; goes on if it is another's. None of them asks the world outside for anything.
pub fn execute(model: &mut Model, command: Command, argument: &str) -> ControlFlow<Option<Effect>> {
    let flow = moved(model, command, argument);
    let steps = !matches!(command, Command::Play | Command::Slower | Command::Faster | Command::Break);
    if flow.is_break() && steps && model.message.is_empty() {
        model.message = done(model);
    }
    flow
}

/// The event behind which the learner stands, as the focus rank has it if it takes part: `ev 83: r1 recv x2.0 <- r0`.
fn done(model: &Model) -> String {
    done_on(model, model.focus_rank())
}

/// The same, as an op of `rank` if it took part.
fn done_on(model: &Model, rank: Rank) -> String {
    let data = &model.run.data;
    let event = model.now.event;
    let Some(last) = event.checked_sub(1).and_then(|index| data.record.trace.events.get(index)) else {
        return "the start of the run: nothing has happened yet".to_owned();
    };
    let op = data.run().part_of(rank, last.op).unwrap_or(last.op);
    let end = if event == data.events() { " (the end of the run)" } else { "" };
    format!("ev {event}: {} {}{end}", data.program().whole_rank_of(op), head(data.program(), op))
}

fn moved(model: &mut Model, command: Command, argument: &str) -> ControlFlow<Option<Effect>> {
    let times: usize = argument.parse().unwrap_or(1);
    match command {
        Command::Play => play_or_pause(model),
        Command::Slower => speed(model, -1),
        Command::Faster => speed(model, 1),
        Command::NextEvent => seek(model, model.now.event.saturating_add(times)),
        Command::PreviousEvent => seek(model, model.now.event.saturating_sub(times)),
        Command::NextOp => step_rank(model, times, true),
        Command::PreviousOp => step_rank(model, times, false),
        Command::Finish => unit(model, true),
        Command::Begin => unit(model, false),
        Command::Continue => {
            let page = page_stop(model).filter(|&stop| stop > model.now.event);
            stop_at(model, page, model.breaks.next(model.now.event).map(stop), usize::MAX, std::cmp::min);
        }
        Command::Reverse => {
            let page = page_stop(model).filter(|&stop| stop < model.now.event);
            stop_at(model, page, model.breaks.last(model.now.event).map(stop), 0, std::cmp::max);
        }
        Command::RunToCursor => {
            let (cursor, data) = (model.timeline.cursor, &model.run.data);
            // Among programs the cursor is an op, on the timeline a time.
            let op = model.cursor_op().filter(|_| model.view == View::Debugger);
            let event = op.and_then(|op| data.record.trace.event_of(op));
            seek(model, event.unwrap_or_else(|| data.events_until(Ticks(cursor.time))));
            model.timeline.cursor = cursor;
        }
        Command::Rewind => seek(model, 0),
        Command::Break if argument.is_empty() => toggle_break(model),
        Command::Break => match Breakpoint::parse(argument) {
            Ok(when) => toggle(model, when),
            Err(problem) => model.say(problem),
        },
        Command::GoToEvent => return ControlFlow::Break(parsed(model, argument, "an event's number", go_to_event)),
        _ => return ControlFlow::Continue(()),
    }
    ControlFlow::Break(None)
}

fn go_to_event(model: &mut Model, event: usize) -> Option<Effect> {
    seek(model, event);
    None
}

/// Where the page of the lesson says that the picture stands.
fn page_stop(model: &Model) -> Option<usize> {
    let data = &model.run.data;
    let stop = model.lesson.page().and_then(|page| page.stop.as_ref());
    stop.and_then(|stop| stop.position(data.program(), &data.record.trace))
}

/// An event with its breakpoint.
fn stop((event, at): (usize, &Break)) -> (usize, Breakpoint) {
    (event, at.when.clone())
}

/// Says at which breakpoint the run has stopped, and what happened there: on its rank, if it speaks of one.
fn say_stop(model: &mut Model, at: &Breakpoint) {
    let followed = |rank| model.run.data.program().setting.folding.fold(rank).0;
    let done = done_on(model, at.rank.map_or_else(|| model.focus_rank(), followed));
    model.say(format!("stopped at {at}: {done}"));
}

/// Goes to the stop of the page or to the breakpoint, whichever is `nearer`; if there is neither, to the `end`.
fn stop_at(
    model: &mut Model,
    page: Option<usize>,
    found: Option<(usize, Breakpoint)>,
    end: usize,
    nearer: fn(usize, usize) -> usize,
) {
    let event = nearer(page.unwrap_or(end), found.as_ref().map_or(end, |(event, _)| *event));
    seek(model, event);
    if let Some((_, at)) = found.filter(|(found, _)| *found == event) {
        say_stop(model, &at);
    }
}

/// Moves the position, and the cursor with it, which stays on its row. Beyond the ends of the run it stays at them.
pub fn seek(model: &mut Model, event: usize) {
    let position = model.run.data.position(event);
    if position == model.now && !model.player.on {
        model.message = at_the_end(model, position.event);
        return;
    }
    model.player.on = false;
    model.timeline.cursor.time = position.time.0;
    go(model, position);
}

/// Goes to a time, cursor and playhead.
pub fn go_to_time(model: &mut Model, time: Ticks) {
    let time = time.min(model.run.data.end());
    model.player.on = false;
    model.timeline.cursor.time = time.0;
    go(model, Position { event: model.run.data.events_until(time), time });
}

fn at_the_end(model: &Model, event: usize) -> String {
    let text = if event == 0 { "this is the start of the run" } else { "this is the end of the run" };
    let at_an_end = event == 0 || event == model.run.data.events();
    if at_an_end { text.to_owned() } else { String::new() }
}

fn go(model: &mut Model, position: Position) {
    model.now = position;
    timeline::follow_playhead(model);
}

/// To the next event of the rank under the cursor, or back to before its last one.
fn step_rank(model: &mut Model, times: usize, forward: bool) {
    let data = &model.run.data;
    let Some(order) = data.program().order.get(model.focus_rank().index()) else { return };
    let mut events: Vec<usize> = order.iter().filter_map(|&op| data.record.trace.event_of(op)).collect();
    events.sort_unstable();
    events.dedup();
    let skip = times.saturating_sub(1);
    let target = if forward {
        events.iter().filter(|&&event| event > model.now.event).nth(skip).copied().unwrap_or(usize::MAX)
    } else {
        // One event back from the last event of this rank: the state before it.
        events.iter().rev().filter(|&&event| event <= model.now.event).nth(skip).map_or(0, |event| event - 1)
    };
    seek(model, target);
}

/// To the end of what the row under the cursor is in or comes to next, or before the start of what it was in last: a slot of the
/// schedule, or a collective.
fn unit(model: &mut Model, forward: bool) {
    let data = Arc::clone(&model.run.data);
    let run = data.run();
    let Some(row) = model.cursor_row() else { return };
    let order = &run.program.order[row.rank.index()];
    let now = model.now.event;
    let at = data.at(&run, now);
    let mut of_row = order.iter().filter(|&&op| in_compute_row(&run, op) == row.compute);
    let here = if forward {
        of_row.find(|&&op| at.state(op) < State::Done)
    } else {
        of_row.rfind(|&&op| at.state(op) >= State::Running)
    };
    let Some(&here) = here else { return seek(model, if forward { usize::MAX } else { 0 }) };
    let same = |op: &OpId| match (collective_of(&run, *op), collective_of(&run, here)) {
        (None, None) => run.program.op(*op).origin == run.program.op(here).origin,
        (one, other) => one == other,
    };
    let ops: Vec<OpId> = order.iter().copied().filter(same).collect();
    let event = if forward {
        let open = |event: usize| ops.iter().any(|&op| data.at(&run, event).state(op) < State::Done);
        partition(now..data.events(), open)
    } else {
        let first = ops.iter().filter_map(|&op| data.record.trace.event_of(op)).min();
        first.map_or(0, |first| first - 1)
    };
    seek(model, event);
}

/// The first event of `range` at which `open` no longer holds, or its end; once it does not hold, it never does again.
fn partition(range: std::ops::Range<usize>, open: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if open(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

fn play_or_pause(model: &mut Model) {
    model.player.on = !model.player.on && model.run.data.events() > 0;
    model.player.rest = 0;
    if model.player.on && model.now.event >= model.run.data.events() {
        go(model, Position::default());
    }
}

fn speed(model: &mut Model, change: i8) {
    model.player.speed = (model.player.speed + change).clamp(*SPEEDS.start(), *SPEEDS.end());
    model.say(format!("plays at speed {}", model.player.speed_text()));
}

/// Lets `elapsed` pass: the time moves with it, the position passes the events that lie before it. Stops at a breakpoint
/// and at the end.
pub fn play(model: &mut Model, elapsed: Duration) {
    if !model.player.on {
        return;
    }
    let time = Ticks(model.now.time.0.saturating_add(played(model, elapsed)));
    let event = model.run.data.events_until(time);
    if let Some((event, at)) = model.breaks.next(model.now.event).filter(|(stop, _)| *stop <= event).map(stop) {
        seek(model, event);
        return say_stop(model, &at);
    }
    if time >= model.run.data.end() {
        return seek(model, usize::MAX);
    }
    go(model, Position { event, time });
}

/// Whole ticks that `elapsed` plays at the present zoom and speed; the rest is kept for the next time.
fn played(model: &mut Model, elapsed: Duration) -> u64 {
    const PARTS: u128 = 1_000_000;
    let width = Layout::of(model).axis_width(&model.run.data);
    let scale = timeline::window(model, width).scale;
    let columns =
        elapsed.as_micros() * COLUMNS_PER_SECOND * 2_u128.pow(7_u32.saturating_add_signed(i32::from(model.player.speed)));
    let millionths = columns * u128::from(scale.ticks) / u128::from(scale.columns) / 128 + u128::from(model.player.rest);
    model.player.rest = u64::try_from(millionths % PARTS).unwrap_or(0);
    u64::try_from(millionths / PARTS).unwrap_or(u64::MAX)
}

/// A breakpoint stands on the slot under the cursor, or on the op if no slot made it: in every step.
fn toggle_break(model: &mut Model) {
    let Some(op) = model.cursor_op() else {
        return model.say("no op under the cursor: move it onto one");
    };
    let program = model.run.data.program();
    let slot = program.op(op).origin.slot.filter(|_| model.cursor_row().is_some_and(|row| row.compute));
    let words = slot.map_or_else(|| head(program, op).to_string(), |slot| slot.to_string());
    let when = Breakpoint { rank: Some(program.whole_rank_of(op)), condition: Condition::Op(words) };
    toggle(model, when);
}

fn toggle(model: &mut Model, when: Breakpoint) {
    let (words, rank) = (when.to_string(), when.rank);
    let data = Arc::clone(&model.run.data);
    let is_there = rank.is_none_or(|rank| data.program().followed(rank).is_some());
    let set = model.breaks.toggle(when, &data).map(|set| set.hits.len());
    model.say(match set {
        None => format!("breakpoint removed: {words}"),
        Some(0) if !is_there => format!("breakpoint set: {words}; this run has no such rank"),
        Some(0) => format!("breakpoint set: {words}; this run never meets it"),
        Some(1) => format!("breakpoint set: {words}; met once"),
        Some(times) => format!("breakpoint set: {words}; met {times} times"),
    });
}

/// The second key of a mark command.
pub fn mark(model: &mut Model, prefix: Prefix, key: Key) {
    let Key::Char(letter) = key else { return model.say("no mark: a letter or digit names one") };
    if prefix == Prefix::SetMark {
        model.marks.insert(letter, (model.now, model.timeline.cursor));
        return model.say(format!("mark {letter} set at event {}", model.now.event));
    }
    let Some((now, cursor)) = model.marks.get(&letter).copied() else {
        return model.say(format!("there is no mark {letter}; m sets one"));
    };
    model.timeline.cursor = cursor;
    model.player.on = false;
    timeline::keep_in_view(model);
    go(model, now);
}

/// Runs `then` with the argument as a number, or says what is needed.
pub fn parsed<T: std::str::FromStr>(
    model: &mut Model,
    argument: &str,
    what: &str,
    then: impl FnOnce(&mut Model, T) -> Option<Effect>,
) -> Option<Effect> {
    if let Ok(value) = argument.trim().parse() {
        return then(model, value);
    }
    model.say(format!("{argument} is not {what}"));
    None
}
