//! Traffic: what moved between ranks in the first step, per wire and per collective.

use std::collections::BTreeMap;

use super::run::Run;
use crate::base::units::Clock;
use crate::base::{Bytes, CollectiveId, OpId, Rank, Ticks};
use crate::program::exchange::Exchange;
use crate::program::{Channel, Collective, CollectiveKind, Name, OpKind};

/// What one wire carried: a directed pair of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Who sends.
    pub from: Rank,
    /// Who receives.
    pub to: Rank,
    /// Messages.
    pub messages: u64,
    /// What they carried.
    pub bytes: Bytes,
    /// For how long messages were moving; those that move together count each.
    pub busy: Ticks,
}

/// What one collective took, from its first start to its last end.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveStats {
    /// Which.
    pub collective: CollectiveId,
    /// Payload of one rank.
    pub bytes: Bytes,
    /// Messages that follow each other: the longest chain of them, each waiting for the one before.
    pub steps: u32,
    /// What all members together sent.
    pub sent: Bytes,
    /// When its first message (or itself, as one op) started.
    pub start: Ticks,
    /// When its last one ended.
    pub end: Ticks,
}

/// All wires that carried a message of step `step`, by sender and receiver.
#[must_use]
pub fn wires(run: &Run, step: u32) -> Vec<Wire> {
    let unused =
        |channel: &Channel| Wire { from: channel.from, to: channel.to, messages: 0, bytes: Bytes::ZERO, busy: Ticks::ZERO };
    let mut channels: Vec<Wire> = run.program.channels.iter().map(unused).collect();
    for op in run.program.all().filter(|&op| run.of_step(op, step)) {
        let (OpKind::Send(channel), Some(times)) = (run.program.kind(op), run.times(op)) else { continue };
        let wire = &mut channels[channel.index()];
        wire.messages += 1;
        wire.bytes += run.message_bytes(op);
        wire.busy += times.end - times.start;
    }
    let mut wires: BTreeMap<(Rank, Rank), Wire> = BTreeMap::new();
    for channel in channels.into_iter().filter(|channel| channel.messages > 0) {
        let all = wires.entry((channel.from, channel.to)).or_insert(Wire {
            messages: 0,
            bytes: Bytes::ZERO,
            busy: Ticks::ZERO,
            ..channel
        });
        all.messages += channel.messages;
        all.bytes += channel.bytes;
        all.busy += channel.busy;
    }
    wires.into_values().collect()
}

/// All collectives that moved data in step `step`, in the program's order. Barriers move none.
#[must_use]
pub fn collectives(run: &Run, step: u32) -> Vec<CollectiveStats> {
    let mut stats: Vec<Option<CollectiveStats>> = vec![None; run.program.collectives.len()];
    let (of, sent) = members(run, step);
    let mut depth = vec![0_u32; run.program.ops()];
    for event in &run.trace.events {
        let Some(id) = of[event.op.index()] else { continue };
        let Some(times) = run.times(event.op) else { continue };
        let collective = &run.program.collectives[id.index()];
        let deep = match run.program.kind(event.op) {
            OpKind::Collective(_) => 1,
            _ => message_depth(run, &of, &mut depth, event.op),
        };
        let stats = stats[id.index()].get_or_insert_with(|| CollectiveStats::new(id, collective, times.start));
        stats.steps = stats.steps.max(deep);
        stats.end = stats.end.max(times.end);
        stats.sent = match run.program.kind(event.op) {
            OpKind::Collective(_) => together_sent(run, id),
            _ => sent[id.index()],
        };
    }
    stats.into_iter().flatten().collect()
}

/// The collective of each op of step `step`, and what the messages of each collective carried. Events jump from rank to rank, so this is
/// read in the tables' order, once.
fn members(run: &Run, step: u32) -> (Vec<Option<CollectiveId>>, Vec<Bytes>) {
    let mut of = Vec::with_capacity(run.program.ops());
    let mut sent = vec![Bytes::ZERO; run.program.collectives.len()];
    for op in (0..run.program.ops()).map(OpId::new) {
        let id = collective_of(run, op).filter(|_| run.of_step(op, step));
        if let (Some(id), OpKind::Send(_), Some(_)) = (id, run.program.kind(op), run.times(op)) {
            sent[id.index()] += run.message_bytes(op);
        }
        of.push(id);
    }
    (of, sent)
}

