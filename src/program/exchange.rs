//! What a member of an all-to-all sends and receives, where pieces are unequal: it reads a piece for each member and writes one from each. The
//! pieces are buffers, or together one buffer, whose tensors are as many for each member.

use super::tables::{CollectiveKind, Program, TensorPart};
use crate::base::{BufferId, Bytes, CollectiveId, OpId};
use crate::program::OpKind;

/// One member's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// What goes to others.
    pub sent: Bytes,
    /// What comes from others.
    pub received: Bytes,
}

impl Exchange {
    /// The part of `op`, if it is in such an all-to-all.
    #[must_use]
    pub fn of(program: &Program, op: OpId) -> Option<Self> {
        let OpKind::Collective(collective) = program.kind(op) else { return None };
        let place = unequal_place(program, collective, op)?;
        let members = members(program, collective);
        let others = |operands: &[BufferId]| -> Bytes {
            let others = pieces(program, operands, members).into_iter().enumerate().filter(|(other, _)| *other != place);
            others.flat_map(|(_, piece)| piece).map(TensorPart::bytes).sum()
        };
        Some(Self { sent: others(program.reads(op)), received: others(program.writes(op)) })
    }

    /// The larger of both: it takes as long as that.
    #[must_use]
    pub fn most(self) -> Bytes {
        self.sent.max(self.received)
    }
}

/// The place of the rank of `op` among the members, if it reads and writes a piece for each of them.
#[must_use]
pub fn unequal_place(program: &Program, collective: CollectiveId, op: OpId) -> Option<usize> {
    let collective_of = &program.collectives[collective.index()];
    if collective_of.kind != CollectiveKind::AllToAll {
        return None;
    }
    let all = members(program, collective);
    let has_pieces = |operands: &[BufferId]| operands.len() == all || is_bundle(program, operands, all);
    let (reads, writes) = (program.reads(op), program.writes(op));
    let is_unequal = reads.len() == writes.len() && has_pieces(reads) && has_pieces(writes);
    let ranks = &program.groups[collective_of.group.index()].ranks;
    is_unequal.then(|| ranks.iter().position(|&rank| rank == program.rank_of(op))).flatten()
}

/// The tensors of the pieces for each of so many members, or from each.
#[must_use]
pub fn pieces<'p>(program: &'p Program, operands: &[BufferId], members: usize) -> Vec<Vec<&'p TensorPart>> {
    let parts = |buffer: &BufferId| program.layouts[program.buffers[buffer.index()].layout.index()].parts.iter();
    if operands.len() == members {
        return operands.iter().map(|buffer| parts(buffer).collect()).collect();
    }
    let all: Vec<&TensorPart> = operands.iter().flat_map(parts).collect();
    all.chunks((all.len() / members.max(1)).max(1)).map(<[_]>::to_vec).collect()
}

/// Whether one buffer has pieces for all members.
fn is_bundle(program: &Program, operands: &[BufferId], members: usize) -> bool {
    let [buffer] = operands else { return false };
    let parts = program.layouts[program.buffers[buffer.index()].layout.index()].parts.len();
    parts > 0 && parts.is_multiple_of(members)
}

fn members(program: &Program, collective: CollectiveId) -> usize {
    program.group_of(collective).ranks.len()
}
