//! A program: for every rank a list of ops in issue order, kept as tables that are indexed by dense ids.
//!
//! An op keeps its id while passes move it about: passes rewrite the order lists, append ops, and add waits. A rank's list is the order in
//! which its host issues the ops; each op runs on its stream, after the stream's earlier ops and after the ops that it waits for.
//! A wait names an op that was issued earlier on the same rank, as a CUDA event does.

mod ops;

use self::ops::{Operands, Ops};
pub use super::collective::{Collective, CollectiveKind, Fold, Group, Unit};
use super::name::Name;
use super::op::{Buffer, KernelCost, Op, OpKind, Origin, Role};
use crate::base::context::Attention;
use crate::base::mesh::Line;
use crate::base::model::{Model, Parameter};
use crate::base::prefetch::prefetch;
use crate::base::settings::{Dtype, Optimizer};
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
    lasting: usize,
}

/// What the kernels need to know beside their operands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// The model; `None` for a bare piece.
    pub model: Option<Model>,
    /// The attention layer that stands alone, if one does.
    pub attention: Option<Attention>,
    /// Sequences in a micro-batch.
    pub micro_batch_size: usize,
    /// Sequences of each micro-batch of a rank's step, where they differ; else empty.
    pub micro_batch_sizes: Vec<u32>,
    /// Micro-batches of different sizes count alike: the mean of means, which is not the mean.
    pub mean_of_means: bool,
    /// Segments that sequences are cut into; 0 where they are whole. Micro-batches are counted in segments then.
    pub segments: u32,
    /// Micro-batches of a step over all data-parallel ranks: what gradients are averaged over.
    pub micro_batches_per_step: u32,
    /// Training steps.
    pub steps: u32,
    /// Steps that were done before the first: a run that goes on from a checkpoint.
    pub first_step: u32,
    /// Micro-batches of which some tokens do not count.
    pub padded: Option<Padded>,
    /// Type of parameters, gradients and activations.
    pub dtype: Dtype,
    /// Exact mode: gradients are rounded to multiples of 2^-grid before they are summed, so that sums do not depend on their order.
    pub grid: Option<i32>,
    /// Precision at which parameters start: an f64 run starts where the f32 run that it judges does.
    pub initial: Dtype,
    /// Seed of parameters and data.
    pub seed: u64,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The ranks that share a layer's tensors.
    pub tensor: Line,
    /// The ranks that have slices of every sequence; which is told by `attention`.
    pub context: Line,
    /// As a fault, all of those that share tensors start with the first one's slices.
    pub same_seed: bool,
    /// As a fault, each of them adds the bias that belongs behind their sum.
    pub bias_before_sum: bool,
    /// The ranks that each rank stands for, which do the same at the same time: how many, and how far apart they are.
    pub fold: Line,
}

impl Setting {
    /// Sequences of a micro-batch of the run, and what its mean loss weighs beside that of an average one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of sequences")]
    pub fn size_and_weight(&self, micro_batch: u32) -> (usize, f64) {
        let sizes = &self.micro_batch_sizes;
        let Some(&size) = sizes.get(micro_batch as usize % sizes.len().max(1)) else { return (self.micro_batch_size, 1.0) };
        let all: u32 = sizes.iter().sum();
        let weight = f64::from(size) * sizes.len() as f64 / f64::from(all);
        (size as usize, if self.mean_of_means { 1.0 } else { weight })
    }

    /// The number of the first sequence of a micro-batch of the run.
    #[must_use]
    pub fn first_sample(&self, micro_batch: u32) -> u64 {
        let sizes = &self.micro_batch_sizes;
        if sizes.is_empty() {
            return u64::from(micro_batch) * self.micro_batch_size as u64;
        }
        let (rounds, place) = (micro_batch as usize / sizes.len(), micro_batch as usize % sizes.len());
        let sum = |sizes: &[u32]| sizes.iter().copied().map(u64::from).sum::<u64>();
        rounds as u64 * sum(sizes) + sum(&sizes[..place])
    }
}

/// Padding in the data of one data-parallel rank: of its sequences only the first tokens count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padded {
    /// The first micro-batch of the run.
    pub first: u32,
    /// Micro-batches that a rank takes behind each other.
    pub each: u32,
    /// Ranks that take turns; at least 1.
    pub ranks: u32,
    /// Which of them has the padded ones.
    pub place: u32,
    /// Tokens of a sequence that count.
    pub tokens: usize,
    /// A micro-batch counts by its tokens; otherwise as much as any other.
    pub weighted: bool,
}

