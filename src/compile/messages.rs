//! Messages: a read of another rank's buffer becomes a send and a receive.
//!
//! A slot first receives what it needs, then computes, then sends what its neighbours need: its results leave at its end. The scenario's
//! point-to-point semantics decide on which stream the two ends stand, which is all that the semantics are:
//!
//! | `p2p` | streams of a rank |
//! |---|---|
//! | `buffered`, `edge-fifo` | one for each peer and direction: a communicator per edge |
//! | `pair-fifo` | one for each peer: a communicator per pair |
//! | `rank-fifo` | one for all peers: the group's communicator |
//! | `blocking` | the compute stream itself |
//!
//! On their own streams both ends wait for the compute ops that the rank issued before them.
//!
//! Messages meet by order. Where a rank needs a message that was sent behind others, it receives those first: receives along an edge are
//! issued in the order of their sends. A sheet that says where messages stand has the last word.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::mesh::Axis;
use crate::base::settings::PointToPoint;
use crate::base::{BufferId, ChannelId, OpId, Rank, StreamId};
use crate::program::plan::Slot;
use crate::program::tables::{COMPUTE, Channel};
use crate::program::{Buffer, OpKind, Origin, PassName, Program, Role};
use crate::scenario::Order;

use super::{Build, sheet, trouble};

/// Adds all messages between stages.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let semantics = |rank| if trouble::blocks(build.scenario, rank) { PointToPoint::Blocking } else { training.pipeline.p2p };
    let semantics = (0..build.program.ranks()).map(Rank::new).map(semantics).collect();
    let mut edges = Edges { semantics, known: BTreeMap::new(), latest: [None; 4] };
    let (program, joined) = (&mut build.program, &build.joined);
    let mut copies = Copies::new(program);
    program.reserve(2 * copies.messages.len(), 2 * copies.messages.len(), 0);
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        program.order[rank.index()] = match &training.pipeline.order {
            Order::Sheet(sheet) if sheet.has_messages() => {
                let whole = training.folding.unfold(rank, 0);
                let row = &sheet.rows[training.mesh.coordinate(whole, Axis::Pipeline)];
                sheet::with_messages(program, &mut edges, &copies, joined, (rank, &order, row))
            }
            _ => with_messages(program, &mut edges, &mut copies, joined, (rank, &order)),
        };
    }
}

/// Which buffers travel, and their copies on the ranks that read them. A buffer goes to one rank.
pub(super) struct Copies {
    /// Per buffer of the program before this pass: who reads it, and the copy there.
    of: Vec<Option<(Rank, BufferId)>>,
    /// Per copy, in the order of their ids.
    messages: Vec<Message>,
    /// Per receiver, its few senders.
    lines: Vec<Vec<Line>>,
}

/// A buffer that a message fills.
struct Message {
    from: Rank,
    /// The op that reads it first.
    reader: OpId,
    /// Whether its receive stands.
    received: bool,
}

/// What comes from one rank to another.
struct Line {
    from: Rank,
    /// The copies, in the order in which they are sent.
    copies: Vec<BufferId>,
    /// How many of them are received.
    received: usize,
}

impl Copies {
    /// Gives every remote read a local copy, and reads that instead.
    fn new(program: &mut Program) -> Self {
        let lines = (0..program.ranks()).map(|_| Vec::new()).collect();
        let mut copies = Self { of: vec![None; program.buffers.len()], messages: Vec::new(), lines };
        let mut remote = Vec::new();
        for rank in (0..program.ranks()).map(Rank::new) {
            for &op in &program.order[rank.index()] {
                for (operand, &source) in program.passing_reads(op).iter().enumerate() {
                    if program.buffers[source.index()].rank != rank {
                        remote.push((op, operand, source));
                    }
                }
            }
            for (op, operand, source) in remote.drain(..) {
                program.passing_reads_mut(op)[operand] = copies.copy(program, source, (rank, op));
            }
        }
        copies.line_up(program);
        copies
    }

