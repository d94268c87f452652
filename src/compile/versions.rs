//! Versions of weights: in a pipeline that is never drained weights change between a micro-batch's forward and its backward.
//!
//! Backward must use the weights that forward used. So an update that would overwrite weights that a micro-batch under way still needs
//! stashes them first, and that micro-batch reads the stash. Which version a micro-batch uses is all that the two kinds differ in: the newest
//! at its forward, or that from before the last update.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::model::Part;
use crate::base::{BufferId, OpId, ParameterId, Rank, Updates};
use crate::program::plan::{Pass, Slot};
use crate::program::tables::COMPUTE;
use crate::program::trouble::TroubleKind;
use crate::program::{Kernel, KernelCost, Name, OpKind, Origin, PassName, Program, Role, head};

use super::Build;

/// Inserts the stashes, and lets late micro-batches read them.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    if !training.pipeline.updates.is_asynchronous() {
        return;
    }
    let forgets = forgetful(build);
    let program = &mut build.program;
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        let mut walk = Walk::new(training.pipeline.updates, &forgets);
        order.iter().for_each(|&op| walk.note(program, op));
        let stashed: BTreeSet<(Part, u32)> = walk.late.iter().map(|&(_, part, version)| (part, version)).collect();
        let mut stash = Stash { program, rank, copies: BTreeMap::new() };
        for &(op, _, version) in &walk.late {
            stash.read(op, version);
        }
        let updates = walk.overwritten.into_iter();
        let copied: BTreeMap<OpId, (Part, u32)> = updates.filter(|(_, version)| stashed.contains(version)).collect();
        for op in order {
            if let Some(&(part, version)) = copied.get(&op) {
                let copy = stash.before(op, part, version);
                stash.program.order[rank.index()].push(copy);
            }
            stash.program.order[rank.index()].push(op);
        }
    }
}

/// The backward ops that trouble lets use the newest weights. A rule that meets one is spent.
fn forgetful(build: &mut Build) -> BTreeSet<OpId> {
    let (program, rules) = (&build.program, &build.scenario.trouble);
    let mut forgets = BTreeSet::new();
    build.trouble.retain(|&index| {
        let rule = &rules[index];
        let is_backward = |op: &OpId| program.op(*op).origin.slot.is_some_and(|slot| slot.pass != Pass::F);
        let before = forgets.len();
        if rule.kind == TroubleKind::NoStash {
            forgets.extend(program.all().filter(is_backward).filter(|&op| head::fits(program, op, rule)));
        }
        forgets.len() == before
    });
    forgets
}

/// A walk along a rank's ops that counts updates.
struct Walk<'a> {
    updates: Updates,
    forgets: &'a BTreeSet<OpId>,
    /// Per part, how often it has been updated.
    now: BTreeMap<Part, u32>,
    /// Per part and micro-batch, the version that its forward used.
    used: BTreeMap<(Part, u32), u32>,
    /// Ops that need a version which is no longer there.
    late: Vec<(OpId, Part, u32)>,
    /// Per update, the version that it overwrites.
    overwritten: Vec<(OpId, (Part, u32))>,
}

impl<'a> Walk<'a> {
    fn new(updates: Updates, forgets: &'a BTreeSet<OpId>) -> Self {
        Self { updates, forgets, now: BTreeMap::new(), used: BTreeMap::new(), late: Vec::new(), overwritten: Vec::new() }
    }

    fn note(&mut self, program: &Program, op: OpId) {
        let (Some(kernel), origin) = (program.kernel_of(op), program.op(op).origin) else { return };
        match (kernel, origin.slot) {
            (Kernel::Optimizer(part), _) => {
                let now = self.now.entry(part).or_default();
                self.overwritten.push((op, (part, *now)));
                *now += 1;
            }
            (Kernel::Forward(part) | Kernel::BackwardInput(part) | Kernel::Recompute(part), Some(slot)) => {
                let (now, wanted) = self.versions(part.whole(), slot, origin);
                if wanted < now && !self.forgets.contains(&op) {
                    self.late.push((op, part.whole(), wanted));
                }
            }
            _ => {}
        }
    }

    /// The version of `part` that is there, and the one that the micro-batch of `slot` uses.
    fn versions(&mut self, part: Part, slot: Slot, origin: Origin) -> (u32, u32) {
        let now = self.now.get(&part).copied().unwrap_or(0);
        let newest = match self.updates {
            Updates::EachStep | Updates::EachMicroBatch => now,
            Updates::Delayed => origin.step.saturating_sub(1),
        };
        (now, *self.used.entry((part, slot.micro_batch)).or_insert(newest))
    }
}

/// The stash of one rank.
struct Stash<'a> {
    program: &'a mut Program,
    rank: Rank,
    /// Per parameter and version.
    copies: BTreeMap<(ParameterId, u32), BufferId>,
}

impl Stash<'_> {
    /// Lets `op` read it in place of the parameters.
    fn read(&mut self, op: OpId, version: u32) {
        let (mut reads, writes) = (self.program.reads(op).to_vec(), self.program.writes(op).to_vec());
        for buffer in &mut reads {
            if let Some(parameter) = self.parameter(*buffer) {
                *buffer = self.copy(*buffer, parameter, version);
            }
        }
        self.program.set_operands(op, (&reads, &writes));
    }

    /// The op that copies what `update` is about to write over.
    fn before(&mut self, update: OpId, part: Part, version: u32) -> OpId {
        let writes = self.program.writes(update).to_vec();
        let parameters = writes.iter().filter_map(|&buffer| Some((buffer, self.parameter(buffer)?)));
        let parameters: Vec<(BufferId, ParameterId)> = parameters.collect();
        let reads: Vec<BufferId> = parameters.iter().map(|&(buffer, _)| buffer).collect();
        let copies: Vec<BufferId> =
            parameters.into_iter().map(|(buffer, parameter)| self.copy(buffer, parameter, version)).collect();
        let bytes = reads.iter().map(|&buffer| self.program.bytes(buffer).0).sum::<u64>();
        let kernel = self.program.kernel(KernelCost { bytes: 2 * bytes, ..KernelCost::free(Kernel::Stash(part)) });
        let origin = Origin { pass: PassName::Versions, ..self.program.op(update).origin };
        self.program.add((self.rank, COMPUTE), OpKind::Run(kernel), (&reads, &copies), origin)
    }

    fn parameter(&self, buffer: BufferId) -> Option<ParameterId> {
        match self.program.buffers[buffer.index()].name {
            Name::Parameter(parameter) => Some(parameter),
            _ => None,
        }
    }

    fn copy(&mut self, buffer: BufferId, parameter: ParameterId, version: u32) -> BufferId {
        let (rank, layout) = (self.rank, self.program.buffers[buffer.index()].layout);
        let program = &mut *self.program;
        let make = || program.buffer(rank, Name::Version(parameter.0, version), Role::Bucket, layout);
        *self.copies.entry((parameter, version)).or_insert_with(make)
    }
}
