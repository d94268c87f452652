//! Recomputation: forward forgets what backward can compute again, just before it needs it.
//!
//! Fully recomputed, a layer keeps its input alone, and its forward runs twice: a third more work for a step. Selectively, it keeps all but
//! the attention core, whose scores and masks grow with the square of the sequence and are cheap to compute again. Source: Korthikanti
//! et al. 2022, "Reducing activation recomputation in large transformer models", arXiv 2205.05198.
//!
//! With dropout, forward leaves word where its random numbers stood, and what computes a layer again takes them up from there: else it would
//! drop other elements. These numbers are counted (seed, place, element), so the state is the seed and a number.

use std::collections::BTreeMap;

use crate::base::model::Part;
use crate::base::{BufferId, Dtype, LayoutId, OpId, Rank};
use crate::program::tables::{COMPUTE, Layout, TensorPart};
use crate::program::{Kernel, KernelCost, Name, OpKind, Origin, PassName, Program, Role};
use crate::scenario::{Recompute, Training};

use super::{Build, stages};

/// Takes back what forward keeps, and inserts the ops that compute it again.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    if training.recompute.mode == Recompute::None {
        return;
    }
    let program = &mut build.program;
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        let mut walk = Walk {
            program,
            training,
            rank,
            forwards: BTreeMap::new(),
            again: BTreeMap::new(),
            states: BTreeMap::new(),
            issued: Vec::new(),
        };
        order.into_iter().for_each(|op| walk.op(op));
        let issued = walk.issued;
        program.order[rank.index()] = issued;
    }
}

/// One rank's ops, while some are made to be computed again.
struct Walk<'a> {
    program: &'a mut Program,
    training: &'a Training,
    rank: Rank,
    /// By what it saves: the forward of a layer that is fully recomputed.
    forwards: BTreeMap<BufferId, OpId>,
    /// By what is left of it: where the attention core is computed again.
    again: BTreeMap<BufferId, BufferId>,
    /// By what a layer saves: the word that forward leaves of its random numbers.
    states: BTreeMap<BufferId, BufferId>,
    issued: Vec<OpId>,
}

impl Walk<'_> {
    fn op(&mut self, op: OpId) {
        let OpKind::Run(kernel) = self.program.kind(op) else { return self.issued.push(op) };
        let kernel = self.program.kernels[kernel.index()];
        let (Kernel::Forward(part) | Kernel::BackwardInput(part) | Kernel::BackwardWeight(part)) = kernel.kernel else {
            return self.issued.push(op);
        };
        match (self.training.recomputes(part), kernel.kernel) {
            (Recompute::Full, Kernel::Forward(_)) => self.keep_the_input(op),
            (Recompute::Full, Kernel::BackwardInput(_)) => self.run_forward_again(op, part, kernel.shares),
            (Recompute::Selective, Kernel::Forward(_)) => self.forget_the_core(op, part),
            (Recompute::Selective, Kernel::BackwardInput(_)) => self.run_the_core_again(op, part, kernel.shares),
            (Recompute::Selective, _) => self.read_the_core(op, 0),
            (Recompute::None | Recompute::Full, _) => {}
        }
        self.issued.push(op);
    }

    /// Forward writes the layer's output alone.
    fn keep_the_input(&mut self, op: OpId) {
        let (reads, writes) = (self.program.reads(op).to_vec(), self.program.writes(op).to_vec());
        let state = self.random_state(writes[1]);
        let kept: Vec<BufferId> = writes[..1].iter().copied().chain(state).collect();
        self.program.set_operands(op, (&reads, &kept));
        self.forwards.insert(writes[1], op);
    }

    /// Where forward leaves word of the random numbers with which it made `saved`.
    fn random_state(&mut self, saved: BufferId) -> Option<BufferId> {
        if self.training.model.dropout == 0.0 || !self.training.recompute.preserve_rng_state {
            return None;
        }
        let Name::Saved(place, micro_batch) = self.program.buffers[saved.index()].name else { return None };
        let word = |name: &str| TensorPart { name: name.to_owned(), dtype: Dtype::U32, dims: vec![1] };
        let layout = self.program.layout(Layout { parts: vec![word("seed"), word("first sample")] });
        let state = self.program.buffer(self.rank, Name::RandomState(place, micro_batch), Role::Activation, layout);
        self.states.insert(saved, state);
        Some(state)
    }

    /// Before backward: the same as forward did, this time for what it saves.
    fn run_forward_again(&mut self, backward: OpId, part: Part, shares: u32) {
        let saved = self.program.reads(backward)[1];
        let mut reads = self.program.reads(self.forwards[&saved]).to_vec();
        reads.extend(self.states.get(&saved));
        self.insert(backward, Kernel::Recompute(part), shares, (&reads, &[saved]));
    }

    /// Forward keeps all but the attention core.
    fn forget_the_core(&mut self, op: OpId, part: Part) {
        let saved = self.program.writes(op)[1];
        let (rest, core) = self.cut(part);
        let Name::Saved(place, micro_batch) = self.program.buffers[saved.index()].name else { return };
        self.program.buffers[saved.index()].layout = rest;
        let again = self.program.buffer(self.rank, Name::Recomputed(place, micro_batch), Role::Activation, core);
        self.again.insert(saved, again);
        if let Some(state) = self.random_state(saved) {
            let (reads, mut writes) = (self.program.reads(op).to_vec(), self.program.writes(op).to_vec());
            writes.push(state);
            self.program.set_operands(op, (&reads, &writes));
        }
    }

    /// Before backward: the attention core, from queries, keys and values.
    fn run_the_core_again(&mut self, backward: OpId, part: Part, shares: u32) {
        let saved = self.program.reads(backward)[1];
        let again = self.again[&saved];
        let reads: Vec<BufferId> = std::iter::once(saved).chain(self.states.get(&saved).copied()).collect();
        self.insert(backward, Kernel::RecomputeAttention(part), shares, (&reads, &[again]));
        self.read_the_core(backward, 1);
    }

    /// Backward reads the core beside the rest, which it reads at `place`.
    fn read_the_core(&mut self, op: OpId, place: usize) {
        let (mut reads, writes) = (self.program.reads(op).to_vec(), self.program.writes(op).to_vec());
        reads.push(self.again[&reads[place]]);
        self.program.set_operands(op, (&reads, &writes));
    }

    fn insert(&mut self, before: OpId, kernel: Kernel, shares: u32, operands: (&[BufferId], &[BufferId])) {
        let cost: KernelCost = stages::cost(self.training, kernel, shares);
        let kernel = self.program.kernel(cost);
        let origin = Origin { pass: PassName::Recompute, ..self.program.op(before).origin };
        let op = self.program.add((self.rank, COMPUTE), OpKind::Run(kernel), operands, origin);
        self.issued.push(op);
    }

    /// The layouts of what a layer saves beside the attention core, and of the core.
    fn cut(&mut self, part: Part) -> (LayoutId, LayoutId) {
        let (core, rest): (Vec<_>, Vec<_>) = stages::saved(self.training, part).into_iter().partition(|tensor| tensor.core);
        let dtype = self.training.precision.parameter;
        let mut layout = |tensors| self.program.layout(stages::bundle(tensors, dtype));
        (layout(rest), layout(core))
    }
}
