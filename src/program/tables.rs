//! A program: for every rank a list of ops in issue order, kept as tables that are indexed by dense ids.
//!
//! An op keeps its id while passes move it about: passes rewrite the order lists, append ops, and add waits. A rank's list is the order in
//! which its host issues the ops; each op runs on its stream, after the stream's earlier ops and after the ops that it waits for.
//! A wait names an op that was issued earlier on the same rank, as a CUDA event does.

mod ops;
mod setting;

use self::ops::{Operands, Ops};

pub use self::ops::Entry;
pub use self::setting::{Padded, Setting};
pub use super::collective::{Collective, CollectiveKind, Fold, Group, Unit};
use super::name::Name;
use super::op::{Buffer, KernelCost, Op, OpKind, Origin, Role};
use crate::base::model::Parameter;
use crate::base::prefetch::prefetch;
use crate::base::settings::Dtype;
use crate::base::{BufferId, Bytes, ChannelId, CollectiveId, GroupId, KernelId, LayoutId, OpId, Rank, StreamId};

/// The compute stream; every program has it.
pub const COMPUTE: StreamId = StreamId(0);

/// What each rank's streams do. Two programs are equal if their tables are, and the ops in their order lists.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// What the kernels need to know.
    pub setting: Setting,
    /// Streams; the same on every rank, [`COMPUTE`] first.
    pub streams: Vec<Stream>,
    /// Directed lines of messages.
    pub channels: Vec<Channel>,
    /// Groups of ranks.
    pub groups: Vec<Group>,
    /// Collective operations.
    pub collectives: Vec<Collective>,
    /// Computations with their costs.
    pub kernels: Vec<KernelCost>,
    /// Shapes of values.
    pub layouts: Vec<Layout>,
    /// The model's parameters; empty without a model.
    pub parameters: Vec<Parameter>,
    /// Units of parameters that ranks share out; empty where they share none.
    pub units: Vec<Unit>,
    /// Named pieces of memory.
    pub buffers: Vec<Buffer>,
    /// Per rank, its ops in issue order.
    pub order: Vec<Vec<OpId>>,
    ops: Ops,
    /// Buffers at the head of the table that live from the start.
    lasting: u32,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its name, such as `compute` or `pp>`.
    pub name: String,
    /// What runs on it.
    pub kind: StreamKind,
}

/// What runs on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Computation.
    Compute,
    /// Messages and collectives.
    Communication,
}

/// A directed, ordered line of messages between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Who sends.
    pub from: Rank,
    /// Who receives.
    pub to: Rank,
    /// A send completes at once, the message waits for its receiver; otherwise both ends meet.
    pub buffered: bool,
}

/// The parts of a value: most buffers hold one tensor, what a block saves holds several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tensors.
    pub parts: Vec<TensorPart>,
}

/// One tensor of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPart {
    /// Its type.
    pub dtype: Dtype,
    /// Its shape.
    pub dims: Vec<usize>,
    /// Its name inside the value; empty when it is the only one. Fields are compared in their order, and names are what mostly is equal.
    pub name: String,
}

impl TensorPart {
    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Its memory.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.elements() as u64 * self.dtype.size())
    }
}

impl Layout {
    /// A single tensor.
    #[must_use]
    pub fn tensor(dtype: Dtype, dims: &[usize]) -> Self {
        Self { parts: vec![TensorPart { name: String::new(), dtype, dims: dims.to_vec() }] }
    }

    /// Its memory.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.parts.iter().map(TensorPart::bytes).sum()
    }
}

impl Program {
    /// A program for `ranks` ranks without ops; it has the compute stream.
    #[must_use]
    pub fn new(ranks: usize, setting: Setting) -> Self {
        let streams = vec![Stream { name: "compute".to_owned(), kind: StreamKind::Compute }];
        Self { setting, streams, order: vec![Vec::new(); ranks], ..Self::default() }
    }

