//! The report: the document of `run --json`. Fields are only ever added; `schemas/run.json` is its schema.

use serde::Serialize;

pub use super::found::{Diagnosis, NanReport, Repair, RepairKind, SilentSwap};
use super::metrics::{Metrics, RankMetrics};
use super::mixture::Mixture;
use super::run::Run;
use super::slack::Slack;
use super::traffic::{CollectiveStats, Wire};
use super::{volume, why};
use crate::base::settings::AllReduce;
use crate::base::units::Clock;
use crate::base::{Bytes, OpId, Rank, Ticks};
use crate::program::head::head;
use crate::program::memory::ByRole;
use crate::program::trace::{Outcome, WaitEdge};
use crate::program::{CollectiveKind, Program, Role};

/// The name of this document's form.
pub const SCHEMA: &str = "ranklab.run/1";

/// Its JSON Schema.
pub const JSON_SCHEMA: &str = include_str!("../../schemas/run.json");

/// What the caller knows and a trace does not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// The scenario's title.
    pub title: String,
    /// What the costs are: `unit`, or the name of a hardware table.
    pub costs: String,
    /// The schedule whose plan this is.
    pub recognised: Option<&'static str>,
    /// How all-reduces move their data.
    pub algorithm: Option<AllReduce>,
    /// Peak of one device in FLOP/s; `None` with unit costs, and where nobody says.
    pub peak_flops: Option<f64>,
    /// Tokens of a micro-batch, and how many would hide its traffic; `None` where there is none to hide.
    pub tokens: Option<Tokens>,
    /// Mean loss of each step; empty without real values.
    pub loss: Vec<f64>,
    /// Auxiliary loss of each step; empty without real values.
    pub auxiliary: Vec<f64>,
    /// How the result compares with one device's.
    pub verdict: Verdict,
    /// The op whose result is the first that is no number.
    pub first_nan: Option<OpId>,
    /// What is wrong, and where it comes from.
    pub diagnosis: Vec<Diagnosis>,
    /// Ends of messages that meet although they name different data.
    pub silent_swaps: Vec<SilentSwap>,
    /// At a deadlock: what would resolve it.
    pub repairs: Vec<Repair>,
}

/// Tokens of a micro-batch on each rank: the time to compute grows with them, the time to exchange parameters and gradients does not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tokens {
    /// So many there are.
    pub micro_batch: u64,
    /// So many would take as long to compute as the traffic of a micro-batch takes.
    pub hide_traffic: f64,
}

/// How a run's numbers compare with one device's.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// The judgement.
    pub kind: VerdictKind,
    /// The largest difference of any element; `None` if nothing was compared.
    pub max_abs_diff: Option<f64>,
    /// The first tensor that differs by more than it may.
    pub first_difference: Option<FirstDifference>,
    /// What is wrong and what is right, and what that looks like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks: Option<String>,
    /// One device used the same delayed weights: the pipeline is never drained.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delayed_weights: bool,
}

impl Verdict {
    /// What the result is compared with.
    #[must_use]
    pub fn device(&self) -> &'static str {
        if self.delayed_weights { "one device with equally old weights" } else { "one device" }
    }
}

/// A judgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// Bit for bit the same.
    Equal,
    /// Different by no more than rounding explains.
    ExpectedDrift,
    /// Different by more.
    Wrong,
    /// Nothing was compared: a run of shapes alone.
    #[default]
    None,
}

/// Where a result first differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstDifference {
    /// The training step.
    pub step: u32,
    /// The op, in the program's text syntax.
    pub op: String,
    /// The tensor.
    pub tensor: String,
    /// The rank.
    pub rank: u32,
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are described where they are computed, and in the schema")]
pub struct Report {
    pub schema: &'static str,
    pub title: String,
    pub clock: ClockReport,
    pub recognised: Option<&'static str>,
    pub unit: &'static str,
    pub outcome: &'static str,
    pub makespan: f64,
    pub step_period: Option<f64>,
    pub bubble: Bubble,
    pub overlap: Option<f64>,
    pub traffic_psi: Option<f64>,
    pub flops: FlopsReport,
    pub mfu: Option<f64>,
    pub hfu: Option<f64>,
    pub tokens: Option<Tokens>,
    pub experts: Option<Mixture>,
    pub ranks: Vec<RankReport>,
    pub collectives: Vec<CollectiveReport>,
    pub links: Vec<LinkReport>,
    pub critical_path: String,
    pub critical: CriticalReport,
    pub loss: Vec<f64>,
    pub verdict: Verdict,
    pub first_nan: Option<NanReport>,
    pub diagnosis: Vec<Diagnosis>,
    pub waits: Waits,
    pub silent_swaps: Vec<SilentSwap>,
    pub out_of_memory: Option<OutOfMemory>,
    pub events: usize,
}

