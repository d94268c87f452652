//! Comparing: a run is pinned, others are shown beside it.

use std::ops::ControlFlow;

use super::Effect;
use super::timeline::keep_in_view;
use crate::base::Ticks;
use crate::tui::commands::Command;
use crate::tui::compare::Pinned;
use crate::tui::model::{Model, View};

/// Runs a command of this file and breaks; goes on if it is another's.
pub fn execute(model: &mut Model, command: Command) -> ControlFlow<Option<Effect>> {
    match command {
        Command::Pin => pin(model),
        Command::Link => link(model),
        Command::GoToDifference => next_difference(model),
        _ => return ControlFlow::Continue(()),
    }
    ControlFlow::Break(None)
}

fn pin(model: &mut Model) {
    if model.run.data.ranks() == 0 {
        return model.say("there is no run yet");
    }
    model.pinned = Some(Pinned::new(&model.run, &model.run));
    model.say("this run is A: turn a knob (o), edit the plan (E) or open another lesson, and 9 shows both");
}

fn link(model: &mut Model) {
    let Some(pinned) = &mut model.pinned else { return model.say(NONE) };
    pinned.link = pinned.link.next();
    let link = pinned.link.name();
    model.say(format!("the place in A is found by {link}"));
}

/// What is said while nothing is pinned.
pub const NONE: &str = "no run is pinned; a pins this one as A";

/// To the next slot that runs at another time or on another rank than in A, in time, round and round.
fn next_difference(model: &mut Model) {
    let Some(pinned) = &model.pinned else { return model.say(NONE) };
    let places = &pinned.compared.places;
    let here = (Ticks(model.timeline.cursor.time), model.timeline.cursor.row);
    let all = places.len();
    let behind = places.partition_point(|&place| place <= here);
    let index = if behind < all { behind } else { 0 };
    let Some(&(time, row)) = places.get(index) else {
        return model.say("every slot runs when it does in A, and on the same rank");
    };
    (model.timeline.cursor.row, model.timeline.cursor.time) = (row, time.0);
    if model.view == View::Lesson {
        model.view = View::Compare;
    }
    keep_in_view(model);
    model.say(format!("difference {} of {all}, at t={}", index + 1, model.run.data.clock().show(time)));
}
