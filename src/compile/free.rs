//! Liveness: the last op that uses a buffer gives its memory back.
//!
//! A buffer that is written without being read starts a new life there: gathered parameters come and go many times. "Last" is by issue
//! order. Where ops of other streams use the buffer too, synchronise lets this op wait for them.

use crate::base::{BufferId, OpId};
use crate::program::Buffer;

use super::Build;

/// Whether a buffer is needed behind the op at work.
#[derive(Clone, Copy, PartialEq)]
enum Needed {
    No,
    Yes,
    /// To the end: it is never freed.
    Always,
}

/// Marks the last use of every life of every buffer that the rank does not own between steps; results stay.
pub(super) fn run(build: &mut Build) {
    let program = &mut build.program;
    if program.lasting() == program.buffers.len() {
        return;
    }
    // Backwards, a buffer is needed from its last use to the write that makes it.
    let at_the_end = |buffer: &Buffer| if buffer.stays() { Needed::Always } else { Needed::No };
    let mut needed: Vec<Needed> = program.buffers.iter().map(at_the_end).collect();
    let mut last_uses: Vec<(OpId, BufferId)> = Vec::new();
    for rank in 0..program.ranks() {
        for &op in program.order[rank].iter().rev() {
            let entry = program.entry(op);
            let (reads, writes) = (entry.passing_reads(), entry.passing_writes());
            for &buffer in reads {
                let needed = &mut needed[buffer.index()];
                if *needed == Needed::No {
                    *needed = Needed::Yes;
                    last_uses.push((op, buffer));
                }
            }
            for &buffer in writes {
                let needed = &mut needed[buffer.index()];
                match *needed {
                    Needed::No => last_uses.push((op, buffer)),
                    Needed::Yes if !reads.contains(&buffer) => *needed = Needed::No,
                    Needed::Yes | Needed::Always => {}
                }
            }
        }
        last_uses.drain(..).for_each(|(op, buffer)| program.free(op, buffer));
    }
}
