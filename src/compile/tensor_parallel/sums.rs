//! Sums of gradients over tensor-parallel ranks: what several of them hold alike, and each makes a part of the gradient of.
//!
//! Where there are fewer key and value heads than ranks, several hold the same head, and each has other query heads that use it.
//! Where tokens are shared out, each makes the gradients of norms, biases and positions from its own tokens. They add up their parts behind
//! the last op that makes one, before replicas do.

use std::collections::BTreeMap;

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::{BufferId, Bytes, CollectiveId, OpId, ParameterId, Rank};
use crate::compile::Build;
use crate::compile::slices::Slices;
use crate::program::tables::{Collective, CollectiveKind, Group};
use crate::program::{OpKind, Origin, PassName, Program};
use crate::scenario::Training;

/// Inserts the sums of every step.
pub(in crate::compile) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let (program, Some(sharing), Some(slices)) = (&mut build.program, &build.sharing, &build.slices) else { return };
    let mut known = BTreeMap::new();
    for (rank, whole) in training.followed() {
        let parameters = &sharing.parameters[training.seat(whole)];
        let sets = sets(program, training, slices, whole, parameters, |parameter| build.held[rank.index()].target(parameter));
        if sets.is_empty() {
            continue;
        }
        let order = std::mem::take(&mut program.order[rank.index()]);
        let mut walk = Walk { program, training, rank, sets, every_micro_batch: sharing.every_micro_batch, known: &mut known };
        let issued = walk.insert(order);
        program.order[rank.index()] = issued;
    }
}

/// Gradients of a layer that the same ranks, numbers among all, add up.
struct Set {
    part: Part,
    ranks: Vec<Rank>,
    gradients: Vec<BufferId>,
}

/// When: behind the last micro-batch of a step, or behind each.
type Window = (u32, u32);

/// The sets that `rank`, one of all, takes part in.
fn sets(
    program: &Program,
    training: &Training,
    slices: &Slices,
    rank: Rank,
    parameters: &[ParameterId],
    target: impl Fn(ParameterId) -> BufferId,
) -> Vec<Set> {
    let mut sets: Vec<Set> = Vec::new();
    for &id in parameters {
        let parameter = &program.parameters[id.index()];
        let holders = slices.holders(&training.model, training.place(rank), (id, parameter.part));
        let is_of_stream =
            parameter.module(training.split()).is_some_and(|module| module.is_of_stream() || module == Module::Route);
        let is_part = parameter.slice.is_some() || (is_of_stream && super::shares_tokens(training));
        if holders.len() == 1 || !is_part {
            continue;
        }
        let ranks: Vec<Rank> = holders.iter().map(|&place| training.mesh.with(rank, Axis::Tensor, place)).collect();
        match sets.iter_mut().find(|set| set.part == parameter.part && set.ranks == ranks) {
            Some(set) => set.gradients.push(target(id)),
            None => sets.push(Set { part: parameter.part, ranks, gradients: vec![target(id)] }),
        }
    }
    sets
}

/// One rank, while its sums are inserted.
struct Walk<'a> {
    program: &'a mut Program,
    training: &'a Training,
    rank: Rank,
    sets: Vec<Set>,
    every_micro_batch: bool,
    /// The sums so far, by their group.
    known: &'a mut BTreeMap<(Vec<Rank>, Window, Part), CollectiveId>,
}

impl Walk<'_> {
    /// The ops of the rank, with its sums between them.
    fn insert(&mut self, order: Vec<OpId>) -> Vec<OpId> {
        let mut set_of: BTreeMap<BufferId, usize> = BTreeMap::new();
        for (place, set) in self.sets.iter().enumerate() {
            set_of.extend(set.gradients.iter().map(|&gradient| (gradient, place)));
        }
        let mut last: BTreeMap<(Window, usize), OpId> = BTreeMap::new();
        for &op in &order {
            let view = self.program.op(op);
            let Some(slot) = view.origin.slot else { continue };
            let window = (view.origin.step, if self.every_micro_batch { slot.micro_batch } else { 0 });
            last.extend(view.writes.iter().filter_map(|buffer| set_of.get(buffer)).map(|&set| ((window, set), op)));
        }
        let mut behind: BTreeMap<OpId, Vec<(Window, usize)>> = BTreeMap::new();
        last.into_iter().for_each(|(sum, op)| behind.entry(op).or_default().push(sum));
        let mut issued = Vec::with_capacity(order.len() + behind.len());
        for op in order {
            issued.push(op);
            for &(window, set) in behind.get(&op).into_iter().flatten() {
                issued.push(self.sum(window, set, op));
            }
        }
        issued
    }

    fn sum(&mut self, window: Window, set: usize, behind: OpId) -> OpId {
        let Set { part, ranks, gradients } = &self.sets[set];
        let (program, dtype) = (&mut *self.program, self.training.precision.gradient);
        let collective = *self.known.entry((ranks.clone(), window, *part)).or_insert_with(|| {
            let bytes: Bytes = gradients.iter().map(|&gradient| program.bytes(gradient)).sum();
            let (training, all) = (self.training, self.training.mesh.size(Axis::Tensor));
            let place = |rank| training.mesh.coordinate(rank, Axis::Tensor);
            let number = |rank| (super::group_number(training, rank) * all + place(rank)) / ranks.len();
            let kind = if ranks.len() == all { "tp" } else { "kv" };
            let group = program.group(Group::new(&training.folding, kind, Some(&number), ranks));
            let (kind, label, padding) = (CollectiveKind::AllReduce, format!("{part} gradients"), Bytes::ZERO);
            program.collective(Collective { group, kind, label, step: window.0, bytes, dtype, padding, shards: 1 })
        });
        let stream = program.communication_stream("tp");
        let origin = Origin { pass: PassName::TensorParallel, ..program.op(behind).origin };
        program.add((self.rank, stream), OpKind::Collective(collective), (gradients, gradients), origin)
    }
}
