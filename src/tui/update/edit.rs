//! Editing the plan: the cursor goes from cell to cell, every edit is run at once, and one that would break the order is refused.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Effect, runs};
use crate::program::edit::{Edit, Editor, Place, Refusal};
use crate::program::plan::{Cell, Plan};
use crate::schedule::Schedule;
use crate::tui::commands::Command;
use crate::tui::edit::{Editing, Score};
use crate::tui::layout::Layout;
use crate::tui::model::{Landing, Model, Overlay, Pane, Setup, View};

/// Shows the plan of the run. Says why if there is none that can be edited.
pub fn open(model: &mut Model) {
    if model.editing.is_none() {
        match editing(model) {
            Ok(editing) => model.editing = Some(editing),
            Err(problem) => return model.say(problem),
        }
    }
    model.view = View::Edit;
}

fn editing(model: &Model) -> Result<Editing, String> {
    let data = &model.run.data;
    let plan = data.plan.as_deref().ok_or("this run has no plan of a pipeline to edit")?;
    let editor = Editor::new(plan.clone());
    let known = Schedule::recognise(plan);
    Ok(Editing { editor, cursor: Place::default(), par: Score::of(data), known, knobs: model.run.setup.changes.clone() })
}

/// A run has come that is not of the edited plan: what was edited belongs to another.
pub fn forget(model: &mut Model) {
    model.editing = None;
    if model.view == View::Edit {
        model.view = View::Timeline;
        open(model);
    }
}

/// What is said of the run of an edited plan: `you built 1F1B: 33u, par 33u`.
#[must_use]
pub fn told(model: &Model) -> Option<String> {
    let (editing, plan) = (model.editing.as_ref()?, model.run.setup.plan.as_ref()?);
    let clock = model.run.data.clock();
    let made = Schedule::recognise(plan)
        .map_or_else(|| "no schedule with a name".to_owned(), |known| format!("you built {}", known.title));
    let par = editing.par.map_or_else(String::new, |par| format!(", par {}", clock.show(par.makespan)));
    Some(match Score::of(&model.run.data) {
        Some(score) => format!("{made}: {}{par}", clock.show(score.makespan)),
        None => format!("{made}: the run stops; w on a waiting op says why"),
    })
}

/// Runs a command of this file and breaks; goes on if it is another's.
pub fn execute(model: &mut Model, command: Command, argument: &str) -> ControlFlow<Option<Effect>> {
    if model.view != View::Edit || model.editing.is_none() {
        return ControlFlow::Continue(());
    }
    let here = model.editing.as_ref().map_or_else(Place::default, |editing| editing.cursor);
    let effect = match command {
        Command::TakeCell => edit(model, Edit::Take(here)),
        Command::PutCell => put(model, here, argument),
        Command::MoveCellLeft => moved(model, here, here.column.checked_sub(1)),
        Command::MoveCellRight => moved(model, here, here.column.checked_add(1)),
        Command::SplitCell => edit(model, Edit::Split(here)),
        Command::JoinCells => edit(model, Edit::Join(here)),
        Command::TakeAll => take_all(model),
        Command::Undo => turned(model, Editor::undo, "nothing is left to undo"),
        Command::Redo => turned(model, Editor::redo, "nothing was undone"),
        _ if !on_plan(model) => return ControlFlow::Continue(()),
        Command::Left => to(model, Place { column: here.column.saturating_sub(1), ..here }),
        Command::Right => to(model, Place { column: here.column + 1, ..here }),
        Command::Up => to(model, Place { row: here.row.saturating_sub(1), ..here }),
        Command::Down => to(model, Place { row: here.row + 1, ..here }),
        Command::Start => to(model, Place { column: 0, ..here }),
        Command::End => to(model, Place { column: usize::MAX, ..here }),
        Command::Open => follow(model),
        _ => return ControlFlow::Continue(()),
    };
    ControlFlow::Break(effect)
}

fn on_plan(model: &Model) -> bool {
    Layout::of(model).focused(model).is_some_and(|placed| placed.pane == Pane::Plan)
}

/// The cursor goes to `place`, or as near as there is one, and the timeline's goes with it.
fn to(model: &mut Model, place: Place) -> Option<Effect> {
    let Some(editing) = &mut model.editing else { return None };
    let rows = &editing.editor.plan().rows;
    let row = place.row.min(rows.len().saturating_sub(1));
    let column = place.column.min(rows.get(row).map_or(0, Vec::len));
    editing.cursor = Place { row, column };
    follow(model)
}

/// The timeline's cursor goes to the slot under the plan's, so that it is seen when it runs, and `w` says why then.
fn follow(model: &mut Model) -> Option<Effect> {
    let editing = model.editing.as_ref()?;
    let slot = cell(editing.editor.plan(), editing.cursor)?.slots().next()?;
    let data = Arc::clone(&model.run.data);
    let run = data.run();
    let of_slot =
        |op: &crate::base::OpId| run.program.op(*op).origin.slot == Some(slot) && run.of_step(*op, 0) && run.computes(*op);
    let op = run.program.order.iter().find_map(|order| order.iter().copied().find(of_slot))?;
    if let Some((row, time)) = data.place_of(op) {
        (model.timeline.cursor.row, model.timeline.cursor.time) = (row, time.0);
        super::timeline::keep_in_view(model);
    }
    None
}

