//! Shared parameters are gathered before a unit computes, and freed behind it: forward, and once more backward.
//!
//! While a unit computes, the next ones are gathered on a stream of their own. How many units lie gathered at a time is what prefetching
//! costs, and `in_flight` bounds it. A unit that is kept from forward to backward saves its second gather, and takes its memory meanwhile.
//!
//! Source: Zhao et al. 2023, "PyTorch FSDP: experiences on scaling fully sharded data parallel", arXiv 2304.11277.

use std::collections::BTreeMap;

use crate::base::{BufferId, CollectiveId, OpId, ParameterId, Rank, StreamId};
use crate::compile::Build;
use crate::program::plan::{Pass, Slot};
use crate::program::tables::{Collective, CollectiveKind};
use crate::program::{Name, OpKind, Origin, PassName, Program};
use crate::scenario::Training;

use super::{Held, Meeting, Sharing, bytes};

/// Inserts the gathers of every step.
pub(in crate::compile) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let (program, Some(sharing)) = (&mut build.program, &build.sharing) else { return };
    if !sharing.row.parameters {
        return;
    }
    let stream = program.communication_stream("dp.gather");
    let mut known = Known::new();
    for rank in (0..training.mesh.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        let seat = training.seat(rank);
        let held = &build.held[rank.index()];
        let mut walk = Walk { program, known: &mut known, training, sharing, held, rank, seat, stream };
        let issued = walk.insert(&order);
        program.order[rank.index()] = issued;
    }
}

/// The gathers so far, by the first rank of their group, and number of the gather on each of its ranks.
type Known = BTreeMap<(Rank, usize), CollectiveId>;

/// A stretch of a rank's ops that works on one unit: all ops of a slot that read its parameters or make its gradients. An embedding's
/// backward makes gradients without reading parameters, and FSDP gathers them all the same: its hooks do not know what a layer needs.
#[derive(Clone, Copy)]
struct Use {
    /// The unit's place in its stage.
    place: usize,
    step: u32,
    slot: Slot,
    /// Where it begins in the rank's list.
    first: usize,
}

/// A gather to come.
#[derive(Clone, Copy)]
struct Gather {
    place: usize,
    step: u32,
    /// Where it is issued in the rank's list.
    at: usize,
}

/// One rank, while its gathers are inserted.
struct Walk<'a> {
    program: &'a mut Program,
    known: &'a mut Known,
    training: &'a Training,
    sharing: &'a Sharing,
    held: &'a Held,
    rank: Rank,
    seat: usize,
    stream: StreamId,
}

impl Walk<'_> {
    /// The ops of the rank, with its gathers between them.
    fn insert(&mut self, order: &[OpId]) -> Vec<OpId> {
        let uses = self.uses(order);
        let mut gathers = self.gathers(&uses).into_iter().enumerate().peekable();
        let mut issued = Vec::with_capacity(order.len() * 5 / 4);
        let mut before: Option<OpId> = None;
        for (at, &op) in order.iter().enumerate() {
            while let Some((number, gather)) = gathers.next_if(|(_, gather)| gather.at == at) {
                let all_gather = self.gather(number, gather);
                // The host issues it when computation has come here: no gather runs further ahead.
                before.into_iter().for_each(|before| self.program.wait(all_gather, before));
                issued.push(all_gather);
            }
            issued.push(op);
            before = Some(op);
        }
        issued
    }

    /// Who works on which unit, in order.
    fn uses(&self, order: &[OpId]) -> Vec<Use> {
        let units = self.sharing.units[self.seat].iter().enumerate();
        let place_of: BTreeMap<ParameterId, usize> =
            units.flat_map(|(place, unit)| unit.parameters.iter().map(move |&parameter| (parameter, place))).collect();
        let mut uses: Vec<Use> = Vec::new();
        for (first, &op) in order.iter().enumerate() {
            let view = self.program.op(op);
            let unit = |buffer: &BufferId| match self.program.buffers[buffer.index()].name {
                Name::Parameter(parameter) | Name::Unreduced(parameter) => place_of.get(&parameter).copied(),
                _ => None,
            };
            let (Some(place), Some(slot)) = (view.reads.iter().find_map(unit), view.origin.slot) else { continue };
            let step = view.origin.step;
            let mut of_slot = uses.iter().rev().take_while(|one| (one.slot, one.step) == (slot, step));
            if !of_slot.any(|one| one.place == place) {
                uses.push(Use { place, step, slot, first });
            }
        }
        uses
    }

    /// One gather for each use that does not find its unit gathered, so many uses ahead as the scenario allows, within the step.
    fn gathers(&self, uses: &[Use]) -> Vec<Gather> {
        let fsdp = self.training.fsdp;
        let ahead = fsdp.prefetch.min(fsdp.in_flight - 1);
        let mut is_gathered = vec![false; self.sharing.units[self.seat].len()];
        let mut gathers = Vec::new();
        for (number, one) in uses.iter().enumerate() {
            // A pass for the weights alone needs none of them.
            if !is_gathered[one.place] && one.slot.pass != Pass::W {
                let earlier = &uses[number.saturating_sub(ahead)..=number];
                let at = earlier.iter().find(|earlier| earlier.step == one.step).map_or(one.first, |earlier| earlier.first);
                gathers.push(Gather { place: one.place, step: one.step, at });
            }
            is_gathered[one.place] = one.slot.pass == Pass::F && !fsdp.reshard_after_forward;
        }
        gathers
    }

    /// Puts the shards of all ranks of a copy together.
    fn gather(&mut self, number: usize, gather: Gather) -> OpId {
        let (program, unit) = (&mut *self.program, &self.sharing.units[self.seat][gather.place]);
        let group = self.sharing.group(self.training, self.rank, Meeting::Copy);
        let id = *self.known.entry((group.ranks[0], number)).or_insert_with(|| {
            let dtype = self.training.precision.parameter;
            let padded = unit.shard_elements(program) * unit.shards;
            let group = program.group(group);
            program.collective(Collective {
                group,
                kind: CollectiveKind::AllGather,
                label: unit.label.clone(),
                step: gather.step,
                bytes: bytes(padded, dtype),
                dtype,
                padding: bytes(padded - unit.elements(program), dtype),
            })
        });
        let shard = self.held.shards[gather.place].parameter.expect("a shard for each unit");
        let whole = self.held.of(&unit.parameters, |copies| copies.parameter);
        let origin = Origin { slot: None, step: gather.step, pass: PassName::Gather };
        program.add((self.rank, self.stream), OpKind::Collective(id), (&[shard], &whole), origin)
    }
}
