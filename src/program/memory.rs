//! The memory account: what each rank holds, by role. An op's results take memory when it starts; its last uses give it back when it ends.
//!
//! This is the only description of that rule: the engine keeps an account while it runs, the ledger replays one over a trace.

use super::op::Role;
use super::tables::Program;
use crate::base::{BufferId, Bytes, OpId, Rank};

/// Bytes by role, in the order of [`Role::ALL`].
pub type ByRole = [Bytes; Role::ALL.len()];

/// What every rank holds now and held at its peak.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    live: Vec<bool>,
    bytes: Vec<Bytes>,
    ranks: Vec<Holding>,
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
        let layouts: Vec<Bytes> = program.layouts.iter().map(super::Layout::bytes).collect();
        let bytes = program.buffers.iter().map(|buffer| layouts[buffer.layout.index()]).collect();
        let mut memory =
            Self { live: vec![false; program.buffers.len()], bytes, ranks: vec![Holding::default(); program.ranks()] };
        for (index, buffer) in program.buffers.iter().enumerate() {
            if buffer.lives_from_start() {
                memory.take(program, BufferId::new(index));
            }
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

    /// The size of `buffer`.
    #[must_use]
    pub fn bytes(&self, buffer: BufferId) -> Bytes {
        self.bytes[buffer.index()]
    }

    /// `op` starts: memory for what it writes.
    pub fn start(&mut self, program: &Program, op: OpId) {
        for &buffer in program.op(op).writes {
            if !self.live[buffer.index()] {
                self.take(program, buffer);
            }
        }
    }

    /// `op` ends: its last uses give their memory back.
    pub fn end(&mut self, program: &Program, op: OpId) {
        for buffer in program.frees(op) {
            if std::mem::replace(&mut self.live[buffer.index()], false) {
                let (holding, role) = self.place(program, buffer);
                holding.total -= role.1;
                holding.by_role[role.0] -= role.1;
            }
        }
    }

    fn take(&mut self, program: &Program, buffer: BufferId) {
        self.live[buffer.index()] = true;
        let (holding, (role, bytes)) = self.place(program, buffer);
        holding.total += bytes;
        holding.by_role[role] += bytes;
        if holding.total > holding.peak {
            (holding.peak, holding.peak_by_role) = (holding.total, holding.by_role);
        }
    }

    fn place(&mut self, program: &Program, buffer: BufferId) -> (&mut Holding, (usize, Bytes)) {
        let entry = &program.buffers[buffer.index()];
        (&mut self.ranks[entry.rank.index()], (entry.role as usize, self.bytes[buffer.index()]))
    }
}
