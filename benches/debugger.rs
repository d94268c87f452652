//! How long the debugger's keys take at interleaved 1F1B with 32 ranks, 2 chunks and 512 micro-batches: a step, a run to each kind of
//! breakpoint, why a place is idle, and the frame behind each. None may take 16 ms. Times are of the processor: what else runs on the machine
//! hardly matters.

mod support;

use std::hint::black_box;
use std::sync::Arc;

use ranklab::lab::Lab;
use ranklab::observe::slack::Slack;
use ranklab::scenario::Scenario;
use ranklab::teach::Library;
use ranklab::tui::commands::Command;
use ranklab::tui::data::RunData;
use ranklab::tui::glyphs::Tier;
use ranklab::tui::keys::Key;
use ranklab::tui::model::{Model, own_lesson};
use ranklab::tui::theme::{Depth, Palette, Theme};
use ranklab::tui::update::{Message, execute, runs, update};
use ranklab::tui::view::view;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use support::processor_seconds;

const LARGE: &str = "title = \"large\"\n[model]\npreset = \"tiny\"\nlayers = 64\n[batch]\nmicro_batches = 512\nsteps = 1\n\
[parallel]\npipeline = 32\n[pipeline]\nschedule = \"interleaved\"\nchunks = 2\n[numerics]\nvalues = \"shape\"\n";
const SIZE: (u16, u16) = (200, 60);
/// What a key may take, in milliseconds.
const MOST: f64 = 16.0;

fn main() {
    let scenario = Scenario::parse("large.toml", LARGE, &[]).expect("a scenario");
    let run = Lab::new().run(&scenario).expect("a run");
    let start = processor_seconds();
    let data = Arc::new(RunData::new(&run));
    println!("{} ops, {} events; prepared for the screen in {:.0} ms", data.program().ops(), data.events(), since(start));
    let start = processor_seconds();
    black_box(Slack::new(&data.run()));
    println!("slack of every op, once a run: {:.0} ms", since(start));

    let mut model = model(data);
    let keys = |keys: &'static str| move |model: &mut Model| keys.split(' ').for_each(|key| press(model, key));
    let breaks = |text: &'static str| {
        move |model: &mut Model| {
            model.breaks.clear();
            execute(model, Command::Break, text);
        }
    };
    press(&mut model, "3");
    measure("step an event", &mut model, keys("s"));
    measure("step back an event", &mut model, keys("S"));
    measure("step an op of the rank", &mut model, keys("n"));
    measure("step back an op", &mut model, keys("N"));
    for text in ["r17 op 17B300", "op F300", "op send", "op recv dx17.300", "mb 300", "r5", "time 900", "memory 1 MiB", "nan"] {
        measure(&format!("set {text}"), &mut model, breaks(text));
        measure("  continue", &mut model, keys("c"));
        measure("  reverse", &mut model, keys("C"));
    }
    model.breaks.clear();
    press(&mut model, "2");
    measure("next bubble", &mut model, keys("g b"));
    measure("why", &mut model, keys("w Esc"));
    press(&mut model, "G");
    measure("why the last rank is done", &mut model, keys("w Esc"));
    measure("mark critical ops", &mut model, keys("K"));
    measure("run to the cursor", &mut model, keys("h t"));
}

/// Milliseconds of processor time since `start`.
fn since(start: f64) -> f64 {
    (processor_seconds() - start) * 1e3
}

/// The median of some tries, each a key and the frame that shows what it did.
fn measure(name: &str, model: &mut Model, act: impl Fn(&mut Model)) {
    let area = Rect::new(0, 0, SIZE.0, SIZE.1);
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            let start = processor_seconds();
            act(model);
            let mut buffer = Buffer::empty(area);
            view(model, &mut buffer);
            black_box(&buffer);
            since(start)
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    let [best, median] = [times[0], times[times.len() / 2]];
    println!("{name:28} median {median:7.2} ms  best {best:7.2} ms{}", if median > MOST { "  TOO SLOW" } else { "" });
}

fn model(data: Arc<RunData>) -> Model {
    let theme = Theme { palette: Palette::Dark, depth: Depth::True };
    let mut model = Model::new(SIZE, theme, Tier::Blocks, Library::shipped());
    runs::open(&mut model, Arc::new(own_lesson("large", LARGE)));
    update(&mut model, Message::Ran(1, Ok(data)));
    model
}

fn press(model: &mut Model, key: &str) {
    update(model, Message::Key(Key::parse(key).expect("a key")));
}
