//! Colours and hatches of the figure: the light theme, with a pattern for each kind so that it also prints in grey.

use std::fmt::Write;

use crate::observe::kind::Kind;

pub(super) const INK: &str = "#1b1b1b";
pub(super) const SOFT: &str = "#6b6b6b";
pub(super) const GRID: &str = "#e3e3e3";
const FORWARD: &str = "#194E6C";
const BACKWARD: &str = "#098448";
const WEIGHT: &str = "#D51DAD";
pub(super) const COMMUNICATION: &str = "#8D630F";
pub(super) const IDLE: &str = "#939393";

/// What lies over the colour.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hatch {
    Plain,
    Rising,
    Falling,
    Dots,
    Level,
    Upright,
    Crossed,
}

/// The colour of a kind.
pub(super) fn colour(kind: Kind) -> &'static str {
    style(kind).0
}

fn style(kind: Kind) -> (&'static str, Hatch) {
    match kind {
        Kind::Forward => (FORWARD, Hatch::Plain),
        Kind::Recompute => (FORWARD, Hatch::Level),
        Kind::Backward => (BACKWARD, Hatch::Rising),
        Kind::BackwardInput => (BACKWARD, Hatch::Falling),
        Kind::BackwardWeight => (WEIGHT, Hatch::Dots),
        Kind::Optimizer => (WEIGHT, Hatch::Crossed),
        Kind::Collective => (COMMUNICATION, Hatch::Upright),
        Kind::SendActivation | Kind::Transfer => (COMMUNICATION, Hatch::Plain),
        Kind::SendGradient => (COMMUNICATION, Hatch::Rising),
        Kind::Copy => (COMMUNICATION, Hatch::Level),
        Kind::Skipped => (INK, Hatch::Crossed),
        Kind::Waiting | Kind::ExposedCommunication | Kind::Bubble => (IDLE, Hatch::Plain),
    }
}

/// The value of a `fill` attribute.
pub(super) fn fill(kind: Kind) -> String {
    let (colour, hatch) = style(kind);
    if hatch == Hatch::Plain { colour.to_owned() } else { format!("url(#{})", id(kind)) }
}

/// The patterns of `kinds`.
pub(super) fn patterns(kinds: impl Iterator<Item = Kind>) -> String {
    let mut text = String::new();
    for kind in kinds {
        let (colour, hatch) = style(kind);
        let Some((turn, strokes)) = strokes(hatch) else { continue };
        let _ = writeln!(
            text,
            r##"<pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate({turn})"><rect width="6" height="6" fill="{colour}"/><g stroke="#fff" stroke-opacity=".38" fill="#fff" fill-opacity=".38">{strokes}</g></pattern>"##,
            id(kind)
        );
    }
    text
}

/// Angle and strokes of one 6 x 6 tile.
fn strokes(hatch: Hatch) -> Option<(i32, &'static str)> {
    match hatch {
        Hatch::Plain => None,
        Hatch::Rising => Some((45, r#"<path d="M0 0V6"/>"#)),
        Hatch::Falling => Some((-45, r#"<path d="M0 0V6"/>"#)),
        Hatch::Dots => Some((45, r#"<circle cx="3" cy="3" r="1" stroke="none"/>"#)),
        Hatch::Level => Some((0, r#"<path d="M0 3H6"/>"#)),
        Hatch::Upright => Some((0, r#"<path d="M3 0V6"/>"#)),
        Hatch::Crossed => Some((45, r#"<path d="M0 0V6M0 0H6"/>"#)),
    }
}

fn id(kind: Kind) -> String {
    format!("{kind:?}").to_lowercase()
}
