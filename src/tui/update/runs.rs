//! Asking for runs and receiving them: each request has a number, and only the last one's answer counts.

use std::sync::Arc;

use super::Effect;
use super::edit;
use super::overlay;
use super::pages;
use super::timeline;
use crate::base::{OpId, Rank};
use crate::teach::{Lesson, Page, Stop};
use crate::tui::data::{Position, RunData};
use crate::tui::model::{
    Asked, Landing, LessonModel, Model, Overlay, Player, RunModel, Setup, Shown, TimelineModel, VIEWS, View,
};
use crate::tui::panels::facts;

/// Opens a lesson at its first page, and asks for the run of that page.
pub fn open(model: &mut Model, lesson: Arc<Lesson>) -> Effect {
    model.lesson = LessonModel::of(lesson);
    model.view = View::Lesson;
    model.run = RunModel { data: Arc::new(RunData::empty()), number: 0, setup: Setup::default() };
    model.now = Position::default();
    model.timeline = TimelineModel::default();
    model.player = Player::default();
    model.focus[View::Lesson as usize] = 0;
    model.editing = None;
    (model.scroll, model.chosen) = ([0; VIEWS], [0; VIEWS]);
    model.message.clear();
    model.breaks.clear();
    let lesson = &model.lesson.lesson;
    let of_page = model.lesson.page().map(|page| page.scenario.as_str());
    let scenario = of_page.or_else(|| lesson.scenarios.first().map(|scenario| scenario.name.as_str())).unwrap_or_default();
    let setup = Setup::of(lesson, scenario);
    ask(model, setup, Landing::Page)
}

/// The learner has turned to another page: its own scenario is run, if another one is shown, and the picture stands where it says. Knobs
/// that were turned stay only for a page that says nothing of either.
pub fn turned(model: &mut Model) -> Option<Effect> {
    let page = model.lesson.page()?;
    if changes_run(model, page) {
        let scenario = page.scenario.clone();
        if model.setup.is_turned() {
            model.say(PUT_BACK);
        }
        let setup = Setup::of(&model.lesson.lesson, &scenario);
        return Some(ask(model, setup, Landing::Page));
    }
    if let Some(asked) = &mut model.asked {
        asked.landing = Landing::Page;
    } else {
        land(model, Landing::Page);
    }
    None
}

/// Whether the page behind the present one, or before it, takes another run than the one that is set up.
#[must_use]
pub fn turn_changes_run(model: &Model, forward: bool) -> bool {
    let next = pages::neighbour(model, forward);
    let page = model.lesson.lesson.pages.get(next).filter(|_| next != model.lesson.page);
    page.is_some_and(|page| changes_run(model, page))
}

fn changes_run(model: &Model, page: &Page) -> bool {
    model.setup.name != page.scenario || (model.setup.is_turned() && page.stop.is_some())
}

/// What is said where the knobs of one page do not hold on the next.
const PUT_BACK: &str = "the knobs of the last page were put back";

/// Turns one knob from where it is.
pub fn turn(model: &mut Model, key: &str, value: &str) -> Effect {
    let setup = model.setup.with(key, value);
    ask(model, setup, Landing::Keep)
}

/// The page's own scenario with this one change: what a TRY asks for.
pub fn try_value(model: &mut Model, key: &str, value: &str) -> Effect {
    let setup = Setup { changes: Vec::new(), plan: None, ..model.setup.clone() }.with(key, value);
    model.say(format!("{key} = {value}"));
    ask(model, setup, Landing::Keep)
}

/// The same again.
pub fn again(model: &mut Model) -> Option<Effect> {
    let setup = model.setup.clone();
    Some(ask(model, setup, Landing::Start))
}

/// All knobs as the scenario has them.
pub fn reset(model: &mut Model) -> Option<Effect> {
    if !model.setup.is_turned() {
        model.say("no knob was turned");
        return None;
    }
    let setup = Setup { changes: Vec::new(), plan: None, ..model.setup.clone() };
    Some(ask(model, setup, Landing::Keep))
}

/// Asks for the run of `setup`.
pub fn ask(model: &mut Model, setup: Setup, landing: Landing) -> Effect {
    model.requests += 1;
    model.asked = Some(Asked { number: model.requests, landing });
    model.setup = setup.clone();
    model.player.on = false;
    Effect::Run { number: model.requests, setup }
}

/// A run has come, or what is wrong with its scenario. An answer to an earlier request is dropped.
pub fn ran(model: &mut Model, number: u64, outcome: Result<Arc<RunData>, String>) {
    let Some(asked) = model.asked.take_if(|asked| asked.number == number) else { return };
    match outcome {
        Ok(data) => show(model, number, data, asked.landing),
        Err(problem) => refuse(model, problem),
    }
}

