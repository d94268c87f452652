//! Where everything stands: from the view and the terminal's size to rectangles. Pure, so that keys and drawing agree.

use ratatui::layout::Rect;

use super::data::RunData;
use super::in_flight::InFlight;
use super::model::{Model, Pane, View};
use super::panels::memory;
use super::panels::parts::Cut;
use super::panels::timeline;
use crate::teach;

/// The smallest terminal on which something useful can be shown: columns, rows.
pub const SMALLEST: (u16, u16) = (60, 18);

/// How much fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Below 60x18: one line that says so.
    TooSmall,
    /// From 60x18: one pane at a time.
    Tiny,
    /// From 80x24: panes under each other, separated by rules.
    Small,
    /// From 100x30: as small, with more room.
    Medium,
    /// From 120x36: the lesson beside the picture.
    Large,
    /// From 160x48.
    Larger,
    /// From 200x60.
    Wide,
}

impl Class {
    /// The class of a terminal of `size`.
    #[must_use]
    pub fn of((width, height): (u16, u16)) -> Self {
        const FROM: [(u16, u16, Class); 6] = [
            (200, 60, Class::Wide),
            (160, 48, Class::Larger),
            (120, 36, Class::Large),
            (100, 30, Class::Medium),
            (80, 24, Class::Small),
            (SMALLEST.0, SMALLEST.1, Class::Tiny),
        ];
        let fits = |class: &&(u16, u16, Class)| width >= class.0 && height >= class.1;
        FROM.iter().find(fits).map_or(Self::TooSmall, |class| class.2)
    }
}

/// A pane and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The pane.
    pub pane: Pane,
    /// Its rectangle, frame included.
    pub area: Rect,
    /// A rule above instead of a frame around it.
    pub ruled: bool,
}

/// The whole screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How much fits.
    pub class: Class,
    /// The first line.
    pub title: Rect,
    /// The views' names; without height where there is no room.
    pub tabs: Rect,
    /// The panes, in the order of the Tab key.
    pub panes: Vec<Placed>,
    /// Where in the run, and the scrubber: one or two lines.
    pub transport: Rect,
    /// The message line; without height on the smallest screens, where a message takes the scrubber's place.
    pub message: Rect,
    /// The keys' line.
    pub keys: Rect,
}

impl Layout {
    /// The layout of the model's view on the model's terminal.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        let class = Class::of(model.size);
        let mut rest = Cut(Rect::new(0, 0, model.size.0, model.size.1));
        let in_run = model.view != View::Lessons;
        let large = class >= Class::Large;
        let title = rest.top(1);
        let tabs = rest.top(u16::from(in_run && class >= Class::Small));
        let keys = rest.bottom(1);
        let message = rest.bottom(u16::from(class >= Class::Small || !in_run));
        let transport = rest.bottom(if in_run { 1 + u16::from(large) } else { 0 });
        let panes = panes(model, class, rest.0);
        Self { class, title, tabs, panes, transport, message, keys }
    }

    /// The pane that has the focus.
    #[must_use]
    pub fn focused(&self, model: &Model) -> Option<Placed> {
        let place = model.focus[model.view as usize];
        self.panes.get(place).or(self.panes.first()).copied()
    }

    /// The columns of the time axis, at least 1: where the timeline is not on the screen, those it would have in a view of its own. So what
    /// moves the cursor from another view moves the picture as if it were seen.
    #[must_use]
    pub fn axis_width(&self, data: &RunData) -> u16 {
        let inside = self.timeline().map_or(self.title.width.saturating_sub(2), |placed| placed.inside().width);
        timeline::axis_width(data, inside).max(1)
    }

    /// The timeline, if it is on the screen.
    #[must_use]
    pub fn timeline(&self) -> Option<&Placed> {
        self.panes.iter().find(|placed| placed.pane == Pane::Timeline && placed.area.width > 0)
    }

    /// The rows of the timeline's lanes, at least 1.
    #[must_use]
    pub fn lane_count(&self) -> usize {
        let timeline = self.panes.iter().find(|placed| placed.pane == Pane::Timeline);
        timeline.map_or(1, |placed| timeline::lane_count(placed.inside().height)).max(1)
    }
}

impl Placed {
    /// The rectangle within the frame, or below the rule.
    #[must_use]
    pub fn inside(&self) -> Rect {
        let Rect { x, y, width, height } = self.area;
        if self.ruled {
            Rect::new(x + u16::from(width > 0), y + u16::from(height > 0), width.saturating_sub(2), height.saturating_sub(1))
        } else {
            Rect::new(x + u16::from(width > 0), y + u16::from(height > 0), width.saturating_sub(2), height.saturating_sub(2))
        }
    }
}

