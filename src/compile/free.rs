//! Liveness: the last op that uses a buffer gives its memory back.
//!
//! A buffer that is written without being read starts a new life there: gathered parameters come and go many times. "Last" is by issue
//! order. Where ops of other streams use the buffer too, synchronise lets this op wait for them.

use crate::base::{BufferId, Rank};
use crate::program::Buffer;

use super::Build;

/// Marks the last use of every life of every buffer that the rank does not own between steps, but for results at their end.
pub(super) fn run(build: &mut Build) {
    let program = &mut build.program;
    let lasting = program.lasting();
    if lasting == program.buffers.len() {
        return;
    }
    // Backwards, a buffer is needed from its last use to the write that makes it. What stays is never freed.
    let mut needed: Vec<bool> = program.buffers.iter().map(Buffer::stays).collect();
    let mut last_uses: Vec<BufferId> = Vec::new();
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        for &op in order.iter().rev() {
            for operands in [program.reads(op), program.writes(op)] {
                let going = operands.iter().filter(|buffer| buffer.index() >= lasting);
                last_uses.extend(going.filter(|buffer| !std::mem::replace(&mut needed[buffer.index()], true)));
            }
            last_uses.drain(..).for_each(|buffer| program.free(op, buffer));
            let reads = program.reads(op);
            let is_made = |buffer: &&BufferId| buffer.index() >= lasting && !reads.contains(buffer);
            program.writes(op).iter().filter(is_made).for_each(|buffer| {
                needed[buffer.index()] = program.buffers[buffer.index()].lives_from_start();
            });
        }
        program.order[rank.index()] = order;
    }
}