/// The run that was asked for is not waited for any longer: its answer will be dropped.
pub fn abandon(model: &mut Model) -> Effect {
    model.asked = None;
    keep_setup(model);
    model.say(if model.run.number > 0 { "stopped: the run before it stays" } else { "stopped: R runs it again" });
    Effect::Abandon { shown: model.run.number }
}

/// The old run stays, with the scenario that it came from.
fn keep_setup(model: &mut Model) {
    if model.run.number > 0 {
        model.setup = model.run.setup.clone();
    }
}

fn refuse(model: &mut Model, text: String) {
    keep_setup(model);
    match &mut model.overlay {
        Overlay::Knobs { problem, .. } => *problem = text,
        _ => overlay::present(model, Overlay::Problem { text }),
    }
}

fn show(model: &mut Model, number: u64, data: Arc<RunData>, landing: Landing) {
    if let Overlay::Knobs { problem, .. } = &mut model.overlay {
        problem.clear();
    }
    let place = Place::of(model);
    // Where nothing ever happened the learner stood nowhere.
    let was_nowhere = model.run.data.ranks() > 0 && model.run.data.events() == 0;
    let landing = if was_nowhere { Landing::Page } else { landing };
    let is_put_back = model.message == PUT_BACK;
    match model.setup.overrides().last() {
        Some(change) => model.say(change.replacen('=', " = ", 1) + ": " + &facts::sentence(&data)),
        // How the run ended, the message line says of itself, unless the page asks for it.
        None => model.say(if is_put_back { PUT_BACK } else { "" }),
    }
    model.run = RunModel { data, number, setup: model.setup.clone() };
    if let Some(pinned) = &mut model.pinned {
        pinned.beside(&model.run);
    }
    match edit::told(model) {
        Some(told) => model.say(told),
        None => edit::forget(model),
    }
    model.breaks.follow(&model.run.data);
    model.marks.clear();
    place.restore(model, landing);
    timeline::keep_in_view(model);
}

/// Where the learner stood in the run before.
struct Place {
    now: Position,
    at_the_end: bool,
    /// All events of that time had happened.
    between_times: bool,
    /// The cursor stood there, too.
    with_cursor: bool,
}

impl Place {
    fn of(model: &Model) -> Self {
        let data = &model.run.data;
        let (at_the_end, between_times) = match data.events() {
            0 => (false, false),
            all => (model.now.event == all, model.now.event == data.events_until(model.now.time)),
        };
        let with_cursor = model.timeline.cursor.time == model.now.time.0;
        Self { now: model.now, at_the_end, between_times, with_cursor }
    }

    fn restore(&self, model: &mut Model, landing: Landing) {
        let data = &model.run.data;
        model.now = match landing {
            Landing::Keep if self.at_the_end => data.position(data.events()),
            Landing::Keep if self.between_times => data.position(data.events_until(self.now.time)),
            Landing::Keep => data.position(data.events_until(self.now.time).min(self.now.event)),
            Landing::Page | Landing::Start => Position::default(),
        };
        if landing != Landing::Keep || self.with_cursor {
            model.timeline.cursor.time = model.now.time.0;
        }
        land(model, landing);
        first_step(model);
    }
}

/// Shows the first step, which fills the page with labels; the whole run if the learner stands behind it.
fn first_step(model: &mut Model) {
    let step = model.run.data.metrics.makespan;
    let within = step.0 > 0 && model.now.time <= step;
    model.timeline.shown = if within { Shown::Step } else { Shown::Run };
}

/// Stands where the page says, if it says so.
fn land(model: &mut Model, landing: Landing) {
    let stop = model.lesson.page().and_then(|page| page.stop.clone());
    let (Landing::Page, Some(stop)) = (landing, stop) else { return };
    let data = Arc::clone(&model.run.data);
    let Some(event) = stop.position(data.program(), &data.record.trace) else { return };
    model.player.on = false;
    model.now = data.position(event);
    model.timeline.cursor.time = model.now.time.0;
    if let Stop::Op { rank, .. } = stop {
        let op = event.checked_sub(1).and_then(|index| started(&data, index, rank));
        if let Some((row, time)) = op.and_then(|op| data.place_of(op)) {
            (model.timeline.cursor.row, model.timeline.cursor.time) = (row, time.0);
        }
    }
    first_step(model);
    timeline::keep_in_view(model);
    timeline::follow_playhead(model);
}

/// The op of `rank` that event `index` starts.
fn started(data: &RunData, index: usize, rank: usize) -> Option<OpId> {
    let op = data.record.trace.events.get(index)?.op;
    data.run().part_of(Rank::new(rank), op)
}
