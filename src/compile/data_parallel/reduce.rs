//! Gradients are summed over the ranks, unit by unit, as soon as backward has made a unit's last one.
//!
//! Whole gradients are all-reduced once a step. Shared gradients are reduce-scattered every micro-batch, and each rank adds up its shard:
//! with G micro-batches that is G times the traffic, and the reason why ZeRO-2 costs more than ZeRO-1 as soon as gradients accumulate.
//! In hybrid sharding the copies then all-reduce their shards. All of it runs on a stream of its own, beside the backward of earlier
//! layers; without overlap it is issued behind the whole backward.

use std::collections::BTreeMap;

use crate::base::{BufferId, Bytes, CollectiveId, OpId, Rank, StreamId};
use crate::compile::{Build, trouble};
use crate::program::tables::{COMPUTE, Collective, CollectiveKind};
use crate::program::{Kernel, KernelCost, OpKind, Origin, PassName, Program};
use crate::scenario::Training;

use super::{Held, Meeting, Sharing, bytes};

/// Inserts the sums of every step.
pub(in crate::compile) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let (program, Some(sharing)) = (&mut build.program, &build.sharing) else { return };
    if sharing.data == 1 {
        return;
    }
    let stream = program.communication_stream("dp");
    let early = trouble::sums_early(build.scenario, training);
    let mut meetings = Meetings { training, sharing, known: BTreeMap::new() };
    for (rank, whole) in training.followed() {
        let order = std::mem::take(&mut program.order[rank.index()]);
        let seat = training.seat(whole);
        let mut walk = Walk { program, meetings: &mut meetings, held: &build.held[rank.index()], rank, seat, stream, early };
        let issued = walk.insert(&order);
        program.order[rank.index()] = issued;
    }
}

/// When gradients are summed: behind the last micro-batch of a step, or behind each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    step: u32,
    micro_batch: u32,
}

/// One sum to come: the unit at `place` of its stage.
#[derive(Clone, Copy)]
struct Sum {
    window: Window,
    place: usize,
    /// Where backward begins and where it has made the unit's gradients, in the rank's list.
    first: usize,
    last: usize,
    /// No later micro-batch of its step adds to it.
    is_last: bool,
}

/// One rank, while its sums are inserted.
struct Walk<'a, 'b> {
    program: &'a mut Program,
    meetings: &'a mut Meetings<'b>,
    held: &'a Held,
    rank: Rank,
    seat: usize,
    stream: StreamId,
    /// Trouble: only the first micro-batch of a step is waited for.
    early: bool,
}

impl Walk<'_, '_> {
    /// The ops of the rank, with its sums between them.
    fn insert(&mut self, order: &[OpId]) -> Vec<OpId> {
        let sums = self.sums(order);
        let mut starting = sums.clone();
        starting.sort_by_key(|sum| sum.first);
        let mut starting = starting.into_iter().peekable();
        let mut ready = sums.into_iter().peekable();
        let mut issued = Vec::with_capacity(order.len() * 5 / 4);
        let mut after = None;
        for (place, &op) in order.iter().enumerate() {
            while let Some(sum) = starting.next_if(|sum| sum.first == place) {
                issued.extend(self.zero(&sum, op));
            }
            issued.push(op);
            // Sums of slices become messages: nobody can wait for them.
            if self.program.stream_of(op) == COMPUTE {
                after = Some(op);
            }
            while let Some(sum) = ready.next_if(|sum| sum.last == place) {
                self.sum(&sum, after, &mut issued);
            }
        }
        issued
    }

