//! Experts inside a training step: `[experts]` beside `[model]`, and the ranks that share them out.
//!
//! Experts stand on ranks that see different data, replicas and slices of their sequences alike, so that they are no factor of the world:
//! `expert_tensor` x `expert` x `pipeline` must divide it, and the quotient is how many ranks have the same experts. Source: Megatron-LM,
//! `parallel_state.py`, where the experts' mesh has no axis for slices of sequences.

use super::experts::{read_popularity, refuse_choices, refuse_lots, refuse_uneven};
use super::keys::{Section, batch, experts, fsdp, parallel, pipeline};
use super::problem::Problem;
use super::tensor_parallel::refuse_forgotten;
use super::written::Written;
use super::{Reshard, Training};
use crate::base::Rank;
use crate::base::mesh::{Axis, Mesh};
use crate::base::mixture::{Groups, Mixture};
use crate::base::model::Model;
use crate::base::words::{counted, grouped};

/// Whether a training step has experts: where the scenario has a section about them, or ranks for them.
pub(super) fn is_asked(written: &Written) -> bool {
    written.section(Section::Experts).is_some() || written.size(&parallel::EXPERT).is_some_and(|expert| expert > 1)
}

/// Gives the model its experts, if it has any; `size` is that of a micro-batch.
pub(super) fn read(written: &mut Written, model: &mut Model, size: usize) -> Option<()> {
    if !is_asked(written) {
        return Some(());
    }
    let (count, top_k) = (written.size(&experts::COUNT)?, written.size(&experts::TOP_K)?);
    let (capacity_factor, auxiliary) = (written.number(&experts::CAPACITY_FACTOR)?, written.number(&experts::AUXILIARY)?);
    refuse_choices(written, count, top_k)?;
    let tokens = (model.sequence * size) as u64;
    let popularity = read_popularity(written, count, (tokens, tokens * top_k as u64))?;
    model.experts = Some(Mixture { count, top_k, capacity_factor, auxiliary, groups: Groups::default(), popularity });
    Some(())
}

/// The ranks that share out the experts.
pub(super) fn read_ranks(written: &mut Written, mesh: &Mesh) -> Option<usize> {
    if !is_asked(written) {
        return Some(1);
    }
    let expert = written.size(&parallel::EXPERT)?;
    let tensor = mesh.size(Axis::Tensor);
    let own = written.or(&parallel::EXPERT_TENSOR, Written::size, Some(tensor))?;
    let problem = illegal(mesh, expert, own, written.has(&parallel::EXPERT_TENSOR, 0)).or_else(|| {
        let message = format!("expert_tensor = {own} cuts experts otherwise than tensor = {tensor} cuts the rest of a layer");
        let hint = format!("a step computes expert_tensor = {tensor} alone: leave it out");
        (own != tensor).then(|| Problem::new(message).allowed(tensor.to_string()).hint(hint))
    });
    if let Some(problem) = problem {
        written.refuse(&[&parallel::EXPERT_TENSOR, &parallel::EXPERT], problem);
        return None;
    }
    refuse_order(written, expert);
    Some(expert)
}

/// Ranks that share out experts are neighbours among replicas.
fn refuse_order(written: &mut Written, expert: usize) {
    let text = written.text(&parallel::ORDER).unwrap_or_default();
    let place = |axis: &str| text.split('-').position(|name| name == axis);
    if let (Some(experts), Some(data)) = (place("ep"), place("dp"))
        && expert > 1
        && experts > data
    {
        let problem = Problem::new("ranks that share out experts are neighbours among those that see other data");
        let problem = problem.allowed("an order with ep before dp");
        written.refuse(&[&parallel::ORDER, &parallel::EXPERT], problem.hint("tp-cp-ep-dp-pp would do"));
    }
}

/// What is wrong with a mesh of experts, and which would be right.
fn illegal(mesh: &Mesh, expert: usize, tensor: usize, is_written: bool) -> Option<Problem> {
    let (world, pipeline) = (mesh.ranks(), mesh.size(Axis::Pipeline));
    let needed = tensor * expert * pipeline;
    if world.is_multiple_of(needed) {
        return None;
    }
    let why = if is_written || tensor == 1 {
        ""
    } else {
        ", as experts are cut like the rest where `expert_tensor` does not say otherwise"
    };
    let message = format!(
        "expert_tensor = {tensor} times expert = {expert} times pipeline = {pipeline} is {}, which does not divide {} ranks{why}",
        grouped(needed as i128),
        grouped(world as i128),
    );
    let mut fits = Vec::new();
    if tensor > 1 && world.is_multiple_of(expert * pipeline) {
        fits.push("expert_tensor = 1".to_owned());
    }
    let fewer = (1..expert).rev().find(|fewer| world.is_multiple_of(tensor * fewer * pipeline));
    fits.extend(fewer.map(|fewer| format!("expert = {fewer}")));
    fits.push(format!("{} ranks", grouped(world.next_multiple_of(needed) as i128)));
    let problem = Problem::new(message).allowed("expert_tensor x expert x pipeline divides the number of ranks");
    Some(problem.hint(format!("{} would do", fits.join(", or "))))
}

