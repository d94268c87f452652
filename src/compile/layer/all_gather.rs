//! All-gather: every rank first gathers the keys and values of all, then computes block by block; backward sums and scatters their
//! gradients. As many bytes as around the ring, none of them hidden, and all keys in memory at once. Source: Llama 3, arXiv 2407.21783,
//! section 3.3.2.

use super::{Backward, Work};
use crate::base::settings::AttentionTensor;
use crate::base::{BufferId, Bytes};
use crate::program::tables::CollectiveKind;
use crate::program::{Kernel, KernelCost};

/// Forward, then backward, on every rank.
pub(super) fn run(work: &mut Work) {
    let ranks = work.ranks();
    let slice = work.attention.bytes(AttentionTensor::KeyValue, work.program.setting.dtype);
    let all = Bytes(slice.0 * ranks as u64);
    let collectives = (ranks > 1).then(|| {
        let gather = work.collective(CollectiveKind::AllGather, "kv", all);
        (gather, work.collective(CollectiveKind::ReduceScatter, "dkv", all))
    });
    for rank in 0..ranks {
        let all = |work: &mut Work, tensor| (0..ranks).map(|slice| work.buffer(rank, tensor, slice)).collect::<Vec<BufferId>>();
        let keys = all(work, AttentionTensor::KeyValue);
        if let Some((gather, _)) = collectives {
            work.issue(gather, rank, (&[keys[rank]], &keys));
        }
        let sources = (0..ranks).filter(|&source| work.attention.pairs(rank, source) > 0).collect::<Vec<_>>();
        for (place, &source) in sources.iter().enumerate() {
            work.attend(rank, (rank, source), place == 0);
        }
        work.finish(rank, rank);
        for (place, &source) in sources.iter().enumerate() {
            work.attend_backward(rank, Backward { queries: rank, source, gradient_of: source }, [place == 0, true]);
        }
        let gradients = all(work, AttentionTensor::KeyValueGradient);
        let unseen: Vec<BufferId> =
            (0..ranks).filter(|source| !sources.contains(source)).map(|source| gradients[source]).collect();
        if !unseen.is_empty() {
            work.run(rank, KernelCost::free(Kernel::ZeroGradients), &[], &unseen);
        }
        if let Some((_, scatter)) = collectives {
            work.issue(scatter, rank, (&gradients, &[gradients[rank]]));
        }
    }
}
