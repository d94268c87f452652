//! Expansion: a collective becomes its messages, an all-reduce by the scenario's algorithm, the others around a ring.
//!
//! What a collective reads is first flattened into one piece per chunk, and its result is put together from pieces at the end; a bare
//! collective's payload lies in chunks already. The algorithms see chunks only.

mod halving_doubling;
mod hierarchical;
mod ring;
mod star;
mod steps;
mod tree;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::settings::AllReduce;
use crate::base::{BufferId, Bytes, ChannelId, CollectiveId, OpId, Rank, StreamId};
use crate::program::tables::{Channel, Collective, CollectiveKind, Layout};
use crate::program::{Kernel, KernelCost, Name, OpKind, Origin, PassName, Program, Role};
use crate::scenario::Task;

use super::Build;

/// Replaces every collective that moves data by its messages, but an all-to-all, which is as direct as its messages would be. One that a
/// trouble rule took out stays as it is, and sends nothing.
pub(super) fn run(build: &mut Build) {
    let (algorithm, chunks) = match &build.scenario.task {
        Task::Train(training) if !training.data_parallel.expand => return,
        Task::Train(training) => (training.data_parallel.all_reduce, None),
        Task::Collective(task) => (task.algorithm, Some(task.chunks)),
        Task::Layer(_) | Task::Experts(_) => return,
    };
    let ranks_per_node = build.scenario.hardware.ranks_per_node;
    let program = &mut build.program;
    let room = room(program, algorithm);
    if room == 0 {
        return;
    }
    program.reserve(room, room, 0);
    let mut channels = Channels::new();
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        let mut issued = Vec::with_capacity(order.len());
        for op in order {
            match moving(program, op) {
                Some(collective) => {
                    let mut member = Member::new(program, &mut channels, op, collective);
                    member.ranks_per_node = ranks_per_node;
                    member.issue(algorithm, chunks);
                    issued.append(&mut member.issued);
                }
                None => issued.push(op),
            }
        }
        program.order[rank.index()] = issued;
    }
}

/// The collective that `op` takes part in, if it becomes messages.
fn moving(program: &Program, op: OpId) -> Option<CollectiveId> {
    match program.kind(op) {
        OpKind::Collective(id) if program.collectives[id.index()].kind.is_expanded() => Some(id),
        _ => None,
    }
}

/// Room for the messages' ends that are to come, roughly: a member of a ring has 4 (N - 1) of them, of others a few on average.
fn room(program: &Program, algorithm: AllReduce) -> usize {
    let expanded = program.collectives.iter().filter(|collective| collective.kind.is_expanded());
    let members = expanded.map(|collective| program.groups[collective.group.index()].ranks.len());
    members.map(|members| members * if algorithm == AllReduce::Ring { 4 * members } else { 4 }).sum()
}

/// Sizes of `chunks` chunks of `elements` elements: the first ones get one more where they do not divide.
pub(super) fn chunk_sizes(elements: usize, chunks: usize) -> impl Iterator<Item = usize> {
    (0..chunks).map(move |chunk| elements / chunks + usize::from(chunk < elements % chunks))
}

/// The channels of collectives. Each collective has its own, so that a message never meets one of another collective: a rank that leaves
/// one out makes the others wait, and does not mix up their data.
type Channels = BTreeMap<(CollectiveId, Rank, Rank), ChannelId>;

/// One rank's part in one collective, while its messages are made.
pub(super) struct Member<'a> {
    program: &'a mut Program,
    channels: &'a mut Channels,
    /// The op that is expanded.
    op: OpId,
    collective: CollectiveId,
    origin: Origin,
    /// Members of the group, and the place of this one.
    ranks: Vec<Rank>,
    place: usize,
    ranks_per_node: usize,
    chunks: Vec<BufferId>,
    issued: Vec<OpId>,
    /// The latest channel that it received from, and that it sent to, each with its ends.
    latest: [Option<((usize, usize), ChannelId)>; 2],
}

impl<'a> Member<'a> {
    fn new(program: &'a mut Program, channels: &'a mut Channels, op: OpId, collective: CollectiveId) -> Self {
        let view = program.op(op);
        let origin = Origin { pass: PassName::Expand, ..view.origin };
        let ranks = program.group_of(collective).ranks.clone();
        let place = ranks.iter().position(|&rank| rank == view.rank).expect("an op of a collective stands on a member");
        Self {
            program,
            channels,
            op,
            collective,
            origin,
            ranks,
            place,
            ranks_per_node: usize::MAX,
            chunks: Vec::new(),
            issued: Vec::new(),
            latest: [None; 2],
        }
    }

    fn issue(&mut self, algorithm: AllReduce, chunks: Option<usize>) {
        let view = self.program.op(self.op);
        let (reads, writes) = (view.reads.to_vec(), view.writes.to_vec());
        let kind = self.program.collectives[self.collective.index()].kind;
        if chunks.is_some() {
            self.chunks = reads;
            self.messages(kind, algorithm);
            return;
        }
        self.pieces(kind, algorithm);
        let all = self.chunks.clone();
        let own = &all[self.place.min(all.len() - 1)..][..1];
        // A share of the payload goes in or comes out where the whole does not.
        let (first, last) = match kind {
            CollectiveKind::ReduceScatter => (&all[..], own),
            CollectiveKind::AllGather => (own, &all[..]),
            CollectiveKind::AllReduce | CollectiveKind::Barrier | CollectiveKind::AllToAll => (&all[..], &all[..]),
        };
        self.run(Kernel::Flatten, &reads, first);
        self.messages(kind, algorithm);
        self.run(Kernel::Unflatten, last, &writes);
    }

