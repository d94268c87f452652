//! A bare collective: a payload on every rank, and one op that reduces or gathers it.

use crate::base::{BufferId, Bytes, CollectiveKind as Kind, Rank};
use crate::program::tables::{COMPUTE, Collective, CollectiveKind, Group, Layout};
use crate::program::{Name, OpKind, Origin, PassName, Role};
use crate::scenario::Task;

use super::{Build, expand};

/// Gives every rank its payload, cut into chunks, and one collective of it. Where each rank has a share, the shares are equal.
pub(super) fn run(build: &mut Build) {
    let Task::Collective(task) = &build.scenario.task else { return };
    let program = &mut build.program;
    let kind = match task.kind {
        Kind::AllReduce => CollectiveKind::AllReduce,
        Kind::ReduceScatter => CollectiveKind::ReduceScatter,
        Kind::AllGather => CollectiveKind::AllGather,
    };
    let dtype = program.setting.dtype;
    let elements = usize::try_from(task.bytes.0 / dtype.size()).expect("a checked payload");
    let ranks: Vec<Rank> = (0..task.ranks).map(Rank::new).collect();
    let group = program.group(Group::of("world", ranks.clone()));
    let padded = if kind == CollectiveKind::AllReduce { elements } else { elements.next_multiple_of(task.chunks) };
    let bytes = |elements: usize| Bytes(elements as u64 * dtype.size());
    let (label, padding) = ("payload".to_owned(), bytes(padded - elements));
    let collective =
        program.collective(Collective { group, kind, label, step: 0, bytes: bytes(padded), dtype, padding, shards: 1 });
    let origin = Origin { slot: None, step: 0, pass: PassName::Lower };
    let sizes = expand::chunk_sizes(padded, task.chunks);
    let layouts: Vec<_> = sizes.map(|size| program.layout(Layout::tensor(dtype, &[size]))).collect();
    for rank in ranks {
        let chunk = |(chunk, &layout): (u32, _)| program.buffer(rank, Name::Chunk(chunk), Role::Bucket, layout);
        let chunks: Vec<BufferId> = (0..).zip(&layouts).map(chunk).collect();
        program.append((rank, COMPUTE), OpKind::Collective(collective), (&chunks, &chunks), origin);
    }
}
