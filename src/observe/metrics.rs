//! Metrics: where the ranks' time went and what they moved, in the first step; what they held, in the whole run.
//!
//! Per rank: idle = makespan - busy = ramp + bubble + exposed communication. Only ops that take time bound a rank's own span.

use super::idle;
use super::kind::Kind;
use super::ledger::{Ledger, State, state};
use super::run::Run;
use super::traffic::{self, CollectiveStats, Wire, whole_sent};
use super::volume::{self, Flops};
use std::collections::BTreeSet;

use crate::base::{BufferId, Bytes, OpId, Rank, Ticks};
use crate::program::exchange::Exchange;
use crate::program::memory::ByRole;
use crate::program::plan::{Pass, Slot};
use crate::program::{Name, OpKind};

/// The numbers of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// End of the first step.
    pub makespan: Ticks,
    /// End of the last step minus end of the one before; `None` unless two steps ran.
    pub step_period: Option<Ticks>,
    /// One entry per rank.
    pub ranks: Vec<RankMetrics>,
    /// Wires that carried messages.
    pub wires: Vec<Wire>,
    /// Collectives that moved data.
    pub collectives: Vec<CollectiveStats>,
    /// What the model needs and the hardware computes.
    pub flops: Flops,
}

/// The numbers of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankMetrics {
    /// The rank.
    pub rank: Rank,
    /// Computing.
    pub busy: Ticks,
    /// Before its first and after its last op.
    pub ramp: Ticks,
    /// Idle inside, waiting for data.
    pub bubble: Ticks,
    /// Idle inside, while a transfer or collective that it needs is moving.
    pub exposed_comm: Ticks,
    /// All that is not busy.
    pub idle: Ticks,
    /// Some message or collective of the rank is moving.
    pub communication: Ticks,
    /// Of that, while the rank computes.
    pub overlapped: Ticks,
    /// Most chunks at a time between the start of their F and the end of their I or B.
    pub peak_in_flight: u32,
    /// The same to the end of W.
    pub peak_in_flight_to_weight: u32,
    /// Most versions of its weights at a time: the newest, and those that micro-batches under way still need.
    pub weight_versions: u32,
    /// What it sent.
    pub bytes_sent: Bytes,
    /// What it received.
    pub bytes_received: Bytes,
    /// Messages that it sent.
    pub messages_sent: u64,
    /// The most that it held.
    pub peak_bytes: Bytes,
    /// What that consisted of.
    pub peak_by_role: ByRole,
    /// What it owns between steps, and its gradients.
    pub state: State,
    /// What of that is zeros at the ends of shards.
    pub padding: Bytes,
    /// Payloads of its collectives, in units of its own parameters.
    pub traffic_psi: f64,
}

impl Metrics {
    /// Computes all numbers. Linear in the ops but for sorting times.
    #[must_use]
    pub fn new(run: &Run, ledger: &Ledger) -> Self {
        let states = state(run.program);
        let step = |op: &OpId| run.program.op(*op).origin.step;
        let is_drained = run.program.order.iter().all(|order| order.is_sorted_by_key(step));
        let (padding, traffic_psi) = (volume::padding(run.program), volume::traffic_psi(run, FIRST));
        let ranks = (0..run.program.ranks()).map(Rank::new).zip(states);
        let ranks = ranks.map(|(rank, state)| {
            let (padding, traffic_psi) = (padding[run.program.unfolded(rank, 0).index()], traffic_psi[rank.index()]);
            let (peak_bytes, peak_by_role) = (ledger.rank(rank).peak().total(), ledger.rank(rank).peak().by_role);
            let mut metrics = RankMetrics { rank, peak_bytes, peak_by_role, state, padding, traffic_psi, ..Default::default() };
            metrics.count(run, is_drained);
            metrics
        });
        Self {
            makespan: run.makespan(),
            step_period: run.step_period(),
            ranks: ranks.collect(),
            wires: traffic::wires(run, FIRST),
            collectives: traffic::collectives(run, FIRST),
            flops: volume::flops(run, FIRST),
        }
    }

    /// The most that a rank moves, in units of its parameters; `None` without a model.
    #[must_use]
    pub fn traffic_psi(&self, run: &Run) -> Option<f64> {
        let all = self.ranks.iter().map(|rank| rank.traffic_psi);
        (!run.program.parameters.is_empty()).then(|| all.fold(0.0, f64::max))
    }