    /// The sums of all steps, in the order in which they are issued: the same order on every rank.
    fn sums(&self, order: &[OpId]) -> Vec<Sum> {
        let units = &self.meetings.sharing.units[self.seat];
        let mut place_of: BTreeMap<BufferId, usize> = BTreeMap::new();
        for (place, unit) in units.iter().enumerate() {
            place_of.extend(unit.parameters.iter().map(|&parameter| (self.held.target(parameter), place)));
        }
        let mut sums: BTreeMap<(Window, usize), Sum> = BTreeMap::new();
        let mut ends: BTreeMap<Window, usize> = BTreeMap::new();
        for (at, &op) in order.iter().enumerate() {
            let view = self.program.op(op);
            let Some(slot) = view.origin.slot.filter(|slot| !self.early || slot.micro_batch == 0) else { continue };
            let micro_batch = if self.meetings.sharing.every_micro_batch { slot.micro_batch } else { 0 };
            let window = Window { step: view.origin.step, micro_batch };
            let mut touched: Vec<usize> = view.writes.iter().filter_map(|buffer| place_of.get(buffer).copied()).collect();
            touched.dedup();
            for place in touched {
                let sum = sums.entry((window, place)).or_insert(Sum { window, place, first: at, last: at, is_last: false });
                sum.last = at;
                ends.insert(window, at);
            }
        }
        let mut sums: Vec<Sum> = sums.into_values().collect();
        let mut latest: BTreeMap<(u32, usize), usize> = BTreeMap::new();
        for sum in &sums {
            let latest = latest.entry((sum.window.step, sum.place)).or_default();
            *latest = sum.last.max(*latest);
        }
        sums.iter_mut().for_each(|sum| sum.is_last = latest[&(sum.window.step, sum.place)] == sum.last);
        self.in_order(sums, &ends)
    }

    /// Buckets leave in their own order, as PyTorch's reducer sends them, layers as they come; without overlap all leave at the end.
    fn in_order(&self, mut sums: Vec<Sum>, ends: &BTreeMap<Window, usize>) -> Vec<Sum> {
        let Meetings { training, sharing, .. } = *self.meetings;
        if sharing.row.parameters {
            sums.sort_by_key(|sum| (sum.window, sum.last));
        }
        // Those of experts have buckets of their own.
        let mut latest: BTreeMap<(Window, usize), usize> = BTreeMap::new();
        for sum in &mut sums {
            let latest = latest.entry((sum.window, sharing.replicas(self.seat, sum.place).apart)).or_default();
            *latest = (*latest).max(if training.data_parallel.overlap { sum.last } else { ends[&sum.window] });
            sum.last = *latest;
        }
        sums.sort_by_key(|sum| sum.last);
        sums
    }

    /// Fresh gradients start at zero, where backward begins with them.
    fn zero(&mut self, sum: &Sum, first: OpId) -> Option<OpId> {
        let unit = &self.meetings.sharing.units[self.seat][sum.place];
        let fresh = self.held.of(&unit.parameters, |copies| copies.fresh);
        let origin = Origin { pass: PassName::DataParallel, ..self.program.op(first).origin };
        let kernel = self.program.kernel(KernelCost::free(Kernel::ZeroGradients));
        (!fresh.is_empty()).then(|| self.program.add((self.rank, COMPUTE), OpKind::Run(kernel), (&[], &fresh), origin))
    }

    /// Sums one unit's gradients over the ranks; without overlap, when computation is `after` the whole backward.
    fn sum(&mut self, sum: &Sum, after: Option<OpId>, issued: &mut Vec<OpId>) {
        let Meetings { training, sharing, .. } = *self.meetings;
        let unit = &sharing.units[self.seat][sum.place];
        let targets: Vec<BufferId> = unit.parameters.iter().map(|&parameter| self.held.target(parameter)).collect();
        let kept = self.held.of(&unit.parameters, |copies| copies.gradient);
        let origin = Origin { slot: None, step: sum.window.step, pass: PassName::DataParallel };
        let first = issued.len();
        if !sharing.row.optimizer || (!sharing.row.gradients && !sum.is_last) {
            // Who alone has its experts has their whole gradients.
            if sharing.replicas(self.seat, sum.place).data > 1 {
                let all_reduce = self.collective(sum, Meeting::All);
                issued.push(self.add(OpKind::Collective(all_reduce), (&targets, &targets), origin));
            }
            if targets != kept {
                issued.push(self.accumulate(&kept, &targets, origin));
            }
        } else {
            self.scatter(sum, (&targets, &kept), origin, issued);
        }
        if let (Some(after), Some(&first), false) = (after, issued.get(first), training.data_parallel.overlap) {
            self.program.wait(first, after);
        }
    }

