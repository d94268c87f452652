//! Knobs: the scenario's keys that can be turned, the lesson's first, each with its present value and the values beside it.

use crate::scenario::keys::{Key, Kind, Section, Unwritten};
use crate::scenario::{Setting, presets, settings};
use crate::teach::Lesson;

use super::model::{Model, Setup};

/// One thing about the scenario that can be turned.
#[derive(Clone, Debug)]
pub struct Knob {
    /// The scenario's key.
    pub key: &'static Key,
    /// What it is now; `None` if it is not written.
    pub value: Option<String>,
    /// What the lesson offers, or what there is to choose from; empty for a number.
    pub choices: Vec<String>,
    /// The lesson speaks of it.
    pub of_lesson: bool,
}

/// The knobs of the run that was asked for last; none if its scenario cannot be read.
#[must_use]
pub fn knobs(model: &Model) -> Vec<Knob> {
    of_setup(&model.lesson.lesson, &model.setup)
}

/// Sizes of a model that a preset gives.
const SIZES: [&str; 4] = ["layers", "hidden", "heads", "sequence"];

fn is_written(setting: &Setting) -> bool {
    setting.key.section == Section::Model && setting.value.is_some()
}

fn of_setup(lesson: &Lesson, setup: &Setup) -> Vec<Knob> {
    let settings = settings(&setup.name, &setup.text, &setup.overrides()).unwrap_or_default();
    let offered = |setting: &Setting| lesson.knobs.iter().position(|knob| knob.key == setting.key.path());
    // A preset beside sizes of the scenario's own gives only what those leave open: turning it would not do what it says.
    let has_sizes = settings.iter().any(|setting| SIZES.contains(&setting.key.name) && is_written(setting));
    let mut knobs: Vec<(usize, Knob)> = Vec::new();
    for setting in settings {
        let place = offered(&setting);
        if place.is_none() && has_sizes && matches!(setting.key.kind, Kind::Preset) {
            continue;
        }
        let choices = place.map_or_else(|| choices(setting.key.kind), |place| lesson.knobs[place].values.clone());
        if place.is_none() && !is_offered(setting.key) {
            continue;
        }
        let knob = Knob { key: setting.key, value: setting.value, choices, of_lesson: place.is_some() };
        knobs.push((place.unwrap_or(usize::MAX), knob));
    }
    // Stable: the others keep the order of the table.
    knobs.sort_by_key(|(place, _)| *place);
    knobs.into_iter().map(|(_, knob)| knob).collect()
}

/// Keys that change what is seen of a run, and have a value beside their value.
fn is_offered(key: &Key) -> bool {
    const MODEL: [&str; 4] = ["preset", "layers", "hidden", "sequence"];
    const OPTIMIZER: [&str; 2] = ["kind", "lr"];
    match key.section {
        _ if matches!(key.kind, Kind::Text | Kind::Sheet | Kind::Integers(..)) || choices(key.kind).len() == 1 => false,
        Section::Model => MODEL.contains(&key.name),
        Section::Optimizer => OPTIMIZER.contains(&key.name),
        _ => true,
    }
}

fn choices(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Choice(choices) => choices().into_iter().map(str::to_owned).collect(),
        Kind::Preset => presets::names().into_iter().map(str::to_owned).collect(),
        Kind::Bool | Kind::BoolOr(..) => vec!["false".to_owned(), "true".to_owned()],
        _ => Vec::new(),
    }
}

impl Knob {
    /// What it is now, in words.
    #[must_use]
    pub fn shown(&self) -> &str {
        match (&self.value, self.key.unwritten) {
            (Some(value), _) => value,
            (None, Unwritten::Is(text) | Unwritten::Like(_, text)) => text,
        }
    }

