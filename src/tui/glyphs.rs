//! Glyphs: which character shows what, in plain ASCII and with block elements.

use crate::observe::Kind;

/// A set of characters that a terminal can be trusted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// ASCII only: always right.
    Ascii,
    /// Block elements and box drawing: East Asian terminals may show them two cells wide.
    Blocks,
}

/// The lines of a frame: corners from the top left, clockwise, then horizontal and vertical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameGlyphs {
    /// Top left, top right, bottom right, bottom left.
    pub corners: [char; 4],
    /// Along the top and the bottom.
    pub horizontal: char,
    /// Along the sides.
    pub vertical: char,
}

impl Tier {
    /// The tier's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ascii => "ascii",
            Self::Blocks => "blocks",
        }
    }

    /// The character that fills a stretch of `kind`.
    #[must_use]
    pub fn fill(self, kind: Kind) -> char {
        let block = match kind {
            Kind::Forward => '█',
            Kind::Backward | Kind::BackwardInput => '▓',
            Kind::BackwardWeight => '▒',
            Kind::Recompute => '░',
            Kind::Optimizer => '%',
            Kind::Collective => '≈',
            Kind::SendActivation => '►',
            Kind::SendGradient => '◄',
            Kind::Transfer => '─',
            Kind::Copy => '═',
            Kind::Skipped => '×',
            Kind::Waiting | Kind::ExposedCommunication => '·',
            Kind::Bubble => '▁',
        };
        self.pick(kind.glyph(), block)
    }

    /// What stands in place of what was cut off.
    #[must_use]
    pub fn dots(self) -> &'static str {
        match self {
            Self::Ascii => "...",
            Self::Blocks => "\u{2026}",
        }
    }

    /// Several kinds in one cell, none of which prevails.
    #[must_use]
    pub fn mixed(self) -> char {
        self.pick('*', '▚')
    }

    /// An op that has slack, where critical ones are marked.
    #[must_use]
    pub fn hollow(self) -> char {
        self.pick('-', '╌')
    }

    /// The frame of a pane, heavier where the focus is.
    #[must_use]
    pub fn frame(self, focus: bool) -> FrameGlyphs {
        match (self, focus) {
            (Self::Ascii, false) => FrameGlyphs { corners: ['+'; 4], horizontal: '-', vertical: '|' },
            (Self::Ascii, true) => FrameGlyphs { corners: ['+'; 4], horizontal: '=', vertical: '|' },
            (Self::Blocks, false) => FrameGlyphs { corners: ['┌', '┐', '┘', '└'], horizontal: '─', vertical: '│' },
            (Self::Blocks, true) => FrameGlyphs { corners: ['┏', '┓', '┛', '┗'], horizontal: '━', vertical: '┃' },
        }
    }

    /// The upright line between a row's label and its axis.
    #[must_use]
    pub fn bar(self) -> char {
        self.pick('|', '│')
    }

    /// The line of an axis: plain if modelled, double if measured.
    #[must_use]
    pub fn axis(self, measured: bool) -> char {
        if measured { self.pick('=', '═') } else { self.pick('-', '─') }
    }

    /// The playhead above the lanes.
    #[must_use]
    pub fn playhead(self) -> char {
        self.pick('v', '▼')
    }

    /// The playhead below the lanes.
    #[must_use]
    pub fn playfoot(self) -> char {
        self.pick('^', '▲')
    }

    /// The beginning of a listed item.
    #[must_use]
    pub fn bullet(self) -> char {
        self.pick('-', '•')
    }

    /// The left `eighths` eighths of a cell, if this tier can show them (1 to 7).
    #[must_use]
    pub fn left_part(self, eighths: u64) -> Option<char> {
        const PARTS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
        let index = usize::try_from(eighths.checked_sub(1)?).ok()?;
        PARTS.get(index).copied().filter(|_| self == Self::Blocks)
    }

    fn pick(self, ascii: char, block: char) -> char {
        match self {
            Self::Ascii => ascii,
            Self::Blocks => block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_lie_side_by_side_never_share_a_glyph() {
        for tier in [Tier::Ascii, Tier::Blocks] {
            let rows: [&[Kind]; 2] = [
                &[
                    Kind::Forward,
                    Kind::Backward,
                    Kind::BackwardWeight,
                    Kind::Recompute,
                    Kind::Optimizer,
                    Kind::ExposedCommunication,
                    Kind::Bubble,
                ],
                &[Kind::Collective, Kind::SendActivation, Kind::SendGradient, Kind::Transfer, Kind::Copy, Kind::Waiting],
            ];
            for row in rows {
                let mut glyphs: Vec<char> = row.iter().map(|&kind| tier.fill(kind)).chain([tier.mixed()]).collect();
                glyphs.sort_unstable();
                glyphs.dedup();
                assert_eq!(glyphs.len(), row.len() + 1, "{tier:?} {row:?}");
            }
        }
    }

    #[test]
    fn ascii_is_ascii() {
        let fills = Kind::ALL.map(|kind| Tier::Ascii.fill(kind));
        let frames = [false, true].map(|focus| Tier::Ascii.frame(focus));
        let lines = frames.iter().flat_map(|frame| [frame.horizontal, frame.vertical].into_iter().chain(frame.corners));
        for glyph in fills.into_iter().chain(lines).chain([Tier::Ascii.mixed(), Tier::Ascii.bullet()]) {
            assert!(glyph.is_ascii_graphic(), "{glyph:?}");
        }
    }
}
