//! Snapshots of whole screens: the characters, then the styles as one letter a cell, since text alone hides colours.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{ASCII_MONO, BLOCKS_DARK, Lab};
use ranklab::tui::model::{Model, View};
use ranklab::tui::update::{Message, update};
use ranklab::tui::view::view;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

/// The sizes at which every view is pictured.
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 60)];

#[test]
fn the_list_of_lessons() {
    picture("lessons", |size, look| Lab::start(size, look).model);
}

#[test]
fn a_lesson_in_the_middle_of_its_run() {
    picture("lesson", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("] n n n s s");
        lab.model
    });
}

#[test]
fn the_timeline_zoomed_with_a_breakpoint() {
    picture("timeline", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("2 j j . . . b + + t");
        lab.model
    });
}

#[test]
fn help() {
    picture("help", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("?");
        lab.model
    });
}

#[test]
fn the_palette() {
    picture("palette", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press(":");
        lab.type_text("go");
        lab.press("Down");
        lab.model
    });
}

#[test]
fn the_knobs() {
    picture("knobs", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("o Down Right");
        lab.model
    });
}

#[test]
fn the_breakpoints() {
    picture("breakpoints", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("2");
        for text in ["r2 op 2B1", "mb 5", "r0 memory 300 KiB", "nan"] {
            lab.palette(&format!("break {text}"));
        }
        lab.press("c B Down");
        lab.model
    });
}

#[test]
fn critical_ops() {
    picture("critical", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("2 j j . . K");
        lab.model
    });
}

#[test]
fn an_edited_plan() {
    picture("edit", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("E j l l l l x");
        lab.model
    });
}

#[test]
fn a_refused_edit() {
    picture("refused", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("E l l l l ( (");
        lab.model
    });
}

#[test]
fn two_runs() {
    picture("compare", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("a o Right Esc 9 g d");
        lab.model
    });
}

#[test]
fn why_an_op_waits() {
    picture("why", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("] w");
        lab.model
    });
}

#[test]
fn a_deadlock() {
    picture("deadlock", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("] ] ] ] ] 2");
        lab.model
    });
}

#[test]
fn a_ring() {
    picture("ring", |size, look| {
        let mut lab = Lab::start(size, look);
        lab.choose(2);
        lab.press("2 s s s s s");
        lab.model
    });
}

#[test]
fn a_knob_that_cannot_be_turned() {
    picture("problem", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("o Down Down Right Down Down Down Right");
        lab.model
    });
}

#[test]
fn what_follows_a_prefix_key() {
    picture("prefix", |size, look| {
        let mut lab = Lab::opened(size, look);
        lab.press("g");
        lab.model
    });
}

#[test]
fn too_small_a_terminal_is_told() {
    let mut lab = Lab::opened((60, 18), ASCII_MONO);
    update(&mut lab.model, Message::Resize(54, 12));
    let shown = text(&lab.model);
    assert_eq!(shown.trim_end(), "60x18 needed, 54x12 here");
}

/// A key that nobody sees the effect of does nothing, but to leave.
#[test]
fn what_cannot_be_seen_does_not_happen() {
    let mut lab = Lab::opened((120, 36), ASCII_MONO);
    let before = text(&lab.model);
    let resize = |lab: &mut Lab, (width, height)| _ = update(&mut lab.model, Message::Resize(width, height));
    resize(&mut lab, (54, 12));
    lab.press("l l 3 o Down Right Esc + ? x :");
    resize(&mut lab, (120, 36));
    assert_eq!(text(&lab.model), before);
    resize(&mut lab, (54, 12));
    lab.press("q");
    assert_eq!(lab.model.view, View::Lessons);
}

#[test]
fn one_pane_on_a_tiny_terminal() {
    let mut lab = Lab::opened((60, 18), ASCII_MONO);
    insta::assert_snapshot!("tiny@timeline", text(&lab.model));
    lab.press("Tab");
    insta::assert_snapshot!("tiny@text", text(&lab.model));
}

/// One snapshot for each size and look.
fn picture(name: &str, open: impl Fn((u16, u16), (ranklab::tui::theme::Theme, ranklab::tui::glyphs::Tier)) -> Model) {
    for size in SIZES {
        for (look_name, look) in [("ascii-mono", ASCII_MONO), ("blocks-dark", BLOCKS_DARK)] {
            let model = open(size, look);
            let buffer = drawn(&model);
            let shown = format!("{}\n{}", lines(&buffer, |cell| cell.symbol().to_owned()), styles(&buffer));
            insta::assert_snapshot!(format!("{name}@{}x{}-{look_name}", size.0, size.1), shown);
        }
    }
}

/// The screen's characters.
pub fn text(model: &Model) -> String {
    lines(&drawn(model), |cell| cell.symbol().to_owned())
}

fn drawn(model: &Model) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, model.size.0, model.size.1));
    view(model, &mut buffer);
    buffer
}

fn lines(buffer: &Buffer, mut show: impl FnMut(&Cell) -> String) -> String {
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(buffer.area.width)) {
        let line: String = row.iter().map(&mut show).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A letter for each style; unstyled cells are blank; the legend below. Rows without style are left out.
fn styles(buffer: &Buffer) -> String {
    let mut known: BTreeMap<String, char> = BTreeMap::new();
    let mut order = Vec::new();
    let map = lines(buffer, |cell| {
        let style = style_name(cell);
        if style.is_empty() {
            return " ".to_owned();
        }
        let next = char::from(b'a' + u8::try_from(known.len()).expect("fewer than 26 styles"));
        let letter = *known.entry(style.clone()).or_insert_with(|| {
            order.push((next, style));
            next
        });
        letter.to_string()
    });
    let mut text = String::from("styles\n");
    text.push_str(&map);
    for (letter, style) in order {
        _ = writeln!(text, "{letter} {style}");
    }
    text
}

fn style_name(cell: &Cell) -> String {
    let mut parts = Vec::new();
    if cell.fg != Color::Reset {
        parts.push(format!("on {}", cell.fg).replace("on ", ""));
    }
    if cell.bg != Color::Reset {
        parts.push(format!("on {}", cell.bg));
    }
    if cell.modifier != Modifier::empty() {
        parts.push(format!("{:?}", cell.modifier).to_lowercase());
    }
    parts.join(" ")
}
