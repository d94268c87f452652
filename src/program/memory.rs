//! The memory account: what each rank holds, by role. An op's results take memory when it starts; its last uses give it back when it ends.
//!
//! This is the only description of that rule: the engine keeps an account while it runs, where a device has a limit or a session asks; the
//! ledger replays one over a trace. Which op takes a buffer and which gives it back follows from issue order, and is found once for a
//! program.

use std::sync::Arc;

use super::op::{Buffer, Role};
use super::tables::Program;
use crate::base::prefetch::prefetch;
use crate::base::{BufferId, Bytes, OpId, Rank};

/// Bytes by role, in the order of [`Role::ALL`].
pub type ByRole = [Bytes; Role::ALL.len()];

/// What every rank holds now and held at its peak.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    changes: Arc<Changes>,
    ranks: Vec<Holding>,
}

/// What every op does to its rank's memory: shared by all copies of an account.
#[derive(Debug, PartialEq)]
struct Changes {
    /// Per op, where its pieces stand.
    of: Vec<Change>,
    /// What ops take and give back, op by op in issue order.
    pieces: Vec<Piece>,
}

/// Memory for one purpose.
type Piece = (Role, Bytes);

/// Where an op's pieces stand: first what it takes, then what it gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Change {
    first: u32,
    middle: u32,
    end: u32,
}

/// What one rank holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holding {
    /// Now, all roles together.
    pub total: Bytes,
    /// Now, by role.
    pub by_role: ByRole,
    /// The most that it ever held.
    pub peak: Bytes,
    /// What that consisted of.
    pub peak_by_role: ByRole,
}

impl Memory {
    /// The account before the first op: every rank holds what lives from the start.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let bytes: Vec<Bytes> = program.layouts.iter().map(super::Layout::bytes).collect();
        let mut ranks = vec![Holding::default(); program.ranks()];
        for buffer in program.buffers.iter().filter(|buffer| buffer.lives_from_start()) {
            ranks[buffer.rank.index()].take(&[(buffer.role, bytes[buffer.layout.index()])]);
        }
        Self { changes: Arc::new(Changes::new(program, &bytes)), ranks }
    }

    /// What `rank` holds.
    #[must_use]
    pub fn holding(&self, rank: Rank) -> &Holding {
        &self.ranks[rank.index()]
    }

    /// Gets closer what `op` takes and gives back, if it will soon be asked for.
    pub fn prefetch(&self, op: OpId) {
        prefetch(self.changes.of.get(op.index()));
    }

    /// Gets closer how much `op` takes and gives back: where that stands must be near.
    pub fn prefetch_pieces(&self, op: OpId) {
        if let Some(change) = self.changes.of.get(op.index()) {
            prefetch(self.changes.pieces.get(change.first as usize));
        }
    }

    /// `op` starts: memory for what it writes. Whether it took any.
    #[inline]
    pub fn start(&mut self, program: &Program, op: OpId) -> bool {
        let takes = self.changes.takes(op);
        if !takes.is_empty() {
            self.ranks[program.rank_of(op).index()].take(takes);
        }
        !takes.is_empty()
    }

    /// `op` ends: its last uses give their memory back.
    #[inline]
    pub fn end(&mut self, program: &Program, op: OpId) {
        let gives = self.changes.gives(op);
        if !gives.is_empty() {
            self.ranks[program.rank_of(op).index()].give(gives);
        }
    }
}

impl Holding {
    fn take(&mut self, pieces: &[Piece]) {
        for &(role, bytes) in pieces {
            self.total += bytes;
            self.by_role[role as usize] += bytes;
        }
        if self.total > self.peak {
            (self.peak, self.peak_by_role) = (self.total, self.by_role);
        }
    }

    fn give(&mut self, pieces: &[Piece]) {
        for &(role, bytes) in pieces {
            self.total -= bytes;
            self.by_role[role as usize] -= bytes;
        }
    }
}

impl Changes {
    /// Walks every rank's list: an op takes what it writes and nothing holds yet, and gives back what it frees.
    fn new(program: &Program, bytes: &[Bytes]) -> Self {
        let mut changes = Self { of: Vec::new(), pieces: Vec::new() };
        let passing = program.buffers.len() - program.lasting();
        if passing == 0 {
            return changes;
        }
        changes.of = vec![Change::default(); program.ops()];
        // Most buffers that come and go do so once.
        changes.pieces.reserve(2 * passing);
        let mut live: Vec<bool> = program.buffers.iter().map(Buffer::lives_from_start).collect();
        program.order.iter().for_each(|order| order.iter().for_each(|&op| changes.walk(program, op, bytes, &mut live)));
        changes
    }

    /// Notes what the next op of a list takes and gives back.
    fn walk(&mut self, program: &Program, op: OpId, bytes: &[Bytes], live: &mut [bool]) {
        let entry = program.entry(op);
        let first = self.here();
        for &buffer in entry.passing_writes() {
            if !std::mem::replace(&mut live[buffer.index()], true) {
                self.piece(program, buffer, bytes);
            }
        }
        let middle = self.here();
        for buffer in entry.frees() {
            if std::mem::replace(&mut live[buffer.index()], false) {
                self.piece(program, buffer, bytes);
            }
        }
        self.of[op.index()] = Change { first, middle, end: self.here() };
    }

    /// Where the next piece will stand.
    fn here(&self) -> u32 {
        u32::try_from(self.pieces.len()).expect("fewer than 2^32 buffers")
    }

    fn piece(&mut self, program: &Program, buffer: BufferId, bytes: &[Bytes]) {
        let Buffer { role, layout, .. } = program.buffers[buffer.index()];
        self.pieces.push((role, bytes[layout.index()]));
    }

    #[inline]
    fn takes(&self, op: OpId) -> &[Piece] {
        let Change { first, middle, .. } = self.of.get(op.index()).copied().unwrap_or_default();
        &self.pieces[first as usize..middle as usize]
    }

    #[inline]
    fn gives(&self, op: OpId) -> &[Piece] {
        let Change { middle, end, .. } = self.of.get(op.index()).copied().unwrap_or_default();
        &self.pieces[middle as usize..end as usize]
    }
}
