//! A page of a lesson, as plain data: what stands on it, and what the picture beside it shows. The screen lays it out.

use super::stop::Stop;

/// One page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// What stands below the heading.
    pub blocks: Vec<Block>,
    /// The file name of the scenario that is run beside it.
    pub scenario: String,
    /// The view that opens with it.
    pub view: View,
    /// Where in the run the picture stands; `None`: where the learner left it.
    pub stop: Option<Stop>,
}

/// A piece of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Running text.
    Paragraph(Text),
    /// A list, one level deep.
    List(Vec<Item>),
    /// Lines to be shown as they are.
    Code(Vec<String>),
    /// A table; every row has as many cells as the head.
    Table {
        /// The names of the columns.
        head: Vec<Text>,
        /// The rows.
        rows: Vec<Vec<Text>>,
    },
    /// Something to look at: its paragraphs, to be shown behind the word LOOK (`LOOK at r0`).
    Look(Vec<Text>),
    /// Something to change.
    Try {
        /// The knob: a key of the scenario, one of the lesson's knobs.
        key: String,
        /// The values to give it, in this order; all are offered by the knob.
        values: Vec<String>,
        /// Its paragraphs; the first begins with the key and its values, as written.
        text: Vec<Text>,
    },
    /// A question with its answer, which stays hidden until it is asked for.
    Ask {
        /// The question's paragraphs.
        question: Vec<Text>,
        /// The answer's paragraphs.
        answer: Vec<Text>,
    },
}

/// An item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What stands before it: `-`, or its number with a dot.
    pub mark: String,
    /// What it says.
    pub text: Text,
}

/// Words: the lines may be broken before each one that is not glued.
pub type Text = Vec<Word>;

/// A word, without blanks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its letters.
    pub text: String,
    /// How it is set.
    pub style: Style,
    /// It follows the word before it without a blank.
    pub glued: bool,
}

/// How a word is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// As running text.
    #[default]
    Plain,
    /// `*so*`
    Emphasis,
    /// `**so**`
    Strong,
    /// Between backquotes: keys, ops, values.
    Code,
}

/// A view of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Spans over time.
    #[default]
    Timeline,
    /// Programs per rank, and why each waits.
    Debug,
    /// Ranks, the chunks that they hold, bytes on each wire.
    Links,
    /// Memory by role over time.
    Memory,
    /// Busy and idle time.
    Metrics,
    /// The wait-for graph.
    Waits,
    /// Ranks along the axes of the mesh, and the groups of one.
    Mesh,
}

impl View {
    /// Every view with its name in lessons.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Timeline, "timeline"),
        (Self::Debug, "debug"),
        (Self::Links, "links"),
        (Self::Memory, "memory"),
        (Self::Metrics, "metrics"),
        (Self::Waits, "waits"),
        (Self::Mesh, "mesh"),
    ];

    /// The view called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(view, _)| *view)
    }

    /// Its name in lessons.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(view, _)| *view == self).map_or("", |(_, name)| name)
    }
}

impl Page {
    /// Whether an answer is hidden on it.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::Ask { .. }))
    }
}

/// Words as one string.
#[must_use]
pub fn plain(text: &[Word]) -> String {
    let mut string = String::new();
    for word in text {
        if !word.glued && !string.is_empty() {
            string.push(' ');
        }
        string.push_str(&word.text);
    }
    string
}
