//! Liveness: the last op that uses a buffer gives its memory back.
//!
//! "Last" is by issue order. Where ops of other streams use the buffer too, synchronise lets this op wait for them.

use crate::base::{BufferId, OpId, Rank};
use crate::program::Program;

use super::Build;

/// Marks the last use of every buffer that the rank does not own between steps.
pub(super) fn run(build: &mut Build) {
    let program = &mut build.program;
    let mut done = vec![false; program.buffers.len()];
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        for &op in order.iter().rev() {
            let operands = program.op(op).reads.len() + program.op(op).writes.len();
            for operand in 0..operands {
                let buffer = operand_of(program, op, operand);
                let stays = program.buffers[buffer.index()].lives_from_start();
                if !stays && !std::mem::replace(&mut done[buffer.index()], true) {
                    program.free(op, buffer);
                }
            }
        }
        program.order[rank.index()] = order;
    }
}

fn operand_of(program: &Program, op: OpId, operand: usize) -> BufferId {
    let op = program.op(op);
    op.reads.get(operand).copied().unwrap_or_else(|| op.writes[operand - op.reads.len()])
}
