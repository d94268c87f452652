//! Ulysses: an all-to-all swaps pieces of the sequence for heads. Every rank then has its share of the heads for all tokens, attends as if
//! it were alone, and a second all-to-all swaps back; backward mirrors both. No more ranks than heads. Source: Jacobs et al. 2023,
//! "DeepSpeed Ulysses", arXiv 2309.14509.
//!
//! q, k and v go, the output comes back: four tensors forward, and the gradients of the four backward.

use super::{Backward, Work};
use crate::base::BufferId;
use crate::base::context::HeadShare;
use crate::base::settings::AttentionTensor::{self, KeyValue, KeyValueGradient, Output, OutputGradient, Query, QueryGradient};
use crate::program::tables::CollectiveKind;

/// Which way a tensor is swapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToHeads,
    ToTokens,
}

/// Forward, then backward, on every rank.
pub(super) fn run(work: &mut Work) {
    work.share = HeadShare::One;
    for rank in 0..work.ranks() {
        forward(work, rank);
        backward(work, rank);
    }
}

/// Forward on one rank: work with its share of the heads.
pub(in crate::compile) fn forward(work: &mut Work, rank: usize) {
    [Query, KeyValue].into_iter().for_each(|tensor| swap(work, rank, tensor, Way::ToHeads));
    let blocks = blocks(work);
    for (place, &(queries, source)) in blocks.iter().enumerate() {
        work.attend(rank, (queries, source), is_first(&blocks, place));
        if blocks.get(place + 1).is_none_or(|next| next.0 != queries) {
            work.finish(rank, queries);
        }
    }
    swap(work, rank, Output, Way::ToTokens);
}

/// Backward on one rank.
pub(in crate::compile) fn backward(work: &mut Work, rank: usize) {
    swap(work, rank, OutputGradient, Way::ToHeads);
    let blocks = blocks(work);
    for (place, &(queries, source)) in blocks.iter().enumerate() {
        let begins_keys = !blocks[..place].iter().any(|block| block.1 == source);
        let block = Backward { queries, source, gradient: (KeyValueGradient, source) };
        work.attend_backward(rank, block, [is_first(&blocks, place), begins_keys]);
    }
    [QueryGradient, KeyValueGradient].into_iter().for_each(|tensor| swap(work, rank, tensor, Way::ToTokens));
}

/// All blocks that the mask leaves something of, queries by queries.
fn blocks(work: &Work) -> Vec<(usize, usize)> {
    let all = (0..work.ranks()).flat_map(|queries| (0..work.ranks()).map(move |source| (queries, source)));
    all.filter(|&(queries, source)| work.pairs(queries, source) > 0).collect()
}

/// Whether the block at `place` is the first of its queries.
fn is_first(blocks: &[(usize, usize)], place: usize) -> bool {
    place == 0 || blocks[place - 1].0 != blocks[place].0
}

/// The rank's part in the all-to-all of a tensor.
fn swap(work: &mut Work, rank: usize, tensor: AttentionTensor, way: Way) {
    let whole = [work.buffer_of(rank, tensor, rank, HeadShare::All)];
    let pieces: Vec<BufferId> = (0..work.ranks()).map(|slice| work.buffer_of(rank, tensor, slice, HeadShare::One)).collect();
    let operands = if way == Way::ToHeads { (&whole[..], &pieces[..]) } else { (&pieces[..], &whole[..]) };
    let bytes = work.program.bytes(whole[0]);
    let collective = work.shared(CollectiveKind::AllToAll, tensor.name(), bytes);
    work.issue(collective, rank, operands);
}