    /// The value beside the present one; `None` at the end of the choices or of the range.
    #[must_use]
    pub fn turned(&self, up: bool) -> Option<String> {
        let Some(value) = &self.value else {
            let Unwritten::Like(example, _) = self.key.unwritten else { return None };
            return Some(self.choices.first().cloned().unwrap_or_else(|| example.to_owned()));
        };
        match self.key.kind {
            _ if self.choices.contains(value) => beside(&self.choices, value, up),
            Kind::Integer(min, max) => integer(value.parse().ok()?, (min, max), up).map(|next| next.to_string()),
            Kind::Number(min, max) => number(value.parse().ok()?, (min, max), up).map(|next| next.to_string()),
            _ => self.choices.first().cloned(),
        }
    }
}

fn beside(choices: &[String], value: &str, up: bool) -> Option<String> {
    let place = choices.iter().position(|choice| choice == value)?;
    let next = if up { place.checked_add(1) } else { place.checked_sub(1) };
    next.and_then(|next| choices.get(next)).cloned()
}

/// 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on: powers of two, and half-way between them.
fn integer(value: i64, (min, max): (i64, i64), up: bool) -> Option<i64> {
    let steps = std::iter::once(0).chain((0..62).flat_map(|power| [1_i64 << power, (1_i64 << power) + (1_i64 << power) / 2]));
    let mut allowed: Vec<i64> = steps.filter(|step| (min..=max).contains(step)).collect();
    allowed.dedup();
    if up { allowed.into_iter().find(|&step| step > value) } else { allowed.into_iter().rfind(|&step| step < value) }
}

/// Halves and doubles; from 0 to a quarter.
fn number(value: f64, (min, max): (f64, f64), up: bool) -> Option<f64> {
    let smallest: f64 = 0.25;
    let next = match (up, value) {
        (true, 0.0) => smallest.max(min),
        (true, value) => value * 2.0,
        (false, value) if value <= smallest && min == 0.0 => 0.0,
        (false, value) => value / 2.0,
    };
    let next = next.clamp(min, max);
    (next.to_bits() != value.to_bits()).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::teach::Library;

    fn of_lesson(name: &str, changes: &[(&str, &str)]) -> Vec<Knob> {
        let library = Library::shipped();
        let lesson = library.find(name).expect("a lesson");
        let setup = Setup::of(lesson, "scenario.toml");
        let setup = changes.iter().fold(setup, |setup, (key, value)| setup.with(key, value));
        of_setup(lesson, &setup)
    }

    #[test]
    fn the_lessons_knobs_come_first_and_show_their_present_value() {
        let knobs = of_lesson("11", &[("batch.micro_batches", "16")]);
        let first: Vec<String> = knobs[..2].iter().map(|knob| format!("{} = {}", knob.key.path(), knob.shown())).collect();
        assert_eq!(first, ["pipeline.schedule = 1f1b", "batch.micro_batches = 16"]);
        assert!(knobs[..5].iter().all(|knob| knob.of_lesson) && knobs[5..].iter().all(|knob| !knob.of_lesson));
        let layers = knobs.iter().find(|knob| knob.key.path() == "model.layers").expect("a knob");
        assert_eq!((layers.shown(), layers.turned(true).as_deref()), ("the preset's", Some("8")));
    }

    #[test]
    fn a_knob_turns_to_the_value_beside_it() {
        let check = |next: Option<i64>, expected| assert_eq!(next, expected);
        check(integer(8, (1, 100), true), Some(12));
        check(integer(5, (1, 100), false), Some(4));
        check(integer(1, (1, 100), false), None);
        check(integer(1, (0, 100), false), Some(0));
        check(integer(96, (1, 100), true), None);
        assert_eq!(number(1.0, (0.0, 8.0), false), Some(0.5));
        assert_eq!(number(0.25, (0.0, 8.0), false), Some(0.0));
        assert_eq!(number(0.0, (0.0, 8.0), false), None);
        assert_eq!(number(6.0, (0.0, 8.0), true), Some(8.0));
    }

    #[test]
    fn every_knob_of_every_lesson_turns_somewhere() {
        for name in ["2", "4", "10", "11"] {
            for knob in of_lesson(name, &[]) {
                let turns = [true, false].map(|up| knob.turned(up));
                assert!(turns.iter().any(Option::is_some), "{name}: {} = {}", knob.key.path(), knob.shown());
            }
        }
    }
}
