//! All-gather: every rank first gathers the keys and values of all, then computes block by block; backward sums and scatters their
//! gradients. As many bytes as around the ring, none of them hidden, and all keys in memory at once. Source: Llama 3, arXiv 2407.21783,
//! section 3.3.2.

use super::{Backward, Work};
use crate::base::settings::AttentionTensor;
use crate::base::{BufferId, Bytes, CollectiveId};
use crate::program::tables::CollectiveKind;
use crate::program::{Kernel, KernelCost};

/// Forward, then backward, on every rank.
pub(super) fn run(work: &mut Work) {
    for rank in 0..work.ranks() {
        forward(work, rank);
        backward(work, rank);
    }
}

/// Forward on one rank.
pub(in crate::compile) fn forward(work: &mut Work, rank: usize) {
    let keys = slices(work, rank, AttentionTensor::KeyValue);
    if let Some(gather) = collective(work, CollectiveKind::AllGather, "kv") {
        work.issue(gather, rank, (&[keys[rank]], &keys));
    }
    for (place, source) in sources(work, rank).into_iter().enumerate() {
        work.attend(rank, (rank, source), place == 0);
    }
    work.finish(rank, rank);
}

/// Backward on one rank.
pub(in crate::compile) fn backward(work: &mut Work, rank: usize) {
    let sources = sources(work, rank);
    for (place, &source) in sources.iter().enumerate() {
        work.attend_backward(
            rank,
            Backward { queries: rank, source, gradient: (AttentionTensor::KeyValueGradient, source) },
            [place == 0, true],
        );
    }
    let gradients = slices(work, rank, AttentionTensor::KeyValueGradient);
    let unseen: Vec<BufferId> =
        (0..gradients.len()).filter(|slice| !sources.contains(slice)).map(|slice| gradients[slice]).collect();
    if !unseen.is_empty() {
        work.run(rank, KernelCost::free(Kernel::ZeroGradients), &[], &unseen);
    }
    if let Some(scatter) = collective(work, CollectiveKind::ReduceScatter, "dkv") {
        work.issue(scatter, rank, (&gradients, &[gradients[rank]]));
    }
}

/// The slices whose keys the queries of `rank` see.
fn sources(work: &Work, rank: usize) -> Vec<usize> {
    (0..work.ranks()).filter(|&source| work.pairs(rank, source) > 0).collect()
}

/// A tensor of all slices on `rank`.
fn slices(work: &mut Work, rank: usize, tensor: AttentionTensor) -> Vec<BufferId> {
    (0..work.ranks()).map(|slice| work.buffer(rank, tensor, slice)).collect()
}

/// The collective of all slices, if there are several.
fn collective(work: &mut Work, kind: CollectiveKind, label: &'static str) -> Option<CollectiveId> {
    let slice = work.attention.bytes(AttentionTensor::KeyValue, work.program.setting.dtype);
    let all = Bytes(slice.0 * work.ranks() as u64);
    (work.ranks() > 1).then(|| work.shared(kind, label, all))
}