fn cell(plan: &Plan, place: Place) -> Option<Cell> {
    plan.rows.get(place.row)?.get(place.column).copied()
}

/// A cell that was moved stays under the cursor.
fn moved(model: &mut Model, here: Place, column: Option<usize>) -> Option<Effect> {
    let last = model.editing.as_ref().and_then(|editing| editing.editor.plan().rows.get(here.row)).map_or(0, Vec::len);
    let Some(column) = column.filter(|&column| column < last && here.column < last) else {
        model.say(if here.column < last { "it stands at the end of its row" } else { "no cell stands there" });
        return None;
    };
    let before = edits(model);
    let effect = edit(model, Edit::Move(here, column));
    if let Some(editing) = model.editing.as_mut().filter(|editing| editing.editor.depth().0 > before) {
        editing.cursor.column = column;
    }
    effect
}

/// How many edits can be undone.
fn edits(model: &Model) -> usize {
    model.editing.as_ref().map_or(0, |editing| editing.editor.depth().0)
}

/// Puts the cell that `name` names before the cursor; without a name the only one that belongs there, or one from a list.
fn put(model: &mut Model, here: Place, name: &str) -> Option<Effect> {
    let editing = model.editing.as_ref()?;
    let named = |number: &usize| name.is_empty() || editing.editor.shelf()[*number].to_string() == name;
    let fitting: Vec<usize> = if name.is_empty() {
        editing.editor.shelf_of(here.row).collect()
    } else {
        (0..editing.editor.shelf().len()).filter(named).collect()
    };
    match fitting[..] {
        [] if name.is_empty() => model.say("no cell of this rank was taken out"),
        [] => model.say(format!("no cell {name} was taken out")),
        [only] if name.is_empty() => return edit(model, Edit::Put(only, here)),
        [only] => return put_and_go_on(model, only),
        _ => model.overlay = Overlay::Put { selected: 0 },
    }
    None
}

/// Puts the chosen one of the cells that belong to the cursor's row.
pub fn put_chosen(model: &mut Model, selected: usize) -> Option<Effect> {
    let editing = model.editing.as_ref()?;
    let here = editing.cursor;
    let number = editing.editor.shelf_of(here.row).nth(selected)?;
    put_and_go_on(model, number)
}

/// Puts a cell before the cursor, which goes behind it: whoever builds a row puts one behind the other.
fn put_and_go_on(model: &mut Model, number: usize) -> Option<Effect> {
    let here = model.editing.as_ref()?.cursor;
    let before = edits(model);
    let effect = edit(model, Edit::Put(number, here));
    if let Some(editing) = model.editing.as_mut().filter(|editing| editing.editor.depth().0 > before) {
        editing.cursor.column += 1;
    }
    effect
}

/// Does one edit; a refusal is told, the longer ones in a box of their own.
fn edit(model: &mut Model, edit: Edit) -> Option<Effect> {
    match model.editing.as_mut()?.editor.apply(edit) {
        Ok(()) => changed(model),
        Err(refusal @ Refusal::Circle(_)) => {
            let text = format!("refused: {refusal}").replace(", which", ",\nwhich");
            model.overlay = Overlay::Why { text, scroll: 0 };
            None
        }
        Err(refusal) => {
            model.say(format!("refused: {refusal}"));
            None
        }
    }
}

fn turned(model: &mut Model, turn: fn(&mut Editor) -> bool, none: &str) -> Option<Effect> {
    if turn(&mut model.editing.as_mut()?.editor) {
        return changed(model);
    }
    model.say(none);
    None
}

/// All cells beside the plan, which is empty then: the learner builds a schedule from nothing.
fn take_all(model: &mut Model) -> Option<Effect> {
    let editing = model.editing.as_mut()?;
    for row in 0..editing.editor.plan().rows.len() {
        while editing.editor.apply(Edit::Take(Place { row, column: 0 })).is_ok() {}
    }
    editing.cursor.column = 0;
    changed(model)
}

/// The plan is another one: if it is whole it is run.
fn changed(model: &mut Model) -> Option<Effect> {
    let editing = model.editing.as_mut()?;
    let (plan, cursor) = (editing.editor.plan(), &mut editing.cursor);
    cursor.column = cursor.column.min(plan.rows.get(cursor.row).map_or(0, Vec::len));
    let missing = editing.editor.shelf().len();
    if missing > 0 {
        let cells = if missing == 1 { "1 cell".to_owned() } else { format!("{missing} cells") };
        model.say(format!("{cells} out of the plan: it runs when p has put all back; the picture is of the plan before"));
        return None;
    }
    editing.known = Schedule::recognise(plan);
    let setup = Setup { plan: Some(Arc::new(plan.clone())), ..model.setup.clone() };
    Some(runs::ask(model, setup, Landing::Keep))
}
