//! The screen's state as plain data: what is shown, where the learner stands, what is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{OpId, Rank, Ticks};
use crate::observe::rows::Span;
use crate::program::plan::Plan;
use crate::teach::{Lesson, Library, Origin, Page};

use super::axis::Window;
use super::breaks::Breaks;
use super::commands::Command;
use super::compare::Pinned;
use super::data::{Position, RowId, RunData, Values};
use super::edit::Editing;
use super::glyphs::Tier;
pub use super::overlay::{EXPORTS, Overlay, Prefix};
use super::theme::Theme;

/// A whole screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The list of lessons: the start.
    Lessons,
    /// The lesson beside the picture.
    Lesson,
    /// The timeline alone.
    Timeline,
    /// The ranks' programs.
    Debugger,
    /// Links and collectives.
    Links,
    /// Memory over time.
    Memory,
    /// Where the time goes.
    Metrics,
    /// Who waits for whom.
    Waits,
    /// Where the ranks stand, and whom each meets.
    Mesh,
    /// The plan, to be edited, and its run.
    Edit,
    /// Two runs on one time axis.
    Compare,
}

/// How many views there are.
pub const VIEWS: usize = 11;

/// A part of a view that can have the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    /// The list of lessons.
    Lessons,
    /// What the selected lesson is about.
    About,
    /// The lesson's text.
    Text,
    /// Rows of spans over time.
    Timeline,
    /// Micro-batches held by each rank over time.
    Held,
    /// What is under the cursor.
    Selected,
    /// The ranks' programs.
    Debugger,
    /// Links and collectives.
    Links,
    /// Memory over time.
    Memory,
    /// Where the time goes.
    Metrics,
    /// Who waits for whom.
    Waits,
    /// Where the ranks stand, and whom each meets.
    Mesh,
    /// The cells of the plan that is edited.
    Plan,
    /// What that plan takes, beside its par.
    Par,
    /// Two runs on one time axis.
    Runs,
    /// How they differ, in numbers.
    Differences,
}

/// Everything the screen knows.
#[derive(Clone, Debug)]
pub struct Model {
    /// The terminal's size: columns, rows.
    pub size: (u16, u16),
    /// Colours.
    pub theme: Theme,
    /// Glyphs.
    pub tier: Tier,
    /// Something changed since the last frame.
    pub dirty: bool,
    /// The view.
    pub view: View,
    /// The place of the pane that has the focus, for each view.
    pub focus: [usize; VIEWS],
    /// Lines scrolled away from the top of the view's own panel, for each view.
    pub scroll: [usize; VIEWS],
    /// The chosen row of the view's own table, for each view; where its rows are ranks, the focus rank is the chosen one.
    pub chosen: [usize; VIEWS],
    /// One pane alone.
    pub maximised: bool,
    /// The lessons to choose from.
    pub shelf: Shelf,
    /// The lesson that is open.
    pub lesson: LessonModel,
    /// What is to be run: the scenario with its knobs as the learner has turned them.
    pub setup: Setup,
    /// The run that is shown.
    pub run: RunModel,
    /// The run that was asked for and has not come yet.
    pub asked: Option<Asked>,
    /// Runs that were asked for so far: the number of the last one.
    pub requests: u64,
    /// What the focus rank's buffers hold where the learner stands, once the session has answered.
    pub values: Option<Arc<Values>>,
    /// The values that were asked for last.
    pub looked: Option<Look>,
    /// Where in the run.
    pub now: Position,
    /// Playing, and how fast.
    pub player: Player,
    /// The plan that is edited.
    pub editing: Option<Editing>,
    /// What would have dropped that plan, and was not done yet.
    pub warned: Option<Command>,
    /// The run that others are compared with.
    pub pinned: Option<Pinned>,
    /// What of the timeline is shown.
    pub timeline: TimelineModel,
    /// Where a continued run stops.
    pub breaks: Breaks,
    /// Places to come back to, by letter.
    pub marks: BTreeMap<char, (Position, Cursor)>,
    /// What lies over the view.
    pub overlay: Overlay,
    /// What is to lie there once that is closed, the next one last.
    pub waiting: Vec<Overlay>,
    /// The first key of two.
    pub prefix: Option<Prefix>,
    /// The last text that was searched for.
    pub sought: String,
    /// One line for the learner.
    pub message: String,
}

/// The list of lessons.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    /// The lessons, and those that could not be read.
    pub contents: Arc<Library>,
    /// The selected one; behind the lessons come the broken ones.
    pub selected: usize,
}