    fn copy(&mut self, program: &mut Program, source: BufferId, (to, reader): (Rank, OpId)) -> BufferId {
        let buffer = &mut program.buffers[source.index()];
        buffer.role = Role::Message;
        let Buffer { rank: from, name, layout, .. } = *buffer;
        let (_, copy) = *self.of[source.index()].get_or_insert_with(|| {
            self.messages.push(Message { from, reader, received: false });
            (to, program.buffer(to, name, Role::Message, layout))
        });
        copy
    }

    /// Notes in which order the copies of every edge are sent: as their sources are written.
    fn line_up(&mut self, program: &Program) {
        for (from, order) in (0..).map(Rank).zip(&program.order) {
            for source in order.iter().flat_map(|&op| program.passing_writes(op)) {
                let Some((to, copy)) = self.reader(*source) else { continue };
                let lines = &mut self.lines[to.index()];
                match lines.iter_mut().find(|line| line.from == from) {
                    Some(line) => line.copies.push(copy),
                    None => lines.push(Line { from, copies: vec![copy], received: 0 }),
                }
            }
        }
    }

    /// The rank that `source` travels to, and its copy there, if it travels.
    pub fn reader(&self, source: BufferId) -> Option<(Rank, BufferId)> {
        *self.of.get(source.index())?
    }

    /// Who sends `buffer`, if a message fills it.
    pub fn sender(&self, buffer: BufferId) -> Option<Rank> {
        let message = buffer.index().checked_sub(self.of.len()).and_then(|copy| self.messages.get(copy))?;
        Some(message.from)
    }

    /// What `rank` must receive before it can read `buffer`: nothing, or all that comes along the same edge up to it.
    fn receive(&mut self, rank: Rank, buffer: BufferId, travelling: &mut Vec<(Rank, BufferId, OpId)>) {
        let before = self.of.len();
        let Some(message) = buffer.index().checked_sub(before).and_then(|copy| self.messages.get(copy)) else { return };
        let from = message.from;
        let is_open = |line: &&mut Line| !message.received && line.from == from;
        let Some(line) = self.lines[rank.index()].iter_mut().find(is_open) else { return };
        for &next in &line.copies[line.received..] {
            let message = &mut self.messages[next.index() - before];
            message.received = true;
            line.received += 1;
            travelling.push((from, next, message.reader));
            if next == buffer {
                break;
            }
        }
    }
}

/// The ops of `rank` with receives before the slots that need them and sends behind the slots that make them.
fn with_messages(
    program: &mut Program,
    edges: &mut Edges,
    copies: &mut Copies,
    joined: &BTreeSet<Slot>,
    (rank, mut order): (Rank, &[OpId]),
) -> Vec<OpId> {
    let mut issued = Vec::with_capacity(order.len() * 2);
    let mut travelling: Vec<(Rank, BufferId, OpId)> = Vec::new();
    let mut before = None;
    while let Some((slot, behind)) = first_slot(program, joined, order) {
        order = behind;
        for &op in slot {
            program.passing_reads(op).iter().for_each(|&local| copies.receive(rank, local, &mut travelling));
        }
        for (from, local, reader) in travelling.drain(..) {
            let origin = origin(program, reader);
            issued.push(edges.receive(program, (from, rank), local, before, origin));
        }
        issued.extend_from_slice(slot);
        before = slot.iter().rev().copied().find(|&op| program.stream_of(op) == COMPUTE).or(before);
        for &op in slot {
            for &source in program.passing_writes(op) {
                if let Some((to, _)) = copies.reader(source) {
                    travelling.push((to, source, op));
                }
            }
        }
        for (to, source, writer) in travelling.drain(..) {
            let origin = origin(program, writer);
            issued.push(edges.send(program, (rank, to), source, before, origin));
        }
    }
    issued
}

