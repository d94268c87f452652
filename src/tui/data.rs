//! One run as the screen shows it: made once by the worker, shared, never changed. Whatever a panel says about a position follows from
//! the trace and the number of events that have happened; only tensors need the session.

use std::sync::Arc;

use crate::base::units::Clock;
use crate::base::{BufferId, Dtype, OpId, Rank, Ticks};
use crate::lab;
use crate::observe::lanes::in_compute_row;
use crate::observe::report::Given;
use crate::observe::rows::{Row, Span};
use crate::observe::run::{Record, Run};
use crate::observe::slack::Slack;
use crate::observe::state::{At, Progress};
use crate::observe::why::{CriticalPath, critical_path};
use crate::observe::{Lanes, Ledger, Metrics, Observed, Report};
use crate::program::Program;
use crate::program::plan::Plan;

use super::alerts::{Alert, alerts};
use super::breaks::Breaks;
use super::coverage::Coverage;
use super::in_flight::InFlight;
use super::panels::prepared::{Asked, Prepared};

/// A finished run with all that is drawn of it.
#[derive(Debug)]
pub struct RunData {
    /// The scenario's title.
    pub title: String,
    /// Program and trace; `record.run()` is what observers take.
    pub record: Record,
    /// Spans and arrows.
    pub lanes: Lanes,
    /// The rows of the timeline, from top to bottom; the rows of a rank stand together, its compute row first.
    pub rows: Vec<RowId>,
    /// How much of any stretch of a row each kind covers; one entry for each of `rows`.
    pub coverage: Coverage,
    /// Memory over time.
    pub ledger: Ledger,
    /// Where the ranks' time went, and what they moved.
    pub metrics: Metrics,
    /// The document of `run --json`: outcome, verdict, loss, makespan, bubble.
    pub report: Report,
    /// The op whose result is the first wrong one.
    pub first_difference: Option<OpId>,
    /// The op whose result is the first that is no number.
    pub first_nan: Option<OpId>,
    /// Where something is wrong.
    pub alerts: Vec<Alert>,
    /// What held the first step up from its start to its end.
    pub critical: CriticalPath,
    /// How much later each op could end.
    pub slack: Slack,
    /// For each of `rows`, the stretches in which what has no slack runs.
    pub critical_stretches: Vec<Vec<(Ticks, Ticks)>>,
    /// How far each op is at any event.
    pub progress: Progress,
    /// Micro-batches that each rank holds over time.
    pub in_flight: Vec<InFlight>,
    /// Whether the run computed tensors.
    pub has_values: bool,
    /// The pipeline's plan; `None` for a bare collective.
    pub plan: Option<Arc<Plan>>,
    /// What the data panels need beside all this.
    pub prepared: Prepared,
}

/// A row of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowId {
    /// The rank.
    pub rank: Rank,
    /// Its compute row; otherwise its communication row.
    pub compute: bool,
    /// The first row of its rank: the rank's name stands before it.
    pub names_rank: bool,
}

/// A place in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Events that have happened: what stepping, breakpoints and lessons count.
    pub event: usize,
    /// The time that belongs to it.
    pub time: Ticks,
}

/// What a panel shows of a run: everything that is not the run itself.
#[derive(Clone, Copy, Debug)]
pub struct PanelView<'a> {
    /// Where the learner stands.
    pub position: Position,
    /// The rank that `n` steps and whose values are shown.
    pub focus: Rank,
    /// The op under the timeline's cursor, if there is one.
    pub op: Option<OpId>,
    /// The time under the timeline's cursor.
    pub cursor: Ticks,
    /// Lines scrolled away from the top of the panel.
    pub scroll: usize,
    /// The chosen row of the panel's table, unless its rows are ranks; it may lie behind the last one.
    pub chosen: usize,
    /// Whether the panel has the focus.
    pub focused: bool,
    /// Where a continued run stops.
    pub breaks: &'a Breaks,
    /// What the focus rank's buffers hold at `position`; `None` for shapes alone, and until the session has answered.
    pub values: Option<&'a Values>,
}

/// What the buffers of one rank hold at one position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// Events that have happened.
    pub event: usize,
    /// The rank.
    pub rank: Rank,
    /// Its buffers that have memory, in the program's order.
    pub buffers: Vec<BufferValue>,
    /// Of a layer of attention, the running softmax of all ranks' queries, in the first head.
    pub queries: Vec<QueryState>,
    /// Of a mixture of experts, by token and choice of the rank, what the expert's result is weighted by.
    pub gates: Vec<f64>,
}