/// Where times come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct ClockReport {
    pub kind: &'static str,
    pub model: String,
}

/// Both conventions: idle over everything, idle over busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct Bubble {
    pub fraction: f64,
    pub ratio: Option<f64>,
}

/// How long the critical path computes, and how long it moves data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct CriticalReport {
    pub computing: f64,
    pub communicating: f64,
}

/// What the model needs, and what the hardware computes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct FlopsReport {
    pub model: u128,
    pub hardware: u128,
}

/// One rank's numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct RankReport {
    pub rank: u32,
    pub busy: f64,
    pub idle: f64,
    pub ramp: f64,
    pub bubble: f64,
    pub exposed_comm: f64,
    pub idle_in_own_span: f64,
    pub critical_busy: f64,
    pub peak_in_flight: u32,
    pub peak_in_flight_to_weight: u32,
    pub weight_versions: u32,
    pub peak_bytes: u64,
    pub peak_bytes_by_role: RoleBytes,
    pub state_bytes: StateBytes,
    pub padding_bytes: u64,
    pub traffic_psi: f64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub messages_sent: u64,
}

/// Bytes by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the roles' own names")]
pub struct RoleBytes {
    pub parameter: u64,
    pub gradient: u64,
    pub optimizer: u64,
    pub activation: u64,
    pub bucket: u64,
    pub message: u64,
    pub scratch: u64,
}

/// What a rank owns between steps, and its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the roles' own names")]
pub struct StateBytes {
    pub parameter: u64,
    pub gradient: u64,
    pub optimizer: u64,
}

/// One collective of the first step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct CollectiveReport {
    pub name: String,
    pub group: String,
    pub ranks: usize,
    pub algorithm: Option<&'static str>,
    pub bytes: u64,
    pub padding_bytes: u64,
    pub steps: u32,
    pub start: f64,
    pub end: f64,
    pub bytes_sent: u64,
    pub algorithm_bandwidth_gb_per_s: Option<f64>,
    pub bus_bandwidth_gb_per_s: Option<f64>,
}

/// One wire of the first step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct LinkReport {
    pub from: u32,
    pub to: u32,
    pub messages: u64,
    pub bytes: u64,
    pub busy: f64,
}

/// Who waits for whom when nothing moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct Waits {
    pub edges: Vec<EdgeReport>,
    pub cycles: Vec<Vec<u32>>,
    pub behind: Vec<u32>,
    pub repairs: Vec<Repair>,
}

/// One edge of the wait-for graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct EdgeReport {
    pub rank: u32,
    pub op: String,
    pub on_rank: u32,
    pub on_op: Option<String>,
    pub why: &'static str,
}

/// The rank whose device is full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "described in the schema")]
pub struct OutOfMemory {
    pub rank: u32,
    pub op: Option<String>,
    pub needed: u64,
    pub limit: u64,
}

