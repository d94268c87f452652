//! From the model to the screen. Pure: the same model draws the same cells.

use crate::base::Ticks;
use ratatui::buffer::Buffer;

use super::data::{PanelView, RunData};
use super::layout::{Class, Layout, Placed, SMALLEST};
use super::model::{Model, Pane, View};
use super::panels::{
    chrome, compare, debugger, held, links, memory, mesh, metrics, plan, popup, selected, shelf, text, timeline, waits,
};
use super::pen::Pen;
use super::theme::Role;

/// Draws the whole screen.
pub fn view(model: &Model, buffer: &mut Buffer) {
    let layout = Layout::of(model);
    let whole = buffer.area;
    let mut pen = Pen::new(buffer, whole, model.theme, model.tier);
    if layout.class == Class::TooSmall {
        return too_small(model, &mut pen);
    }
    chrome::title(model, &mut pen.part(layout.title));
    if layout.tabs.height > 0 {
        chrome::tabs(model, layout.class, &mut pen.part(layout.tabs));
    }
    let focus = layout.focused(model);
    for placed in layout.panes.iter().filter(|placed| placed.area.height > 0) {
        pane(model, placed, focus == Some(*placed), &mut pen);
    }
    if model.view != View::Lessons {
        chrome::transport(model, &mut pen.part(layout.transport));
    }
    chrome::message(model, &mut pen.part(layout.message));
    chrome::keys(model, &layout, &mut pen.part(layout.keys));
    popup::draw(model, &mut pen);
}

fn too_small(model: &Model, pen: &mut Pen<'_>) {
    let (width, height) = model.size;
    pen.say(0, 0, &format!("{}x{} needed, {width}x{height} here", SMALLEST.0, SMALLEST.1), Role::Text);
}

/// What is inside first: a title may depend on what could be drawn. The panels of a run frame their own parts.
fn pane(model: &Model, placed: &Placed, focus: bool, pen: &mut Pen<'_>) {
    if let Some(draw) = run_panel(placed.pane).filter(|_| model.run.data.ranks() > 0) {
        return draw(&model.run.data, &panel_view(model, focus), &mut pen.part(placed.area));
    }
    let mut inside = pen.part(placed.inside());
    let title = match placed.pane {
        Pane::Lessons => {
            shelf::list(model, &mut inside);
            "Lessons".to_owned()
        }
        Pane::About => {
            shelf::about(model, &mut inside);
            "About".to_owned()
        }
        Pane::Text => {
            text::draw(model, placed.ruled, &mut inside);
            text::title(model, placed.ruled)
        }
        Pane::Timeline => timeline::draw(model, &mut inside),
        Pane::Held => {
            held::draw(model, &mut inside);
            held::title(model)
        }
        Pane::Selected => {
            selected::draw(model, &mut inside);
            selected::title(model)
        }
        Pane::Plan => {
            plan::draw(model, &mut inside);
            plan::title(model)
        }
        Pane::Par => {
            plan::par(model, &mut inside);
            "Par".to_owned()
        }
        Pane::Runs => {
            compare::runs(model, &mut inside);
            compare::title(model)
        }
        Pane::Differences => {
            compare::differences(model, &mut inside);
            "Differences".to_owned()
        }
        Pane::Debugger | Pane::Links | Pane::Memory | Pane::Metrics | Pane::Waits | Pane::Mesh => {
            inside.say(1, 0, timeline::no_run(model), Role::Quiet);
            model.view.names().0.to_owned()
        }
    };
    let mut around = pen.part(placed.area);
    if placed.ruled {
        around.ruled(&title, focus);
    } else {
        around.framed(&title, focus);
    }
}

/// What draws a panel that knows the run and where the learner stands, nothing else.
type Draw = fn(&RunData, &PanelView<'_>, &mut Pen<'_>);

fn run_panel(pane: Pane) -> Option<Draw> {
    Some(match pane {
        Pane::Debugger => debugger::draw,
        Pane::Links => links::draw,
        Pane::Memory => memory::draw,
        Pane::Metrics => metrics::draw,
        Pane::Waits => waits::draw,
        Pane::Mesh => mesh::draw,
        Pane::Lessons
        | Pane::About
        | Pane::Text
        | Pane::Timeline
        | Pane::Held
        | Pane::Selected
        | Pane::Plan
        | Pane::Par
        | Pane::Runs
        | Pane::Differences => return None,
    })
}

/// What a panel shows of the model.
#[must_use]
pub fn panel_view(model: &Model, focused: bool) -> PanelView<'_> {
    PanelView {
        position: model.now,
        focus: model.focus_rank(),
        op: model.cursor_op(),
        cursor: Ticks(model.timeline.cursor.time),
        scroll: model.scroll[model.view as usize],
        chosen: model.chosen[model.view as usize],
        focused,
        breaks: &model.breaks,
        values: model.values.as_deref(),
    }
}
