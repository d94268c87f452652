//! `ranklab learn [LESSON|FILE]`: the lab on the screen.

use std::path::Path;

use clap::ValueEnum;

use super::{Exit, Failure, Outcome, input, machine};
use crate::tui::theme::{ColourWish, Palette, Surroundings};
use crate::tui::{self, Look, OpenError, Start, glyphs::Tier};

/// Where to start, and how it looks.
#[derive(Debug, Default, clap::Args)]
pub struct Arguments {
    /// A lesson (its number or its name) or a scenario file; without one, the list of lessons
    #[arg(value_name = "LESSON|FILE")]
    what: Option<String>,
    /// Colour; `NO_COLOR` in the environment counts as `never`
    #[arg(long, value_enum, default_value_t)]
    color: Color,
    /// The palette; without it, what the terminal seems to be made for
    #[arg(long, value_enum)]
    theme: Option<Theme>,
    /// What pictures are made of; without it, what the locale can show
    #[arg(long, value_enum)]
    glyphs: Option<Glyphs>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Theme {
    Dark,
    Light,
    Ansi16,
    Mono,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Glyphs {
    Ascii,
    Blocks,
}

const KEYS_FROM_INPUT: &str = "the lab reads keys from standard input, and can't read a scenario there: write it to a file";

/// Opens the lab.
pub fn run(arguments: &Arguments) -> Outcome {
    let start = match arguments.what.as_deref() {
        None => Start::Lessons,
        Some("-") => return Err(Failure::Input(KEYS_FROM_INPUT.to_owned())),
        Some(what) if is_scenario(what) => Start::Scenario(input::source(what)?),
        Some(lesson) => Start::Lesson(lesson.to_owned()),
    };
    match tui::open(start, look(arguments), machine::available_memory()) {
        Ok(exit) => Ok(Exit::Screen(exit.code())),
        Err(error @ (OpenError::NotFound(_) | OpenError::NoTerminal | OpenError::NoScreen(_))) => {
            Err(Failure::Input(error.to_string()))
        }
        Err(error @ OpenError::Terminal(_)) => Err(Failure::Io(error.to_string())),
    }
}

/// A file, or a scenario that ships with ranklab; lessons are called by number or name.
fn is_scenario(what: &str) -> bool {
    let path = Path::new(what);
    path.is_file() || what.contains(['/', '\\']) || path.extension().is_some() || input::shipped(what).is_some()
}

fn look(arguments: &Arguments) -> Look {
    let surroundings = Surroundings::read();
    let wish = match arguments.color {
        Color::Auto => ColourWish::Auto,
        Color::Always => ColourWish::Always,
        Color::Never => ColourWish::Never,
    };
    let palette = arguments.theme.map(|theme| match theme {
        Theme::Dark => Palette::Dark,
        Theme::Light => Palette::Light,
        Theme::Ansi16 => Palette::Ansi16,
        Theme::Mono => Palette::Mono,
    });
    let tier = match arguments.glyphs {
        Some(Glyphs::Ascii) => Tier::Ascii,
        Some(Glyphs::Blocks) => Tier::Blocks,
        None => surroundings.tier(),
    };
    Look { theme: surroundings.theme(wish, palette), tier }
}
