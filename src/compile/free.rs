//! Liveness: the last op that uses a buffer gives its memory back.
//!
//! A buffer that is written without being read starts a new life there: gathered parameters come and go many times. "Last" is by issue
//! order. Where ops of other streams use the buffer too, synchronise lets this op wait for them.

use crate::base::{BufferId, Rank};
use crate::program::Buffer;

use super::Build;

/// Marks the last use of every life of every buffer that the rank does not own between steps; results stay.
pub(super) fn run(build: &mut Build) {
    let program = &mut build.program;
    if program.lasting() == program.buffers.len() {
        return;
    }
    // Backwards, a buffer is needed from its last use to the write that makes it. What stays is never freed.
    let stays: Vec<bool> = program.buffers.iter().map(Buffer::stays).collect();
    let mut needed = stays.clone();
    let mut last_uses: Vec<BufferId> = Vec::new();
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        for &op in order.iter().rev() {
            let entry = program.entry(op);
            let (reads, writes) = (entry.passing_reads(), entry.passing_writes());
            for &buffer in reads {
                if !std::mem::replace(&mut needed[buffer.index()], true) {
                    last_uses.push(buffer);
                }
            }
            for &buffer in writes {
                if !needed[buffer.index()] {
                    last_uses.push(buffer);
                }
                needed[buffer.index()] = stays[buffer.index()] || reads.contains(&buffer);
            }
            last_uses.drain(..).for_each(|buffer| program.free(op, buffer));
        }
        program.order[rank.index()] = order;
    }
}