impl Report {
    /// The document of `run`.
    #[must_use]
    pub fn new(run: &Run, metrics: &Metrics, slack: &Slack, given: Given) -> Self {
        let clock = run.trace.clock;
        let path = why::critical_path(run, 0);
        let outcome = match (&run.trace.outcome, given.verdict.kind) {
            (Outcome::Completed, VerdictKind::Wrong) => "wrong",
            (outcome, _) => outcome.name(),
        };
        let utilization = volume::utilization(run, metrics, given.peak_flops);
        Self {
            schema: SCHEMA,
            title: given.title,
            clock: ClockReport { kind: "modelled", model: given.costs },
            recognised: given.recognised,
            unit: clock.unit(),
            outcome,
            makespan: clock.in_unit(metrics.makespan),
            step_period: metrics.step_period.map(|period| clock.in_unit(period)),
            bubble: Bubble { fraction: metrics.bubble_fraction(), ratio: metrics.bubble_ratio() },
            overlap: metrics.overlap(),
            traffic_psi: metrics.traffic_psi(run),
            flops: FlopsReport { model: metrics.flops.model, hardware: metrics.flops.hardware },
            mfu: utilization.map(|share| share.model),
            hfu: utilization.map(|share| share.hardware),
            tokens: given.tokens,
            experts: Mixture::of(run.program, &given.auxiliary),
            ranks: unfolded_ranks(run, metrics, slack),
            collectives: unfolded_collectives(run, metrics, given.algorithm),
            links: unfolded_links(run, metrics),
            critical_path: path.sentence(run),
            critical: CriticalReport {
                computing: clock.in_unit(path.computing),
                communicating: clock.in_unit(path.communicating),
            },
            loss: given.loss,
            verdict: given.verdict,
            first_nan: given.first_nan.map(|op| NanReport::new(run.program, op)),
            diagnosis: given.diagnosis,
            waits: Waits::new(run, given.repairs),
            silent_swaps: given.silent_swaps,
            out_of_memory: OutOfMemory::new(run),
            events: run.trace.events.len(),
        }
    }
}

/// Folded ranks have equal numbers, but for the zeros at the ends of their shards.
fn unfolded_ranks(run: &Run, metrics: &Metrics, slack: &Slack) -> Vec<RankReport> {
    let (fold, padding) = (run.program.fold(), volume::padding(run.program));
    let unfolded = |rank: &RankMetrics| {
        let report = RankReport::new(run.trace.clock, rank, slack.critical_time(run, rank.rank, 0));
        let number = rank.rank;
        let (program, padding) = (run.program, &padding);
        (0..fold).map(move |folded| {
            let rank = program.unfolded(number, folded);
            RankReport { rank: rank.0, padding_bytes: padding[rank.index()].0, ..report }
        })
    };
    let mut reports: Vec<RankReport> = metrics.ranks.iter().flat_map(unfolded).collect();
    reports.sort_by_key(|report| report.rank);
    reports
}

/// Where folded ranks meet in several groups, each group has a collective of its own: `fsdp0`, `fsdp1`, ...
fn unfolded_collectives(run: &Run, metrics: &Metrics, algorithm: Option<AllReduce>) -> Vec<CollectiveReport> {
    let reports = |stats: &CollectiveStats| {
        let report = CollectiveReport::new(run, stats, algorithm);
        run.program.group_of(stats.collective).names().into_iter().map(move |group| CollectiveReport { group, ..report.clone() })
    };
    metrics.collectives.iter().flat_map(reports).collect()
}

/// Folded ranks send to their like: the first to the first, the second to the second.
fn unfolded_links(run: &Run, metrics: &Metrics) -> Vec<LinkReport> {
    let link = |wire: &Wire, folded: usize| {
        let number = |rank: Rank| run.program.unfolded(rank, folded).0;
        LinkReport { from: number(wire.from), to: number(wire.to), ..LinkReport::new(run.trace.clock, wire) }
    };
    let all = metrics.wires.iter().flat_map(|wire| (0..run.program.fold()).map(move |folded| link(wire, folded)));
    let mut links: Vec<LinkReport> = all.collect();
    links.sort_by_key(|link| (link.from, link.to));
    links
}