/// The running softmax of one query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryState {
    /// The rank that has the query.
    pub rank: Rank,
    /// Its row on the rank.
    pub row: usize,
    /// The largest score so far, m.
    pub most: f64,
    /// The denominator so far, l.
    pub total: f64,
    /// The first elements of the output so far, O.
    pub output: Vec<f64>,
}

/// What one buffer holds.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferValue {
    /// The buffer.
    pub buffer: BufferId,
    /// Elements of all its tensors.
    pub elements: usize,
    /// The type of its tensors.
    pub dtype: Dtype,
    /// The shape of its only tensor; how many tensors there are otherwise.
    pub shape: String,
    /// The first elements, at most [`FIRST`].
    pub first: Vec<f64>,
    /// The Euclidean norm.
    pub norm: f64,
    /// The largest magnitude.
    pub abs_max: f64,
    /// Elements that are no numbers.
    pub nans: usize,
    /// A hash of all bits: equal values have equal checksums.
    pub checksum: u32,
}

/// Elements that are shown of a value.
pub const FIRST: usize = 6;

impl RowId {
    /// What runs on it, in a word.
    #[must_use]
    pub fn stream(self) -> &'static str {
        if self.compute { "comp" } else { "net" }
    }
}

impl RunData {
    /// Everything that is drawn of `run`. Linear in its ops but for sorting.
    #[must_use]
    pub fn new(run: &lab::Run) -> Self {
        let has_values = run.session.value(BufferId(0)).is_some();
        let first_difference = match &run.verdict {
            lab::Verdict::Wrong { first_difference, .. } => Some(first_difference.op),
            _ => None,
        };
        let first_nan = run.first_nan;
        let mut data = Self { first_difference, first_nan, ..Self::of_record(run.record(), run.given(), has_values) };
        data.prepared.asked = Asked::of(&run.scenario);
        data.plan = run.plan.clone().map(Arc::new);
        data.alerts = alerts(&data);
        data
    }

    /// The same from a record, and what is given beside it.
    #[must_use]
    pub fn of_record(record: Record, given: Given, has_values: bool) -> Self {
        let run = record.run();
        let lanes = Lanes::new(&run);
        let ledger = Ledger::new(&run);
        let metrics = Metrics::new(&run, &ledger);
        let title = given.title.clone();
        let slack = Slack::new(&run);
        let report = Report::new(&run, &metrics, &slack, given);
        let (progress, critical) = (Progress::new(&run), critical_path(&run, 0));
        let rows = rows(&lanes);
        let shown: Vec<&Row> = rows.iter().map(|&row| row_of(&lanes, row)).collect();
        let critical_stretches = shown.iter().map(|row| critical_stretches(row, &slack)).collect();
        let coverage = Coverage::of(&shown, lanes.ranks.iter().map(|rank| &rank.compute));
        let in_flight = (0..run.program.ranks()).map(|rank| InFlight::new(&run, Rank::new(rank))).collect();
        let prepared = Prepared::new(&run, &lanes, &ledger, &metrics);
        drop(run);
        let mut data = Self {
            title,
            record,
            lanes,
            rows,
            coverage,
            ledger,
            metrics,
            report,
            first_difference: None,
            first_nan: None,
            alerts: Vec::new(),
            critical,
            slack,
            critical_stretches,
            progress,
            in_flight,
            has_values,
            plan: None,
            prepared,
        };
        data.alerts = alerts(&data);
        data
    }

    /// A run of nothing on no ranks.
    #[must_use]
    pub fn empty() -> Self {
        let program = Program::new(0, crate::program::Setting::default());
        let trace = crate::program::Trace::new(&program, Clock::Slots { ticks_per_slot: 1 });
        Self::of_record(Record::new(Arc::new(program), Arc::new(trace)), Given::default(), false)
    }

