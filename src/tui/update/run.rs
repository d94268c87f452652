//! Running and stepping: the position in the run moves from event to event.

use std::ops::ControlFlow;
use std::time::Duration;

use super::Effect;
use super::timeline;
use crate::base::units::Ticks;
use crate::tui::commands::Command;
use crate::tui::keys::Key;
use crate::tui::layout::Layout;
use crate::tui::model::{Model, Now, Prefix};

/// At speed 1 the playhead crosses so many columns in a second.
const COLUMNS_PER_SECOND: u128 = 8;
const SPEEDS: std::ops::RangeInclusive<i8> = -3..=6;

/// Runs a command of this file and breaks; goes on if it is another's.
pub fn execute(model: &mut Model, command: Command, argument: &str) -> ControlFlow<Option<Effect>> {
    let times: u32 = argument.parse().unwrap_or(1);
    let effect = match command {
        Command::Play => play_or_pause(model),
        Command::Slower => speed(model, -1),
        Command::Faster => speed(model, 1),
        Command::NextEvent => seek(model, model.now.event.saturating_add(times)),
        Command::PreviousEvent => seek(model, model.now.event.saturating_sub(times)),
        Command::NextOp => step_rank(model, times, true),
        Command::PreviousOp => step_rank(model, times, false),
        Command::Continue => {
            let stop = model.breaks.range(model.now.event + 1..).next().copied();
            seek(model, stop.unwrap_or(u32::MAX))
        }
        Command::Reverse => {
            let stop = model.breaks.range(..model.now.event).next_back().copied();
            seek(model, stop.unwrap_or(0))
        }
        Command::RunToCursor => {
            let event = model.run.picture.events_until(Ticks(model.timeline.cursor.time));
            seek(model, event)
        }
        Command::Rewind => seek(model, 0),
        Command::Rerun => Some(rerun(model)),
        Command::Break => toggle_break(model),
        Command::GoToEvent => parsed(model, argument, "an event's number", seek),
        _ => return ControlFlow::Continue(()),
    };
    ControlFlow::Break(effect)
}

/// Moves the position; the session follows. Beyond the ends of the run it stays at them.
pub fn seek(model: &mut Model, event: u32) -> Option<Effect> {
    let picture = &model.run.picture;
    let event = event.min(picture.event_count());
    if event == model.now.event && !model.player.on && picture.time_after(event) == model.now.time {
        model.message = at_the_end(model, event);
        return None;
    }
    model.player.on = false;
    go(model, event, picture.time_after(event))
}

fn at_the_end(model: &Model, event: u32) -> String {
    let text = if event == 0 { "this is the start of the run" } else { "this is the end of the run" };
    let at_an_end = event == 0 || event == model.run.picture.event_count();
    if at_an_end { text.to_owned() } else { String::new() }
}

fn go(model: &mut Model, event: u32, time: Ticks) -> Option<Effect> {
    let moved = event != model.now.event;
    model.now = Now { event, time };
    timeline::follow_playhead(model);
    moved.then_some(Effect::Seek { event })
}

/// To the next or previous event of the rank under the cursor.
fn step_rank(model: &mut Model, times: u32, forward: bool) -> Option<Effect> {
    let picture = &model.run.picture;
    let rank = model.focus_rank();
    let of_rank = |index: &usize| {
        let row = picture.events[*index].row as usize;
        picture.rows.get(row).is_some_and(|row| row.rank == rank)
    };
    let now = (model.now.event as usize).min(picture.events.len());
    let skip = (times as usize).saturating_sub(1);
    let target = if forward {
        (now..picture.events.len()).filter(of_rank).nth(skip).map_or(u32::MAX, |index| number(index + 1))
    } else {
        // One event back from the last event of this rank: the state before it.
        (0..now).rev().filter(of_rank).nth(skip).map_or(0, number)
    };
    seek(model, target)
}

fn play_or_pause(model: &mut Model) -> Option<Effect> {
    model.player.on = !model.player.on;
    model.player.rest = 0;
    if model.player.on && model.now.event >= model.run.picture.event_count() {
        return go(model, 0, Ticks::ZERO);
    }
    None
}

fn speed(model: &mut Model, change: i8) -> Option<Effect> {
    model.player.speed = (model.player.speed + change).clamp(*SPEEDS.start(), *SPEEDS.end());
    None
}

/// Lets `elapsed` pass: the time moves with it, the position passes the events that lie before it. Stops at a breakpoint
/// and at the end.
pub fn play(model: &mut Model, elapsed: Duration) -> Option<Effect> {
    if !model.player.on {
        return None;
    }
    let time = Ticks(model.now.time.0.saturating_add(played(model, elapsed)));
    let picture = &model.run.picture;
    let event = picture.events_until(time);
    let stop = model.breaks.range(model.now.event + 1..).next().copied().filter(|&stop| stop <= event);
    if let Some(stop) = stop {
        model.say(format!("stopped at the breakpoint on event {stop}"));
        return seek(model, stop);
    }
    let end = picture.end;
    if time >= end {
        return seek(model, u32::MAX);
    }
    go(model, event, time)
}

/// Whole ticks that `elapsed` plays at the present zoom and speed; the rest is kept for the next time.
fn played(model: &mut Model, elapsed: Duration) -> u64 {
    const PARTS: u128 = 1_000_000;
    let width = Layout::of(model).axis_width(&model.run.picture);
    let scale = timeline::window(model, width).scale;
    let columns =
        elapsed.as_micros() * COLUMNS_PER_SECOND * 2_u128.pow(7_u32.saturating_add_signed(i32::from(model.player.speed)));
    let millionths = columns * u128::from(scale.ticks) / u128::from(scale.columns) / 128 + u128::from(model.player.rest);
    model.player.rest = u64::try_from(millionths % PARTS).unwrap_or(0);
    u64::try_from(millionths / PARTS).unwrap_or(u64::MAX)
}

/// Asks for a run with the knobs as they are.
pub fn rerun(model: &mut Model) -> Effect {
    model.say("running again");
    Effect::Rerun { knobs: model.knobs.iter().map(|knob| (knob.key.clone(), knob.value.clone())).collect() }
}

/// A breakpoint stands on the event that ends the span under the cursor.
fn toggle_break(model: &mut Model) -> Option<Effect> {
    let Some(span) = model.cursor_span().copied() else {
        model.say("no op under the cursor: move it onto one");
        return None;
    };
    let event = span.event + 1;
    let text = model.run.picture.text(&span).to_owned();
    let set = model.breaks.insert(event);
    if !set {
        model.breaks.remove(&event);
    }
    model.say(format!("breakpoint {} after {text}, event {event}", if set { "set" } else { "removed" }));
    None
}

/// The second key of a mark command.
pub fn mark(model: &mut Model, prefix: Prefix, key: Key) -> Option<Effect> {
    let Key::Char(letter) = key else {
        model.say("no mark: a letter or digit names one");
        return None;
    };
    if prefix == Prefix::SetMark {
        model.marks.insert(letter, (model.now, model.timeline.cursor));
        model.say(format!("mark {letter} set at event {}", model.now.event));
        return None;
    }
    let Some((now, cursor)) = model.marks.get(&letter).copied() else {
        model.say(format!("there is no mark {letter}; m sets one"));
        return None;
    };
    model.timeline.cursor = cursor;
    model.player.on = false;
    timeline::keep_in_view(model);
    go(model, now.event, now.time)
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

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