impl RankReport {
    fn new(clock: Clock, rank: &RankMetrics, critical: Ticks) -> Self {
        let time = |ticks: Ticks| clock.in_unit(ticks);
        let Bytes(parameter) = rank.state.parameter;
        let Bytes(gradient) = rank.state.gradient;
        let Bytes(optimizer) = rank.state.optimizer;
        Self {
            rank: rank.rank.0,
            busy: time(rank.busy),
            idle: time(rank.idle),
            ramp: time(rank.ramp),
            bubble: time(rank.bubble),
            exposed_comm: time(rank.exposed_comm),
            idle_in_own_span: time(rank.idle_in_own_span()),
            critical_busy: time(critical),
            peak_in_flight: rank.peak_in_flight,
            peak_in_flight_to_weight: rank.peak_in_flight_to_weight,
            weight_versions: rank.weight_versions,
            peak_bytes: rank.peak_bytes.0,
            peak_bytes_by_role: RoleBytes::new(&rank.peak_by_role),
            state_bytes: StateBytes { parameter, gradient, optimizer },
            padding_bytes: rank.padding.0,
            traffic_psi: rank.traffic_psi,
            bytes_sent: rank.bytes_sent.0,
            bytes_received: rank.bytes_received.0,
            messages_sent: rank.messages_sent,
        }
    }
}

impl RoleBytes {
    fn new(by_role: &ByRole) -> Self {
        let of = |role: Role| by_role[role as usize].0;
        Self {
            parameter: of(Role::Parameter),
            gradient: of(Role::Gradient),
            optimizer: of(Role::Optimizer),
            activation: of(Role::Activation),
            bucket: of(Role::Bucket),
            message: of(Role::Message),
            scratch: of(Role::Scratch),
        }
    }
}

impl CollectiveReport {
    fn new(run: &Run, stats: &CollectiveStats, algorithm: Option<AllReduce>) -> Self {
        let clock = run.trace.clock;
        let collective = &run.program.collectives[stats.collective.index()];
        let group = &run.program.groups[collective.group.index()];
        Self {
            name: format!("{} {}", collective.kind.name(), collective.label),
            group: group.name.clone(),
            ranks: group.size(),
            algorithm: if collective.kind == CollectiveKind::AllReduce { algorithm } else { Some(AllReduce::Ring) }
                .map(AllReduce::name),
            bytes: stats.bytes.0,
            padding_bytes: collective.padding.0,
            steps: stats.steps,
            start: clock.in_unit(stats.start),
            end: clock.in_unit(stats.end),
            bytes_sent: stats.sent.0,
            algorithm_bandwidth_gb_per_s: stats.algorithm_bandwidth(clock),
            bus_bandwidth_gb_per_s: stats.bus_bandwidth(run),
        }
    }
}

impl LinkReport {
    fn new(clock: Clock, wire: &Wire) -> Self {
        let Wire { from: Rank(from), to: Rank(to), messages, bytes, busy } = *wire;
        Self { from, to, messages, bytes: bytes.0, busy: clock.in_unit(busy) }
    }
}

impl Waits {
    fn new(run: &Run, repairs: Vec<Repair>) -> Self {
        let Outcome::Deadlocked(graph) = &run.trace.outcome else { return Self::default() };
        let number = |rank: Rank| run.program.whole(rank).0;
        let edge = |edge: &WaitEdge| EdgeReport {
            rank: number(edge.rank),
            op: op_text(run.program, edge.op),
            on_rank: number(edge.on_rank),
            on_op: edge.on_op.map(|op| op_text(run.program, op)),
            why: edge.why.why(),
        };
        let cycle = |cycle: &Vec<(Rank, OpId)>| {
            let mut ranks: Vec<u32> = cycle.iter().map(|(rank, _)| number(*rank)).collect();
            // A circle within one rank passes several of its ops.
            ranks.dedup();
            ranks
        };
        let behind = graph.behind().map(number).collect();
        Self { edges: graph.edges.iter().map(edge).collect(), cycles: graph.cycles.iter().map(cycle).collect(), behind, repairs }
    }
}

impl NanReport {
    fn new(program: &Program, op: OpId) -> Self {
        let view = program.op(op);
        Self { step: view.origin.step, op: op_text(program, op), rank: view.rank.0 }
    }
}

impl OutOfMemory {
    fn new(run: &Run) -> Option<Self> {
        let Outcome::OutOfMemory { rank, op, needed, limit } = &run.trace.outcome else { return None };
        let op = op.map(|op| op_text(run.program, op));
        Some(Self { rank: run.program.unfolded(*rank, 0).0, op, needed: needed.0, limit: limit.0 })
    }
}

fn op_text(program: &Program, op: OpId) -> String {
    head(program, op).to_string()
}