/// All panes of the view; one alone if it is maximised or nothing else fits. The focused pane keeps its place in the list.
fn panes(model: &Model, class: Class, body: Rect) -> Vec<Placed> {
    let all = match model.view {
        View::Lessons => lessons(class, body),
        View::Lesson if class >= Class::Large => lesson_beside_picture(model, class, body),
        View::Lesson => lesson_below_picture(model, body),
        View::Timeline => timeline_and_strips(model, body),
        View::Debugger => vec![framed(Pane::Debugger, body)],
        View::Links => vec![framed(Pane::Links, body)],
        View::Memory => vec![framed(Pane::Memory, body)],
        View::Metrics => vec![framed(Pane::Metrics, body)],
        View::Waits => vec![framed(Pane::Waits, body)],
        View::Mesh => vec![framed(Pane::Mesh, body)],
        View::Edit => plan_and_run(model, class, body),
        View::Compare => runs_and_differences(class, body),
    };
    if !(model.maximised || class <= Class::Tiny) {
        return all;
    }
    // Zero-size panes keep their places, so that Tab goes round as before.
    let place = model.focus[model.view as usize].min(all.len().saturating_sub(1));
    let alone = |(index, placed): (usize, Placed)| {
        let area = if index == place { body } else { Rect::new(body.x, body.y, 0, 0) };
        Placed { area, ruled: false, ..placed }
    };
    all.into_iter().enumerate().map(alone).collect()
}

fn lessons(class: Class, body: Rect) -> Vec<Placed> {
    let mut rest = Cut(body);
    let list = if class >= Class::Large { rest.left(body.width * 9 / 20) } else { rest.top(body.height * 3 / 5) };
    vec![framed(Pane::Lessons, list), framed(Pane::About, rest.0)]
}

/// The lesson's column never grows beyond 52; below the timeline stand the small panes. What a page shows in place of the timeline takes
/// all the room beside the text.
fn lesson_beside_picture(model: &Model, class: Class, body: Rect) -> Vec<Placed> {
    let mut rest = Cut(body);
    let text = framed(Pane::Text, rest.left(if class >= Class::Larger { 52 } else { 42 }));
    let shown = shown_beside(model);
    if shown != Pane::Timeline {
        return vec![text, framed(shown, rest.0)];
    }
    let mut panes = vec![text];
    panes.extend(timeline_and_strips(model, rest.0));
    panes
}

/// The timeline, as high as it needs; below it what is in flight, if anything is, and what is selected: under each other, so that what is in
/// flight has the timeline's columns, or side by side where there is little height.
fn timeline_and_strips(model: &Model, body: Rect) -> Vec<Placed> {
    let mut rest = Cut(body);
    let wanted = timeline::wanted_height(model.run.data.rows.len()).saturating_add(2);
    let held = held_lines(&model.run.data).map(|lines| lines.saturating_add(2));
    let below = match held {
        _ if body.height < STACKED => SELECTED,
        Some(held) => held.saturating_add(SELECTED),
        None => 10,
    };
    let timeline = rest.top(wanted.min(body.height.saturating_sub(below)).max(body.height / 2));
    let mut panes = vec![framed(Pane::Timeline, timeline)];
    match held {
        Some(held) if body.height >= STACKED => {
            let room = rest.0.height.saturating_sub(SELECTED);
            panes.push(framed(Pane::Held, rest.top(held.min(room))));
        }
        Some(_) => panes.push(framed(Pane::Held, rest.left(rest.0.width / 2 + 2))),
        None => {}
    }
    panes.push(framed(Pane::Selected, rest.0));
    panes
}

/// The plan above the picture of its run, and its par at the foot.
fn plan_and_run(model: &Model, class: Class, body: Rect) -> Vec<Placed> {
    let place: fn(Pane, Rect) -> Placed = if class >= Class::Large { framed } else { ruled };
    let around = if class >= Class::Large { 2 } else { 1 };
    let mut rest = Cut(body);
    let rows = model.editing.as_ref().map_or(1, |editing| editing.editor.plan().rows.len());
    let rows = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(around);
    let plan = rest.top(rows.min(body.height * 2 / 5));
    let par = rest.bottom(around + 4);
    vec![place(Pane::Plan, plan), place(Pane::Timeline, rest.0), place(Pane::Par, par)]
}

