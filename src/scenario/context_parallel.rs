//! `[context_parallel]` of a training step, and what the ranks that share its sequences must divide.

use super::keys::{batch, context_parallel, model, parallel, pipeline};
use super::layer::{refuse_heads, refuse_uneven};
use super::problem::Problem;
use super::tensor_parallel::refuse_forgotten;
use super::written::Written;
use super::{ContextMethod, Training};
use crate::base::Rank;
use crate::base::mesh::{Axis, place_on};
use crate::base::settings::Placement;
use crate::base::words::grouped;

/// How ranks share each sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextParallel {
    /// How queries meet the keys of other ranks.
    pub method: ContextMethod,
    /// Which tokens a rank holds.
    pub placement: Placement,
}

impl Training {
    /// The ranks that hold the same parameters as `rank` and see other data, `rank` among them, in order.
    #[must_use]
    pub fn data_group(&self, rank: Rank) -> Vec<Rank> {
        let [fast, slow] = self.data_axes().map(|axis| self.mesh.size(axis));
        (0..fast * slow).map(|place| self.data_member(rank, place)).collect()
    }

    /// The place of `rank` among them.
    #[must_use]
    pub fn data_place(&self, rank: Rank) -> usize {
        place_on([Axis::Data, Axis::Context].map(|axis| self.mesh.line(axis)), rank)
    }

    /// The rank at `place` among them.
    #[must_use]
    pub fn data_member(&self, rank: Rank, place: usize) -> Rank {
        let [fast, slow] = self.data_axes();
        let size = self.mesh.size(fast);
        self.mesh.with(self.mesh.with(rank, fast, place % size), slow, place / size)
    }

    /// The axes along which they differ: ranks are numbered along the faster one first.
    fn data_axes(&self) -> [Axis; 2] {
        let [data, context] = [Axis::Data, Axis::Context];
        if self.mesh.stride(data) < self.mesh.stride(context) { [data, context] } else { [context, data] }
    }
}

/// How ranks share each sequence.
pub(super) fn read(written: &Written) -> Option<ContextParallel> {
    Some(ContextParallel {
        method: written.choice(&context_parallel::METHOD, ContextMethod::find)?,
        placement: written.choice(&context_parallel::PLACEMENT, Placement::find)?,
    })
}

/// Refuses sequences that cannot be cut, and what ranks with slices of them do not do.
pub(super) fn check(written: &mut Written, training: &Training) {
    let (ranks, tensor) = (training.mesh.size(Axis::Context), training.mesh.size(Axis::Tensor));
    if ranks == 1 {
        return;
    }
    let ContextParallel { method, placement } = training.context_parallel;
    let is_even = refuse_uneven(written, training.model.sequence, ranks, placement).is_some();
    if is_even && training.tensor_parallel.sequence_parallel && !(training.model.sequence / ranks).is_multiple_of(tensor) {
        let (sequence, divisor) = (training.model.sequence, placement.divisor(ranks) * tensor);
        let message = format!("{tensor} ranks cannot share the {} tokens of a slice evenly", grouped((sequence / ranks) as i128));
        let problem = Problem::new(message).allowed(format!("a multiple of {divisor}"));
        let near = grouped(sequence.next_multiple_of(divisor) as i128);
        written.refuse(
            &[&model::SEQUENCE, &parallel::TENSOR, &parallel::CONTEXT],
            problem.hint(format!("sequence = {near} would do")),
        );
    }
    if method == ContextMethod::Ulysses {
        // Of the heads of a tensor-parallel rank, each takes its share.
        let heads = [training.model.heads, training.model.kv_heads].map(|heads| (heads / tensor).max(1));
        refuse_heads(written, heads, ranks);
    }
    refuse_forgotten(written, training, ("ranks with slices of sequences", &parallel::CONTEXT), "context = 1");
    if training.pipeline.segments > 1 {
        let problem = Problem::new("a sequence goes through the pipeline in segments, or ranks have slices of it: not both");
        written.refuse(&[&pipeline::SEGMENTS, &pipeline::SCHEDULE, &parallel::CONTEXT], problem.hint("context = 1, or 1f1b"));
    }
    if training.pipeline.updates.is_asynchronous() {
        let name = training.pipeline.order.name();
        let problem =
            Problem::new(format!("{name} updates while micro-batches are under way, and ranks with slices add up gradients"));
        written.refuse(&[&parallel::CONTEXT, &pipeline::SCHEDULE], problem.hint("1f1b adds them up once a step"));
    }
    if !training.batch.sizes.is_empty() {
        let problem = Problem::new("micro-batches of different sizes and slices of sequences are not computed together");
        let problem = problem.hint("context = 1, or one micro_batch_size for all");
        written.refuse(&[&batch::MICRO_BATCH_SIZES, &parallel::CONTEXT], problem);
    }
}