/// The open lesson.
#[derive(Clone, Debug)]
pub struct LessonModel {
    /// The lesson; without pages where a scenario of the learner's own is open.
    pub lesson: Arc<Lesson>,
    /// The page that is shown.
    pub page: usize,
    /// The first line of the page that is shown.
    pub scroll: usize,
    /// How many of a page's actions were taken, by page.
    pub done: BTreeMap<usize, usize>,
}

/// A scenario with its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Its file's name, for problems.
    pub name: String,
    /// Its TOML.
    pub text: Arc<str>,
    /// What was changed: (key, value) as behind `--set`.
    pub changes: Vec<(String, String)>,
    /// The plan as the learner has edited it, in place of the scenario's.
    pub plan: Option<Arc<Plan>>,
}

/// The run that is shown.
#[derive(Clone, Debug)]
pub struct RunModel {
    /// The run.
    pub data: Arc<RunData>,
    /// Its request's number.
    pub number: u64,
    /// What was run.
    pub setup: Setup,
}

/// A run that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its number.
    pub number: u64,
    /// Where to stand in it.
    pub landing: Landing,
}

/// Where to stand in a new run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// Where the page of the lesson says, otherwise at the start.
    Page,
    /// As near as possible to where the learner stood.
    Keep,
    /// At the start.
    Start,
}

/// Which values: of which run, where, of which rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The run's number.
    pub number: u64,
    /// Events that have happened.
    pub event: usize,
    /// The rank.
    pub rank: Rank,
}

/// Playing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Player {
    /// Whether it plays.
    pub on: bool,
    /// The speed as a power of two: 0 is one, -1 a half.
    pub speed: i8,
    /// Parts of a tick that were played but not yet shown, in millionths.
    pub rest: u64,
}

/// A place in the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// A place in [`RunData::rows`].
    pub row: usize,
    /// A tick.
    pub time: u64,
}

/// What of the timeline is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineModel {
    /// The cursor: its row is the focus rank.
    pub cursor: Cursor,
    /// The shown stretch of time.
    pub shown: Shown,
    /// The first shown row.
    pub first_row: usize,
    /// Ops with slack are drawn hollow, so that the critical ones stand out.
    pub critical: bool,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// The whole run, in whatever columns there are.
    #[default]
    Run,
    /// The first step.
    Step,
    /// What the learner has zoomed or gone to.
    At(Window),
}

impl View {
    /// The views of a run in the order of their keys.
    pub const OF_A_RUN: [Self; 10] = [
        Self::Lesson,
        Self::Timeline,
        Self::Debugger,
        Self::Links,
        Self::Memory,
        Self::Metrics,
        Self::Waits,
        Self::Mesh,
        Self::Edit,
        Self::Compare,
    ];

    /// The view's name, and its name where there is little room.
    #[must_use]
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Lessons => ("Lessons", "Les"),
            Self::Lesson => ("Lesson", "Les"),
            Self::Timeline => ("Time", "Tim"),
            Self::Debugger => ("Debug", "Dbg"),
            Self::Links => ("Links", "Lnk"),
            Self::Memory => ("Memory", "Mem"),
            Self::Metrics => ("Metrics", "Met"),
            Self::Waits => ("Waits", "Wai"),
            Self::Mesh => ("Mesh", "Msh"),
            Self::Edit => ("Edit", "Edt"),
            Self::Compare => ("Compare", "Cmp"),
        }
    }
}

impl Player {
    /// How fast: `1/2`, `4`.
    #[must_use]
    pub fn speed_text(self) -> String {
        let times = 1_u32 << self.speed.unsigned_abs().min(16);
        if self.speed < 0 { format!("1/{times}") } else { times.to_string() }
    }
}

impl Model {
    /// The list of lessons on a terminal of `size`, nothing opened yet.
    #[must_use]
    pub fn new(size: (u16, u16), theme: Theme, tier: Tier, library: Library) -> Self {
        Self {
            size,
            theme,
            tier,
            dirty: true,
            view: View::Lessons,
            focus: [0; VIEWS],
            scroll: [0; VIEWS],
            chosen: [0; VIEWS],
            maximised: false,
            shelf: Shelf { contents: Arc::new(library), selected: 0 },
            lesson: LessonModel::of(Arc::new(no_lesson())),
            setup: Setup::default(),
            run: RunModel { data: Arc::new(RunData::empty()), number: 0, setup: Setup::default() },
            asked: None,
            requests: 0,
            values: None,
            looked: None,
            warned: None,
            now: Position::default(),
            player: Player::default(),
            editing: None,
            pinned: None,
            timeline: TimelineModel::default(),
            breaks: Breaks::default(),
            marks: BTreeMap::new(),
            overlay: Overlay::None,
            waiting: Vec::new(),
            prefix: None,
            sought: String::new(),
            message: String::new(),
        }
    }