/// Two runs, and beside or below them how they differ.
fn runs_and_differences(class: Class, body: Rect) -> Vec<Placed> {
    let mut rest = Cut(body);
    if class >= Class::Large {
        let runs = rest.left(body.width.saturating_sub(48));
        return vec![framed(Pane::Runs, runs), framed(Pane::Differences, rest.0)];
    }
    let runs = rest.top(body.height * 5 / 7);
    vec![ruled(Pane::Runs, runs), ruled(Pane::Differences, rest.0)]
}

/// From this height on, what is in flight and what is selected stand under each other.
const STACKED: u16 = 24;
/// The least lines of a text below the picture, rule included.
const LEAST_TEXT: u16 = 4;
/// The least lines for what is selected, frame included.
const SELECTED: u16 = 6;

/// A line for each rank, if anything is ever in flight.
fn held_lines(data: &RunData) -> Option<u16> {
    let any = !data.in_flight.iter().all(InFlight::is_empty);
    any.then(|| u16::try_from(data.ranks()).unwrap_or(u16::MAX))
}

/// The text is what Tab comes to first, as its own line says.
fn lesson_below_picture(model: &Model, body: Rect) -> Vec<Placed> {
    let mut rest = Cut(body);
    let shown = shown_beside(model);
    if shown != Pane::Timeline {
        let half = body.height / 2;
        let ranks = model.run.data.ranks();
        let above = rest.top(if shown == Pane::Memory { memory::wanted_height(ranks, half) } else { half });
        return vec![ruled(shown, above), ruled(Pane::Text, rest.0)];
    }
    let data = &model.run.data;
    let with_all_lanes = timeline::wanted_height(data.rows.len()).saturating_add(1);
    if data.prepared.asked.stages <= 1 && body.height >= with_all_lanes.saturating_add(LEAST_TEXT) {
        // Without a pipeline what is in flight is the same everywhere; what moves beside the computations is the picture.
        let timeline = rest.top(with_all_lanes);
        let held = rest.top(0);
        return vec![ruled(Pane::Timeline, timeline), ruled(Pane::Text, rest.0), ruled(Pane::Held, held)];
    }
    let timeline = rest.top(timeline::wanted_height(data.ranks()).saturating_add(1).min(body.height.div_ceil(2)));
    // Who reads has the room of what is in flight.
    let reads = model.focus[View::Lesson as usize] == 1;
    let held = held_lines(data).filter(|_| !reads).map_or(0, |lines| lines.saturating_add(1).min(rest.0.height.div_ceil(2)));
    let held = rest.top(held);
    vec![ruled(Pane::Timeline, timeline), ruled(Pane::Text, rest.0), ruled(Pane::Held, held)]
}

/// What the page of the lesson shows beside its text.
fn shown_beside(model: &Model) -> Pane {
    match model.lesson.page().map(|page| page.view).unwrap_or_default() {
        teach::View::Timeline => Pane::Timeline,
        teach::View::Debug => Pane::Debugger,
        teach::View::Links => Pane::Links,
        teach::View::Memory => Pane::Memory,
        teach::View::Metrics => Pane::Metrics,
        teach::View::Waits => Pane::Waits,
        teach::View::Mesh => Pane::Mesh,
    }
}

fn framed(pane: Pane, area: Rect) -> Placed {
    Placed { pane, area, ruled: false }
}

fn ruled(pane: Pane, area: Rect) -> Placed {
    Placed { pane, area, ruled: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_class() {
        let check = |size, expected| assert_eq!(Class::of(size), expected, "{size:?}");
        check((59, 18), Class::TooSmall);
        check((60, 17), Class::TooSmall);
        check((60, 18), Class::Tiny);
        check((79, 60), Class::Tiny);
        check((80, 24), Class::Small);
        check((119, 36), Class::Medium);
        check((120, 36), Class::Large);
        check((199, 60), Class::Larger);
        check((300, 100), Class::Wide);
    }

    #[test]
    fn cutting_never_exceeds_the_rectangle() {
        let mut rest = Cut(Rect::new(2, 3, 10, 5));
        assert_eq!(rest.top(2), Rect::new(2, 3, 10, 2));
        assert_eq!(rest.left(4), Rect::new(2, 5, 4, 3));
        assert_eq!(rest.bottom(9), Rect::new(6, 5, 6, 3));
        assert_eq!(rest.0, Rect::new(6, 5, 6, 0));
    }
}
