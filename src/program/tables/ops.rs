//! The op tables: a row for each op, and what rows point into.

use std::num::NonZeroU32;

use crate::base::{BufferId, OpId, Rank, StreamId};
use crate::program::op::{OpKind, Origin};

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
    pub(super) lasting: usize,
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

    pub(super) fn set_operands(&mut self, op: OpId, operands: Operands) {
        self.rows[op.index()].operands = self.operands(operands);
    }

    fn operands(&mut self, Operands { reads, writes, lasting }: Operands) -> Place {
        let start = self.operands.len();
        self.operands.extend_from_slice(reads);
        self.operands.extend_from_slice(writes);
        let bounds = [start, start + reads.len(), start + reads.len() + writes.len()].map(place);
        Place { bounds, state: [reads, writes].map(|list| state(list, lasting)) }
    }

    #[inline]
    pub(super) fn row(&self, op: OpId) -> &Row {
        &self.rows[op.index()]
    }

    #[inline]
    pub(super) fn reads(&self, row: &Row) -> &[BufferId] {
        let [start, end, _] = row.operands.bounds;
        &self.operands[start as usize..end as usize]
    }

    #[inline]
    pub(super) fn writes(&self, row: &Row) -> &[BufferId] {
        let [_, start, end] = row.operands.bounds;
        &self.operands[start as usize..end as usize]
    }

    #[inline]
    pub(super) fn passing_reads(&self, row: &Row) -> &[BufferId] {
        let Place { bounds: [start, end, _], state: [state, _] } = row.operands;
        &self.operands[start as usize..end as usize - usize::from(state)]
    }

    #[inline]
    pub(super) fn passing_writes(&self, row: &Row) -> &[BufferId] {
        let Place { bounds: [_, start, end], state: [_, state] } = row.operands;
        &self.operands[start as usize..end as usize - usize::from(state)]
    }

    pub(super) fn passing_reads_mut(&mut self, op: OpId) -> &mut [BufferId] {
        let Place { bounds: [start, end, _], state: [state, _] } = self.rows[op.index()].operands;
        &mut self.operands[start as usize..end as usize - usize::from(state)]
    }

    pub(super) fn wait(&mut self, op: OpId, on: OpId) {
        self.rows[op.index()].waits.push(&mut self.pool, on.0);
    }

    pub(super) fn free(&mut self, op: OpId, buffer: BufferId) {
        self.rows[op.index()].frees.push(&mut self.pool, buffer.0);
    }

    #[inline]
    pub(super) fn waits(&self, row: &Row) -> impl Iterator<Item = OpId> + '_ {
        self.chain(row.waits).map(OpId)
    }

    #[inline]
    pub(super) fn frees(&self, row: &Row) -> impl Iterator<Item = BufferId> + '_ {
        self.chain(row.frees).map(BufferId)
    }

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

/// How much of `list` is state, counted from its end. Fewer than there are does no harm.
fn state(list: &[BufferId], lasting: usize) -> u16 {
    let passing = list.iter().rposition(|buffer| buffer.index() >= lasting).map_or(0, |last| last + 1);
    u16::try_from(list.len() - passing).unwrap_or(u16::MAX)
}

fn link(place: usize) -> Link {
    NonZeroU32::new(self::place(place))
}

fn place(length: usize) -> u32 {
    u32::try_from(length).expect("fewer than 2^32 ops, operands and origins")
}
