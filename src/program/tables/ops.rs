//! The op tables: a row for each op, and what rows point into.

use std::num::NonZeroU32;

use crate::base::{BufferId, OpId, Rank, StreamId};
use crate::program::op::{Op, OpKind, Origin};

/// The op tables. Whoever looks at one field of an op soon looks at another, and ops of thousands of ranks take turns: an array for each
/// field would miss the cache with each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ops {
    pub(super) rows: Vec<Row>,
    pub(super) origins: Vec<Origin>,
    /// The operands of all ops: reads, then writes, op by op.
    pub(super) operands: Vec<BufferId>,
    /// What chains hold beside their first entries.
    pool: Vec<(u32, Link)>,
}

/// One op.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) kind: OpKind,
    pub(super) rank: Rank,
    pub(super) stream: StreamId,
    pub(super) origin: u32,
    operands: Place,
    waits: Chain,
    frees: Chain,
}

/// Where the operands of an op stand.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Where its reads start, its writes start, and its writes end.
    bounds: [u32; 3],
    /// How many at the end of its reads and at the end of its writes are state, at least.
    state: [u16; 2],
}

/// A list of ids that grows after it was made, the latest first. Most have one entry, which stands in the row itself.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    first: Link,
    rest: Link,
}

/// A place in the pool from 1, or an id plus 1; or nothing.
type Link = Option<NonZeroU32>;

/// The operands of an op that is added.
pub(super) struct Operands<'a> {
    pub(super) reads: &'a [BufferId],
    pub(super) writes: &'a [BufferId],
    /// So many buffers at the head of their table are state.
    pub(super) lasting: u32,
}

impl Ops {
    /// Adds an op.
    pub(super) fn add(&mut self, (rank, stream): (Rank, StreamId), kind: OpKind, operands: Operands, origin: Origin) -> OpId {
        // Neighbours share their origin: a slot makes several ops in a row.
        if self.origins.last() != Some(&origin) {
            self.origins.push(origin);
        }
        let origin = place(self.origins.len() - 1);
        let operands = self.operands(operands);
        self.rows.push(Row { kind, rank, stream, origin, operands, waits: Chain::default(), frees: Chain::default() });
        OpId::new(self.rows.len() - 1)
    }

    /// Room for so many more.
    pub(super) fn reserve(&mut self, ops: usize, operands: usize) {
        self.rows.reserve(ops);
        self.origins.reserve(ops);
        self.operands.reserve(operands);
    }

    pub(super) fn set_operands(&mut self, op: OpId, operands: Operands) {
        self.rows[op.index()].operands = self.operands(operands);
    }

    fn operands(&mut self, Operands { reads, writes, lasting }: Operands) -> Place {
        let start = self.operands.len();
        let read = self.list(reads, lasting);
        let middle = self.operands.len();
        let written = self.list(writes, lasting);
        Place { bounds: [start, middle, self.operands.len()].map(place), state: [read, written] }
    }

    /// Appends a list of operands. How much of it is state, counted from its end: fewer than there are does no harm.
    fn list(&mut self, list: &[BufferId], lasting: u32) -> u16 {
        let mut passing = 0;
        self.operands.extend((1..).zip(list).map(|(length, &buffer)| {
            if buffer.0 >= lasting {
                passing = length;
            }
            buffer
        }));
        u16::try_from(list.len() - passing).unwrap_or(u16::MAX)
    }

    #[inline]
    pub(super) fn entry(&self, op: OpId) -> Entry<'_> {
        Entry { row: &self.rows[op.index()], ops: self }
    }

    pub(super) fn passing_reads_mut(&mut self, op: OpId) -> &mut [BufferId] {
        let Place { bounds: [start, end, _], state: [state, _] } = self.rows[op.index()].operands;
        &mut self.operands[start as usize..end as usize - usize::from(state)]
    }

    pub(super) fn wait(&mut self, op: OpId, on: OpId) {
        self.rows[op.index()].waits.push(&mut self.pool, on.0);
    }

    pub(super) fn clear_waits(&mut self, op: OpId) {
        self.rows[op.index()].waits = Chain::default();
    }

    pub(super) fn free(&mut self, op: OpId, buffer: BufferId) {
        self.rows[op.index()].frees.push(&mut self.pool, buffer.0);
    }
}

/// An op's entry in the tables. Whoever asks several things of one op looks its row up once.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    row: &'a Row,
    ops: &'a Ops,
}