    /// Idle time of all ranks over ranks times makespan.
    #[must_use]
    pub fn bubble_fraction(&self) -> f64 {
        let idle: Ticks = self.ranks.iter().map(|rank| rank.idle).sum();
        share(idle, self.makespan * self.ranks.len() as u64).unwrap_or(0.0)
    }

    /// Idle time of all ranks over their busy time; `None` if nothing was computed.
    #[must_use]
    pub fn bubble_ratio(&self) -> Option<f64> {
        share(self.ranks.iter().map(|rank| rank.idle).sum(), self.ranks.iter().map(|rank| rank.busy).sum())
    }

    /// The share of communication time during which its rank computes; `None` if communication took no time.
    #[must_use]
    pub fn overlap(&self) -> Option<f64> {
        let overlapped = self.ranks.iter().map(|rank| rank.overlapped).sum();
        share(overlapped, self.ranks.iter().map(|rank| rank.communication).sum())
    }
}

impl RankMetrics {
    /// Idle between its first and its last op.
    #[must_use]
    pub fn idle_in_own_span(&self) -> Ticks {
        self.idle - self.ramp
    }

    /// Where the pipeline is never drained, what a rank does for later steps keeps it busy within the first one.
    fn count(&mut self, run: &Run, is_drained: bool) {
        let counts = |op: &OpId| {
            let starts_within = || run.times(*op).is_some_and(|times| times.start < run.makespan());
            run.of_step(*op, FIRST) || (!is_drained && starts_within())
        };
        let ops = run.program.order[self.rank.index()].iter().copied();
        let ops: Vec<OpId> = ops.filter(|op| run.times(*op).is_some() && counts(op)).collect();
        let computing: Vec<OpId> = ops.iter().copied().filter(|&op| run.computes(op) && takes_time(run, op)).collect();
        let moving: Vec<OpId> = ops.iter().copied().filter(|&op| run.communicates(op) && takes_time(run, op)).collect();
        let (busy, communication) = (union(run, &computing), union(run, &moving));
        self.busy = length(&busy);
        self.communication = length(&communication);
        self.overlapped = common(&busy, &communication);
        self.idle = run.makespan() - self.busy;
        self.traffic(run, ops.iter().copied().filter(|&op| run.of_step(op, FIRST)));
        self.in_flight(run, &ops);
        self.weight_versions = weight_versions(run, self.rank);
        if computing.is_empty() {
            self.idle_without_compute(&communication);
        } else {
            self.idle_between(run, &computing);
        }
        if run.next_compute(self.rank, FIRST).is_some() {
            // The run stopped, and the rank still waits for its next op: that is no ramp.
            let last = busy.last().or(communication.last()).map_or(Ticks::ZERO, |stretch| stretch.1);
            self.bubble += run.makespan() - last;
        }
        self.ramp = self.idle - self.bubble - self.exposed_comm;
    }

    fn idle_between(&mut self, run: &Run, computing: &[OpId]) {
        for pair in computing.windows(2) {
            let from = run.times(pair[0]).map_or(Ticks::ZERO, |times| times.end);
            for stretch in idle::gap(run, from, pair[1]) {
                let length = stretch.end - stretch.start;
                let is_exposed = stretch.kind == Kind::ExposedCommunication;
                *(if is_exposed { &mut self.exposed_comm } else { &mut self.bubble }) += length;
            }
        }
    }

    /// A rank that only communicates: its own span goes from its first message to its last.
    fn idle_without_compute(&mut self, communication: &[Stretch]) {
        self.exposed_comm = length(communication);
        if let (Some(first), Some(last)) = (communication.first(), communication.last()) {
            self.bubble = last.1 - first.0 - self.exposed_comm;
        }
    }

    fn traffic(&mut self, run: &Run, ops: impl Iterator<Item = OpId>) {
        for op in ops {
            match run.program.kind(op) {
                OpKind::Send(_) => {
                    self.bytes_sent += run.message_bytes(op);
                    self.messages_sent += 1;
                }
                OpKind::Recv(_) | OpKind::RecvReduce(_) => self.bytes_received += run.message_bytes(op),
                OpKind::Collective(collective) => {
                    let whole = whole_sent(run, &run.program.collectives[collective.index()]);
                    let whole = Exchange { sent: whole, received: whole };
                    let moved = Exchange::of(run.program, op).unwrap_or(whole);
                    self.bytes_sent += moved.sent;
                    self.bytes_received += moved.received;
                }
                OpKind::Run(_) | OpKind::Skipped(_) => {}
            }
        }
    }

