//! Waits: where two streams of a rank touch one buffer, the later op waits for the earlier one.
//!
//! The hazards (read after write, write after read, write after write, free after use) are found from the operands alone, in issue order,
//! so that no other pass has to think of them. Ops of one stream are in order anyway.

use crate::base::{BufferId, OpId, Rank};
use crate::program::Program;
use crate::program::tables::COMPUTE;

use super::Build;

/// Adds the waits of every rank.
pub(super) fn run(build: &mut Build) {
    let program = &mut build.program;
    let shared = shared(program);
    let mut uses = Uses::new(program);
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        for &op in &order {
            synchronise(program, &shared, &mut uses, op);
        }
        program.order[rank.index()] = order;
    }
}

/// Which buffers an op of a communication stream touches: no other buffer can need a wait.
fn shared(program: &Program) -> Vec<bool> {
    let mut shared = vec![false; program.buffers.len()];
    for op in program.all().filter(|&op| program.stream_of(op) != COMPUTE) {
        let op = program.op(op);
        op.reads.iter().chain(op.writes).for_each(|buffer| shared[buffer.index()] = true);
    }
    shared
}

/// The latest uses of each buffer, by stream.
struct Uses {
    streams: usize,
    writer: Vec<Option<OpId>>,
    readers: Vec<Option<OpId>>,
}

impl Uses {
    fn new(program: &Program) -> Self {
        let streams = program.streams.len();
        Self { streams, writer: vec![None; program.buffers.len()], readers: vec![None; program.buffers.len() * streams] }
    }

    /// Makes `op` wait for every earlier use of `buffer`.
    fn wait_for_all(&mut self, program: &mut Program, op: OpId, buffer: BufferId) {
        wait(program, op, self.writer[buffer.index()]);
        for reader in self.readers(buffer) {
            wait(program, op, reader.take());
        }
    }

    fn readers(&mut self, buffer: BufferId) -> &mut [Option<OpId>] {
        &mut self.readers[buffer.index() * self.streams..][..self.streams]
    }
}

fn synchronise(program: &mut Program, shared: &[bool], uses: &mut Uses, op: OpId) {
    let stream = program.stream_of(op);
    for operand in 0..program.op(op).reads.len() {
        let buffer = program.op(op).reads[operand];
        if shared[buffer.index()] {
            wait(program, op, uses.writer[buffer.index()]);
            uses.readers(buffer)[stream.index()] = Some(op);
        }
    }
    for operand in 0..program.op(op).writes.len() {
        let buffer = program.op(op).writes[operand];
        if shared[buffer.index()] {
            uses.wait_for_all(program, op, buffer);
            uses.writer[buffer.index()] = Some(op);
        }
    }
    let freed: Vec<BufferId> = program.frees(op).filter(|buffer| shared[buffer.index()]).collect();
    for buffer in freed {
        uses.wait_for_all(program, op, buffer);
    }
}

/// Waits for `on`, unless the stream's order or an earlier wait of this op says so already.
fn wait(program: &mut Program, op: OpId, on: Option<OpId>) {
    let Some(on) = on else { return };
    let known = on == op || program.stream_of(on) == program.stream_of(op) || program.waits(op).any(|other| other == on);
    if !known {
        program.wait(op, on);
    }
}