    /// How many ranks the run has; none before the first run.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.lanes.ranks.len()
    }

    /// The name of a row: `r0 comp`.
    #[must_use]
    pub fn row_name(&self, row: RowId) -> String {
        format!("{} {}", self.program().whole(row.rank), row.stream())
    }

    /// The columns of the longest name of a rank.
    #[must_use]
    pub fn rank_width(&self) -> u16 {
        let last = self.program().whole(Rank::new(self.ranks().saturating_sub(1)));
        2 + u16::try_from(last.0.checked_ilog10().unwrap_or(0)).unwrap_or(0)
    }

    /// The run, as observers take it.
    #[must_use]
    pub fn run(&self) -> Run<'_> {
        self.record.run()
    }

    /// The run with all that was learnt from it.
    #[must_use]
    pub fn observed(&self) -> Observed<'_> {
        Observed::known(self.run(), &self.lanes, &self.ledger, &self.metrics)
    }

    /// `run`, which is [`Self::run`], behind `event` events.
    #[must_use]
    pub fn at<'a>(&'a self, run: &'a Run<'a>, event: usize) -> At<'a> {
        self.progress.at(run, event)
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.record.program
    }

    /// What a tick is.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.lanes.clock
    }

    /// The end of the run.
    #[must_use]
    pub fn end(&self) -> Ticks {
        self.lanes.end
    }

    /// How many events the run has.
    #[must_use]
    pub fn events(&self) -> usize {
        self.record.trace.events.len()
    }

    /// The position behind `event` events; the last one is the end of the run.
    #[must_use]
    pub fn position(&self, event: usize) -> Position {
        let events = &self.record.trace.events;
        let event = event.min(events.len());
        let time = match event {
            0 => Ticks::ZERO,
            all if all == events.len() => self.end(),
            some => events[some - 1].time,
        };
        Position { event, time }
    }

    /// How many events happen at `time` or before.
    #[must_use]
    pub fn events_until(&self, time: Ticks) -> usize {
        self.record.trace.events.partition_point(|event| event.time <= time)
    }

    /// The spans of a row.
    #[must_use]
    pub fn row(&self, row: RowId) -> &Row {
        row_of(&self.lanes, row)
    }

    /// Where `op` stands in the timeline: its row's place, and its start. What never started stands where its own rank owes it nothing
    /// more.
    #[must_use]
    pub fn place_of(&self, op: OpId) -> Option<(usize, Ticks)> {
        let run = self.run();
        let (rank, compute) = (self.program().rank_of(op), in_compute_row(&run, op));
        let of_rank = |row: &RowId| row.rank == rank;
        let place = self.rows.iter().position(|row| of_rank(row) && row.compute == compute);
        let place = place.or_else(|| self.rows.iter().position(of_rank))?;
        let posted = || self.at(&run, self.events()).posted(op);
        Some((place, run.times(op).map_or_else(posted, |times| times.start)))
    }

    /// The op that a span stands for, the first of several; of an idle span, the op that waits.
    #[must_use]
    pub fn op_of(&self, row: RowId, span: &Span) -> OpId {
        self.row(row).ops_of(span)[0]
    }
}

/// The rows in which something is: a bare collective computes nothing, a single rank sends nothing.
fn rows(lanes: &Lanes) -> Vec<RowId> {
    let is_shown = |compute: bool| lanes.ranks.iter().any(|rank| !row(rank, compute).spans.is_empty());
    let shown: Vec<bool> = [true, false].into_iter().filter(|&compute| is_shown(compute)).collect();
    let shown = shown.as_slice();
    let of_rank = |rank: Rank| shown.iter().map(move |&compute| RowId { rank, compute, names_rank: compute == shown[0] });
    lanes.ranks.iter().flat_map(|rank| of_rank(rank.rank)).collect()
}

/// The stretches of a row in which ops without slack run, those that touch as one.
fn critical_stretches(row: &Row, slack: &Slack) -> Vec<(Ticks, Ticks)> {
    let is_critical = |span: &&Span| !span.kind.is_idle() && row.ops_of(span).iter().any(|&op| slack.is_critical(op));
    let mut stretches: Vec<(Ticks, Ticks)> = Vec::new();
    for span in row.spans.iter().filter(is_critical) {
        match stretches.last_mut() {
            Some(last) if last.1 == span.start => last.1 = span.end,
            _ => stretches.push((span.start, span.end)),
        }
    }
    stretches
}

fn row_of(lanes: &Lanes, id: RowId) -> &Row {
    row(&lanes.ranks[id.rank.index()], id.compute)
}

fn row(rank: &crate::observe::lanes::RankLanes, compute: bool) -> &Row {
    if compute { &rank.compute } else { &rank.communication }
}