/// What only the whole training step tells.
pub(super) fn check(written: &mut Written, training: &mut Training) {
    let [tensor, slices] = [Axis::Tensor, Axis::Context].map(|axis| training.mesh.size(axis));
    let stretches = if training.tensor_parallel.sequence_parallel { tensor } else { 1 };
    let Some(mixture) = &mut training.model.experts else { return };
    // Each rank that keeps tokens of its own routes them by themselves.
    mixture.groups = Groups { slices, placement: training.context_parallel.placement, stretches };
    let mixture = mixture.clone();
    let ranks = training.expert;
    let _ = refuse_uneven(written, mixture.count, ranks);
    let tokens = (training.batch.micro_batch_size * training.model.sequence) as u64;
    let _ = refuse_lots(written, tokens, (mixture.top_k * mixture.count) as u64);
    refuse_forgotten(written, training, ("layers with experts", &experts::COUNT), "a model without experts");
    if training.pipeline.segments > 1 {
        let problem = Problem::new("segments of sequences and experts are not computed together");
        written.refuse(&[&pipeline::SEGMENTS, &pipeline::SCHEDULE, &experts::COUNT], problem.hint("segments = 1, or 1f1b"));
    }
    if !training.batch.sizes.is_empty() {
        let problem = Problem::new("micro-batches of different sizes and experts are not computed together");
        written.refuse(&[&batch::MICRO_BATCH_SIZES, &experts::COUNT], problem.hint("one micro_batch_size for all"));
    }
    refuse_shards(written, training);
}

/// The ranks that share one copy of the state are whole groups of ranks that share out the experts.
fn refuse_shards(written: &mut Written, training: &Training) {
    let (ranks, shards) = (training.expert, training.fsdp.shard_size);
    if ranks == 1 || !training.data_parallel.strategy.sharing().parameters {
        return;
    }
    if !shards.is_multiple_of(ranks) {
        let message = format!(
            "{} that share one copy are not whole groups of {ranks} that share out the experts",
            counted(shards as u64, "rank")
        );
        let problem = Problem::new(message).allowed("a multiple of `expert`");
        let hint = format!("shard_size = {} would do", shards.next_multiple_of(ranks));
        written.refuse(&[&fsdp::SHARD_SIZE, &parallel::EXPERT], problem.hint(hint));
    }
    if let Reshard::To(_) = training.fsdp.reshard_after_forward {
        let problem = Problem::new("neighbours that keep a part of a layer from forward to backward have different experts");
        written.refuse(&[&fsdp::RESHARD_AFTER_FORWARD, &parallel::EXPERT], problem.allowed("true, false"));
    }
}

impl Training {
    /// Where `rank` stands among those that share out the experts: neighbours among the ranks that see other data.
    #[must_use]
    pub fn expert_place(&self, rank: Rank) -> usize {
        self.data_place(rank) % self.expert
    }

    /// The ranks that share out the experts with `rank`, in order.
    #[must_use]
    pub fn expert_group(&self, rank: Rank) -> Vec<Rank> {
        let first = self.data_place(rank) / self.expert * self.expert;
        (first..first + self.expert).map(|place| self.data_member(rank, place)).collect()
    }

    /// The number of that group: by stage, then by their data, then by slice of the tensors.
    #[must_use]
    pub fn expert_group_number(&self, rank: Rank) -> usize {
        let (groups, number) = (self.data_ranks() / self.expert, self.data_place(rank) / self.expert);
        let [pipeline, tensor] = [Axis::Pipeline, Axis::Tensor].map(|axis| self.mesh.coordinate(rank, axis));
        (pipeline * groups + number) * self.mesh.size(Axis::Tensor) + tensor
    }

    /// Where a rank stands among those of its stage that hold different parameters: by its experts, then by its slices.
    #[must_use]
    pub fn place(&self, rank: Rank) -> usize {
        self.expert_place(rank) * self.mesh.size(Axis::Tensor) + self.mesh.coordinate(rank, Axis::Tensor)
    }

    /// How many such places there are.
    #[must_use]
    pub fn places(&self) -> usize {
        self.expert * self.mesh.size(Axis::Tensor)
    }

    /// Where a rank stands in the model: ranks with the same seat hold the same parameters.
    #[must_use]
    pub fn seat(&self, rank: Rank) -> usize {
        self.mesh.coordinate(rank, Axis::Pipeline) * self.places() + self.place(rank)
    }
}
