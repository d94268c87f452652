//! The plan that is edited: a row per rank, a column per cell; below it what its run takes, beside its par.

use super::facts::percent;
use super::parts::{Line, first_row, left, paragraph, right, table};
use crate::observe::Kind;
use crate::program::plan::{Cell, Plan};
use crate::tui::edit::Score;
use crate::tui::model::Model;
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// The pane's title.
#[must_use]
pub fn title(model: &Model) -> String {
    let Some(editing) = &model.editing else { return "Plan".to_owned() };
    let (done, undone) = editing.editor.depth();
    let edits = if done == 1 { "1 edit".to_owned() } else { format!("{done} edits") };
    let again = if undone > 0 { format!(", {undone} undone") } else { String::new() };
    format!("Plan  {edits}{again}")
}

/// The cells, as many as fit around the cursor.
pub fn draw(model: &Model, pen: &mut Pen<'_>) {
    let Some(editing) = &model.editing else { return };
    let (plan, cursor) = (editing.editor.plan(), editing.cursor);
    let names = Names::of(plan);
    let ranks = plan.rows.len();
    let label = width_of(&format!(">r{} ", ranks.saturating_sub(1)));
    let room = usize::from(pen.width().saturating_sub(label + 1) / names.width.max(1)).max(1);
    let longest = plan.rows.iter().map(Vec::len).max().unwrap_or(0) + 1;
    let column = first_row(cursor.column, longest, room);
    let top = first_row(cursor.row, ranks, usize::from(pen.height()).max(1));
    for (y, (row, cells)) in (0..pen.height()).zip(plan.rows.iter().enumerate().skip(top)) {
        let here = row == cursor.row;
        let role = if here { Role::Strong } else { Role::Text };
        pen.say(0, y, &format!("{}r{row}", if here { ">" } else { " " }), role);
        pen.put(label, y, pen.tier.bar(), pen.theme.style(Role::Frame));
        let mut x = label + 1;
        for (number, &cell) in cells.iter().enumerate().skip(column).take(room) {
            pen.text(x, y, &names.of_cell(cell), pen.theme.label(kind(cell)));
            if here && number == cursor.column {
                pen.restyle(x, y, names.width.saturating_sub(1).max(1), pen.theme.style(Role::Selected));
            }
            x += names.width;
        }
        if here && cursor.column >= cells.len() {
            pen.put(x, y, '_', pen.theme.style(Role::Selected));
        }
    }
}

/// How the cells of a plan are named: with their stage only where a rank has several.
struct Names {
    with_stage: bool,
    /// The widest name and a blank.
    width: u16,
}

impl Names {
    fn of(plan: &Plan) -> Self {
        let single =
            |cells: &Vec<Cell>| cells.iter().flat_map(|cell| cell.slots()).all(|slot| Some(slot.stage) == first_stage(cells));
        let mut names = Self { with_stage: !plan.rows.iter().all(single), width: 0 };
        names.width = plan.rows.iter().flatten().map(|&cell| width_of(&names.of_cell(cell))).max().unwrap_or(1) + 1;
        names
    }

    fn of_cell(&self, cell: Cell) -> String {
        let name = |slot: crate::program::plan::Slot| {
            let stage = if self.with_stage { slot.stage.to_string() } else { String::new() };
            format!("{stage}{}{}", slot.pass.letter(), slot.micro_batch)
        };
        cell.slots().map(name).collect::<Vec<_>>().join("&")
    }
}

fn first_stage(cells: &[Cell]) -> Option<u32> {
    cells.first().and_then(|cell| cell.slots().next()).map(|slot| slot.stage)
}

fn kind(cell: Cell) -> Kind {
    match cell {
        Cell::Overlap(..) => Kind::Backward,
        Cell::One(slot) => Kind::of_pass(slot.pass),
    }
}

/// What the plan takes, what its par is, and what is missing or what was built.
pub fn par(model: &Model, pen: &mut Pen<'_>) {
    let Some(editing) = &model.editing else { return };
    let now = Score::of(&model.run.data).filter(|_| editing.editor.is_whole() && model.asked.is_none());
    let par = editing.par.filter(|_| editing.knobs == model.run.setup.changes);
    let clock = model.run.data.clock();
    let line = |name: &str, score: Option<Score>, role| {
        let cells = score.map_or_else(
            || vec!["-".to_owned(); 5],
            |score| {
                let Score { makespan, bubble, inside, in_flight, peak } = score;
                vec![clock.show(makespan), percent(bubble), percent(inside), in_flight.to_string(), peak.to_string()]
            },
        );
        Line { role, cells: std::iter::once(name.to_owned()).chain(cells).collect() }
    };
    let heads = [left(""), right("makespan"), right("bubble"), right("inside"), right("in flight"), right("peak memory")];
    let y = table(pen, 0, &heads, &[line("now", now, Role::Strong), line("par", par, Role::Text)]);
    paragraph(pen, y, &state(model), Role::Text);
}

/// What is missing, or what was built.
fn state(model: &Model) -> String {
    let Some(editing) = &model.editing else { return String::new() };
    let shelf = editing.editor.shelf();
    if shelf.is_empty() {
        return editing.known.map_or_else(|| "no schedule with a name".to_owned(), |known| format!("this is {}", known.title));
    }
    let most = 12;
    let mut cells: Vec<String> = shelf.iter().rev().take(most).map(ToString::to_string).collect();
    if shelf.len() > most {
        cells.push(format!("and {} more", shelf.len() - most));
    }
    format!("out of the plan: {}", cells.join(" "))
}