/// What one member sends in a collective that runs as one op: a ring's closed form, as its cost is: (N-1)/N of the payload, and twice
/// that in an all-reduce.
#[must_use]
pub fn whole_sent(run: &Run, collective: &Collective) -> Bytes {
    let n = group_size(run, collective);
    Bytes(collective.bytes.0.div_ceil(n) * (collective.kind.rounds() * (n - 1)))
}

/// What `op` sends: a message, or the part of its rank in a collective that runs as one op.
#[must_use]
pub fn sent(run: &Run, op: OpId) -> Bytes {
    match run.program.kind(op) {
        OpKind::Send(_) => run.message_bytes(op),
        OpKind::Collective(collective) => Exchange::of(run.program, op)
            .map_or_else(|| whole_sent(run, &run.program.collectives[collective.index()]), |part| part.sent),
        _ => Bytes::ZERO,
    }
}

/// What all members send in a collective that runs as one op.
fn together_sent(run: &Run, id: CollectiveId) -> Bytes {
    let members = run.links.members(id).iter();
    let unequal: Option<Vec<Bytes>> = members.map(|&op| Exchange::of(run.program, op).map(|part| part.sent)).collect();
    let collective = &run.program.collectives[id.index()];
    match unequal {
        Some(parts) if !parts.is_empty() => parts.into_iter().sum(),
        _ => whole_sent(run, collective) * group_size(run, collective),
    }
}

/// The collective that `op` moves data for; `None` for all else. The pieces of an expanded one carry its number; a bare one is the only.
#[must_use]
pub fn collective_of(run: &Run, op: OpId) -> Option<CollectiveId> {
    let id = match run.program.kind(op) {
        OpKind::Collective(collective) => collective,
        OpKind::Send(_) | OpKind::Recv(_) | OpKind::RecvReduce(_) => match super::kind::message(run, op)? {
            Name::Piece(collective, _) => CollectiveId(collective),
            Name::Chunk(_) => CollectiveId(0),
            _ => return None,
        },
        OpKind::Run(_) | OpKind::Skipped(_) => return None,
    };
    let collective = run.program.collectives.get(id.index())?;
    (collective.kind != CollectiveKind::Barrier).then_some(id)
}

/// How many messages of its collective stand one behind the other up to the message of `op`; `of` tells each op's collective.
fn message_depth(run: &Run, of: &[Option<CollectiveId>], depth: &mut [u32], op: OpId) -> u32 {
    let ends = [Some(op), run.links.peer(op)];
    let before = ends.into_iter().flatten().flat_map(|end| run.links.before(end).into_iter().chain(run.program.waits(end)));
    let deepest = before.filter(|&on| of[on.index()] == of[op.index()]).map(|on| depth[on.index()]).max();
    let deep = deepest.unwrap_or(0) + 1;
    for end in ends.into_iter().flatten() {
        depth[end.index()] = deep;
    }
    deep
}

fn group_size(run: &Run, collective: &Collective) -> u64 {
    run.program.groups[collective.group.index()].size() as u64
}

impl CollectiveStats {
    fn new(id: CollectiveId, collective: &Collective, start: Ticks) -> Self {
        Self { collective: id, bytes: collective.bytes, steps: 0, sent: Bytes::ZERO, start, end: start }
    }

    /// Algorithm bandwidth in GB/s: payload over time. `None` where time is counted in slots, or none passed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a report's number")]
    pub fn algorithm_bandwidth(&self, clock: Clock) -> Option<f64> {
        let time = self.end - self.start;
        let measurable = clock == Clock::Nanoseconds && time > Ticks::ZERO;
        measurable.then(|| self.bytes.0 as f64 / time.0 as f64)
    }

    /// Bus bandwidth in GB/s as nccl-tests defines it: algorithm bandwidth times (N-1)/N, twice that for an all-reduce, comparable with a
    /// link's speed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of ranks")]
    pub fn bus_bandwidth(&self, run: &Run) -> Option<f64> {
        let collective = &run.program.collectives[self.collective.index()];
        let n = group_size(run, collective) as f64;
        self.algorithm_bandwidth(run.trace.clock).map(|bandwidth| bandwidth * collective.kind.rounds() as f64 * (n - 1.0) / n)
    }
}
