//! All-gather: every rank first gathers the keys and values of all, then computes block by block; backward sums and scatters their
//! gradients. As many bytes as around the ring, none of them hidden, and all keys in memory at once. Source: Llama 3, arXiv 2407.21783,
//! section 3.3.2.

use super::{ORIGIN, Work};
use crate::base::settings::AttentionTensor;
use crate::base::{BufferId, Bytes, Rank};
use crate::program::tables::{Collective, CollectiveKind, Fold, Group};
use crate::program::{Kernel, KernelCost, OpKind};

/// Forward, then backward, on every rank.
pub(super) fn run(work: &mut Work) {
    let ranks = work.ranks();
    let [gather, scatter] = [(CollectiveKind::AllGather, "kv"), (CollectiveKind::ReduceScatter, "dkv")]
        .map(|(kind, label)| (ranks > 1).then(|| collective(work, kind, label)));
    for rank in 0..ranks {
        let all = |work: &mut Work, tensor| (0..ranks).map(|slice| work.buffer(rank, tensor, slice)).collect::<Vec<BufferId>>();
        let keys = all(work, AttentionTensor::KeyValue);
        issue(work, gather, rank, (&[keys[rank]], &keys));
        let sources = (0..ranks).filter(|&source| work.attention.pairs(rank, source) > 0).collect::<Vec<_>>();
        for (place, &source) in sources.iter().enumerate() {
            work.attend(rank, source, place == 0);
        }
        work.finish(rank);
        for (place, &source) in sources.iter().enumerate() {
            work.attend_backward(rank, (source, source), [place == 0, true]);
        }
        let gradients = all(work, AttentionTensor::KeyValueGradient);
        let unseen: Vec<BufferId> =
            (0..ranks).filter(|source| !sources.contains(source)).map(|source| gradients[source]).collect();
        if !unseen.is_empty() {
            work.run(rank, KernelCost::free(Kernel::ZeroGradients), &[], &unseen);
        }
        issue(work, scatter, rank, (&gradients, &[gradients[rank]]));
    }
}

type Id = crate::base::CollectiveId;

fn collective(work: &mut Work, kind: CollectiveKind, label: &str) -> Id {
    let ranks = (0..work.ranks()).map(Rank::new).collect();
    let group = work.program.group(Group { name: "cp".to_owned(), ranks, fold: Fold::default() });
    let dtype = work.program.setting.dtype;
    let slice = work.attention.bytes(AttentionTensor::KeyValue, dtype);
    let (label, bytes, padding) = (label.to_owned(), Bytes(slice.0 * work.ranks() as u64), Bytes::ZERO);
    work.program.collective(Collective { group, kind, label, step: 0, bytes, dtype, padding })
}

fn issue(work: &mut Work, collective: Option<Id>, rank: usize, operands: (&[BufferId], &[BufferId])) {
    let Some(collective) = collective else { return };
    let stream = work.program.communication_stream("cp");
    work.program.append((Rank::new(rank), stream), OpKind::Collective(collective), operands, ORIGIN);
}
