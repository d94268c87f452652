//! What can lie over the view, with what is typed or chosen in it.

use std::sync::Arc;

use crate::observe::export::Format;
use crate::program::plan::Plan;

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
    /// The scenario's knobs.
    Knobs {
        /// The chosen knob.
        selected: usize,
        /// What is wrong with the last turn; empty if nothing is.
        problem: String,
    },
    /// What is wrong with a scenario.
    Problem {
        /// Its problems, as the command line prints them.
        text: String,
    },
    /// Why the op under the cursor had to wait.
    Why {
        /// Sentences, from the op to the cause.
        text: String,
        /// The first shown line.
        scroll: usize,
    },
    /// The breakpoints.
    Breaks {
        /// The chosen one.
        selected: usize,
    },
    /// Cells that were taken out of the plan, to put one back.
    Put {
        /// The chosen one of those that belong to the cursor's row.
        selected: usize,
    },
    /// A file that exists is in the way of the plan.
    Overwrite {
        /// The file.
        file: String,
        /// What is to be written.
        plan: Arc<Plan>,
    },
    /// The formats to export to.
    Export {
        /// The chosen one.
        selected: usize,
    },
}

impl Overlay {
    /// The keys that do something while it is open, each with a word; `None` where nothing is open, or a line of its own says it.
    #[must_use]
    pub fn keys(&self) -> Option<&'static [(&'static str, &'static str)]> {
        Some(match self {
            Self::None | Self::Palette { .. } | Self::Find { .. } | Self::Overwrite { .. } => return None,
            Self::Help { .. } => &[("type", "to filter"), ("Up/Down", "scroll"), ("Esc", "closes")],
            Self::Knobs { .. } => &[("Up/Down", "choose"), ("Left/Right", "turn"), ("Bksp", "puts all back"), ("Esc", "closes")],
            Self::Problem { .. } => &[("o", "knobs"), (":", "cmd"), ("Esc", "closes")],
            Self::Why { .. } => &[("Up/Down", "scroll"), ("Esc", "closes")],
            Self::Breaks { .. } => &[("Up/Down", "choose"), ("Enter", "goes there"), ("x", "takes it away"), ("Esc", "closes")],
            Self::Put { .. } => &[("Up/Down", "choose"), ("Enter", "puts it in"), ("Esc", "closes")],
            Self::Export { .. } => &[("Up/Down", "choose"), ("Enter", "writes"), ("Esc", "closes")],
        })
    }
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

/// The forms a run can be exported in, and what each is for.
pub const EXPORTS: [(Format, &str); 6] = [
    (Format::Svg, "the picture, for a page"),
    (Format::Perfetto, "a trace for ui.perfetto.dev"),
    (Format::Json, "the run's numbers as one document"),
    (Format::Text, "the picture in plain characters, and a summary"),
    (Format::Csv, "one line per op"),
    (Format::Trace, "everything that happened, for `ranklab compare`"),
];
