//! The values of the focus rank: what the op at which it stands reads and writes, then whatever else it holds.

use super::parts::more_below;
use crate::base::units::short_number;
use crate::base::{BufferId, Rank};
use crate::observe::state::At;
use crate::program::{Layout, Name, Program};
use crate::tui::data::{BufferValue, PanelView, RunData, Values};
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// Draws them from line `y` on.
pub fn draw(data: &RunData, at: &At, view: &PanelView<'_>, y: u16, pen: &mut Pen<'_>) {
    let held: Vec<BufferId> = data.prepared.lives.at(view.focus, at.event).map(|life| life.buffer).collect();
    let known = view.values.filter(|values| values.rank == view.focus && values.event == at.event);
    let mut y = y;
    if known.is_none() && y < pen.height() {
        let why = if data.has_values { "numbers come when the run stands still" } else { "shapes only: nothing was computed" };
        pen.say(1, y, why, Role::Quiet);
        y += 1;
    }
    for buffer in wanted(at, view.focus, &held) {
        if y >= pen.height() {
            return more_below(pen);
        }
        y = value(data, known, buffer, held.contains(&buffer), y, pen);
    }
}

/// The operands of the op at which the rank stands, its parameters behind what flows; then the latest that it holds.
fn wanted(at: &At, rank: Rank, held: &[BufferId]) -> Vec<BufferId> {
    let stand = at.stand(rank);
    let mut wanted: Vec<BufferId> = Vec::new();
    let operands = stand.map(|stand| at.run.program.op(stand.op)).into_iter().flat_map(|op| op.reads.iter().chain(op.writes));
    let is_state = |buffer: &&BufferId| parameter(at.run.program, at.run.program.buffers[buffer.index()].name).is_some();
    let (state, flows): (Vec<&BufferId>, Vec<&BufferId>) = operands.partition(is_state);
    for &buffer in flows.into_iter().chain(state).chain(held.iter().rev()) {
        if !wanted.contains(&buffer) && wanted.len() < MOST {
            wanted.push(buffer);
        }
    }
    wanted
}

/// Values that are listed at most.
const MOST: usize = 60;

/// One buffer: name, shape and size; below it, if it is known, what it holds. Returns the line below.
fn value(data: &RunData, known: Option<&Values>, buffer: BufferId, held: bool, y: u16, pen: &mut Pen<'_>) -> u16 {
    let program = data.program();
    let entry = &program.buffers[buffer.index()];
    let layout = &program.layouts[entry.layout.index()];
    let x = pen.say(1, y, &format!("{:<9}", entry.name.to_string()), Role::Strong);
    let x = pen.say(x + 1, y, &format!("{}  {}", shape(layout), program.bytes(buffer)), Role::Text);
    let x = parameter(program, entry.name).map_or(x, |name| pen.say(x + 2, y, name, Role::Quiet));
    if !held {
        pen.say(x + 2, y, "not there yet", Role::Quiet);
        return y + 1;
    }
    let Some(value) = known.and_then(|values| values.buffers.iter().find(|value| value.buffer == buffer)) else {
        return y + 1;
    };
    pen.say(3, y + 1, &first_elements(value, pen.width().saturating_sub(3)), Role::Text);
    if y + 2 < pen.height() {
        let role = if value.nans > 0 { Role::Alert } else { Role::Quiet };
        pen.say(3, y + 2, &format!("norm {}  absmax {}  nan {}", number(value.norm), number(value.abs_max), value.nans), role);
    }
    y + 3
}

/// `f32[4,128,512]`; of several tensors, how many there are.
fn shape(layout: &Layout) -> String {
    match layout.parts.as_slice() {
        [part] => format!("{}{:?}", part.dtype, part.dims).replace(' ', ""),
        parts => format!("{} tensors", parts.len()),
    }
}

/// The parameter's name in the model, for its value, gradient and moments.
fn parameter(program: &Program, name: Name) -> Option<&str> {
    let (Name::Parameter(id) | Name::Gradient(id) | Name::FirstMoment(id) | Name::SecondMoment(id)) = name else { return None };
    program.parameters.get(id.index()).map(|parameter| parameter.name.as_str())
}

/// `[0.12 -0.4 1.08 ...]`: as many of the first elements as fit whole.
fn first_elements(value: &BufferValue, room: u16) -> String {
    let numbers: Vec<String> = value.first.iter().map(|&element| number(element)).collect();
    let text = |count: usize| {
        let more = if value.elements > count { " ..." } else { "" };
        format!("[{}{more}]", numbers[..count].join(" "))
    };
    (1..=numbers.len()).rev().map(text).find(|text| width_of(text) <= room).unwrap_or_else(|| text(0))
}

/// A number in few columns: `0.12`, `1.1e-5`.
fn number(value: f64) -> String {
    if value == 0.0 || (0.01..1e4).contains(&value.abs()) { short_number(value) } else { format!("{value:.1e}") }
}
