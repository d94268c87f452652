//! The screen's state as plain data: what is shown, where the learner stands, what is open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::units::Ticks;

use super::axis::Window;
use super::coverage::Coverage;
use super::glyphs::Tier;
use super::lesson::Document;
use super::picture::{Picture, Row, Span};
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
}

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
    pub focus: [usize; 8],
    /// One pane alone.
    pub maximised: bool,
    /// The lessons to choose from.
    pub shelf: Shelf,
    /// The lesson that is open.
    pub lesson: LessonModel,
    /// The run that is shown.
    pub run: RunModel,
    /// Where in the run.
    pub now: Now,
    /// Playing, and how fast.
    pub player: Player,
    /// What of the timeline is shown.
    pub timeline: TimelineModel,
    /// Events at which a continued run stops.
    pub breaks: BTreeSet<u32>,
    /// Places to come back to, by letter.
    pub marks: BTreeMap<char, (Now, Cursor)>,
    /// The scenario's knobs.
    pub knobs: Vec<Knob>,
    /// What lies over the view.
    pub overlay: Overlay,
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
    /// The lessons in their order.
    pub lessons: Vec<Listed>,
    /// The selected one.
    pub selected: usize,
}

/// One line in the list of lessons.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The lesson's number in the course.
    pub number: u32,
    /// Its folder's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The chapter it belongs to.
    pub chapter: String,
    /// What it is about, Markdown.
    pub about: String,
}

/// The open lesson.
#[derive(Clone, Debug, Default)]
pub struct LessonModel {
    /// Its number and title: `11 1F1B`.
    pub title: String,
    /// Its pages.
    pub document: Arc<Document>,
    /// The page that is shown.
    pub page: usize,
    /// The first line of the page that is shown.
    pub scroll: usize,
    /// Pages whose answer is shown.
    pub answered: BTreeSet<usize>,
}

/// The run that is shown.
#[derive(Clone, Debug)]
pub struct RunModel {
    /// Rows, spans, events.
    pub picture: Arc<Picture>,
    /// How much of any stretch each kind covers.
    pub coverage: Arc<Coverage>,
    /// What the top right corner says: `MODEL clock`, `4 ranks`, `mb=8`.
    pub facts: Vec<String>,
    /// Micro-batches held, a step function per rank: (tick, count from it on).
    pub held: Arc<Vec<Vec<(u64, u32)>>>,
    /// Knobs were changed and the run is still the old one.
    pub stale: bool,
}

/// A place in the run: the position is the event number, the time belongs to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Events that have happened.
    pub event: u32,
    /// The time.
    pub time: Ticks,
}

/// Playing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// A row of the picture.
    pub row: usize,
    /// A tick.
    pub time: u64,
}

/// What of the timeline is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineModel {
    /// The cursor: its row is the focus rank.
    pub cursor: Cursor,
    /// The shown stretch; none: the whole run.
    pub window: Option<Window>,
    /// The first shown row.
    pub first_row: usize,
}

/// One thing about the scenario that can be turned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The scenario's key: `pipeline.schedule`.
    pub key: String,
    /// What it is, in words.
    pub label: String,
    /// What it is now.
    pub value: String,
    /// What it may be, in order.
    pub choices: Vec<String>,
}

/// What lies over the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The keys.
    Help {
        /// Only lines with this text.
        filter: String,
        /// The first shown line.
        scroll: usize,
    },
    /// A command by its name.
    Palette {
        /// What was typed.
        text: String,
        /// The chosen one of the matching commands.
        selected: usize,
    },
    /// Searching.
    Find {
        /// What was typed.
        text: String,
    },
    /// The knobs, with values that are not applied yet.
    Knobs {
        /// The chosen knob.
        selected: usize,
        /// A value for each knob.
        values: Vec<String>,
    },
    /// The breakpoints.
    Breaks {
        /// The chosen one.
        selected: usize,
    },
    /// The formats to export to.
    Export {
        /// The chosen one.
        selected: usize,
    },
}

/// The first key of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// The second key chooses a command from the table.
    Table(char),
    /// The second key names a mark to set.
    SetMark,
    /// The second key names a mark to go to.
    GoToMark,
}

/// The formats a run can be exported to.
pub const EXPORT_FORMATS: [(&str, &str); 5] = [
    ("svg", "the picture, for a page"),
    ("perfetto", "a trace for ui.perfetto.dev"),
    ("json", "the run as one document"),
    ("text", "the picture in plain characters"),
    ("csv", "one line per op"),
];

impl View {
    /// The views of a run in the order of their keys.
    pub const OF_A_RUN: [Self; 7] =
        [Self::Lesson, Self::Timeline, Self::Debugger, Self::Links, Self::Memory, Self::Metrics, Self::Waits];

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
        }
    }
}

impl Model {
    /// The list of lessons on a terminal of `size`, nothing opened yet.
    #[must_use]
    pub fn new(size: (u16, u16), theme: Theme, tier: Tier, lessons: Vec<Listed>) -> Self {
        Self {
            size,
            theme,
            tier,
            dirty: true,
            view: View::Lessons,
            focus: [0; 8],
            maximised: false,
            shelf: Shelf { lessons, selected: 0 },
            lesson: LessonModel::default(),
            run: RunModel::empty(),
            now: Now::default(),
            player: Player { on: false, speed: 0, rest: 0 },
            timeline: TimelineModel::default(),
            breaks: BTreeSet::new(),
            marks: BTreeMap::new(),
            knobs: Vec::new(),
            overlay: Overlay::None,
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
    pub fn cursor_row(&self) -> Option<&Row> {
        self.run.picture.rows.get(self.timeline.cursor.row)
    }

    /// The span under the cursor.
    #[must_use]
    pub fn cursor_span(&self) -> Option<&Span> {
        self.cursor_row().and_then(|row| row.span_at(self.timeline.cursor.time))
    }

    /// The rank that `n` steps: the one under the cursor.
    #[must_use]
    pub fn focus_rank(&self) -> u32 {
        self.cursor_row().map_or(0, |row| row.rank)
    }
}

impl RunModel {
    /// No run yet.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(Arc::new(Picture::empty()), Arc::default(), Vec::new(), Arc::default())
    }

    /// A run to show.
    #[must_use]
    pub fn new(picture: Arc<Picture>, coverage: Arc<Coverage>, facts: Vec<String>, held: Arc<Vec<Vec<(u64, u32)>>>) -> Self {
        Self { picture, coverage, facts, held, stale: false }
    }
}
