//! What short words stand for: of several entries that share a word, it means the first, and the others are told by their id.

use std::collections::BTreeMap;

use crate::base::{BufferId, ChannelId, CollectiveId, KernelId, Rank};
use crate::program::name::Name;
use crate::program::op::Kernel;
use crate::program::tables::{CollectiveKind, Program};

/// The first entry of each word.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    pub buffers: BTreeMap<(Rank, Name), BufferId>,
    pub kernels: BTreeMap<Kernel, KernelId>,
    pub channels: BTreeMap<(Rank, Rank), ChannelId>,
    /// By kind, label, and step, all of them: those of different groups share these.
    collectives: BTreeMap<(u8, String, u32), Vec<CollectiveId>>,
}

impl Lookup {
    pub(super) fn new(program: &Program) -> Self {
        let mut lookup = Self::default();
        for (index, buffer) in program.buffers.iter().enumerate() {
            lookup.buffers.entry((buffer.rank, buffer.name)).or_insert(BufferId::new(index));
        }
        for (index, kernel) in program.kernels.iter().enumerate() {
            lookup.kernels.entry(kernel.kernel).or_insert(KernelId::new(index));
        }
        for (index, channel) in program.channels.iter().enumerate() {
            lookup.channels.entry((channel.from, channel.to)).or_insert(ChannelId::new(index));
        }
        (0..program.collectives.len()).for_each(|index| lookup.add_collective(program, CollectiveId::new(index)));
        lookup
    }

    pub(super) fn add_collective(&mut self, program: &Program, id: CollectiveId) {
        let collective = &program.collectives[id.index()];
        let key = (collective.kind as u8, collective.label.clone(), collective.step);
        self.collectives.entry(key).or_default().push(id);
    }

    /// The first collective of `rank` with this kind, label and step.
    pub(super) fn collective(
        &self,
        program: &Program,
        rank: Rank,
        (kind, label, step): (CollectiveKind, &str, u32),
    ) -> Option<CollectiveId> {
        let same = self.collectives.get(&(kind as u8, label.to_owned(), step))?;
        let is_member = |id: &&CollectiveId| {
            let group = program.collectives[id.index()].group;
            program.groups.get(group.index()).is_some_and(|group| group.ranks.contains(&rank))
        };
        same.iter().find(is_member).copied()
    }
}
