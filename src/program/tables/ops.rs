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
    /// Where its reads start, its writes start, and its writes end, in the operands.
    operands: [u32; 3],
    waits: Chain,
    frees: Chain,
}

/// A list of ids that grows after it was made, the latest first. Most have one entry, which stands in the row itself.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    first: Link,
    rest: Link,
}

/// A place in the pool from 1, or an id plus 1; or nothing.
type Link = Option<NonZeroU32>;

impl Ops {
    /// Adds an op.
    pub(super) fn add(
        &mut self,
        (rank, stream): (Rank, StreamId),
        kind: OpKind,
        operands: (&[BufferId], &[BufferId]),
        origin: Origin,
    ) -> OpId {
        // Neighbours share their origin: a slot makes several ops in a row.
        if self.origins.last() != Some(&origin) {
            self.origins.push(origin);
        }
        let origin = place(self.origins.len() - 1);
        let operands = self.operands(operands);
        self.rows.push(Row { kind, rank, stream, origin, operands, waits: Chain::default(), frees: Chain::default() });
        OpId::new(self.rows.len() - 1)
    }

    pub(super) fn set_operands(&mut self, op: OpId, operands: (&[BufferId], &[BufferId])) {
        self.rows[op.index()].operands = self.operands(operands);
    }

    fn operands(&mut self, (reads, writes): (&[BufferId], &[BufferId])) -> [u32; 3] {
        let start = self.operands.len();
        self.operands.extend_from_slice(reads);
        self.operands.extend_from_slice(writes);
        [start, start + reads.len(), start + reads.len() + writes.len()].map(place)
    }

    #[inline]
    pub(super) fn row(&self, op: OpId) -> &Row {
        &self.rows[op.index()]
    }

    #[inline]
    pub(super) fn reads(&self, row: &Row) -> &[BufferId] {
        &self.operands[row.operands[0] as usize..row.operands[1] as usize]
    }

    #[inline]
    pub(super) fn writes(&self, row: &Row) -> &[BufferId] {
        &self.operands[row.operands[1] as usize..row.operands[2] as usize]
    }

    pub(super) fn reads_mut(&mut self, op: OpId) -> &mut [BufferId] {
        let [start, end, _] = self.rows[op.index()].operands;
        &mut self.operands[start as usize..end as usize]
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

    #[inline]
    pub(super) fn waits(&self, row: &Row) -> impl Iterator<Item = OpId> + '_ {
        self.chain(row.waits).map(OpId)
    }

    #[inline]
    pub(super) fn frees(&self, row: &Row) -> impl Iterator<Item = BufferId> + '_ {
        self.chain(row.frees).map(BufferId)
    }

    /// The ids of a chain.
    #[inline]
    fn chain(&self, chain: Chain) -> impl Iterator<Item = u32> + '_ {
        let mut next = chain.rest;
        let rest = std::iter::from_fn(move || {
            let (id, following) = self.pool[next?.get() as usize - 1];
            next = following;
            Some(id)
        });
        chain.first.map(|first| first.get() - 1).into_iter().chain(rest)
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
