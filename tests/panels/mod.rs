//! The data panels: pictures of real runs, any size, any event.

mod fuzz;
mod pictures;

use ranklab::base::Rank;
use ranklab::lab::Lab;
use ranklab::observe::breakpoint::Breakpoint;
use ranklab::scenario::Scenario;
use ranklab::tui::breaks::Breaks;
use ranklab::tui::data::{PanelView, RunData, Values};
use ranklab::tui::glyphs::Tier;
use ranklab::tui::panels::{debugger, links, memory, mesh, metrics, waits};
use ranklab::tui::pen::Pen;
use ranklab::tui::theme::{Depth, Palette, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::path::Path;

/// The look without colour and block glyphs.
const ASCII_MONO: (Theme, Tier) = (Theme { palette: Palette::Mono, depth: Depth::True }, Tier::Ascii);
/// The look of a modern terminal.
const BLOCKS_DARK: (Theme, Tier) = (Theme { palette: Palette::Dark, depth: Depth::True }, Tier::Blocks);

/// What draws a panel.
type Draw = fn(&RunData, &PanelView<'_>, &mut Pen<'_>);

/// The panels by name.
const PANELS: [(&str, Draw); 6] = [
    ("debugger", debugger::draw),
    ("waits", waits::draw),
    ("memory", memory::draw),
    ("links", links::draw),
    ("metrics", metrics::draw),
    ("mesh", mesh::draw),
];

/// The run of a scenario file of this package.
fn data(path: &str) -> RunData {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
    let scenario = Scenario::parse(path, &text, &[]).unwrap_or_else(|problems| panic!("{}", problems.render(false, 100)));
    RunData::new(&Lab::new().run(&scenario).expect("a run"))
}

/// Where the learner stands: at an event, with a focus rank.
#[derive(Clone, Copy)]
struct Place<'a> {
    event: usize,
    focus: u32,
    scroll: usize,
    breaks: &'a Breaks,
    values: Option<&'a Values>,
}

/// A breakpoint that is met at these events.
fn breaks(events: Vec<usize>) -> Breaks {
    Breaks::on(Breakpoint::parse("nan").expect("a breakpoint"), events)
}

fn drawn(data: &RunData, draw: Draw, place: Place<'_>, size: (u16, u16), (theme, tier): (Theme, Tier)) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    let area = buffer.area;
    let position = data.position(place.event);
    let view = PanelView {
        position,
        focus: Rank(place.focus),
        op: None,
        cursor: position.time,
        scroll: place.scroll,
        chosen: place.scroll,
        focused: true,
        breaks: place.breaks,
        values: place.values,
    };
    draw(data, &view, &mut Pen::new(&mut buffer, area, theme, tier));
    buffer
}
