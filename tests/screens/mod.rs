//! The screen without a terminal: keys in, pictures out. Runs are real; the worker answers at once.

mod asking;
mod choosing;
mod comparing;
mod editing;
mod fitting;
mod fuzz;
mod pictures;
mod stepping;

use std::sync::{Arc, OnceLock};

use ranklab::base::Bytes;
use ranklab::teach::Library;
use ranklab::tui::data::RunData;
use ranklab::tui::glyphs::Tier;
use ranklab::tui::keys::Key;
use ranklab::tui::model::Model;
use ranklab::tui::run::worker::Worker;
use ranklab::tui::theme::{Depth, Palette, Theme};
use ranklab::tui::update::{Effect, Message, look, runs, update};

use crate::support::row_of;

/// The look without colour and block glyphs.
const ASCII_MONO: (Theme, Tier) = (Theme { palette: Palette::Mono, depth: Depth::True }, Tier::Ascii);
/// The look of a modern terminal.
const BLOCKS_DARK: (Theme, Tier) = (Theme { palette: Palette::Dark, depth: Depth::True }, Tier::Blocks);

/// No knob makes a run that takes more than this for its numbers.
const MEMORY: Bytes = Bytes(64 << 20);

/// The program without a terminal: effects are answered at once.
struct Lab {
    model: Model,
    worker: Worker,
}

impl Lab {
    /// The list of lessons on a screen of `size`.
    fn start(size: (u16, u16), (theme, tier): (Theme, Tier)) -> Self {
        Self { model: Model::new(size, theme, tier, Library::shipped()), worker: Worker::new(Some(MEMORY)) }
    }

    /// Lesson 11, run and shown from its start.
    fn opened(size: (u16, u16), look: (Theme, Tier)) -> Self {
        let mut lab = Self::start(size, look);
        lab.choose(11);
        lab
    }

    /// Opens lesson `number` from the list.
    fn choose(&mut self, number: u32) {
        self.press(&"Down ".repeat(row_of(number)));
        self.press("Enter");
        assert_eq!(self.model.lesson.lesson.number, number);
    }

    /// The same with a run that was made once for all tests: its values cannot be looked at.
    fn opened_fast(size: (u16, u16), look: (Theme, Tier)) -> Self {
        static RUN: OnceLock<Arc<RunData>> = OnceLock::new();
        let data = RUN.get_or_init(|| Lab::opened((80, 24), ASCII_MONO).model.run.data.clone());
        let mut lab = Self::start(size, look);
        let lesson = Arc::new(lab.model.shelf.contents.find("11").expect("a lesson").clone());
        runs::open(&mut lab.model, lesson);
        lab.send(Message::Ran(1, Ok(Arc::clone(data))));
        lab
    }

    /// Presses keys, written as in the help and separated by blanks; returns the last effect.
    fn press(&mut self, keys: &str) -> Option<Effect> {
        let mut last = None;
        for word in keys.split(' ').filter(|word| !word.is_empty()) {
            let key = Key::parse(word).unwrap_or_else(|| panic!("{word} is not a key"));
            last = self.send(Message::Key(key));
        }
        last
    }

    /// Types a text, character by character.
    fn type_text(&mut self, text: &str) {
        for character in text.chars() {
            self.send(Message::Key(Key::Char(character)));
        }
    }

    /// A command of the palette.
    fn palette(&mut self, text: &str) -> Option<Effect> {
        self.press(":");
        self.type_text(text);
        self.press("Enter")
    }

    /// Takes one message and whatever it leads to.
    fn send(&mut self, message: Message) -> Option<Effect> {
        let effect = update(&mut self.model, message);
        // Exports go to the folder where the lab was opened: no key pressed here leaves one behind.
        let writes = |effect: &Effect| {
            let names_none = |file: &str| !file.contains('/');
            matches!(effect, Effect::Export { .. }) || matches!(effect, Effect::SavePlan { file, .. } if names_none(file))
        };
        let answer = effect.clone().filter(|effect| !writes(effect)).and_then(|effect| self.worker.answer(effect));
        answer.map(|answer| update(&mut self.model, answer));
        let values = look(&mut self.model).and_then(|effect| self.worker.answer(effect));
        values.map(|values| update(&mut self.model, values));
        effect
    }
}
