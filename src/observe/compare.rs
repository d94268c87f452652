//! Two runs side by side: their numbers, the first event at which they differ, and the ops that run at other times.
//!
//! Events are compared by what they do, when, and where, so that any two runs can be laid beside each other: two schedules, two sets of
//! costs, a run of today and a saved trace. Times are compared in the clocks' units.

use std::collections::BTreeMap;

use serde::Serialize;

use super::report::Report;
use crate::base::units::Clock;
use crate::base::{Rank, Ticks};
use crate::program::record::{OpRecord, Record};
use crate::program::trace::Outcome;

/// The name of the document's form.
pub const SCHEMA: &str = "ranklab.compare/1";

/// Its JSON Schema.
pub const JSON_SCHEMA: &str = include_str!("../../schemas/compare.json");

/// One of the two runs.
#[derive(Clone, Debug)]
pub struct Side {
    /// What it is called.
    pub name: String,
    /// What happened.
    record: Record,
    numbers: Vec<Option<f64>>,
    words: Vec<String>,
}

/// How two runs differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The names of the two.
    pub names: [String; 2],
    /// Whether every event is the same, and every number that both have.
    pub equal: bool,
    /// Numbers of both; those that neither has are left out.
    pub measures: Vec<Measure>,
    /// What is said in words of both.
    pub words: Vec<Words>,
    /// The first event that is not the same.
    pub first_difference: Option<FirstDifference>,
    /// Their ops, one by one.
    pub ops: OpCounts,
}

/// A number of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// What it is.
    pub name: &'static str,
    /// Its unit; empty for a count or a share.
    pub unit: &'static str,
    /// Its unit in each of them, which differ where one counts slots and the other nanoseconds.
    #[serde(skip)]
    pub units: [&'static str; 2],
    /// Of the first run; none if it is not known of it.
    pub a: Option<f64>,
    /// Of the second.
    pub b: Option<f64>,
    /// The second minus the first, where the two have one unit.
    pub change: Option<f64>,
    /// Whether less of it is better; none if that cannot be said.
    pub less_is_better: Option<bool>,
}

/// Something that is said of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Words {
    /// What it is.
    pub name: &'static str,
    /// Of the first run.
    pub a: String,
    /// Of the second.
    pub b: String,
}

/// The first event that is not the same in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstDifference {
    /// Its number, from 1.
    pub event: usize,
    /// What it is in the first run; none if that has no more events.
    pub a: Option<Happened>,
    /// What it is in the second.
    pub b: Option<Happened>,
}

/// What an event does: the op that makes it happen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Happened {
    /// The rank.
    pub rank: u32,
    /// The op, in the program's text syntax.
    pub op: String,
    /// The training step.
    pub step: u32,
    /// When, in the clock's unit.
    pub time: f64,
}

/// Ops of both, matched by rank, step and text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OpCounts {
    /// At the same time in both.
    pub same: usize,
    /// At another time, or for another time.
    pub moved: usize,
    /// In the first run alone.
    pub only_a: usize,
    /// In the second alone.
    pub only_b: usize,
}

/// A number that is compared: name, unit, whether less is better, where a report has it. The clock's unit stands for an empty `*`.
type Row = (&'static str, &'static str, Option<bool>, fn(&Report) -> Option<f64>);

#[expect(clippy::cast_precision_loss, reason = "a table's numbers")]
const ROWS: [Row; 12] = [
    ("makespan", "*", Some(true), |report| Some(report.makespan)),
    ("step period", "*", Some(true), |report| report.step_period),
    ("bubble", "%", Some(true), |report| Some(report.bubble.fraction * 100.0)),
    ("inside bubble", "%", Some(true), inside),
    ("peak in flight", "", Some(true), |report| report.ranks.iter().map(|rank| f64::from(rank.peak_in_flight)).reduce(f64::max)),
    ("peak memory", "bytes", Some(true), |report| report.ranks.iter().map(|rank| rank.peak_bytes as f64).reduce(f64::max)),
    ("bytes sent", "bytes", Some(true), |report| Some(report.ranks.iter().map(|rank| rank.bytes_sent as f64).sum())),
    ("messages", "", Some(true), |report| Some(report.ranks.iter().map(|rank| rank.messages_sent as f64).sum())),
    ("traffic", "psi", Some(true), |report| report.traffic_psi),
    ("overlap", "%", Some(false), |report| report.overlap.map(|share| share * 100.0)),
    ("events", "", None, |report| Some(report.events as f64)),
    ("last loss", "", None, |report| report.loss.last().copied()),
];

fn inside(report: &Report) -> Option<f64> {
    let idle: f64 = report.ranks.iter().map(|rank| rank.idle_in_own_span).sum();
    #[expect(clippy::cast_precision_loss, reason = "a number of ranks")]
    let all = report.makespan * report.ranks.len() as f64;
    (all > 0.0).then(|| idle / all * 100.0)
}

