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

use std::collections::BTreeMap;

use crate::base::settings::PointToPoint;
use crate::base::{BufferId, ChannelId, OpId, Rank, StreamId};
use crate::program::tables::{COMPUTE, Channel};
use crate::program::{Buffer, OpKind, Origin, PassName, Program, Role};

use super::Build;

/// Adds all messages between stages.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let mut edges = Edges { p2p: training.pipeline.p2p, known: BTreeMap::new(), latest: [None; 4] };
    let program = &mut build.program;
    let mut copies = Copies::new(program);
    program.reserve(2 * copies.from.len(), 2 * copies.from.len(), 0);
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        program.order[rank.index()] = with_messages(program, &mut edges, &mut copies, rank, &order);
    }
}

/// Which buffers travel, and their copies on the ranks that read them. A buffer goes to one rank.
struct Copies {
    /// Per buffer of the program before this pass: its copy.
    of: Vec<Option<BufferId>>,
    /// Per copy, in the order of their ids: who sends it, and whether its receive stands.
    from: Vec<(Rank, bool)>,
    /// Buffers at the head of the table that never travel: state.
    lasting: usize,
}

impl Copies {
    /// Gives every remote read a local copy, and reads that instead.
    fn new(program: &mut Program) -> Self {
        let mut copies = Self { of: vec![None; program.buffers.len()], from: Vec::new(), lasting: program.lasting() };
        for rank in (0..program.ranks()).map(Rank::new) {
            for place in 0..program.order[rank.index()].len() {
                let op = program.order[rank.index()][place];
                while let Some((operand, source)) = copies.remote(program, op, rank) {
                    program.reads_mut(op)[operand] = copies.copy(program, source, rank);
                }
            }
        }
        copies
    }

    /// The first read of `op` that is memory of another rank, with its place.
    fn remote(&self, program: &Program, op: OpId, rank: Rank) -> Option<(usize, BufferId)> {
        let mut reads = program.reads(op).iter().copied().enumerate();
        reads.find(|(_, source)| source.index() >= self.lasting && program.buffers[source.index()].rank != rank)
    }

    fn copy(&mut self, program: &mut Program, source: BufferId, to: Rank) -> BufferId {
        let buffer = &mut program.buffers[source.index()];
        buffer.role = Role::Message;
        let Buffer { rank: from, name, layout, .. } = *buffer;
        *self.of[source.index()].get_or_insert_with(|| {
            self.from.push((from, false));
            program.buffer(to, name, Role::Message, layout)
        })
    }

    /// The rank that `source` travels to, if it does.
    fn reader(&self, program: &Program, source: BufferId) -> Option<Rank> {
        if source.index() < self.lasting {
            return None;
        }
        let copy = (*self.of.get(source.index())?)?;
        Some(program.buffers[copy.index()].rank)
    }

    /// The sender of `buffer`, if it is a copy that has no receive yet.
    fn first_use(&mut self, buffer: BufferId) -> Option<Rank> {
        let (from, received) = self.from.get_mut(buffer.index().checked_sub(self.of.len())?)?;
        (!std::mem::replace(received, true)).then_some(*from)
    }
}

/// The ops of `rank` with receives before the slots that need them and sends behind the slots that make them.
fn with_messages(program: &mut Program, edges: &mut Edges, copies: &mut Copies, rank: Rank, order: &[OpId]) -> Vec<OpId> {
    let mut issued = Vec::with_capacity(order.len() * 2);
    let mut travelling: Vec<(Rank, BufferId)> = Vec::new();
    let mut before = None;
    let mut rest = order;
    while let Some(&first) = rest.first() {
        let same = |&&op: &&OpId| program.origin_index(op) == program.origin_index(first);
        let (slot, behind) = rest.split_at(rest.iter().take_while(same).count());
        rest = behind;
        let origin = Origin { pass: PassName::Messages, ..program.op(first).origin };
        for &op in slot {
            for &local in program.reads(op) {
                travelling.extend(copies.first_use(local).map(|from| (from, local)));
            }
        }
        for (from, local) in travelling.drain(..) {
            issued.push(edges.receive(program, (from, rank), local, before, origin));
        }
        issued.extend_from_slice(slot);
        before = slot.iter().rev().copied().find(|&op| program.stream_of(op) == COMPUTE).or(before);
        for &op in slot {
            for &source in program.writes(op) {
                travelling.extend(copies.reader(program, source).map(|to| (to, source)));
            }
        }
        for (to, source) in travelling.drain(..) {
            issued.push(edges.send(program, (rank, to), source, before, origin));
        }
    }
    issued
}

/// The channels and streams of directed pairs of ranks.
struct Edges {
    p2p: PointToPoint,
    known: BTreeMap<(Rank, Rank), Edge>,
    /// The latest few of them: a stage has few neighbours.
    latest: [Option<((Rank, Rank), Edge)>; 4],
}

/// The channel of a pair, the stream of its sends and the stream of its receives.
type Edge = (ChannelId, StreamId, StreamId);

impl Edges {
    fn send(
        &mut self,
        program: &mut Program,
        edge: (Rank, Rank),
        source: BufferId,
        before: Option<OpId>,
        origin: Origin,
    ) -> OpId {
        let (channel, stream, _) = self.edge(program, edge);
        let op = program.add((edge.0, stream), OpKind::Send(channel), (&[source], &[]), origin);
        enter_queue(program, op, before);
        op
    }

    fn receive(
        &mut self,
        program: &mut Program,
        edge: (Rank, Rank),
        local: BufferId,
        before: Option<OpId>,
        origin: Origin,
    ) -> OpId {
        let (channel, _, stream) = self.edge(program, edge);
        let op = program.add((edge.1, stream), OpKind::Recv(channel), (&[], &[local]), origin);
        enter_queue(program, op, before);
        op
    }

    fn edge(&mut self, program: &mut Program, ends: (Rank, Rank)) -> Edge {
        if let Some((_, edge)) = self.latest.iter().flatten().find(|(known, _)| *known == ends) {
            return *edge;
        }
        let p2p = self.p2p;
        let edge = *self.known.entry(ends).or_insert_with(|| {
            let (from, to) = ends;
            let buffered = p2p == PointToPoint::Buffered;
            let channel = program.channel(Channel { from, to, buffered });
            let mut stream = |rank: Rank, peer: Rank, direction| stream(program, p2p, rank, peer, direction);
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
fn enter_queue(program: &mut Program, op: OpId, before: Option<OpId>) {
    if let (Some(before), true) = (before, program.stream_of(op) != COMPUTE) {
        program.wait(op, before);
    }
}
