//! From a scenario as written to the scenario as meant. Each part notes its problems and goes on, so that all are found.

use super::keys::{KEYS, Key, Section, batch, collective as collective_keys, model, numerics, parallel, top};
use super::problem::{Problem, Problems};
use super::value::Value;
use super::written::Written;
use super::{
    Numerics, Scenario, Task, Values, collective, experts, fold, hardware, layer, levels, limits, sheet, topology, training,
    trouble,
};
use crate::base::precision::Convention;
use crate::base::{Bytes, Dtype};
use crate::program::sheet::Sheet;

/// The scenario that `text` and `overrides` mean.
pub(super) fn scenario(name: &str, text: &str, overrides: &[String]) -> Result<Scenario, Problems> {
    let mut written = read(name, text, overrides)?;
    match meant(&mut written) {
        Some(scenario) if !written.has_problems() => Ok(scenario),
        _ => Err(written.into_problems()),
    }
}

/// What is written, if it is anything.
pub(super) fn read(name: &str, text: &str, overrides: &[String]) -> Result<Written, Problems> {
    if text.trim().is_empty() && overrides.is_empty() {
        return Err(Problems::of_file(name, empty()));
    }
    let is_sheet = Sheet::is_likely(text);
    let mut written = Written::read(name, if is_sheet { "" } else { text }, overrides)?;
    sheet::read(&mut written, is_sheet.then_some(text));
    topology::read(&mut written);
    Ok(written)
}

/// The problem that a rule of trouble, the one at `index`, meets no op, at its place in the text.
pub(super) fn idle_trouble(name: &str, text: &str, overrides: &[String], index: usize, [message, hint]: [&str; 2]) -> Problems {
    match read(name, text, overrides) {
        Ok(mut written) => {
            trouble::refuse_idle(&mut written, index, message, hint);
            written.into_problems()
        }
        Err(problems) => problems,
    }
}

pub(super) fn empty() -> Problem {
    Problem::new("the scenario is empty").hint("`ranklab new FILE` writes one with every key and its default")
}

/// `None` only if a problem was noted.
fn meant(written: &mut Written) -> Option<Scenario> {
    let numerics = read_numerics(written);
    let piece = Piece::of(written);
    let mut task = match piece {
        Some(Piece::Collective) => {
            refuse_training(written);
            collective::read(written, numerics).map(Task::Collective)
        }
        Some(Piece::Layer) if experts::is_asked(written) => experts::read(written, numerics).map(Task::Experts),
        Some(Piece::Layer) => layer::read(written, numerics).map(Task::Layer),
        None => training::read(written, numerics).map(Task::Train),
    };
    let extent = extent(written, piece);
    let trouble = trouble::read(written, extent);
    layer::settle(written, task.as_mut(), trouble.as_deref().unwrap_or_default());
    experts::settle(written, task.as_mut(), trouble.as_deref().unwrap_or_default());
    let hardware = hardware::read(written, task.as_ref(), extent);
    let title = written.text(&top::TITLE);
    let seed = written.count(&top::SEED).map(u64::from);
    let mut scenario =
        Scenario { title: title?, seed: seed?, task: task?, hardware: hardware?, numerics: numerics?, trouble: trouble? };
    trouble::settle(&mut scenario);
    levels::check(written, &scenario);
    fold::settle(written, &mut scenario);
    limits::check(written, &scenario);
    Some(scenario)
}

/// How far ranks and steps go, as far as it is known: other problems of the task do not hide problems with these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub ranks: Option<usize>,
    pub steps: Option<u32>,
}

/// A piece of a training step that stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// `[collective]`
    Collective,
    /// `[layer]`
    Layer,
}

impl Piece {
    /// The piece that is written; `None` where it is a whole training step.
    pub fn of(written: &Written) -> Option<Self> {
        let pieces = [(Section::Collective, Self::Collective), (Section::Layer, Self::Layer)];
        pieces.into_iter().find(|(section, _)| written.section(*section).is_some()).map(|(_, piece)| piece)
    }
}

