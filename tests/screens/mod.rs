//! The screen without a terminal: keys in, pictures out.

mod fuzz;
mod pictures;
mod stepping;

use ranklab::tui::demo;
use ranklab::tui::glyphs::Tier;
use ranklab::tui::keys::Key;
use ranklab::tui::model::Model;
use ranklab::tui::theme::{Depth, Palette, Theme};
use ranklab::tui::update::{Effect, Message, update};
use std::sync::mpsc;

/// The look without colour and block glyphs.
const ASCII_MONO: (Theme, Tier) = (Theme { palette: Palette::Mono, depth: Depth::True }, Tier::Ascii);
/// The look of a modern terminal.
const BLOCKS_DARK: (Theme, Tier) = (Theme { palette: Palette::Dark, depth: Depth::True }, Tier::Blocks);

/// The program without a terminal: effects are answered at once.
struct Lab {
    model: Model,
}

impl Lab {
    /// The list of lessons on a screen of `size`.
    fn start(size: (u16, u16), (theme, tier): (Theme, Tier)) -> Self {
        Self { model: Model::new(size, theme, tier, demo::lessons()) }
    }

    /// An opened lesson, run and shown from its start.
    fn opened(size: (u16, u16), look: (Theme, Tier)) -> Self {
        let mut lab = Self::start(size, look);
        lab.press("Down Down Down Enter");
        lab
    }

    /// Presses keys, written as in the help and separated by blanks; returns the last effect that is not the run's affair.
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

    /// Takes one message and whatever it leads to.
    fn send(&mut self, message: Message) -> Option<Effect> {
        let (sender, receiver) = mpsc::channel();
        let effect = update(&mut self.model, message);
        if let Some(effect) = effect.clone() {
            demo::perform(effect, &sender);
        }
        drop(sender);
        for answer in receiver {
            update(&mut self.model, answer);
        }
        effect
    }
}
