//! A pinned run, and how the run that is shown differs from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{OpId, Rank, Ticks};
use crate::observe::compare::{Comparison, Side, Words};
use crate::program::plan::Slot;
use crate::program::record::Record;
use crate::scenario::settings;

use super::data::RunData;
use super::model::{RunModel, Setup};

/// The run that others are compared with: A.
#[derive(Clone, Debug)]
pub struct Pinned {
    /// The run.
    pub run: RunModel,
    /// How a place in the run that is shown is found in it.
    pub link: Link,
    /// How the run that is shown differs; made when either of the two changes.
    pub compared: Arc<Compared>,
}

/// How a place in one run is found in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// The same time.
    #[default]
    Time,
    /// The event of the same number.
    Event,
    /// The same slot: micro-batch, stage and pass of a step.
    MicroBatch,
}

/// How two runs differ.
#[derive(Clone, Debug)]
pub struct Compared {
    /// In numbers, and event by event.
    pub comparison: Comparison,
    /// Where slots of the run that is shown stand at another time or on another rank than in A: when, and in which row.
    pub places: Vec<(Ticks, usize)>,
    /// Keys of the scenario with their values in A and in the run that is shown.
    pub knobs: Vec<(String, String, String)>,
}

impl Compared {
    /// Lines of the table of differences.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.knobs.len() + self.comparison.measures.len() + self.words().count()
    }

    /// The words that are not the same.
    pub fn words(&self) -> impl Iterator<Item = &Words> {
        self.comparison.words.iter().filter(|words| words.a != words.b)
    }
}

impl Link {
    const ALL: [(Self, &'static str); 3] = [(Self::Time, "time"), (Self::Event, "event"), (Self::MicroBatch, "micro-batch")];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The next one, round and round.
    #[must_use]
    pub fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()].0
    }
}

impl Pinned {
    /// Pins `a` beside `b`.
    #[must_use]
    pub fn new(a: &RunModel, b: &RunModel) -> Self {
        Self { run: a.clone(), link: Link::default(), compared: Arc::new(Compared::new(a, b)) }
    }

    /// Another run is shown.
    pub fn beside(&mut self, b: &RunModel) {
        self.compared = Arc::new(Compared::new(&self.run, b));
    }

    /// The row and the time in A that belong to the row and the time under the cursor of `data`.
    #[must_use]
    pub fn linked(&self, data: &RunData, (row, time): (usize, Ticks), op: Option<OpId>) -> Option<(usize, Ticks)> {
        let a = &self.run.data;
        let of_rank = |rank: Rank| a.rows.iter().position(|row| row.rank == rank && row.compute);
        match self.link {
            Link::Time => Some((of_rank(data.rows.get(row)?.rank)?, in_ticks_of(a, data.clock().in_unit(time)))),
            Link::Event => {
                let event = data.record.trace.event_of(op?)?.checked_sub(1)?;
                a.place_of(a.record.trace.events.get(event)?.op)
            }
            Link::MicroBatch => {
                let origin = data.program().op(op?).origin;
                let wanted = origin.slot?;
                let run = a.run();
                let fits = |op: &OpId| {
                    let of = run.program.op(*op).origin;
                    of.slot == Some(wanted) && of.step == origin.step && run.computes(*op)
                };
                run.program.all().find(fits).and_then(|op| a.place_of(op))
            }
        }
    }
}

/// A time of `data` from its unit.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a run are not negative, and far below 2^53"
)]
fn in_ticks_of(data: &RunData, time: f64) -> Ticks {
    Ticks((time / data.clock().in_unit(Ticks(1))).round() as u64)
}

impl Compared {
    fn new(a: &RunModel, b: &RunModel) -> Self {
        let comparison = Comparison::new(&side(a), &side(b));
        Self { comparison, places: places(&a.data, &b.data), knobs: knobs(&a.setup, &b.setup) }
    }
}

fn side(run: &RunModel) -> Side {
    let data = &run.data;
    let name = std::iter::once(data.title.clone()).chain(run.setup.overrides()).collect::<Vec<_>>().join("  ");
    Side::of_run(&name, Record::of(data.program(), &data.record.trace), &data.report)
}

/// Where slots of `b` run that do not run there in `a`.
fn places(a: &RunData, b: &RunData) -> Vec<(Ticks, usize)> {
    let before = slots(a);
    let mut places: Vec<(Ticks, usize)> = slots(b)
        .into_iter()
        .filter(|(key, place)| before.get(key).is_none_or(|other| (other.0, other.1) != (place.0, place.1)))
        .map(|(_, (.., time, row))| (time, row))
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// Rank, start and end as numbers of the unit, start in ticks, row.
type Placed = (Rank, [u64; 2], Ticks, usize);

fn slots(data: &RunData) -> BTreeMap<(Slot, u32, usize), Placed> {
    let run = data.run();
    let mut slots = BTreeMap::new();
    for (row, &id) in data.rows.iter().enumerate().filter(|(_, id)| id.compute) {
        for span in data.row(id).spans.iter().filter(|span| !span.kind.is_idle()) {
            let origin = data.row(id).origin(&run, span);
            let Some(slot) = origin.slot else { continue };
            let times = [span.start, span.end].map(|time| data.clock().in_unit(time).to_bits());
            // A slot that is held up in its middle stands in several spans.
            let mut number = 0;
            while slots.contains_key(&(slot, origin.step, number)) {
                number += 1;
            }
            slots.insert((slot, origin.step, number), (id.rank, times, span.start, row));
        }
    }
    slots
}

/// The keys whose values differ.
fn knobs(a: &Setup, b: &Setup) -> Vec<(String, String, String)> {
    let of = |setup: &Setup| settings(&setup.name, &setup.text, &setup.overrides()).unwrap_or_default();
    let (before, now) = (of(a), of(b));
    let value = |settings: &[crate::scenario::Setting], path: &str| {
        let setting = settings.iter().find(|setting| setting.key.path() == path);
        setting.and_then(|setting| setting.value.clone()).unwrap_or_else(|| "-".to_owned())
    };
    let mut paths: Vec<String> = before.iter().chain(&now).map(|setting| setting.key.path()).collect();
    let mut seen = std::collections::BTreeSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    let both = paths.into_iter().map(|path| (value(&before, &path), value(&now, &path), path));
    let mut knobs: Vec<_> = both.filter(|(a, b, _)| a != b).map(|(a, b, path)| (path, a, b)).collect();
    if a.plan != b.plan {
        let word = |setup: &Setup| if setup.plan.is_some() { "edited" } else { "the schedule's" }.to_owned();
        knobs.push(("plan".to_owned(), word(a), word(b)));
    }
    knobs
}
