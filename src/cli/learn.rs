//! `ranklab learn [LESSON]`: the lab on the screen.

use super::{Exit, Failure, Outcome};
use crate::tui::{demo, model::Model, run as screen, theme};

/// Where to start.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A lesson (its number or its name) or a scenario file; without one, the list of lessons
    lesson: Option<String>,
}

/// Opens the lab.
pub fn run(arguments: &Arguments) -> Outcome {
    open(arguments.lesson.as_deref())
}

/// Opens the lab, at a lesson if one is named.
pub fn open(_lesson: Option<&str>) -> Outcome {
    if !screen::is_terminal() {
        return Err(Failure::Input("the lab needs a terminal; without one: ranklab run, ranklab export".to_owned()));
    }
    let surroundings = theme::Surroundings::read();
    let theme = surroundings.theme(theme::ColourWish::Auto, None);
    let model = Model::new(screen::terminal_size(), theme, surroundings.tier(), demo::lessons());
    match screen::run(model, demo::perform) {
        Ok(_) => Ok(Exit::Done),
        Err(error) => Err(Failure::Io(format!("cannot draw on this terminal: {error}"))),
    }
}
