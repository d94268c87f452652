//! Shared parameters are gathered before a unit computes, and freed behind it: forward, and once more backward.
//!
//! While a unit computes, the next ones are gathered on a stream of their own. How many units lie gathered at a time is what prefetching
//! costs, and `in_flight` bounds it. A unit that is kept from forward to backward saves its second gather, and takes its memory meanwhile;
//! one that is cut among a few neighbours takes a part of it, and the second gather stays among those. FSDP's stages keep it for all
//! micro-batches of a step.
//!
//! Source: Zhao et al. 2023, "PyTorch FSDP: experiences on scaling fully sharded data parallel", arXiv 2304.11277.

use std::collections::BTreeMap;

use crate::base::{BufferId, CollectiveId, OpId, ParameterId, Rank, StreamId};
use crate::compile::Build;
use crate::program::plan::{Pass, Slot};
use crate::program::tables::{COMPUTE, Collective, CollectiveKind};
use crate::program::{Kernel, KernelCost, Name, OpKind, Origin, PassName, Program};
use crate::scenario::{Reshard, Training};

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
    for (rank, whole) in training.followed() {
        let order = std::mem::take(&mut program.order[rank.index()]);
        let seat = training.seat(whole);
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
    /// Where it begins and ends in the rank's list.
    first: usize,
    last: usize,
}

/// How a unit lies between its uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// In shards of all ranks of a copy.
    Cut,
    /// In larger shards of a few neighbours.
    Near,
    Whole,
}

/// A gather to come.
#[derive(Clone, Copy)]
struct Gather {
    place: usize,
    step: u32,
    /// Where it is issued in the rank's list.
    at: usize,
    /// What it puts together.
    from: Lies,
}

/// A unit to be cut among neighbours, behind the op at `behind`.
#[derive(Clone, Copy)]
struct Cut {
    place: usize,
    behind: usize,
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
        let (gathers, cuts) = self.gathers(&uses);
        let (mut gathers, mut cuts) = (gathers.into_iter().enumerate().peekable(), cuts.into_iter().peekable());
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
            // Collectives become messages: nobody can wait for them.
            if self.program.stream_of(op) == COMPUTE {
                before = Some(op);
            }
            while let Some(cut) = cuts.next_if(|cut| cut.behind == at) {
                issued.extend(self.cut(cut, op));
            }
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
            let mut of_slot = uses.iter_mut().rev().take_while(|one| (one.slot, one.step) == (slot, step));
            match of_slot.find(|one| one.place == place) {
                Some(one) => one.last = first,
                None => uses.push(Use { place, step, slot, first, last: first }),
            }
        }
        uses
    }

    /// One gather for each use that does not find its unit gathered, so many uses ahead as the scenario allows, within the step. And what
    /// is cut among neighbours behind a forward.
    fn gathers(&self, uses: &[Use]) -> (Vec<Gather>, Vec<Cut>) {
        let fsdp = self.training.fsdp;
        let behind_forward = match fsdp.reshard_after_forward {
            Reshard::Keep => Lies::Whole,
            Reshard::To(_) if self.sharing.near(self.training).is_some() => Lies::Near,
            Reshard::Free | Reshard::To(_) => Lies::Cut,
        };
        let stays = behind_forward == Lies::Whole && self.training.accumulates_whole();
        let ahead = fsdp.prefetch.min(fsdp.in_flight - 1);
        let mut step = 0;
        // How every unit lies, and from where on in the list.
        let mut units = vec![(Lies::Cut, 0); self.sharing.units[self.seat].len()];
        let (mut gathers, mut cuts): (Vec<Gather>, Vec<Cut>) = (Vec::new(), Vec::new());
        for (number, one) in uses.iter().enumerate() {
            if one.step != step {
                // The optimizer has updated the shards.
                units.fill((Lies::Cut, 0));
                step = one.step;
            }
            let (lies, since) = &mut units[one.place];
            let is_forward = one.slot.pass == Pass::F;
            // A pass for the weights alone needs none of them.
            if *lies != Lies::Whole && one.slot.pass != Pass::W {
                let earlier = &uses[number.saturating_sub(ahead)..=number];
                let at = earlier.iter().find(|earlier| earlier.step == one.step).map_or(one.first, |earlier| earlier.first);
                // Gathers are issued in the order of their uses, and none before what it gathers is there.
                let latest = gathers.last().map_or(0, |gather| gather.at);
                gathers.push(Gather { place: one.place, step: one.step, at: at.max(*since).max(latest), from: *lies });
                if is_forward && *lies == Lies::Cut && behind_forward == Lies::Near {
                    cuts.push(Cut { place: one.place, behind: one.last });
                    *since = one.last + 1;
                }
            }
            *lies = if is_forward || stays { behind_forward } else { Lies::Cut };
            if *lies == Lies::Cut {
                *since = 0;
            }
        }
        cuts.sort_by_key(|cut| cut.behind);
        (gathers, cuts)
    }

    /// Keeps the rank's part of a gathered unit, cut among its neighbours.
    fn cut(&mut self, cut: Cut, last: OpId) -> Option<OpId> {
        let near = self.held.shards[cut.place].near?;
        let whole = self.held.of(&self.sharing.units[self.seat][cut.place].parameters, |copies| copies.parameter);
        let bytes = 2 * self.program.bytes(near).0;
        let kernel = self.program.kernel(KernelCost { bytes, ..KernelCost::free(Kernel::TakeShard) });
        let origin = Origin { slot: None, pass: PassName::Gather, ..self.program.op(last).origin };
        Some(self.program.add((self.rank, COMPUTE), OpKind::Run(kernel), (&whole, &[near]), origin))
    }

    /// Puts the shards of all ranks of a copy together, or those of neighbours.
    fn gather(&mut self, number: usize, gather: Gather) -> OpId {
        let (program, unit) = (&mut *self.program, &self.sharing.units[self.seat][gather.place]);
        let copies = &self.held.shards[gather.place];
        let near = self.sharing.near(self.training).filter(|_| gather.from == Lies::Near);
        let (meeting, shard) = near.map_or((Meeting::Copy, copies.parameter), |ranks| (Meeting::Near(ranks), copies.near));
        let shards = near.unwrap_or(unit.shards);
        let members = self.sharing.members(self.training, (self.rank, gather.place), meeting);
        let id = *self.known.entry((members[0], number)).or_insert_with(|| {
            let dtype = self.training.precision.parameter;
            let padded = unit.elements(program).div_ceil(shards) * shards;
            let group = program.group(self.sharing.group(self.training, (&members, gather.place), meeting));
            program.collective(Collective {
                group,
                kind: CollectiveKind::AllGather,
                label: unit.label.clone(),
                step: gather.step,
                bytes: bytes(padded, dtype),
                dtype,
                padding: bytes(padded - unit.elements(program), dtype),
                shards: 1,
            })
        });
        let shard = shard.expect("a shard for each unit");
        let whole = self.held.of(&unit.parameters, |copies| copies.parameter);
        let origin = Origin { slot: None, step: gather.step, pass: PassName::Gather };
        program.add((self.rank, self.stream), OpKind::Collective(id), (&[shard], &whole), origin)
    }
}
