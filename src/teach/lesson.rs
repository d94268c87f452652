//! A lesson: its text and its scenarios, read from a folder.
//!
//! # The format
//!
//! A lesson is a folder `NN-name/`, where NN is the lesson's number. It holds `lesson.md`, `scenario.toml`, as many further scenarios
//! `*.toml` as its pages name, and the sheets `*.csv` that those name. `lesson.md` begins with front matter in TOML:
//!
//! ```toml
//! +++
//! title = "1F1B"
//! number = 11
//! module = "D. Pipelines"            # the chapter that lists the lesson
//! minutes = 20
//! goal = "Know what 1F1B changes."   # what the list of lessons says about it
//! view = "timeline"                  # opens first: timeline, debug, links, memory, metrics, waits
//! knobs = [                          # keys of the scenario, with the values to offer
//!     { key = "batch.micro_batches", values = [4, 8, 16] },
//! ]
//! sources = ["arXiv 2104.04473, section 2.2"]
//! +++
//! ```
//!
//! Pages follow, separated by a line `---`. Each begins with its title, `# Title`. Below it stand paragraphs, lists (one level), tables
//! and fenced code; words may be `*emphasis*`, `**strong**` or code. There are no links, images or further headings. Three quotes mean
//! something, and there are no others:
//!
//! ```md
//! > LOOK at r0: it waits for its first backward.
//!
//! > TRY `batch.micro_batches = 4, 16`: does the gap grow?
//!
//! > ASK which rank holds the fewest activations?
//! > ANSWER
//! > The last one: its backward can start at once.
//! ```
//!
//! TRY names a knob of the front matter and values that it offers. An answer is hidden until it is asked for. Comments on lines of their
//! own say what the picture beside the page shows, for this page alone:
//!
//! ```md
//! <!-- scenario: star.toml -->   otherwise scenario.toml
//! <!-- view: links -->           otherwise the view of the front matter
//! <!-- stop: op r0 0B0 -->       or start, end, event N, time T (in the clock's unit); otherwise the picture stays where it is
//! ```
//!
//! Whatever else is written is an error, with its file and line.

use std::path::PathBuf;

use super::front::{self, Front};
use super::markdown;
use super::page::{Page, View};
use super::problem::Problem;

/// A lesson.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lesson {
    /// Its folder's name, `11-1f1b`.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Its number in the course.
    pub number: u32,
    /// Its title.
    pub title: String,
    /// The chapter that lists it.
    pub module: String,
    /// How long it takes.
    pub minutes: u32,
    /// What one knows at its end.
    pub goal: String,
    /// The view that opens first.
    pub view: View,
    /// What can be turned.
    pub knobs: Vec<Knob>,
    /// Where its formulas and numbers come from.
    pub sources: Vec<String>,
    /// Its pages, at least one.
    pub pages: Vec<Page>,
    /// Its scenarios; the first is `scenario.toml`.
    pub scenarios: Vec<ScenarioText>,
}

/// Where a lesson comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It ships with ranklab.
    Shipped,
    /// The learner's own: its folder.
    Folder(PathBuf),
}

/// A key of the scenario, and values to offer for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The key, as behind `--set`: `pipeline.schedule`.
    pub key: String,
    /// The values, as behind `--set key=`; at least two.
    pub values: Vec<String>,
}

/// A scenario's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioText {
    /// Its file's name.
    pub name: String,
    /// Its TOML.
    pub text: String,
}

/// The files of a lesson, before they are read.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The folder's name.
    pub name: String,
    /// Where it lies.
    pub origin: Origin,
    /// The text of `lesson.md`.
    pub lesson: String,
    /// The scenarios, in any order.
    pub scenarios: Vec<ScenarioText>,
}

/// The scenario of pages that name none.
pub const SCENARIO: &str = "scenario.toml";

impl Lesson {
    /// Reads a lesson.
    ///
    /// # Errors
    /// All problems of its front matter; if it has none, all problems of its pages.
    pub fn parse(folder: Folder) -> Result<Self, Vec<Problem>> {
        let file = format!("{}/lesson.md", folder.name);
        let text = folder.lesson.strip_prefix('\u{feff}').unwrap_or(&folder.lesson).replace("\r\n", "\n");
        let (matter, body, line) = front::split(&file, &text).map_err(|problem| vec![problem])?;
        let front = front::parse(&file, matter)?;
        let scenarios = ordered(folder.scenarios);
        let source = markdown::Source { file: &file, front: &front, scenarios: &scenarios };
        let mut problems = misplaced(&folder.name, &file, &front, &scenarios);
        let pages = match markdown::pages(&source, body, line) {
            Ok(pages) => pages,
            Err(more) => {
                problems.extend(more);
                Vec::new()
            }
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let Front { title, number, module, minutes, goal, view, knobs, sources } = front;
        Ok(Self {
            name: folder.name,
            origin: folder.origin,
            number,
            title,
            module,
            minutes,
            goal,
            view,
            knobs,
            sources,
            pages,
            scenarios,
        })
    }

    /// The scenario called `name`.
    #[must_use]
    pub fn scenario(&self, name: &str) -> Option<&ScenarioText> {
        self.scenarios.iter().find(|scenario| scenario.name == name)
    }
}

/// `scenario.toml` first, the others by name.
fn ordered(mut scenarios: Vec<ScenarioText>) -> Vec<ScenarioText> {
    scenarios.sort_by(|a, b| (a.name != SCENARIO, &a.name).cmp(&(b.name != SCENARIO, &b.name)));
    scenarios
}

/// What does not fit the folder: its name, its files.
fn misplaced(name: &str, file: &str, front: &Front, scenarios: &[ScenarioText]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let number = name.split_once('-').and_then(|(number, _)| number.parse::<u32>().ok());
    if number != Some(front.number) {
        let message = format!("the folder `{name}` holds lesson {}", front.number);
        problems.push(Problem::new(file, 0, message).hint(format!("name it {:02}-something", front.number)));
    }
    if scenarios.first().is_none_or(|scenario| scenario.name != SCENARIO) {
        problems.push(
            Problem::new(&format!("{name}/{SCENARIO}"), 0, "a lesson needs this file")
                .hint("`ranklab new FILE` writes a scenario"),
        );
    }
    problems
}
