//! The memory account: what each rank holds, by role. An op's results take memory when it starts; its last uses give it back when it ends.
//!
//! This is the only description of that rule: the engine keeps an account while it runs, the ledger replays one over a trace.
//! Which op takes a buffer and which gives it back follows from issue order, and is found once for a program.

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
    pieces: Vec<(Role, Bytes)>,
}

/// Where an op's pieces stand: first what it takes, then what it gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Change {
    first: u32,
    takes: u32,
    gives: u32,
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
    pub fn start(&mut self, program: &Program, op: OpId) -> bool {
        let takes = self.changes.takes(op);
        if !takes.is_empty() {
            self.ranks[program.rank_of(op).index()].take(takes);
        }
        !takes.is_empty()
    }

    /// `op` ends: its last uses give their memory back.
    pub fn end(&mut self, program: &Program, op: OpId) {
        let gives = self.changes.gives(op);
        if !gives.is_empty() {
            self.ranks[program.rank_of(op).index()].give(gives);
        }
    }
}

impl Holding {
    fn take(&mut self, pieces: &[(Role, Bytes)]) {
        for &(role, bytes) in pieces {
            self.total += bytes;
            self.by_role[role as usize] += bytes;
        }
        if self.total > self.peak {
            (self.peak, self.peak_by_role) = (self.total, self.by_role);
        }
    }

    fn give(&mut self, pieces: &[(Role, Bytes)]) {
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
        if program.lasting() == program.buffers.len() {
            return changes;
        }
        changes.of = vec![Change::default(); program.ops()];
        let mut live: Vec<bool> = program.buffers.iter().map(Buffer::lives_from_start).collect();
        for op in program.all() {
            let entry = program.entry(op);
            let first = changes.pieces.len();
            for &buffer in entry.passing_writes() {
                if !std::mem::replace(&mut live[buffer.index()], true) {
                    changes.piece(first, program, buffer, bytes);
                }
            }
            let middle = changes.pieces.len();
            for buffer in entry.frees() {
                if std::mem::replace(&mut live[buffer.index()], false) {
                    changes.piece(middle, program, buffer, bytes);
                }
            }
            let end = changes.pieces.len();
            if first == end {
                continue;
            }
            let [first, takes, gives] =
                [first, middle - first, end - middle].map(|n| u32::try_from(n).expect("fewer than 2^32 buffers"));
            changes.of[op.index()] = Change { first, takes, gives };
        }
        changes
    }

    /// Notes one buffer of the op whose pieces start at `start`; buffers of one role count together.
    fn piece(&mut self, start: usize, program: &Program, buffer: BufferId, bytes: &[Bytes]) {
        let Buffer { role, layout, .. } = program.buffers[buffer.index()];
        let bytes = bytes[layout.index()];
        match self.pieces[start..].iter_mut().find(|(known, _)| *known == role) {
            Some((_, total)) => *total += bytes,
            None => self.pieces.push((role, bytes)),
        }
    }

    fn takes(&self, op: OpId) -> &[(Role, Bytes)] {
        let Change { first, takes, .. } = self.of.get(op.index()).copied().unwrap_or_default();
        &self.pieces[first as usize..][..takes as usize]
    }

    fn gives(&self, op: OpId) -> &[(Role, Bytes)] {
        let Change { first, takes, gives } = self.of.get(op.index()).copied().unwrap_or_default();
        &self.pieces[(first + takes) as usize..][..gives as usize]
    }
}