    fn messages(&mut self, kind: CollectiveKind, algorithm: AllReduce) {
        match (kind, algorithm) {
            (CollectiveKind::AllReduce, AllReduce::Ring) => ring::all_reduce(self),
            (CollectiveKind::AllReduce, AllReduce::Tree) => tree::issue(self),
            (CollectiveKind::AllReduce, AllReduce::Star) => star::issue(self),
            (CollectiveKind::AllReduce, AllReduce::HalvingDoubling) => halving_doubling::issue(self),
            (CollectiveKind::AllReduce, AllReduce::Hierarchical) => hierarchical::issue(self),
            (CollectiveKind::ReduceScatter, _) => ring::reduce_scatter(self),
            (CollectiveKind::AllGather, _) => ring::all_gather(self),
            (CollectiveKind::Barrier | CollectiveKind::AllToAll, _) => {}
        }
    }

    /// Makes the pieces that the payload is flattened into.
    fn pieces(&mut self, kind: CollectiveKind, algorithm: AllReduce) {
        let of_ring = self.ranks.len();
        let chunks = if kind == CollectiveKind::AllReduce { algorithm.chunks(of_ring).unwrap_or(1) } else { of_ring };
        let program = &mut *self.program;
        let Collective { bytes, dtype, .. } = program.collectives[self.collective.index()];
        let elements = usize::try_from(bytes.0 / dtype.size()).expect("a payload's elements");
        let rank = self.ranks[self.place];
        for (chunk, size) in (0..).zip(chunk_sizes(elements, chunks)) {
            let layout = program.layout(Layout::tensor(dtype, &[size]));
            let buffer = program.buffer(rank, Name::Piece(self.collective.0, chunk), Role::Bucket, layout);
            self.chunks.push(buffer);
        }
    }

    /// Adds a copy between the operands and pieces, on the collective's stream.
    fn run(&mut self, kernel: Kernel, reads: &[BufferId], writes: &[BufferId]) {
        let bytes: Bytes = reads.iter().chain(writes).map(|&buffer| self.program.bytes(buffer)).sum();
        let kernel = self.program.kernel(KernelCost { bytes: bytes.0, ..KernelCost::free(kernel) });
        let place = (self.ranks[self.place], self.program.stream_of(self.op));
        let op = self.program.add(place, OpKind::Run(kernel), (reads, writes), self.origin);
        self.inherit_waits(op);
        self.issued.push(op);
    }

    /// What the whole op waited for, its first op waits for.
    fn inherit_waits(&mut self, op: OpId) {
        if self.issued.is_empty() {
            let waits: Vec<OpId> = self.program.waits(self.op).collect();
            waits.into_iter().for_each(|on| self.program.wait(op, on));
        }
    }

    fn stream(&mut self, suffix: &str) -> StreamId {
        let name = self.program.streams[self.program.stream_of(self.op).index()].name.clone();
        let name = if name == "compute" { "collective".to_owned() } else { name };
        self.program.communication_stream(&format!("{name}{suffix}"))
    }

    /// Sends chunks to the member at `peer`, all in one message.
    fn send(&mut self, stream: StreamId, peer: usize, chunks: Range<usize>) -> OpId {
        let channel = self.channel(self.place, peer);
        self.message(stream, OpKind::Send(channel), chunks)
    }

    /// Receives chunks from the member at `peer`.
    fn receive(&mut self, stream: StreamId, peer: usize, chunks: Range<usize>) -> OpId {
        let channel = self.channel(peer, self.place);
        self.message(stream, OpKind::Recv(channel), chunks)
    }

    /// Receives chunks from the member at `peer`, and adds them to the own ones.
    fn receive_reduce(&mut self, stream: StreamId, peer: usize, chunks: Range<usize>) -> OpId {
        let channel = self.channel(peer, self.place);
        self.message(stream, OpKind::RecvReduce(channel), chunks)
    }

    fn message(&mut self, stream: StreamId, kind: OpKind, chunks: Range<usize>) -> OpId {
        let chunks = &self.chunks[chunks];
        let (reads, writes): (&[BufferId], &[BufferId]) = match kind {
            OpKind::Send(_) => (chunks, &[]),
            OpKind::RecvReduce(_) => (chunks, chunks),
            _ => (&[], chunks),
        };
        let op = self.program.add((self.ranks[self.place], stream), kind, (reads, writes), self.origin);
        self.inherit_waits(op);
        self.issued.push(op);
        op
    }

    /// The channel between two members. Most messages go where the one before went.
    fn channel(&mut self, from: usize, to: usize) -> ChannelId {
        let latest = &mut self.latest[usize::from(from == self.place)];
        if let Some((ends, channel)) = *latest
            && ends == (from, to)
        {
            return channel;
        }
        let program = &mut *self.program;
        let (sender, receiver) = (self.ranks[from], self.ranks[to]);
        let channel = *self
            .channels
            .entry((self.collective, sender, receiver))
            .or_insert_with(|| program.channel(Channel { from: sender, to: receiver, buffered: false }));
        *latest = Some(((from, to), channel));
        channel
    }
}
