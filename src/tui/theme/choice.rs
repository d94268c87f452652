//! Which theme and which glyphs a terminal gets: from its environment and from what the learner asked for.

use super::{Depth, Palette, Theme};
use crate::tui::glyphs::Tier;

/// What `--color` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourWish {
    /// As the environment says.
    #[default]
    Auto,
    /// Colour, whatever the environment says.
    Always,
    /// No colour.
    Never,
}

/// The environment variables that speak of the terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `TERM`.
    pub term: String,
    /// `COLORTERM`.
    pub colorterm: String,
    /// `COLORFGBG`: foreground and background of the terminal, as some terminals tell.
    pub colorfgbg: String,
    /// Whether `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// The locale: the first of `LC_ALL`, `LC_CTYPE`, `LANG` that is set.
    pub locale: String,
}

impl Surroundings {
    /// Read from this process's environment.
    #[must_use]
    pub fn read() -> Self {
        let text = |name: &str| std::env::var(name).unwrap_or_default();
        let set = |name: &&str| !text(name).is_empty();
        Self {
            term: text("TERM"),
            colorterm: text("COLORTERM"),
            colorfgbg: text("COLORFGBG"),
            no_color: set(&"NO_COLOR"),
            locale: ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(set).map(text).unwrap_or_default(),
        }
    }

    /// The theme for this terminal; a palette by name beats the guess of the palette, not the wish for no colour.
    #[must_use]
    pub fn theme(&self, wish: ColourWish, palette: Option<Palette>) -> Theme {
        let depth = self.depth();
        let colourless = wish == ColourWish::Never || (wish == ColourWish::Auto && (self.no_color || self.is_dumb()));
        let palette = match palette {
            _ if colourless => Palette::Mono,
            Some(palette) => palette,
            None if depth.is_none() => Palette::Ansi16,
            None if self.is_light() => Palette::Light,
            None => Palette::Dark,
        };
        Theme { palette, depth: depth.unwrap_or(Depth::Indexed) }
    }

    /// The glyphs that this terminal shows for sure.
    #[must_use]
    pub fn tier(&self) -> Tier {
        let utf8 = self.locale.to_ascii_lowercase().replace('-', "").ends_with("utf8");
        if utf8 && self.term != "linux" && !self.is_dumb() { Tier::Blocks } else { Tier::Ascii }
    }

    /// `None`: sixteen colours only.
    fn depth(&self) -> Option<Depth> {
        if matches!(self.colorterm.as_str(), "truecolor" | "24bit") {
            Some(Depth::True)
        } else {
            self.term.contains("256").then_some(Depth::Indexed)
        }
    }

    /// Why this terminal cannot show a screen, if it says that it cannot or does not say what it is. (Windows has no `TERM`.)
    #[must_use]
    pub fn no_screen(&self) -> Option<&'static str> {
        match self.term.as_str() {
            "dumb" => Some("TERM=dumb is a terminal of lines"),
            "" if cfg!(unix) => Some("TERM is not set, so that this may be a terminal of lines"),
            _ => None,
        }
    }

    fn is_dumb(&self) -> bool {
        self.term == "dumb"
    }

    /// A background of white or light grey.
    fn is_light(&self) -> bool {
        matches!(self.colorfgbg.rsplit(';').next(), Some("7" | "15"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xterm() -> Surroundings {
        Surroundings { term: "xterm-256color".into(), locale: "en_GB.UTF-8".into(), ..Surroundings::default() }
    }

    #[test]
    fn the_environment_chooses_the_theme() {
        let check = |surroundings: Surroundings, wish, palette, expected: (Palette, Depth)| {
            let theme = surroundings.theme(wish, palette);
            assert_eq!((theme.palette, theme.depth), expected, "{surroundings:?} {wish:?} {palette:?}");
        };
        let auto = ColourWish::Auto;
        check(xterm(), auto, None, (Palette::Dark, Depth::Indexed));
        check(Surroundings { colorterm: "truecolor".into(), ..xterm() }, auto, None, (Palette::Dark, Depth::True));
        check(Surroundings { colorfgbg: "0;15".into(), ..xterm() }, auto, None, (Palette::Light, Depth::Indexed));
        check(Surroundings { colorfgbg: "15;0".into(), ..xterm() }, auto, None, (Palette::Dark, Depth::Indexed));
        check(Surroundings { term: "linux".into(), ..xterm() }, auto, None, (Palette::Ansi16, Depth::Indexed));
        check(Surroundings { term: "dumb".into(), ..xterm() }, auto, None, (Palette::Mono, Depth::Indexed));
        let no_color = Surroundings { no_color: true, ..xterm() };
        check(no_color.clone(), auto, None, (Palette::Mono, Depth::Indexed));
        check(no_color.clone(), auto, Some(Palette::Light), (Palette::Mono, Depth::Indexed));
        check(no_color, ColourWish::Always, Some(Palette::Light), (Palette::Light, Depth::Indexed));
        check(xterm(), ColourWish::Never, Some(Palette::Dark), (Palette::Mono, Depth::Indexed));
    }

    #[test]
    fn block_glyphs_need_a_locale_that_has_them() {
        let check = |term: &str, locale: &str, expected| {
            let surroundings = Surroundings { term: term.into(), locale: locale.into(), ..Surroundings::default() };
            assert_eq!(surroundings.tier(), expected, "{term} {locale}");
        };
        check("xterm-256color", "en_GB.UTF-8", Tier::Blocks);
        check("xterm", "C.utf8", Tier::Blocks);
        check("xterm", "C", Tier::Ascii);
        check("xterm", "", Tier::Ascii);
        check("linux", "en_GB.UTF-8", Tier::Ascii);
        check("dumb", "en_GB.UTF-8", Tier::Ascii);
    }

    #[test]
    fn a_terminal_of_lines_has_no_screen() {
        for (term, shows) in [("dumb", false), ("", cfg!(windows)), ("xterm", true), ("linux", true), ("dumb-emacs-ansi", true)] {
            let surroundings = Surroundings { term: term.into(), ..Surroundings::default() };
            assert_eq!(surroundings.no_screen().is_none(), shows, "{term}");
        }
    }
}