    /// The number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.order.len()
    }

    /// The number of ops in the tables, whether or not they stand in an order list.
    #[must_use]
    pub fn ops(&self) -> usize {
        self.ops.rows.len()
    }

    /// One op.
    #[must_use]
    #[inline]
    pub fn op(&self, id: OpId) -> Op<'_> {
        self.entry(id).view(id)
    }

    /// An op's entry in the tables: for whoever asks some of [`Self::op`] of millions.
    #[must_use]
    #[inline]
    pub fn entry(&self, id: OpId) -> Entry<'_> {
        self.ops.entry(id)
    }

    /// The buffers that an op reads.
    #[must_use]
    #[inline]
    pub fn reads(&self, id: OpId) -> &[BufferId] {
        self.entry(id).reads()
    }

    /// The buffers that an op writes.
    #[must_use]
    #[inline]
    pub fn writes(&self, id: OpId) -> &[BufferId] {
        self.entry(id).writes()
    }

    /// The buffers that an op reads, without the state at the end of the list: whoever looks for what comes and goes need not pass over a
    /// block's parameters in every op.
    #[must_use]
    #[inline]
    pub fn passing_reads(&self, id: OpId) -> &[BufferId] {
        self.entry(id).passing_reads()
    }

    /// The buffers that an op writes, without the state at the end of the list.
    #[must_use]
    #[inline]
    pub fn passing_writes(&self, id: OpId) -> &[BufferId] {
        self.entry(id).passing_writes()
    }

    /// The buffers whose values a message carries, on the side of this end; none for other ops.
    #[must_use]
    pub fn carried(&self, id: OpId) -> &[BufferId] {
        match self.kind(id) {
            OpKind::Send(_) => self.reads(id),
            OpKind::Recv(_) | OpKind::RecvReduce(_) => self.writes(id),
            _ => &[],
        }
    }

    /// What an op does.
    #[must_use]
    #[inline]
    pub fn kind(&self, id: OpId) -> OpKind {
        self.entry(id).kind()
    }

    /// Gets one op's row closer, if it will soon be asked for.
    #[inline]
    pub fn prefetch(&self, id: OpId) {
        prefetch(self.ops.rows.get(id.index()));
    }

    /// The rank of an op.
    #[must_use]
    #[inline]
    pub fn rank_of(&self, id: OpId) -> Rank {
        self.entry(id).rank()
    }

    /// The stream of an op.
    #[must_use]
    #[inline]
    pub fn stream_of(&self, id: OpId) -> StreamId {
        self.entry(id).stream()
    }

    /// The ops of its rank that `id` waits for, beside the earlier ops of its stream; the latest wait first.
    #[inline]
    pub fn waits(&self, id: OpId) -> impl Iterator<Item = OpId> + '_ {
        self.entry(id).waits()
    }

    /// The buffers whose memory is given back when `id` ends: it is their last use.
    #[inline]
    pub fn frees(&self, id: OpId) -> impl Iterator<Item = BufferId> + '_ {
        self.entry(id).frees()
    }

    /// Every op that stands in an order list, rank by rank in issue order.
    pub fn all(&self) -> impl Iterator<Item = OpId> + '_ {
        self.order.iter().flatten().copied()
    }

    /// How many buffers at the head of the table live from the start. The compiler puts state there, so that whoever looks for what comes
    /// and goes can pass over most operands with one comparison.
    #[must_use]
    pub fn lasting(&self) -> usize {
        self.lasting as usize
    }

    /// The memory of a buffer.
    #[must_use]
    pub fn bytes(&self, buffer: BufferId) -> Bytes {
        self.layouts[self.buffers[buffer.index()].layout.index()].bytes()
    }

    /// Makes room for so many more ops, operands and buffers: whoever knows how many will come saves copying the tables as they grow.
    pub fn reserve(&mut self, ops: usize, operands: usize, buffers: usize) {
        self.ops.reserve(ops, operands);
        self.buffers.reserve(buffers);
    }

    /// Adds an op to the tables. It does not run until its id stands in an order list.
    pub fn add(
        &mut self,
        (rank, stream): (Rank, StreamId),
        kind: OpKind,
        (reads, writes): (&[BufferId], &[BufferId]),
        origin: Origin,
    ) -> OpId {
        self.ops.add((rank, stream), kind, Operands { reads, writes, lasting: self.lasting }, origin)
    }

    /// Adds an op and places it at the end of its rank's list.
    pub fn append(
        &mut self,
        place: (Rank, StreamId),
        kind: OpKind,
        operands: (&[BufferId], &[BufferId]),
        origin: Origin,
    ) -> OpId {
        let id = self.add(place, kind, operands, origin);
        self.order[place.0.index()].push(id);
        id
    }

    /// Makes `op` wait for `on`, an op of the same rank that is issued earlier.
    pub fn wait(&mut self, op: OpId, on: OpId) {
        self.ops.wait(op, on);
    }

    /// Replaces what `op` waits for.
    pub fn set_waits(&mut self, op: OpId, waits: &[OpId]) {
        self.ops.clear_waits(op);
        waits.iter().for_each(|&on| self.ops.wait(op, on));
    }

    /// Moves an op to another stream of its rank.
    pub fn set_stream(&mut self, op: OpId, stream: StreamId) {
        self.ops.rows[op.index()].stream = stream;
    }

    /// Makes `op` the last use of `buffer`.
    pub fn free(&mut self, op: OpId, buffer: BufferId) {
        self.ops.free(op, buffer);
    }

    /// Replaces what an op does.
    pub fn set_kind(&mut self, op: OpId, kind: OpKind) {
        self.ops.rows[op.index()].kind = kind;
    }

    /// The reads of an op that come and go, to be replaced by others that do.
    pub fn passing_reads_mut(&mut self, op: OpId) -> &mut [BufferId] {
        self.ops.passing_reads_mut(op)
    }

    /// Replaces the buffers that an op reads and writes.
    pub fn set_operands(&mut self, op: OpId, (reads, writes): (&[BufferId], &[BufferId])) {
        self.ops.set_operands(op, Operands { reads, writes, lasting: self.lasting });
    }

    /// Adds a buffer.
    pub fn buffer(&mut self, rank: Rank, name: Name, role: Role, layout: LayoutId) -> BufferId {
        let buffer = Buffer { rank, name, role, layout };
        if self.lasting() == self.buffers.len() && buffer.lives_from_start() {
            self.lasting += 1;
        }
        self.buffers.push(buffer);
        BufferId::new(self.buffers.len() - 1)
    }

    /// The id of `layout`, which is added if it is new.
    pub fn layout(&mut self, layout: Layout) -> LayoutId {
        LayoutId::new(place(&mut self.layouts, layout))
    }

    /// The id of `kernel`, which is added if it is new.
    pub fn kernel(&mut self, kernel: KernelCost) -> KernelId {
        KernelId::new(place(&mut self.kernels, kernel))
    }

    /// The id of the communication stream `name`, which is added if it is new.
    pub fn communication_stream(&mut self, name: &str) -> StreamId {
        StreamId::new(place(&mut self.streams, Stream { name: name.to_owned(), kind: StreamKind::Communication }))
    }

    /// The id of `group`, which is added if it is new.
    pub fn group(&mut self, group: Group) -> GroupId {
        GroupId::new(place(&mut self.groups, group))
    }

    /// Adds a channel.
    pub fn channel(&mut self, channel: Channel) -> ChannelId {
        self.channels.push(channel);
        ChannelId::new(self.channels.len() - 1)
    }

    /// Adds a collective.
    pub fn collective(&mut self, collective: Collective) -> CollectiveId {
        self.collectives.push(collective);
        CollectiveId::new(self.collectives.len() - 1)
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        let same = |op| self.op(op) == other.op(op) && self.waits(op).eq(other.waits(op)) && self.frees(op).eq(other.frees(op));
        self.setting == other.setting
            && (&self.streams, &self.channels, &self.groups) == (&other.streams, &other.channels, &other.groups)
            && (&self.collectives, &self.kernels, &self.layouts) == (&other.collectives, &other.kernels, &other.layouts)
            && (&self.parameters, &self.units) == (&other.parameters, &other.units)
            && (&self.buffers, &self.order) == (&other.buffers, &other.order)
            && self.all().all(same)
    }
}

/// The place of `item` in a small table; it is appended if it is new.
fn place<T: PartialEq>(table: &mut Vec<T>, item: T) -> usize {
    table.iter().position(|known| *known == item).unwrap_or_else(|| {
        table.push(item);
        table.len() - 1
    })
}
