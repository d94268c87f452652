//! The memory account: what each rank holds, by role. An op's results take memory when it starts; its last uses give it back when it ends.
//!
//! This is the only description of that rule: the engine keeps an account while it runs, the ledger replays one over a trace.

use std::sync::Arc;

use super::op::Role;
use super::tables::Program;
use crate::base::{BufferId, Bytes, LayoutId, OpId, Rank};

/// Bytes by role, in the order of [`Role::ALL`].
pub type ByRole = [Bytes; Role::ALL.len()];

/// What every rank holds now and held at its peak.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    live: Vec<bool>,
    /// Buffers at the head of the table that never come or go.
    lasting: usize,
    sizes: Arc<Sizes>,
    ranks: Vec<Holding>,
}

/// What memory buffers take: close together, and shared by all copies of an account.
#[derive(Debug, PartialEq)]
struct Sizes {
    /// Per buffer.
    kinds: Vec<(LayoutId, Role)>,
    /// Per layout.
    bytes: Vec<Bytes>,
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
        let mut memory = Self {
            live: vec![false; program.buffers.len()],
            lasting: program.lasting(),
            sizes: Arc::new(Sizes {
                kinds: program.buffers.iter().map(|buffer| (buffer.layout, buffer.role)).collect(),
                bytes: program.layouts.iter().map(super::Layout::bytes).collect(),
            }),
            ranks: vec![Holding::default(); program.ranks()],
        };
        for (index, buffer) in program.buffers.iter().enumerate().filter(|(_, buffer)| buffer.lives_from_start()) {
            memory.take(buffer.rank, BufferId::new(index));
        }
        memory
    }

    /// What `rank` holds.
    #[must_use]
    pub fn holding(&self, rank: Rank) -> &Holding {
        &self.ranks[rank.index()]
    }

    /// Whether `buffer` has memory now.
    #[must_use]
    pub fn is_live(&self, buffer: BufferId) -> bool {
        self.live[buffer.index()]
    }

    /// `op` starts: memory for what it writes.
    pub fn start(&mut self, program: &Program, op: OpId) {
        if self.lasting == self.live.len() {
            return;
        }
        for &buffer in program.writes(op) {
            if buffer.index() >= self.lasting && !self.live[buffer.index()] {
                self.take(program.rank_of(op), buffer);
            }
        }
    }

    /// `op` ends: its last uses give their memory back.
    pub fn end(&mut self, program: &Program, op: OpId) {
        for buffer in program.frees(op) {
            if std::mem::replace(&mut self.live[buffer.index()], false) {
                let (role, bytes) = self.size(buffer);
                let holding = &mut self.ranks[program.rank_of(op).index()];
                holding.total -= bytes;
                holding.by_role[role] -= bytes;
            }
        }
    }

    fn take(&mut self, rank: Rank, buffer: BufferId) {
        self.live[buffer.index()] = true;
        let (role, bytes) = self.size(buffer);
        let holding = &mut self.ranks[rank.index()];
        holding.total += bytes;
        holding.by_role[role] += bytes;
        if holding.total > holding.peak {
            (holding.peak, holding.peak_by_role) = (holding.total, holding.by_role);
        }
    }

    /// The place of a buffer's role, and its bytes.
    fn size(&self, buffer: BufferId) -> (usize, Bytes) {
        let (layout, role) = self.sizes.kinds[buffer.index()];
        (role as usize, self.sizes.bytes[layout.index()])
    }
}
