//! Colours and modifiers by role. Hue carries five roles only; everything is readable without it.

mod choice;
#[cfg(test)]
mod gate;

use ratatui::style::{Color, Modifier, Style};

use crate::observe::Kind;

pub use choice::{ColourWish, Surroundings};

/// A set of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// For dark backgrounds: hues tuned for contrast and for all kinds of colour vision.
    Dark,
    /// For light backgrounds.
    Light,
    /// The terminal's own sixteen colours.
    Ansi16,
    /// No colour: modifiers only.
    Mono,
}

/// How many colours the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// 24 bits.
    True,
    /// The 256-colour cube.
    Indexed,
}

/// The look: palette and depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// The set of colours.
    pub palette: Palette,
    /// How the dark and the light palette are sent.
    pub depth: Depth,
}

/// The roles that have a hue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hue {
    /// Forward and recompute.
    Forward,
    /// Backward, for the input or in full.
    Backward,
    /// Backward for the weights, and the optimizer.
    Weight,
    /// Whatever moves between ranks.
    Communication,
    /// Nothing runs.
    Idle,
}

/// What a piece of text on the screen is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text.
    Text,
    /// Text that may be overlooked: units, hints, legends.
    Quiet,
    /// Headings, names, keys.
    Strong,
    /// Emphasis within a text.
    Emphasis,
    /// Words to type, code.
    Code,
    /// The frame of a pane.
    Frame,
    /// The frame of the pane that has the focus.
    Focus,
    /// The selected row, tab, choice.
    Selected,
    /// The playhead, a breakpoint.
    Mark,
    /// Something is wrong.
    Alert,
}

impl Palette {
    const CYCLE: [Self; 4] = [Self::Dark, Self::Light, Self::Ansi16, Self::Mono];

    /// The palette's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::Ansi16 => "ansi16",
            Self::Mono => "mono",
        }
    }

    /// The palette of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::CYCLE.into_iter().find(|palette| palette.name() == name)
    }

    /// The next palette, round and round.
    #[must_use]
    pub fn next(self) -> Self {
        let place = Self::CYCLE.iter().position(|&palette| palette == self).unwrap_or(0);
        Self::CYCLE[(place + 1) % Self::CYCLE.len()]
    }
}

impl Theme {
    /// The style of `role`.
    #[must_use]
    pub fn style(self, role: Role) -> Style {
        let plain = Style::new();
        match role {
            Role::Text => plain,
            Role::Quiet | Role::Frame => self.quiet(),
            Role::Strong | Role::Focus | Role::Mark => plain.add_modifier(Modifier::BOLD),
            Role::Emphasis => plain.add_modifier(Modifier::ITALIC),
            Role::Code if self.palette == Palette::Mono => plain.add_modifier(Modifier::BOLD),
            Role::Code => self.ink(Hue::Forward),
            Role::Selected => plain.add_modifier(Modifier::REVERSED),
            Role::Alert => plain.add_modifier(Modifier::REVERSED | Modifier::BOLD),
        }
    }

    /// A stretch filled with `kind`: its hue behind, black or white before it.
    #[must_use]
    pub fn fill(self, kind: Kind) -> Style {
        let Some(hue) = hue_of(kind) else { return self.style(Role::Quiet) };
        let colour = self.colour(hue);
        if colour == Color::Reset {
            return Style::new();
        }
        Style::new().fg(self.ink_on(hue)).bg(colour)
    }

    /// The label in a stretch: as the fill, with the modifier that tells the kinds apart without colour.
    #[must_use]
    pub fn label(self, kind: Kind) -> Style {
        self.fill(kind).add_modifier(match kind {
            Kind::Backward | Kind::BackwardInput => Modifier::BOLD,
            Kind::Optimizer => Modifier::UNDERLINED,
            _ => Modifier::empty(),
        })
    }

    /// A glyph of `kind` on the terminal's own background.
    #[must_use]
    pub fn stroke(self, kind: Kind) -> Style {
        hue_of(kind).map_or_else(Style::new, |hue| self.ink(hue))
    }

    fn ink(self, hue: Hue) -> Style {
        Style::new().fg(self.colour(hue))
    }

    fn quiet(self) -> Style {
        match (self.palette, self.depth) {
            (Palette::Dark, Depth::True) => Style::new().fg(rgb(0x009E_9E9E)),
            (Palette::Dark, Depth::Indexed) => Style::new().fg(Color::Indexed(247)),
            (Palette::Light, Depth::True) => Style::new().fg(rgb(0x005F_5F5F)),
            (Palette::Light, Depth::Indexed) => Style::new().fg(Color::Indexed(59)),
            (Palette::Ansi16 | Palette::Mono, _) => Style::new(),
        }
    }

    /// The colour of a hue in this theme.
    #[must_use]
    pub fn colour(self, hue: Hue) -> Color {
        let (dark, light, ansi) = hue.colours();
        match (self.palette, self.depth) {
            (Palette::Dark, depth) => depth.pick(dark),
            (Palette::Light, depth) => depth.pick(light),
            (Palette::Ansi16, _) => ansi,
            (Palette::Mono, _) => Color::Reset,
        }
    }

    /// Black or white, whichever can be read on `hue`.
    fn ink_on(self, hue: Hue) -> Color {
        match (self.palette, hue) {
            (Palette::Light, Hue::Idle) | (Palette::Dark, _) => Color::Indexed(16),
            (Palette::Ansi16, Hue::Forward | Hue::Idle) => Color::White,
            (Palette::Ansi16, _) => Color::Black,
            (Palette::Light, _) => Color::Indexed(231),
            (Palette::Mono, _) => Color::Reset,
        }
    }
}

/// A colour in 24 bits, and its nearest of the 256.
type Shade = (u32, u8);

impl Hue {
    /// All hues.
    pub const ALL: [Self; 5] = [Self::Forward, Self::Backward, Self::Weight, Self::Communication, Self::Idle];

    /// On dark, on light, of the sixteen.
    fn colours(self) -> (Shade, Shade, Color) {
        match self {
            Self::Forward => ((0x0019_7AF5, 33), (0x0019_4E6C, 24), Color::Blue),
            Self::Backward => ((0x006E_F0B1, 121), (0x0009_8448, 29), Color::Green),
            Self::Weight => ((0x00F1_68C4, 169), (0x00D5_1DAD, 163), Color::Magenta),
            Self::Communication => ((0x00B4_7E2B, 214), (0x008D_630F, 94), Color::Yellow),
            Self::Idle => ((0x006F_6F6F, 242), (0x0093_9393, 246), Color::DarkGray),
        }
    }
}

impl Depth {
    fn pick(self, (bits, index): Shade) -> Color {
        match self {
            Self::True => rgb(bits),
            Self::Indexed => Color::Indexed(index),
        }
    }
}

fn rgb(bits: u32) -> Color {
    let [_, red, green, blue] = bits.to_be_bytes();
    Color::Rgb(red, green, blue)
}

/// The hue of a kind; none for waits, which are glyph and word.
#[must_use]
pub fn hue_of(kind: Kind) -> Option<Hue> {
    match kind {
        Kind::Forward | Kind::Recompute => Some(Hue::Forward),
        Kind::Backward | Kind::BackwardInput => Some(Hue::Backward),
        Kind::BackwardWeight | Kind::Optimizer => Some(Hue::Weight),
        Kind::Collective
        | Kind::SendActivation
        | Kind::SendGradient
        | Kind::Transfer
        | Kind::Copy
        | Kind::ExposedCommunication => Some(Hue::Communication),
        Kind::Bubble => Some(Hue::Idle),
        Kind::Waiting | Kind::Skipped => None,
    }
}
