//! What a member of an all-to-all sends and receives, where pieces are unequal: it reads a piece for each member and writes one from each.

use super::tables::{CollectiveKind, Program};
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
        let others = |pieces: &[BufferId]| -> Bytes {
            let others = pieces.iter().enumerate().filter(|(other, _)| *other != place);
            others.map(|(_, &piece)| program.bytes(piece)).sum()
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
    let collective = &program.collectives[collective.index()];
    let ranks = &program.groups[collective.group.index()].ranks;
    let pieces = [program.reads(op).len(), program.writes(op).len()];
    let is_unequal = collective.kind == CollectiveKind::AllToAll && pieces == [ranks.len(); 2];
    is_unequal.then(|| ranks.iter().position(|&rank| rank == program.rank_of(op))).flatten()
}