fn extent(written: &Written, piece: Option<Piece>) -> Extent {
    match piece {
        Some(Piece::Collective) => return Extent { ranks: written.size(&collective_keys::RANKS), steps: Some(1) },
        Some(Piece::Layer) => {
            let ranks = written.size(if experts::is_asked(written) { &parallel::EXPERT } else { &parallel::CONTEXT });
            return Extent { ranks, steps: Some(1) };
        }
        None => {}
    }
    let axes = [&parallel::DATA, &parallel::PIPELINE, &parallel::TENSOR, &parallel::CONTEXT];
    let ranks = axes.into_iter().try_fold(1_usize, |ranks, axis| ranks.checked_mul(written.size(axis)?));
    Extent { ranks, steps: written.count(&batch::STEPS) }
}

fn read_numerics(written: &mut Written) -> Option<Numerics> {
    let values = written.choice(&numerics::VALUES, Values::find);
    let dtype = run_dtype(written, values);
    let exact = written.flag(&numerics::EXACT);
    if let (Some(Values::Real), Some(dtype)) = (values, dtype)
        && !is_computed(dtype)
    {
        let problem = Problem::new(format!("real values cannot be computed in {dtype}")).allowed("f32, f64, bf16");
        written
            .refuse(&[&numerics::DTYPE, &model::PARAMETER_DTYPE], problem.hint("numerics.values = \"shape\" follows any type"));
    }
    if let (Some(Values::Shape), Some(true)) = (values, exact) {
        let problem = Problem::new("`exact` rounds real gradients, and numerics.values = \"shape\" has none");
        written.refuse(&[&numerics::EXACT, &numerics::VALUES], problem.hint("values = \"real\", or leave `exact` out"));
    }
    Some(Numerics { values: values?, dtype: dtype?, exact: exact? })
}

/// The type of the run. With real values that of the parameters says it, too.
fn run_dtype(written: &Written, values: Option<Values>) -> Option<Dtype> {
    let own = written.choice(&numerics::DTYPE, Dtype::find);
    if written.has(&numerics::DTYPE, 0) || values != Some(Values::Real) {
        return own;
    }
    let convention = |written: &Written, key: &Key| Some(written.choice(key, Convention::find)?.precision.parameter);
    let parameters = written.or(&model::BYTES_PER_PARAMETER, convention, None);
    written.or(&model::PARAMETER_DTYPE, |written, key| written.choice(key, Dtype::find), parameters).or(own)
}

/// Whether real values may have this type.
pub(super) fn is_computed(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F64 | Dtype::Bf16)
}

fn refuse_training(written: &mut Written) {
    let sections = KEYS.iter().map(|key| key.section).filter(|section| section.is_training() || *section == Section::Layer);
    let sections: std::collections::BTreeSet<Section> = sections.collect();
    for section in sections {
        if let Some(place) = written.section(section).cloned() {
            let problem = Problem::new(format!("a bare [collective] has no {}", section.header()));
            let problem = problem.allowed("title, seed, [collective], [numerics], [hardware], [[trouble]]");
            written.refuse_place(place, problem.hint("leave one of the two out"));
        }
    }
}

// Values by the type that the meant scenario has. `None`: refused, or unwritten without a value of its own.
impl Written {
    pub fn size(&self, key: &Key) -> Option<usize> {
        self.value(key, 0).and_then(Value::size)
    }

    pub fn count(&self, key: &Key) -> Option<u32> {
        self.value(key, 0).and_then(Value::count)
    }

    pub fn number(&self, key: &Key) -> Option<f64> {
        self.value(key, 0).and_then(Value::number)
    }

    pub fn flag(&self, key: &Key) -> Option<bool> {
        self.value(key, 0).and_then(Value::flag)
    }

    pub fn text(&self, key: &Key) -> Option<String> {
        self.value(key, 0).and_then(Value::text)
    }

    /// A choice as a member of its set.
    pub fn choice<T>(&self, key: &Key, find: fn(&str) -> Option<T>) -> Option<T> {
        find(&self.text(key)?)
    }

    /// `read` if `key` was written, else `fallback`.
    pub fn or<T>(&self, key: &Key, read: impl Fn(&Self, &Key) -> Option<T>, fallback: Option<T>) -> Option<T> {
        if self.has(key, 0) || self.implied(key).is_some() { read(self, key) } else { fallback }
    }

    /// Mebibytes as bytes, at least one.
    pub fn mebibytes(&self, key: &Key) -> Option<Bytes> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the key's range is above 0 and below 2^17 MiB"
        )]
        self.number(key).map(|mebibytes| Bytes((mebibytes * f64::from(1 << 20)).round() as u64))
    }
}