impl<'a> Entry<'a> {
    /// All of it, of the op that is called `id`.
    #[inline]
    pub(super) fn view(self, id: OpId) -> Op<'a> {
        let (rank, stream, kind) = (self.rank(), self.stream(), self.kind());
        Op { id, rank, stream, kind, reads: self.reads(), writes: self.writes(), origin: self.origin() }
    }

    /// What the op does.
    #[must_use]
    #[inline]
    pub fn kind(self) -> OpKind {
        self.row.kind
    }

    /// Its rank.
    #[must_use]
    #[inline]
    pub fn rank(self) -> Rank {
        self.row.rank
    }

    /// Its stream.
    #[must_use]
    #[inline]
    pub fn stream(self) -> StreamId {
        self.row.stream
    }

    /// The buffers that it reads.
    #[must_use]
    #[inline]
    pub fn reads(self) -> &'a [BufferId] {
        let [start, end, _] = self.row.operands.bounds;
        &self.ops.operands[start as usize..end as usize]
    }

    /// The buffers that it writes.
    #[must_use]
    #[inline]
    pub fn writes(self) -> &'a [BufferId] {
        let [_, start, end] = self.row.operands.bounds;
        &self.ops.operands[start as usize..end as usize]
    }

    /// The buffers that it reads, then those that it writes.
    #[must_use]
    #[inline]
    pub fn operands(self) -> &'a [BufferId] {
        let [start, _, end] = self.row.operands.bounds;
        &self.ops.operands[start as usize..end as usize]
    }

    /// The buffers that it reads, without the state at the end of the list.
    #[must_use]
    #[inline]
    pub fn passing_reads(self) -> &'a [BufferId] {
        let Place { bounds: [start, end, _], state: [state, _] } = self.row.operands;
        &self.ops.operands[start as usize..end as usize - usize::from(state)]
    }

    /// The buffers that it writes, without the state at the end of the list.
    #[must_use]
    #[inline]
    pub fn passing_writes(self) -> &'a [BufferId] {
        let Place { bounds: [_, start, end], state: [_, state] } = self.row.operands;
        &self.ops.operands[start as usize..end as usize - usize::from(state)]
    }

    /// The state at the end of what it reads and at the end of what it writes.
    #[must_use]
    #[inline]
    pub fn state(self) -> [&'a [BufferId]; 2] {
        let Place { bounds: [_, reads, writes], state: [read, written] } = self.row.operands;
        [(reads, read), (writes, written)].map(|(end, state)| {
            let end = end as usize;
            &self.ops.operands[end - usize::from(state)..end]
        })
    }

    /// The ops that it waits for, the latest wait first.
    #[inline]
    pub fn waits(self) -> impl Iterator<Item = OpId> + 'a {
        self.ops.chain(self.row.waits).map(OpId)
    }

    /// The buffers whose last use it is.
    #[inline]
    pub fn frees(self) -> impl Iterator<Item = BufferId> + 'a {
        self.ops.chain(self.row.frees).map(BufferId)
    }

    /// Why it is here.
    #[must_use]
    #[inline]
    pub fn origin(self) -> Origin {
        self.ops.origins[self.row.origin as usize]
    }

    /// The place of its origin in the program's table: equal places are equal origins.
    #[must_use]
    #[inline]
    pub fn origin_index(self) -> u32 {
        self.row.origin
    }
}

impl Ops {
    fn chain(&self, chain: Chain) -> Ids<'_> {
        Ids { chain, pool: &self.pool }
    }
}

/// The ids of a chain.
struct Ids<'a> {
    /// What is left of it.
    chain: Chain,
    pool: &'a [(u32, Link)],
}

impl Iterator for Ids<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let id = self.chain.first?.get() - 1;
        self.chain = match self.chain.rest {
            None => Chain::default(),
            Some(place) => {
                let (next, rest) = self.pool[place.get() as usize - 1];
                Chain { first: link(next as usize + 1), rest }
            }
        };
        Some(id)
    }
}

impl Chain {
    /// Puts `id` before the entries so far.
    fn push(&mut self, pool: &mut Vec<(u32, Link)>, id: u32) {
        if let Some(first) = self.first {
            pool.push((first.get() - 1, self.rest));
            self.rest = link(pool.len());
        }
        self.first = link(id as usize + 1);
    }
}

fn link(place: usize) -> Link {
    NonZeroU32::new(self::place(place))
}

fn place(length: usize) -> u32 {
    u32::try_from(length).expect("fewer than 2^32 ops, operands and origins")
}
