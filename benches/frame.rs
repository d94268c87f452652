//! How long a frame of the timeline takes with a million events at 200x60, beside an empty screen; and a start to its first full frame.

#![expect(clippy::disallowed_methods, reason = "a bench measures")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ranklab::lab::Lab;
use ranklab::scenario::Scenario;
use ranklab::teach::Library;
use ranklab::tui::data::RunData;
use ranklab::tui::glyphs::Tier;
use ranklab::tui::keys::Key;
use ranklab::tui::model::{Model, own_lesson};
use ranklab::tui::run::worker::Worker;
use ranklab::tui::theme::{Depth, Palette, Theme};
use ranklab::tui::update::{Message, runs, update};
use ranklab::tui::view::view;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

const LARGE: &str = "title = \"large\"\n[model]\npreset = \"tiny\"\nlayers = 64\n[batch]\nmicro_batches = 1024\nsteps = 3\n[parallel]\npipeline = 64\n[numerics]\nvalues = \"shape\"\n";
const SIZE: (u16, u16) = (200, 60);
const FRAMES: usize = 301;

fn main() {
    start();
    let data = large();
    println!("{} ops, {} events, {} ranks, {}x{}", data.program().ops(), data.events(), data.ranks(), SIZE.0, SIZE.1);
    let empty = frames(&mut model(Arc::new(RunData::empty())), |_, _| ());
    let whole = frames(&mut shown(&data), |_, _| ());
    let playing = frames(&mut shown(&data), |model, frame| {
        let event = frame * (model.run.data.events() / FRAMES);
        model.now = model.run.data.position(event);
    });
    let panning = frames(&mut zoomed(&data, 6), |model, _| press(model, "L"));
    let labelled = frames(&mut zoomed(&data, 40), |model, _| press(model, "L"));
    for (name, times) in
        [("empty", &empty), ("whole run", &whole), ("playing", &playing), ("panning", &panning), ("panning, labels", &labelled)]
    {
        println!("{name:16} {}", spread(times));
    }
    println!("median above an empty screen: {:.2} ms", millis(median(&whole)) - millis(median(&empty)));
}

/// From nothing to the first frame of lesson 11 with its run.
fn start() {
    let mut times: Vec<Duration> = (0..9).map(|_| first_frame()).collect();
    times.sort_unstable();
    println!("start to first full frame of lesson 11: {}", spread(&times));
}

fn first_frame() -> Duration {
    let start = Instant::now();
    let library = Library::shipped();
    let lesson = Arc::new(library.find("11").expect("lesson 11").clone());
    let mut model = Model::new(SIZE, theme(), Tier::Blocks, library);
    let effect = runs::open(&mut model, lesson);
    let answer = Worker::new(None).answer(effect).expect("a run");
    update(&mut model, answer);
    let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
    view(&model, &mut buffer);
    black_box(&buffer);
    start.elapsed()
}

fn large() -> Arc<RunData> {
    let scenario = Scenario::parse("large.toml", LARGE, &[]).expect("a scenario");
    let start = Instant::now();
    let run = Lab::new().run(&scenario).expect("a run");
    let ran = start.elapsed();
    let data = Arc::new(RunData::new(&run));
    println!("compile and run {ran:.2?}, prepare for the screen {:.2?}", start.elapsed().saturating_sub(ran));
    data
}

fn theme() -> Theme {
    Theme { palette: Palette::Dark, depth: Depth::True }
}

fn model(data: Arc<RunData>) -> Model {
    let mut model = Model::new(SIZE, theme(), Tier::Blocks, Library::shipped());
    let lesson = Arc::new(own_lesson("large", LARGE));
    runs::open(&mut model, lesson);
    update(&mut model, Message::Ran(1, Ok(data)));
    press(&mut model, "2");
    model
}

fn shown(data: &Arc<RunData>) -> Model {
    let mut model = model(Arc::clone(data));
    press(&mut model, "0");
    model
}

fn zoomed(data: &Arc<RunData>, times: usize) -> Model {
    let mut model = shown(data);
    (0..times).for_each(|_| press(&mut model, "+"));
    model
}

fn press(model: &mut Model, key: &str) {
    update(model, Message::Key(Key::parse(key).expect("a key")));
}

/// Frames as the screen draws them: the view, and the difference to the frame before.
fn frames(model: &mut Model, mut change: impl FnMut(&mut Model, usize)) -> Vec<Duration> {
    let area = Rect::new(0, 0, SIZE.0, SIZE.1);
    let (mut before, mut next) = (Buffer::empty(area), Buffer::empty(area));
    let mut frame = |number: usize| {
        change(model, number);
        let start = Instant::now();
        next.reset();
        view(model, &mut next);
        black_box(before.diff(&next));
        std::mem::swap(&mut before, &mut next);
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..FRAMES).map(&mut frame).collect();
    times.sort_unstable();
    times
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

fn spread(sorted: &[Duration]) -> String {
    let [low, middle, high] = [sorted[0], median(sorted), sorted[sorted.len() - 1]].map(millis);
    format!("median {middle:.2} ms ({low:.2} to {high:.2})")
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