impl Padded {
    /// Whether the data of `micro_batch` is padded.
    #[must_use]
    pub fn meets(&self, micro_batch: u32) -> bool {
        micro_batch.saturating_sub(self.first) / self.each.max(1) % self.ranks.max(1) == self.place
    }

    /// By how much `micro_batch` counts, where an average one counts 1; `sequence` is what a full sequence has.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
    pub fn weight(&self, micro_batch: u32, sequence: usize) -> f64 {
        if !self.weighted {
            return 1.0;
        }
        let others = f64::from(self.ranks) - 1.0;
        let mean = (others * sequence as f64 + self.tokens as f64) / f64::from(self.ranks);
        (if self.meets(micro_batch) { self.tokens } else { sequence }) as f64 / mean
    }
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
    /// Its name inside the value; empty when it is the only one.
    pub name: String,
    /// Its type.
    pub dtype: Dtype,
    /// Its shape.
    pub dims: Vec<usize>,
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
        let row = self.ops.row(id);
        let origin = self.ops.origins[row.origin as usize];
        let (reads, writes) = (self.ops.reads(row), self.ops.writes(row));
        Op { id, rank: row.rank, stream: row.stream, kind: row.kind, reads, writes, origin }
    }

    /// The place of an op's origin in the program's table: equal places are equal origins.
    #[must_use]
    #[inline]
    pub fn origin_index(&self, id: OpId) -> u32 {
        self.ops.row(id).origin
    }

    /// The buffers that an op reads.
    #[must_use]
    #[inline]
    pub fn reads(&self, id: OpId) -> &[BufferId] {
        self.ops.reads(self.ops.row(id))
    }

    /// The buffers that an op writes.
    #[must_use]
    #[inline]
    pub fn writes(&self, id: OpId) -> &[BufferId] {
        self.ops.writes(self.ops.row(id))
    }

    /// The buffers that an op reads, without the state at the end of the list: whoever looks for what comes and goes need not pass over a
    /// block's parameters in every op.
    #[must_use]
    #[inline]
    pub fn passing_reads(&self, id: OpId) -> &[BufferId] {
        self.ops.passing_reads(self.ops.row(id))
    }

    /// The buffers that an op writes, without the state at the end of the list.
    #[must_use]
    #[inline]
    pub fn passing_writes(&self, id: OpId) -> &[BufferId] {
        self.ops.passing_writes(self.ops.row(id))
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
        self.ops.row(id).kind
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
        self.ops.row(id).rank
    }

    /// The stream of an op.
    #[must_use]
    #[inline]
    pub fn stream_of(&self, id: OpId) -> StreamId {
        self.ops.row(id).stream
    }

    /// The ops of its rank that `id` waits for, beside the earlier ops of its stream; the latest wait first.
    #[inline]
    pub fn waits(&self, id: OpId) -> impl Iterator<Item = OpId> + '_ {
        self.ops.waits(self.ops.row(id))
    }

    /// The buffers whose memory is given back when `id` ends: it is their last use.
    #[inline]
    pub fn frees(&self, id: OpId) -> impl Iterator<Item = BufferId> + '_ {
        self.ops.frees(self.ops.row(id))
    }

    /// Every op that stands in an order list, rank by rank in issue order.
    pub fn all(&self) -> impl Iterator<Item = OpId> + '_ {
        self.order.iter().flatten().copied()
    }

    /// How many buffers at the head of the table live from the start. The compiler puts state there, so that whoever looks for what comes
    /// and goes can pass over most operands with one comparison.
    #[must_use]
    pub fn lasting(&self) -> usize {
        self.lasting
    }

    /// The memory of a buffer.
    #[must_use]
    pub fn bytes(&self, buffer: BufferId) -> Bytes {
        self.layouts[self.buffers[buffer.index()].layout.index()].bytes()
    }

    /// Makes room for so many more ops, operands and buffers: whoever knows how many will come saves copying the tables as they grow.
    pub fn reserve(&mut self, ops: usize, operands: usize, buffers: usize) {
        self.ops.rows.reserve(ops);
        self.ops.origins.reserve(ops);
        self.ops.operands.reserve(operands);
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
        if self.lasting == self.buffers.len() && buffer.lives_from_start() {
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
