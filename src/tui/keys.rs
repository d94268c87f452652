//! Keys: what the terminal reports, as one word each. The same words stand in the command table, the footer and the help.

use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// One key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A printable character as typed, shift included.
    Char(char),
    /// A letter with the control key.
    Ctrl(char),
    /// A key with a name.
    Named(Name),
}

/// Keys that print nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are engraved on the keys")]
pub enum Name {
    Enter,
    Esc,
    Tab,
    BackTab,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    F1,
}

const NAMES: [(Name, &str); 14] = [
    (Name::Enter, "Enter"),
    (Name::Esc, "Esc"),
    (Name::Tab, "Tab"),
    (Name::BackTab, "S-Tab"),
    (Name::Backspace, "Bksp"),
    (Name::Up, "Up"),
    (Name::Down, "Down"),
    (Name::Left, "Left"),
    (Name::Right, "Right"),
    (Name::Home, "Home"),
    (Name::End, "End"),
    (Name::PageUp, "PgUp"),
    (Name::PageDown, "PgDn"),
    (Name::F1, "F1"),
];

impl Key {
    /// The key that `word` stands for, the inverse of its `Display`: `n`, `spc`, `C-l`, `Tab`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let mut characters = word.chars();
        match (characters.next(), characters.next(), characters.next(), characters.next()) {
            (Some('s'), Some('p'), Some('c'), None) => Some(Self::Char(' ')),
            (Some(character), None, ..) => Some(Self::Char(character)),
            (Some('C'), Some('-'), Some(letter), None) => Some(Self::Ctrl(letter)),
            _ => NAMES.iter().find(|(_, name)| *name == word).map(|(name, _)| Self::Named(*name)),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Char(' ') => f.write_str("spc"),
            Self::Char(character) => write!(f, "{character}"),
            Self::Ctrl(letter) => write!(f, "C-{letter}"),
            Self::Named(name) => f.write_str(NAMES.iter().find(|(named, _)| named == name).map_or("", |(_, word)| word)),
        }
    }
}

/// The key of a terminal event, if it is one that this program knows. Releases are not presses.
#[must_use]
pub fn pressed(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release || event.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    let name = match event.code {
        KeyCode::Char(character) if control => return Some(Key::Ctrl(character.to_ascii_lowercase())),
        KeyCode::Char(character) => return Some(Key::Char(character)),
        KeyCode::Enter => Name::Enter,
        KeyCode::Esc => Name::Esc,
        KeyCode::Tab => Name::Tab,
        KeyCode::BackTab => Name::BackTab,
        KeyCode::Backspace => Name::Backspace,
        KeyCode::Up => Name::Up,
        KeyCode::Down => Name::Down,
        KeyCode::Left => Name::Left,
        KeyCode::Right => Name::Right,
        KeyCode::Home => Name::Home,
        KeyCode::End => Name::End,
        KeyCode::PageUp => Name::PageUp,
        KeyCode::PageDown => Name::PageDown,
        KeyCode::F(1) => Name::F1,
        _ => return None,
    };
    Some(Key::Named(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_prints_as_a_word_that_parses_to_it() {
        let named = NAMES.iter().map(|(name, _)| Key::Named(*name));
        for key in named.chain([Key::Char(' '), Key::Char('N'), Key::Char('<'), Key::Ctrl('l')]) {
            assert_eq!(Key::parse(&key.to_string()), Some(key), "{key}");
        }
        assert_eq!(Key::parse("C-"), None);
        assert_eq!(Key::parse(""), None);
    }

    #[test]
    fn only_presses_count() {
        let event = |kind| KeyEvent { kind, ..KeyEvent::new(KeyCode::Char('n'), KeyModifiers::NONE) };
        assert_eq!(pressed(event(KeyEventKind::Press)), Some(Key::Char('n')));
        assert_eq!(pressed(event(KeyEventKind::Repeat)), Some(Key::Char('n')));
        assert_eq!(pressed(event(KeyEventKind::Release)), None);
        assert_eq!(pressed(KeyEvent::new(KeyCode::Char('x'), KeyModifiers::ALT)), None);
        assert_eq!(pressed(KeyEvent::new(KeyCode::Char('Z'), KeyModifiers::CONTROL)), Some(Key::Ctrl('z')));
    }
}