/// The ops of the first slot of `order`, or of two that run as one, and those behind them; others by their origin.
pub(super) fn first_slot<'order>(
    program: &Program,
    joined: &BTreeSet<Slot>,
    order: &'order [OpId],
) -> Option<(&'order [OpId], &'order [OpId])> {
    let is_one = |before: OpId, op: OpId| {
        let is_joined = || {
            let slot = |op| program.entry(op).origin().slot;
            slot(before).is_some() && slot(op).is_some_and(|slot| joined.contains(&slot))
        };
        // What a slot computes again is part of it.
        let is_same = || {
            let of = |op| program.entry(op).origin();
            of(before).slot.is_some() && (of(before).slot, of(before).step) == (of(op).slot, of(op).step)
        };
        program.entry(op).origin_index() == program.entry(before).origin_index()
            || is_same()
            || (!joined.is_empty() && is_joined())
    };
    let last = order.windows(2).position(|pair| !is_one(pair[0], pair[1])).unwrap_or(order.len().checked_sub(1)?);
    Some(order.split_at(last + 1))
}

/// A message is there because of the slot that made or needs its value.
pub(super) fn origin(program: &Program, of: OpId) -> Origin {
    Origin { pass: PassName::Messages, ..program.entry(of).origin() }
}

/// The channels and streams of directed pairs of ranks.
pub(super) struct Edges {
    /// Per rank, who waits for whom.
    semantics: Vec<PointToPoint>,
    known: BTreeMap<(Rank, Rank), Edge>,
    /// The latest few of them: a stage has few neighbours.
    latest: [Option<((Rank, Rank), Edge)>; 4],
}

/// The channel of a pair, the stream of its sends and the stream of its receives.
type Edge = (ChannelId, StreamId, StreamId);

impl Edges {
    pub fn send(
        &mut self,
        program: &mut Program,
        edge: (Rank, Rank),
        source: BufferId,
        before: Option<OpId>,
        origin: Origin,
    ) -> OpId {
        let (channel, stream, _) = self.edge(program, edge);
        let op = program.add((edge.0, stream), OpKind::Send(channel), (&[source], &[]), origin);
        enter_queue(program, (op, stream), before);
        op
    }

    pub fn receive(
        &mut self,
        program: &mut Program,
        edge: (Rank, Rank),
        local: BufferId,
        before: Option<OpId>,
        origin: Origin,
    ) -> OpId {
        let (channel, _, stream) = self.edge(program, edge);
        let op = program.add((edge.1, stream), OpKind::Recv(channel), (&[], &[local]), origin);
        enter_queue(program, (op, stream), before);
        op
    }

    fn edge(&mut self, program: &mut Program, ends: (Rank, Rank)) -> Edge {
        if let Some((_, edge)) = self.latest.iter().flatten().find(|(known, _)| *known == ends) {
            return *edge;
        }
        let semantics = &self.semantics;
        let edge = *self.known.entry(ends).or_insert_with(|| {
            let (from, to) = ends;
            let buffered = semantics[from.index()] == PointToPoint::Buffered;
            let channel = program.channel(Channel { from, to, buffered });
            let mut stream = |rank: Rank, peer: Rank, direction| stream(program, semantics[rank.index()], rank, peer, direction);
            (channel, stream(from, to, ".out"), stream(to, from, ".in"))
        });
        self.latest.rotate_right(1);
        self.latest[0] = Some((ends, edge));
        edge
    }
}

/// The stream of `rank` for messages with `peer`; named by the distance, so that streams mean the same on every rank.
fn stream(program: &mut Program, p2p: PointToPoint, rank: Rank, peer: Rank, direction: &str) -> StreamId {
    let distance = i64::from(peer.0) - i64::from(rank.0);
    match p2p {
        PointToPoint::Buffered | PointToPoint::EdgeFifo => program.communication_stream(&format!("pp{distance:+}{direction}")),
        PointToPoint::PairFifo => program.communication_stream(&format!("pp{distance:+}")),
        PointToPoint::RankFifo => program.communication_stream("pp"),
        PointToPoint::Blocking => COMPUTE,
    }
}

/// An end of a message enters its queue when every earlier compute op of its rank is done.
fn enter_queue(program: &mut Program, (op, stream): (OpId, StreamId), before: Option<OpId>) {
    if let (Some(before), true) = (before, stream != COMPUTE) {
        program.wait(op, before);
    }
}
