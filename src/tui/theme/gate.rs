//! The palette's gate: contrast on the background, and difference between any two hues for four kinds of colour vision.
//!
//! Contrast after WCAG 2; difference is CIE76; the simulation of missing cones is Machado, Oliveira, Fernandes 2009
//! (severity 1, on linear RGB).

use super::{Depth, Hue, Palette, Theme, rgb};
use ratatui::style::Color;

type Triple = [f64; 3];
type Matrix = [Triple; 3];

const NORMAL: Matrix = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
const PROTAN: Matrix =
    [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]];
const DEUTAN: Matrix =
    [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]];
const TRITAN: Matrix =
    [[1.255_528, -0.076_749, -0.178_779], [-0.078_411, 0.930_809, 0.147_602], [0.004_733, 0.691_367, 0.303_900]];

const THEMES: [(Palette, Depth, Triple); 4] = [
    (Palette::Dark, Depth::True, [0.0; 3]),
    (Palette::Dark, Depth::Indexed, [0.0; 3]),
    (Palette::Light, Depth::True, [1.0; 3]),
    (Palette::Light, Depth::Indexed, [1.0; 3]),
];

#[test]
fn every_hue_stands_out_from_the_background() {
    for (palette, depth, background) in THEMES {
        let theme = Theme { palette, depth };
        for hue in Hue::ALL {
            let needed = if hue == Hue::Idle { 3.0 } else { 4.5 };
            let measured = contrast(linear(theme.colour(hue)), background);
            assert!(measured >= needed, "{palette:?} {depth:?} {hue:?}: contrast {measured:.2}, needed {needed}");
        }
        let quiet = theme.quiet().fg.expect("quiet text has a colour");
        assert!(contrast(linear(quiet), background) >= 4.5, "{palette:?} {depth:?}: quiet text");
    }
}

#[test]
fn labels_can_be_read_on_their_hue() {
    for (palette, depth, _) in THEMES {
        let theme = Theme { palette, depth };
        for hue in Hue::ALL.into_iter().filter(|&hue| hue != Hue::Idle) {
            let measured = contrast(linear(theme.ink_on(hue)), linear(theme.colour(hue)));
            assert!(measured >= 4.5, "{palette:?} {depth:?} {hue:?}: ink {measured:.2}");
        }
    }
}

#[test]
fn any_two_hues_differ_for_every_kind_of_colour_vision() {
    for (palette, depth, _) in THEMES {
        let theme = Theme { palette, depth };
        for (vision, matrix) in [("normal", NORMAL), ("protan", PROTAN), ("deutan", DEUTAN), ("tritan", TRITAN)] {
            for (first, second) in pairs() {
                let seen = |hue| lab(clamped(apply(&matrix, linear(theme.colour(hue)))));
                let difference = distance(seen(first), seen(second));
                assert!(difference >= 15.0, "{palette:?} {depth:?} {vision}: {first:?} and {second:?} differ by {difference:.1}");
            }
        }
    }
}

#[test]
fn the_measures_know_black_and_white() {
    let (black, white) = (linear(rgb(0)), linear(rgb(0x00FF_FFFF)));
    assert!((contrast(black, white) - 21.0).abs() < 1e-9);
    assert!((distance(lab(black), lab(white)) - 100.0).abs() < 0.01);
    assert!((lab(linear(rgb(0x0077_7777)))[1]).abs() < 0.01, "grey has no hue");
}

fn pairs() -> impl Iterator<Item = (Hue, Hue)> {
    let after = |index: usize| Hue::ALL.into_iter().skip(index + 1);
    Hue::ALL.into_iter().enumerate().flat_map(move |(index, first)| after(index).map(move |second| (first, second)))
}

/// Linear RGB of a colour; of the 256 the cube and the greys.
fn linear(colour: Color) -> Triple {
    let bytes = match colour {
        Color::Rgb(red, green, blue) => [red, green, blue],
        Color::Indexed(index @ 16..=231) => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let cube = index - 16;
            [level(cube / 36), level(cube / 6 % 6), level(cube % 6)]
        }
        Color::Indexed(index @ 232..) => [8 + 10 * (index - 232); 3],
        other => panic!("{other:?} is the terminal's own"),
    };
    bytes.map(|byte| {
        let value = f64::from(byte) / 255.0;
        if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    })
}

fn apply(matrix: &Matrix, colour: Triple) -> Triple {
    matrix.map(|row| row.iter().zip(colour).map(|(weight, value)| weight * value).sum())
}

fn clamped(colour: Triple) -> Triple {
    colour.map(|value| value.clamp(0.0, 1.0))
}

fn contrast(first: Triple, second: Triple) -> f64 {
    let luminance = |colour: Triple| 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2];
    let (low, high) = (luminance(first).min(luminance(second)), luminance(first).max(luminance(second)));
    (high + 0.05) / (low + 0.05)
}

/// CIE L*a*b* under D65.
fn lab(colour: Triple) -> Triple {
    const TO_XYZ: Matrix =
        [[0.412_456_4, 0.357_576_1, 0.180_437_5], [0.212_672_9, 0.715_152_2, 0.072_175], [0.019_333_9, 0.119_192, 0.950_304_1]];
    const WHITE: Triple = [0.950_47, 1.0, 1.088_83];
    let curve = |value: f64| if value > 0.008_856 { value.cbrt() } else { 7.787 * value + 16.0 / 116.0 };
    let [x, y, z] = apply(&TO_XYZ, colour);
    let [x, y, z] = [curve(x / WHITE[0]), curve(y / WHITE[1]), curve(z / WHITE[2])];
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn distance(first: Triple, second: Triple) -> f64 {
    first.iter().zip(second).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}
