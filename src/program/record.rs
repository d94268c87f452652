//! A stored run: a trace as JSON lines, one of header, then one for each op that ran, in the order of events.
//!
//! [`write()`] prints them, [`read`] reads them back, and [`Record::trace`] makes the trace again, beside the program that ran.

use std::io;

use serde::{Deserialize, Serialize};

use super::head::head;
use super::tables::Program;
use super::trace::{Event, Outcome, Trace};
use super::wait::Wait;
use crate::base::units::Clock;
use crate::base::words::shortened;
use crate::base::{OpId, Rank, Ticks};

/// The name and version of the form. Fields are only ever added.
pub const SCHEMA: &str = "ranklab.trace/1";

/// A stored run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The first line.
    pub header: Header,
    /// The ops that ran, event by event, the op that made the event happen first; then those that still wait.
    pub ops: Vec<OpRecord>,
}

/// The first line: what the others mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// What a tick is.
    pub clock: Clock,
    /// Ranks of the program.
    pub ranks: usize,
    /// Entries of the program's op table.
    pub ops: usize,
    /// Events that happened.
    pub events: usize,
    /// How the run ended.
    pub outcome: Outcome,
}

/// One op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpRecord {
    /// The event that started it, from 1; none if it never started.
    pub event: Option<usize>,
    /// Its id in the program.
    pub op: OpId,
    /// Its rank.
    pub rank: Rank,
    /// Its stream.
    pub stream: String,
    /// Its head.
    pub head: String,
    /// The slot of the plan that asked for it.
    pub slot: Option<String>,
    /// The training step.
    pub step: u32,
    /// When its own rank owed it nothing any more.
    pub posted: Ticks,
    /// When it started.
    pub start: Option<Ticks>,
    /// When it ended.
    pub end: Option<Ticks>,
    /// What it waited for last, or still waits for.
    pub wait: Option<Wait>,
}

/// Why a stored run could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RecordError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// Prints the record of a run of `program`, line by line.
///
/// # Errors
/// If `out` fails.
pub fn write(program: &Program, trace: &Trace, out: &mut impl io::Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Header::of(program, trace))?;
    writeln!(out)?;
    for op in in_order(program, trace) {
        serde_json::to_writer(&mut *out, &OpRecord::of(program, trace, op))?;
        writeln!(out)?;
    }
    Ok(())
}

/// Reads the lines of a record.
///
/// # Errors
/// Every line that is none.
pub fn read(text: &str) -> Result<Record, Vec<RecordError>> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let mut errors = Vec::new();
    let header = match lines.next() {
        Some((number, line)) => line_of::<Header>(number, line, &mut errors),
        None => return Err(vec![RecordError { line: 1, problem: "nothing is here, not even a header".to_owned() }]),
    };
    let ops = lines.filter_map(|(number, line)| line_of::<OpRecord>(number, line, &mut errors)).collect();
    match header {
        Some(header) if header.schema != SCHEMA => {
            let problem = format!("the schema is `{}`, not `{SCHEMA}`", shortened(&header.schema));
            errors.insert(0, RecordError { line: 1, problem });
            Err(errors)
        }
        Some(header) if errors.is_empty() => Ok(Record { header, ops }),
        _ => Err(errors),
    }
}

fn line_of<'a, T: Deserialize<'a>>(line: usize, text: &'a str, errors: &mut Vec<RecordError>) -> Option<T> {
    let problem = |error: serde_json::Error| RecordError { line, problem: format!("{error}: `{}`", shortened(text)) };
    serde_json::from_str(text).map_err(|error| errors.push(problem(error))).ok()
}

/// The ops that ran, event by event, each led by the op that made it happen; then those that were seen to wait.
fn in_order(program: &Program, trace: &Trace) -> Vec<OpId> {
    let leads = |op: OpId, event: usize| trace.events[event - 1].op == op;
    let mut ops: Vec<(usize, bool, OpId)> = (0..program.ops())
        .map(OpId::new)
        .filter_map(|op| match trace.event_of(op) {
            Some(event) => Some((event, !leads(op, event), op)),
            None => trace.last_wait(op).map(|_| (usize::MAX, true, op)),
        })
        .collect();
    ops.sort_unstable();
    ops.into_iter().map(|(.., op)| op).collect()
}

impl Record {
    /// The record of a run of `program`.
    #[must_use]
    pub fn of(program: &Program, trace: &Trace) -> Self {
        let ops = in_order(program, trace).into_iter().map(|op| OpRecord::of(program, trace, op)).collect();
        Self { header: Header::of(program, trace), ops }
    }