    /// Tells the learner something, in one line.
    pub fn say(&mut self, text: impl Into<String>) {
        self.message = text.into();
    }

    /// Whether time passes on the screen.
    #[must_use]
    pub fn playing(&self) -> bool {
        self.player.on
    }

    /// The row under the cursor.
    #[must_use]
    pub fn cursor_row(&self) -> Option<RowId> {
        self.run.data.rows.get(self.timeline.cursor.row).copied()
    }

    /// The span under the cursor, with its place in the row.
    #[must_use]
    pub fn cursor_span(&self) -> Option<(usize, &Span)> {
        let row = self.run.data.row(self.cursor_row()?);
        let place = row.place_at(Ticks(self.timeline.cursor.time))?;
        Some((place, &row.spans[place]))
    }

    /// The op under the cursor; where nothing runs, the op that waits.
    #[must_use]
    pub fn cursor_op(&self) -> Option<OpId> {
        let (_, span) = self.cursor_span()?;
        Some(self.run.data.op_of(self.cursor_row()?, span))
    }

    /// The rank that `n` steps: the one under the cursor.
    #[must_use]
    pub fn focus_rank(&self) -> Rank {
        self.cursor_row().map_or(Rank(0), |row| row.rank)
    }
}

impl LessonModel {
    /// A lesson at its first page.
    #[must_use]
    pub fn of(lesson: Arc<Lesson>) -> Self {
        Self { lesson, page: 0, scroll: 0, done: BTreeMap::new() }
    }

    /// The page that is shown.
    #[must_use]
    pub fn page(&self) -> Option<&Page> {
        self.lesson.pages.get(self.page)
    }

    /// How many of the page's actions were taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.done.get(&self.page).copied().unwrap_or(0)
    }

    /// Its number and title: `11  1F1B`.
    #[must_use]
    pub fn heading(&self) -> String {
        if self.lesson.number == 0 { self.lesson.title.clone() } else { format!("{}  {}", self.lesson.number, self.lesson.title) }
    }
}

impl Setup {
    /// The scenario `name` of `lesson`, unchanged.
    #[must_use]
    pub fn of(lesson: &Lesson, name: &str) -> Self {
        let text = lesson.scenario(name).map_or("", |scenario| scenario.text.as_str());
        Self { name: name.to_owned(), text: text.into(), changes: Vec::new(), plan: None }
    }

    /// The same with `key` set to `value`. An edited plan does not outlive its sizes.
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        const SIZES: [&str; 4] = ["parallel.pipeline", "pipeline.schedule", "pipeline.chunks", "batch.micro_batches"];
        let mut changed = self.clone();
        changed.plan = self.plan.clone().filter(|_| !SIZES.contains(&key) && !key.starts_with("model."));
        match changed.changes.iter_mut().find(|change| change.0 == key) {
            Some(change) => value.clone_into(&mut change.1),
            None => changed.changes.push((key.to_owned(), value.to_owned())),
        }
        changed
    }

    /// Whether it is no longer the scenario as it was written.
    #[must_use]
    pub fn is_turned(&self) -> bool {
        !self.changes.is_empty() || self.plan.is_some()
    }

    /// The changes as behind `--set`.
    #[must_use]
    pub fn overrides(&self) -> Vec<String> {
        self.changes.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }
}

/// What is open before anything is.
fn no_lesson() -> Lesson {
    own_lesson("", "")
}

/// A lesson without pages, for a scenario of the learner's own, which keeps its name: problems are told of the file that has them.
#[must_use]
pub fn own_lesson(title: &str, text: &str) -> Lesson {
    let scenario = crate::teach::ScenarioText { name: title.to_owned(), text: text.to_owned() };
    Lesson {
        name: title.to_owned(),
        origin: Origin::Shipped,
        number: 0,
        title: title.to_owned(),
        module: String::new(),
        minutes: 0,
        goal: String::new(),
        view: crate::teach::View::default(),
        knobs: Vec::new(),
        sources: Vec::new(),
        pages: Vec::new(),
        scenarios: vec![scenario],
    }
}