    /// Leaves each rank its shard of the sum, which it adds to its shard of the step's gradients.
    fn scatter(&mut self, sum: &Sum, (targets, kept): (&[BufferId], &[BufferId]), origin: Origin, issued: &mut Vec<OpId>) {
        let shard = self.held.shards[sum.place];
        let gradient = shard.gradient.expect("a shard for each unit");
        let result = shard.fresh.unwrap_or(gradient);
        let scatter = self.collective(sum, Meeting::Copy);
        issued.push(self.add(OpKind::Collective(scatter), (targets, &[result]), origin));
        if self.meetings.sharing.is_hybrid() {
            let all_reduce = self.collective(sum, Meeting::Replicas);
            issued.push(self.add(OpKind::Collective(all_reduce), (&[result], &[result]), origin));
        }
        if result == gradient {
            return;
        }
        if !kept.is_empty() {
            // Whole gradients of earlier micro-batches are summed already: the own part of them goes on.
            let take = self.kernel(Kernel::TakeShard, &[gradient], 0);
            issued.push(self.add(OpKind::Run(take), (kept, &[gradient]), origin));
        }
        issued.push(self.accumulate(&[gradient], &[result], origin));
    }

    /// Adds gradients of one micro-batch to those of the step.
    fn accumulate(&mut self, kept: &[BufferId], fresh: &[BufferId], origin: Origin) -> OpId {
        let kernel = self.kernel(Kernel::Accumulate, kept, 1);
        let reads = [kept, fresh].concat();
        self.add(OpKind::Run(kernel), (&reads, kept), origin)
    }

    fn kernel(&mut self, kernel: Kernel, buffers: &[BufferId], flops_per_element: u64) -> crate::base::KernelId {
        let bytes: Bytes = buffers.iter().map(|&buffer| self.program.bytes(buffer)).sum();
        let elements = bytes.0 / self.meetings.training.precision.gradient.size();
        self.program.kernel(KernelCost { flops: flops_per_element * elements, bytes: 3 * bytes.0, ..KernelCost::free(kernel) })
    }

    fn collective(&mut self, sum: &Sum, meeting: Meeting) -> CollectiveId {
        self.meetings.collective(self.program, (self.rank, self.seat), sum, meeting)
    }

    fn add(&mut self, kind: OpKind, operands: (&[BufferId], &[BufferId]), origin: Origin) -> OpId {
        self.program.add((self.rank, self.stream), kind, operands, origin)
    }
}

/// The collectives so far, by first rank of their group.
struct Meetings<'a> {
    training: &'a Training,
    sharing: &'a Sharing,
    known: BTreeMap<(Rank, Window, usize, Meeting), CollectiveId>,
}

impl Meetings<'_> {
    /// The collective in which `rank` meets others for a sum; the first of them to come makes it.
    fn collective(&mut self, program: &mut Program, (rank, seat): (Rank, usize), sum: &Sum, meeting: Meeting) -> CollectiveId {
        let Self { training, sharing, .. } = *self;
        let members = sharing.members(training, (rank, sum.place), meeting);
        *self.known.entry((members[0], sum.window, sum.place, meeting)).or_insert_with(|| {
            let unit = &sharing.units[seat][sum.place];
            let (all, shard) = (unit.elements(program), unit.shard_elements(program));
            let padding = shard * unit.shards - all;
            let (kind, elements, padding, shards) = match meeting {
                Meeting::All => (CollectiveKind::AllReduce, all, 0, 1),
                Meeting::Copy => (CollectiveKind::ReduceScatter, shard * unit.shards, padding, 1),
                Meeting::Replicas | Meeting::Near(_) => (CollectiveKind::AllReduce, shard, padding, unit.shards),
            };
            let dtype = training.precision.gradient;
            let group = program.group(sharing.group(training, (&members, sum.place), meeting));
            let (label, step) = (unit.label.clone(), sum.window.step);
            let (bytes, padding) = (bytes(elements, dtype), bytes(padding, dtype));
            program.collective(Collective { group, kind, label, step, bytes, dtype, padding, shards })
        })
    }
}