    /// Whether `text` begins as a stored run does.
    #[must_use]
    pub fn is_likely(text: &str) -> bool {
        text.trim_start().starts_with("{\"schema\":\"ranklab.trace/")
    }

    /// The trace that was stored, as a run of `program`.
    ///
    /// # Errors
    /// If it is a run of another program: the first line that says so.
    pub fn trace(&self, program: &Program) -> Result<Trace, RecordError> {
        let header = &self.header;
        let wrong = |problem: String| RecordError { line: 1, problem };
        if (header.ranks, header.ops) != (program.ranks(), program.ops()) {
            return Err(wrong(format!("a run of {} ranks and {} ops, not of this program", header.ranks, header.ops)));
        }
        if !mentions(&header.outcome).all(|(rank, op)| knows(program, rank, op)) {
            return Err(wrong("the outcome names ops that the program does not have".to_owned()));
        }
        let mut trace = Trace::new(program, header.clock);
        trace.outcome = header.outcome.clone();
        for (line, record) in (2..).zip(&self.ops) {
            record.replay(program, &mut trace).map_err(|problem| RecordError { line, problem })?;
        }
        let events = trace.events.len();
        if events == header.events {
            Ok(trace)
        } else {
            Err(wrong(format!("{} events are announced, {events} follow", header.events)))
        }
    }
}

/// The ranks that an outcome names, each with an op of it where it names one.
fn mentions(outcome: &Outcome) -> impl Iterator<Item = (Rank, Option<OpId>)> {
    let mut all = Vec::new();
    match outcome {
        Outcome::Completed => {}
        Outcome::Deadlocked(graph) => {
            all.extend(graph.cycles.iter().flatten().map(|&(rank, op)| (rank, Some(op))));
            all.extend(graph.edges.iter().flat_map(|edge| [(edge.rank, Some(edge.op)), (edge.on_rank, edge.on_op)]));
            all.extend(graph.edges.iter().filter_map(|edge| edge.why.on()).map(|op| (Rank(0), Some(op))));
        }
        Outcome::OutOfMemory { rank, op, .. } => all.push((*rank, *op)),
    }
    all.into_iter()
}

fn knows(program: &Program, rank: Rank, op: Option<OpId>) -> bool {
    rank.index() < program.ranks() && op.is_none_or(|op| op.index() < program.ops())
}

impl Header {
    fn of(program: &Program, trace: &Trace) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            clock: trace.clock,
            ranks: program.ranks(),
            ops: program.ops(),
            events: trace.events.len(),
            outcome: trace.outcome.clone(),
        }
    }
}

impl OpRecord {
    fn of(program: &Program, trace: &Trace, id: OpId) -> Self {
        let op = program.op(id);
        let times = trace.times(id);
        Self {
            event: trace.event_of(id),
            op: id,
            rank: op.rank,
            stream: program.streams[op.stream.index()].name.clone(),
            head: head(program, id).to_string(),
            slot: op.origin.slot.map(|slot| slot.to_string()),
            step: op.origin.step,
            posted: trace.posted_at(id),
            start: times.map(|times| times.start),
            end: times.map(|times| times.end),
            wait: trace.last_wait(id),
        }
    }

    /// Records this op in `trace`; says so if it is no op of `program`, or in no order of events.
    fn replay(&self, program: &Program, trace: &mut Trace) -> Result<(), String> {
        let op = self.op;
        if !knows(program, self.rank, Some(op)) || program.rank_of(op) != self.rank || head(program, op).to_string() != self.head
        {
            return Err(format!("the program has no op {op} `{}` on {}", shortened(&self.head), self.rank));
        }
        if let Some(wait) = self.wait {
            if !knows(program, Rank(0), wait.on()) {
                return Err(format!("{op} waits for an op that the program does not have"));
            }
            trace.waits(op, wait);
        }
        trace.posted(op, self.posted);
        match (self.event, self.start, self.end) {
            (None, None, None) => Ok(()),
            (Some(event), Some(start), Some(end)) if start <= end => {
                let latest = trace.events.len();
                if event == 0 || event < latest || event > latest + 1 {
                    return Err(format!("event {event} stands behind event {latest}"));
                }
                trace.event(event - 1, Event { time: start, op });
                trace.starts(op, event, (start, end));
                Ok(())
            }
            _ => Err(format!("{op} has an event, a start and an end behind it, or none of them")),
        }
    }
}
