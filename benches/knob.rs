//! How long the turn of a knob takes, from the key to the new picture: every value of every knob of every lesson, with real numbers.
//! A number as argument: those of this lesson alone.

#![expect(clippy::disallowed_methods, reason = "a bench measures")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ranklab::teach::{Lesson, Library};
use ranklab::tui::glyphs::Tier;
use ranklab::tui::model::Model;
use ranklab::tui::run::worker::Worker;
use ranklab::tui::theme::{Depth, Palette, Theme};
use ranklab::tui::update::{Effect, Message, runs, update};
use ranklab::tui::view::view;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

const SIZE: (u16, u16) = (200, 60);

fn main() {
    let wanted: Option<u32> = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let mut all = Vec::new();
    for lesson in Library::shipped().lessons().iter().filter(|lesson| wanted.is_none_or(|wanted| wanted == lesson.number)) {
        for knob in &lesson.knobs {
            for value in &knob.values {
                let (cold, warm, outcome) = turn(lesson, &knob.key, value);
                let name = format!("{} {} = {value}", lesson.number, knob.key);
                println!("{name:44} first {:7.1} ms   again {:7.1} ms   {outcome}", millis(cold), millis(warm));
                all.push((cold, name));
            }
        }
    }
    let worst = all.into_iter().max().expect("a knob");
    println!("worst: {:.1} ms, {}", millis(worst.0), worst.1);
}

/// The learner has opened the lesson, and turns one knob: for the first time, and once more when its reference is known.
fn turn(lesson: &Lesson, key: &str, value: &str) -> (Duration, Duration, String) {
    let mut model = Model::new(SIZE, Theme { palette: Palette::Dark, depth: Depth::True }, Tier::Blocks, Library::default());
    let mut worker = Worker::new(None);
    let opened = runs::open(&mut model, Arc::new(lesson.clone()));
    answer(&mut model, &mut worker, opened);
    let mut once = || {
        let start = Instant::now();
        let effect = runs::turn(&mut model, key, value);
        answer(&mut model, &mut worker, effect);
        let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
        view(&model, &mut buffer);
        black_box(&buffer);
        start.elapsed()
    };
    let (cold, warm) = (once(), once());
    (cold, warm, model.message.split(',').next().unwrap_or_default().to_owned())
}

fn answer(model: &mut Model, worker: &mut Worker, effect: Effect) {
    let answer = worker.answer(effect).expect("an answer");
    if let Message::Ran(_, Err(problem)) = &answer {
        println!("{problem}");
    }
    update(model, answer);
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