/// What is said of a run: name, where a report has it.
type Saying = (&'static str, fn(&Report) -> String);

const WORDS: [Saying; 3] = [
    ("outcome", |report| report.outcome.to_owned()),
    ("verdict", |report| {
        let kind = serde_json::to_value(report.verdict.kind).ok();
        kind.and_then(|kind| Some(kind.as_str()?.to_owned())).unwrap_or_default()
    }),
    ("recognised", |report| report.recognised.unwrap_or("-").to_owned()),
];

impl Side {
    /// A run with its report.
    #[must_use]
    pub fn of_run(name: &str, record: Record, report: &Report) -> Self {
        let numbers = ROWS.iter().map(|row| (row.3)(report)).collect();
        let words = WORDS.iter().map(|(_, word)| word(report)).collect();
        Self { name: name.to_owned(), record, numbers, words }
    }

    /// A saved trace, of which only what happened is known.
    #[must_use]
    pub fn of_record(name: &str, record: Record) -> Self {
        let clock = record.header.clock;
        let ends = |step: u32| record.ops.iter().filter(move |op| op.step == step).filter_map(|op| op.end).max();
        let last = record.ops.iter().map(|op| op.step).max().unwrap_or(0);
        let period = last.checked_sub(1).and_then(|before| Some(clock.in_unit(ends(last)?) - clock.in_unit(ends(before)?)));
        let known = |name: &str| match name {
            "makespan" => ends(0).map(|end| clock.in_unit(end)),
            "step period" => period,
            #[expect(clippy::cast_precision_loss, reason = "a table's number")]
            "events" => Some(record.header.events as f64),
            _ => None,
        };
        let numbers = ROWS.iter().map(|row| known(row.0)).collect();
        let words = WORDS.iter().map(|(name, _)| if *name == "outcome" { record.header.outcome.name() } else { "-" }.to_owned());
        Self { name: name.to_owned(), words: words.collect(), numbers, record }
    }

    /// What a tick of it is.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.record.header.clock
    }

    /// The ops that made the events happen, in order.
    fn leaders(&self) -> impl Iterator<Item = &OpRecord> {
        let mut last = 0;
        self.record.ops.iter().filter(move |op| op.event.is_some_and(|event| std::mem::replace(&mut last, event) < event))
    }
}

impl Comparison {
    /// Compares two runs.
    #[must_use]
    pub fn new(a: &Side, b: &Side) -> Self {
        let measures = measures(a, b);
        let words = (0..).zip(&WORDS).map(|(place, (name, _))| {
            let of = |side: &Side| side.words.get::<usize>(place).cloned().unwrap_or_default();
            Words { name, a: of(a), b: of(b) }
        });
        let words: Vec<Words> = words.collect();
        let first_difference = first_difference(a, b);
        let same = |measure: &Measure| measure.change.is_none_or(|change| change == 0.0);
        let equal = first_difference.is_none()
            && a.clock().unit() == b.clock().unit()
            && measures.iter().all(same)
            && words.iter().all(|words| words.a == words.b || words.a == "-" || words.b == "-");
        let names = [a.name.clone(), b.name.clone()];
        Self { schema: SCHEMA, names, equal, measures, words, first_difference, ops: op_counts(a, b) }
    }
}

/// The numbers that one of them has.
fn measures(a: &Side, b: &Side) -> Vec<Measure> {
    let one_unit = a.clock().unit() == b.clock().unit();
    // A run that broke off did less of everything, which is no merit.
    let have_ended = [a, b].iter().all(|side| side.record.header.outcome == Outcome::Completed);
    let rows = ROWS.iter().zip(a.numbers.iter().zip(&b.numbers));
    let measures = rows.map(|(&(name, unit, less_is_better, _), (&a_number, &b_number))| {
        let timed = unit == "*";
        let units = if timed { [a, b].map(|side| side.clock().unit()) } else { [unit; 2] };
        let unit = match units {
            [one, other] if one == other => one,
            ["ns", _] => "ns / slots",
            _ => "slots / ns",
        };
        let change = a_number.zip(b_number).filter(|_| !timed || one_unit).map(|(a, b)| b - a);
        Measure { name, unit, units, a: a_number, b: b_number, change, less_is_better: less_is_better.filter(|_| have_ended) }
    });
    measures.filter(|measure| measure.a.or(measure.b).is_some()).collect()
}

fn first_difference(a: &Side, b: &Side) -> Option<FirstDifference> {
    let (mut left, mut right) = (a.leaders(), b.leaders());
    for event in 1.. {
        let (one, other) = (left.next().map(|op| Happened::new(a, op)), right.next().map(|op| Happened::new(b, op)));
        if one.is_none() && other.is_none() {
            break;
        }
        if one != other {
            return Some(FirstDifference { event, a: one, b: other });
        }
    }
    None
}

impl Happened {
    fn new(side: &Side, op: &OpRecord) -> Self {
        let time = side.clock().in_unit(op.start.unwrap_or_default());
        Self { rank: op.rank.0, op: op.head.clone(), step: op.step, time }
    }
}

/// When an op ran, in the clock's unit.
type When = Option<(f64, f64)>;

/// What an op is, in any run.
type Key<'a> = (Rank, u32, &'a str);

fn op_counts(a: &Side, b: &Side) -> OpCounts {
    let (left, right) = (by_key(a), by_key(b));
    let mut counts = OpCounts::default();
    for (key, times) in &left {
        let others = right.get(key).map_or(&[][..], Vec::as_slice);
        counts.only_a += times.len().saturating_sub(others.len());
        let same = times.iter().zip(others).filter(|(one, other)| one == other).count();
        counts.same += same;
        counts.moved += times.len().min(others.len()) - same;
    }
    counts.only_b = right.iter().map(|(key, times)| times.len().saturating_sub(left.get(key).map_or(0, Vec::len))).sum();
    counts
}

fn by_key(side: &Side) -> BTreeMap<Key<'_>, Vec<When>> {
    let unit = |time: Ticks| side.clock().in_unit(time);
    let mut map: BTreeMap<Key, Vec<When>> = BTreeMap::new();
    for op in &side.record.ops {
        map.entry((op.rank, op.step, &op.head))
            .or_default()
            .push(op.start.zip(op.end).map(|(start, end)| (unit(start), unit(end))));
    }
    map
}

/// The comparison as an indented document.
///
/// # Panics
/// Never: it holds nothing that JSON cannot.
#[must_use]
pub fn json(comparison: &Comparison) -> String {
    let mut text = serde_json::to_string_pretty(comparison).expect("a comparison has string keys only");
    text.push('\n');
    text
}
