//! Where ranks that share tensors meet: an all-reduce in place; or a reduce-scatter to their own tokens, and a gather of all tokens. Columns of
//! all ranks stand as one tensor of each behind each other.

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::split::Seam;
use crate::base::{BufferId, Bytes, CollectiveId, Rank};
use crate::compile::lower::{Site, Walk};
use crate::compile::stages::PartTables;
use crate::program::tables::{Collective, CollectiveKind, Group};
use crate::program::{Flow, OpKind};
use crate::scenario::Training;

use super::layouts::payload;
use super::{group_number, shares_tokens};

/// One collective for each group, micro-batch of the run, module and pass.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::compile) struct Meeting {
    first: Rank,
    micro_batch: u32,
    module: Part,
    way: Way,
    /// The kind of collective, as a number.
    kind: usize,
}

/// Ranks that meet.
pub(in crate::compile) struct Circle {
    /// Who they are, among all ranks.
    pub all: Vec<Rank>,
    /// Their kind of group, which has a stream of its own.
    pub kind: &'static str,
    /// The number of a rank's group.
    pub number: fn(&Training, Rank) -> usize,
    /// The micro-batch, by a number that all of them know.
    pub micro_batch: u32,
}

/// The pass in which ranks meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::compile) enum Way {
    Forward,
    /// Forward once more, for backward.
    Again,
    BackwardInput,
    BackwardWeight,
}

impl Walk<'_> {
    /// What is needed next of `value`, which `module` made forward or, backward, which is the gradient of what it made.
    pub(super) fn join(&mut self, site: Site, part: &PartTables, at: (Module, Way), value: BufferId) -> BufferId {
        let kind = match self.seam(at) {
            Seam::None => return value,
            Seam::Sum => return self.leave(site, part, at, value, None),
            Seam::Columns => CollectiveKind::AllGather,
            Seam::ColumnsOfSum => CollectiveKind::ReduceScatter,
        };
        let to = self.joined(site, part, at);
        self.meet(site, part, at, kind, (value, to));
        to
    }

    /// Where that stands.
    pub(super) fn joined(&mut self, site: Site, part: &PartTables, (module, way): (Module, Way)) -> BufferId {
        match self.seam((module, way)) {
            Seam::Columns | Seam::ColumnsOfSum => self.met(site, part, (module, way)),
            Seam::None | Seam::Sum if way == Way::BackwardInput => self.inside(site, part, Flow::OutputGradient, module),
            Seam::None | Seam::Sum => self.inside(site, part, Flow::Output, module),
        }
    }

    fn seam(&self, (module, way): (Module, Way)) -> Seam {
        let split = self.training.split();
        if way == Way::BackwardInput { split.behind_gradient(module) } else { split.behind(module) }
    }

    /// The sum of what `module` left each rank a part of; in `to`, or where the pass puts it, with tokens shared out.
    pub(in crate::compile) fn leave(
        &mut self,
        site: Site,
        part: &PartTables,
        (module, way): (Module, Way),
        value: BufferId,
        to: Option<BufferId>,
    ) -> BufferId {
        if !self.is_shared() {
            return value;
        }
        if !shares_tokens(self.training) {
            self.meet(site, part, (module, way), CollectiveKind::AllReduce, (value, value));
            return value;
        }
        let to = to.unwrap_or_else(|| self.met(site, part, (module, way)));
        self.meet(site, part, (module, way), CollectiveKind::ReduceScatter, (value, to));
        to
    }

    /// All tokens of `value`, which belongs to `module`.
    pub(in crate::compile) fn enter(
        &mut self,
        site: Site,
        part: &PartTables,
        (module, way): (Module, Way),
        value: BufferId,
    ) -> BufferId {
        if !shares_tokens(self.training) {
            return value;
        }
        self.gather(site, part, (module, way), value)
    }

    /// What all ranks have of `value`, behind each other.
    pub(super) fn gather(&mut self, site: Site, part: &PartTables, (module, way): (Module, Way), value: BufferId) -> BufferId {
        if !self.is_shared() {
            return value;
        }
        let to = self.met(site, part, (module, way));
        self.gather_to(site, part, (module, way), (value, to));
        to
    }

    /// The same, put where it is wanted.
    pub(in crate::compile) fn gather_to(
        &mut self,
        site: Site,
        part: &PartTables,
        at: (Module, Way),
        (value, to): (BufferId, BufferId),
    ) {
        self.meet(site, part, at, CollectiveKind::AllGather, (value, to));
    }

    /// Whether several ranks share the tensors: those with slices of sequences may each have all of them.
    fn is_shared(&self) -> bool {
        self.training.mesh.size(Axis::Tensor) > 1
    }

    /// Where what the ranks have met for is put.
    fn met(&mut self, site: Site, part: &PartTables, (module, way): (Module, Way)) -> BufferId {
        let flow = if way == Way::BackwardInput { Flow::TokensGradient } else { Flow::Tokens };
        self.inside(site, part, flow, module)
    }

    /// Meets the ranks that share tensors.
    fn meet(
        &mut self,
        site: Site,
        part: &PartTables,
        at: (Module, Way),
        kind: CollectiveKind,
        (read, written): (BufferId, BufferId),
    ) {
        let all = self.training.mesh.group(self.training.folding.unfold(site.rank, 0), Axis::Tensor);
        let circle = Circle { all, kind: "tp", number: group_number, micro_batch: site.global };
        let bytes = payload(self.program, read, written);
        self.meet_in(circle, (site, part, at), (kind, bytes), (read, written));
    }

    /// Meets the ranks of `circle`, if there are others; so many bytes are moved.
    pub(in crate::compile) fn meet_in(
        &mut self,
        Circle { all, kind: of, number, micro_batch }: Circle,
        (site, part, (module, way)): (Site, &PartTables, (Module, Way)),
        (kind, bytes): (CollectiveKind, Bytes),
        (read, written): (BufferId, BufferId),
    ) {
        if all.len() == 1 {
            return;
        }
        let module = part.module(module).part;
        let meeting = Meeting { first: all[0], micro_batch, module, way, kind: kind as usize };
        let (program, training, step) = (&mut *self.program, self.training, site.origin.step);
        let layout = program.buffers[read.index()].layout;
        let dtype = program.layouts[layout.index()].parts.first().map_or(self.training.precision.parameter, |part| part.dtype);
        let collective: CollectiveId = *self.meetings.entry(meeting).or_insert_with(|| {
            let group = *self
                .groups
                .entry((of, all[0]))
                .or_insert_with(|| program.group(Group::new(&training.folding, of, Some(&|rank| number(training, rank)), &all)));
            let (label, padding) = (module.to_string(), Bytes::ZERO);
            program.collective(Collective { group, kind, label, step, bytes, dtype, padding, shards: 1 })
        });
        let stream = program.communication_stream(of);
        program.append((site.rank, stream), OpKind::Collective(collective), (&[read], &[written]), site.origin);
    }
}
