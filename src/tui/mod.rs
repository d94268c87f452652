//! The screen: model, update, view. Everything in it but `run` is pure.

pub mod alerts;
pub mod axis;
pub mod breaks;
pub mod commands;
pub mod compare;
pub mod coverage;
pub mod data;
pub mod edit;
pub mod glyphs;
pub mod in_flight;
pub mod keys;
pub mod knobs;
pub mod layout;
pub mod lesson;
pub mod model;
pub mod overlay;
pub mod panels;
pub mod pen;
pub mod run;
pub mod theme;
pub mod update;
pub mod view;

use std::io;
use std::sync::Arc;

use crate::base::Bytes;
use crate::scenario::Source;
use crate::teach::library::NotFound;
use crate::teach::{Lesson, Library};
use model::{Model, own_lesson};
pub use run::Exit;

/// Where the screen begins.
#[derive(Clone, Debug)]
pub enum Start {
    /// The list of lessons.
    Lessons,
    /// A lesson: its number, its name, or the start of its name.
    Lesson(String),
    /// A scenario of the learner's own.
    Scenario(Source),
}

/// How the screen looks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Colours.
    pub theme: theme::Theme,
    /// Glyphs.
    pub tier: glyphs::Tier,
}

/// Why the screen did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such lesson.
    #[error("{0}")]
    NotFound(#[from] NotFound),
    /// Standard input or output is no terminal.
    #[error("the lab needs a terminal; without one: `ranklab run`, `ranklab export`")]
    NoTerminal,
    /// The terminal only takes lines, or does not say what it is.
    #[error(
        "{0}, and the lab draws whole screens; without one: `ranklab list`, `ranklab run LESSON`, `ranklab export LESSON -f text -o -`"
    )]
    NoScreen(&'static str),
    /// The terminal cannot be claimed or written to.
    #[error("cannot draw on this terminal: {0}")]
    Terminal(#[from] io::Error),
}

impl Look {
    /// What the environment of this process asks for.
    #[must_use]
    pub fn of_environment() -> Self {
        let surroundings = theme::Surroundings::read();
        Self { theme: surroundings.theme(theme::ColourWish::Auto, None), tier: surroundings.tier() }
    }
}

/// Opens the screen and stays until the learner leaves. Real values that would not fit `memory` are refused; `None`: it is not known.
///
/// # Errors
/// If there is no such lesson, no terminal that can show a screen, or the terminal fails.
pub fn open(start: Start, look: Look, memory: Option<Bytes>) -> Result<Exit, OpenError> {
    let library = Library::open();
    let lesson = match start {
        Start::Lessons => None,
        Start::Lesson(name) => Some(Arc::new(library.find(&name)?.clone())),
        Start::Scenario(source) => Some(Arc::new(own_lesson(&source.name, &source.text))),
    };
    if !run::is_terminal() {
        return Err(OpenError::NoTerminal);
    }
    if let Some(reason) = theme::Surroundings::read().no_screen() {
        return Err(OpenError::NoScreen(reason));
    }
    let mut model = Model::new(run::terminal_size(), look.theme, look.tier, library);
    let first = lesson.map(|lesson: Arc<Lesson>| update::runs::open(&mut model, lesson));
    Ok(run::run(model, first, memory)?)
}