    fn in_flight(&mut self, run: &Run, ops: &[OpId]) {
        self.peak_in_flight = peak(&in_flight(run, ops, |pass| matches!(pass, Pass::B | Pass::I)));
        self.peak_in_flight_to_weight = peak(&in_flight(run, ops, |pass| matches!(pass, Pass::B | Pass::W)));
    }
}

/// When how many micro-batches of each stage come to be held and are given back, in order: from the start of their forward to the end of
/// the pass that `ends` them. `ops` are those of one rank in issue order.
#[must_use]
pub fn in_flight(run: &Run, ops: &[OpId], ends: impl Fn(Pass) -> bool) -> Vec<(Ticks, i32)> {
    let mut slots: Vec<(u32, Slot, Ticks, Ticks)> = Vec::new();
    for &op in ops.iter().filter(|&&op| run.computes(op) && Kind::of(run, op) != Kind::Optimizer) {
        let origin = run.program.entry(op).origin();
        let (Some(slot), Some(times)) = (origin.slot, run.times(op)) else { continue };
        match slots.last_mut() {
            Some((step, last, _, end)) if (*step, *last) == (origin.step, slot) => *end = times.end,
            _ => slots.push((origin.step, slot, times.start, times.end)),
        }
    }
    // An end at some time comes before a start at that time.
    let mut changes: Vec<(Ticks, i32)> = Vec::new();
    for (_, slot, start, end) in slots {
        if slot.pass == Pass::F {
            changes.push((start, 1));
        } else if ends(slot.pass) {
            changes.push((end, -1));
        }
    }
    changes.sort_unstable();
    changes
}

/// The step that metrics speak of.
const FIRST: u32 = 0;

/// From when until when.
type Stretch = (Ticks, Ticks);

/// The most that `changes` come to.
fn peak(changes: &[(Ticks, i32)]) -> u32 {
    let held = changes.iter().scan(0, |held, (_, change)| {
        *held += change;
        Some(*held)
    });
    u32::try_from(held.max().unwrap_or(0)).unwrap_or(0)
}

/// The most versions of one parameter that stand on `rank` at a time.
fn weight_versions(run: &Run, rank: Rank) -> u32 {
    let name = |buffer: BufferId| match run.program.buffers[buffer.index()].name {
        Name::Version(parameter, version) => Some((parameter, version)),
        _ => None,
    };
    let (mut stashed, mut most) = (BTreeSet::new(), 0);
    for &op in &run.program.order[rank.index()] {
        stashed.extend(run.program.writes(op).iter().filter_map(|&buffer| name(buffer)));
        let parameter = stashed.iter().next_back().map(|&(parameter, _)| parameter);
        most = most.max(parameter.map_or(0, |parameter| stashed.range((parameter, 0)..).count()));
        run.program.frees(op).filter_map(name).for_each(|version| {
            stashed.remove(&version);
        });
    }
    u32::try_from(most + 1).unwrap_or(u32::MAX)
}

fn takes_time(run: &Run, op: OpId) -> bool {
    run.times(op).is_some_and(|times| times.end > times.start)
}

/// The stretches that the ops cover, in order, none touching another.
fn union(run: &Run, ops: &[OpId]) -> Vec<Stretch> {
    let mut all: Vec<Stretch> =
        ops.iter().filter_map(|&op| run.times(op)).map(|times| (times.start, times.end.min(run.makespan()))).collect();
    all.sort_unstable();
    let mut union: Vec<Stretch> = Vec::new();
    for (start, end) in all {
        match union.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => union.push((start, end)),
        }
    }
    union
}

fn length(stretches: &[Stretch]) -> Ticks {
    stretches.iter().map(|&(start, end)| end - start).sum()
}

/// How long two unions cover the same time.
fn common(a: &[Stretch], b: &[Stretch]) -> Ticks {
    let (mut i, mut j, mut sum) = (0, 0, Ticks::ZERO);
    while let (Some(&left), Some(&right)) = (a.get(i), b.get(j)) {
        let (start, end) = (left.0.max(right.0), left.1.min(right.1));
        if end > start {
            sum += end - start;
        }
        *(if left.1 <= right.1 { &mut i } else { &mut j }) += 1;
    }
    sum
}

/// `part` over `whole`; `None` if the whole is nothing.
#[expect(clippy::cast_precision_loss, reason = "a report's number")]
fn share(part: Ticks, whole: Ticks) -> Option<f64> {
    (whole > Ticks::ZERO).then(|| part.0 as f64 / whole.0 as f64)
}
