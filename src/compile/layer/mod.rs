//! A layer that stands alone: attention whose sequence is cut up over context-parallel ranks, forward and backward.
//!
//! Every rank has the queries, keys and values of its own slice. How it comes by the others' keys and values is the method.

pub(super) mod all_gather;
pub(super) mod ring;
pub(super) mod ulysses;

use std::collections::BTreeMap;

use crate::base::context::{Attention, HeadShare, Pairs};
use crate::base::settings::{AttentionTensor, ContextMethod};
use crate::base::{BufferId, Bytes, CollectiveId, OpId, Rank};
use crate::program::tables::{COMPUTE, Collective, CollectiveKind, Group, Layout, TensorPart};
use crate::program::{Kernel, KernelCost, Name, OpKind, Origin, PassName, Program, Role};
use crate::scenario::Task;

use super::Build;

/// Forward multiplies twice, a score and its share of the output; backward five times.
const BACKWARD_PRODUCTS: [u64; 2] = [5, 2];

/// Makes all ops of the layer.
pub(super) fn run(build: &mut Build) {
    let Task::Layer(layer) = &build.scenario.task else { return };
    let mut stock = Stock::new(Some(&layer.attention));
    let mut work = Work {
        program: &mut build.program,
        stock: &mut stock,
        attention: layer.attention,
        ranks: (0..layer.attention.slices).map(Rank::new).collect(),
        of: None,
        origin: ORIGIN,
        share: HeadShare::All,
    };
    work.give();
    match layer.method {
        ContextMethod::Ring => ring::run(&mut work),
        ContextMethod::AllGather => all_gather::run(&mut work),
        ContextMethod::Ulysses => ulysses::run(&mut work),
    }
}

/// The program of an attention under construction. A rank is known by its slice.
pub(super) struct Work<'program> {
    pub program: &'program mut Program,
    pub stock: &'program mut Stock,
    pub attention: Attention,
    /// The ranks, by their slices.
    pub ranks: Vec<Rank>,
    /// Whose attention it is, of a training step: layer and micro-batch.
    pub of: Option<(u32, u32)>,
    pub origin: Origin,
    /// How many heads the kernels work on.
    pub share: HeadShare,
}

/// What several attentions of a program share: what their masks leave, buffers by rank and name, and the lines of rings by their first rank.
#[derive(Default)]
pub(super) struct Stock {
    pairs: Pairs,
    grain: u64,
    buffers: BTreeMap<(Rank, Name), BufferId>,
    lines: BTreeMap<(Rank, &'static str, usize), ring::Line>,
    collectives: BTreeMap<Meeting, CollectiveId>,
}

impl Stock {
    /// That of a program whose attentions are all like this one.
    pub fn new(attention: Option<&Attention>) -> Self {
        let pairs = attention.map_or_else(Pairs::default, Attention::all_pairs);
        Self { pairs, grain: attention.map_or(1, Attention::grain), ..Self::default() }
    }
}

/// Where ranks meet: the first of them, for what, in whose attention and in which pass.
type Meeting = (Rank, &'static str, Option<(u32, u32)>, PassName);

/// A block on its way back.
#[derive(Clone, Copy)]
struct Backward {
    /// The slice of its queries.
    queries: usize,
    /// The slice of its keys.
    source: usize,
    /// Where the gradients of its keys are put, and the slice to which they are said to belong there.
    gradient: (AttentionTensor, usize),
}

const ORIGIN: Origin = Origin { slot: None, step: 0, pass: PassName::Lower };

impl Work<'_> {
    fn ranks(&self) -> usize {
        self.attention.slices
    }

    /// Pairs of a query of one slice and a key of another that are not masked.
    fn pairs(&self, queries: usize, source: usize) -> u64 {
        self.stock.pairs.of(queries, source)
    }

    /// Makes the buffers that are there from the start.
    fn give(&mut self) {
        for rank in 0..self.ranks() {
            for &tensor in AttentionTensor::ALL.iter().filter(|tensor| tensor.is_given()) {
                self.buffer_of(rank, tensor, rank, HeadShare::All);
            }
        }
    }

    /// The buffer of `rank` for a tensor of a slice, with the heads that the kernels work on.
    pub fn buffer(&mut self, rank: usize, tensor: AttentionTensor, slice: usize) -> BufferId {
        self.buffer_of(rank, tensor, slice, self.share)
    }

    fn buffer_of(&mut self, rank: usize, tensor: AttentionTensor, slice: usize, share: HeadShare) -> BufferId {
        let number = |number: usize| u32::try_from(number).expect("a checked number of ranks");
        let name = match (self.of, share) {
            (None, HeadShare::All) => Name::Attention(tensor, number(slice)),
            (None, HeadShare::One) => Name::Heads(tensor, number(slice)),
            (Some((layer, micro_batch)), share) => {
                Name::Context(tensor, share, layer * number(self.attention.slices) + number(slice), micro_batch)
            }
        };
        let owner = self.ranks[rank];
        if let Some(&buffer) = self.stock.buffers.get(&(owner, name)) {
            return buffer;
        }
        let dtype = self.program.setting.dtype;
        // Inside a training step statistics are not kept in half precision.
        let is_wide = |name: &str| self.of.is_some() && (tensor == AttentionTensor::State || name == "lse");
        let part = |(name, dims): (&str, Vec<usize>)| {
            let dtype = if is_wide(name) { dtype.widened() } else { dtype };
            TensorPart { dtype, dims, name: name.to_owned() }
        };
        let layout = Layout { parts: self.attention.parts(tensor, share).into_iter().map(part).collect() };
        let layout = self.program.layout(layout);
        let is_own = slice == rank || tensor == AttentionTensor::KeyValuePart;
        let role = if is_own { name.usual_role() } else { Role::Message };
        let buffer = self.program.buffer(owner, name, role, layout);
        self.stock.buffers.insert((owner, name), buffer);
        buffer
    }

    /// A collective of all ranks, on so many tensors of a slice each.
    fn collective(&mut self, kind: CollectiveKind, label: &str, bytes: Bytes) -> CollectiveId {
        // Inside a training step such groups are known by their first ranks.
        let number: Option<&dyn Fn(Rank) -> usize> = if self.of.is_none() { None } else { Some(&Rank::index) };
        let all: Vec<Rank> = self.ranks.iter().map(|&rank| self.program.unfolded(rank, 0)).collect();
        let group = self.program.group(Group::new(&self.program.setting.folding, "cp", number, &all));
        let (dtype, step) = (self.program.setting.dtype, self.origin.step);
        let label = self.of.map_or_else(|| label.to_owned(), |(layer, _)| format!("{label} blocks.{layer}.attn"));
        self.program.collective(Collective { group, kind, label, step, bytes, dtype, padding: Bytes::ZERO, shards: 1 })
    }

    /// The same, of which there is one in each pass of the attention: whoever comes first makes it.
    fn shared(&mut self, kind: CollectiveKind, label: &'static str, bytes: Bytes) -> CollectiveId {
        let key = (self.ranks[0], label, self.of, self.origin.pass);
        if let Some(&known) = self.stock.collectives.get(&key) {
            return known;
        }
        let made = self.collective(kind, label, bytes);
        self.stock.collectives.insert(key, made);
        made
    }

    /// The part of `rank` in a collective.
    fn issue(&mut self, collective: CollectiveId, rank: usize, operands: (&[BufferId], &[BufferId])) {
        let stream = self.program.communication_stream("cp");
        self.program.append((self.ranks[rank], stream), OpKind::Collective(collective), operands, self.origin);
    }

    fn run(&mut self, rank: usize, kernel: KernelCost, reads: &[BufferId], writes: &[BufferId]) -> OpId {
        let kernel = self.program.kernel(kernel);
        self.program.append((self.ranks[rank], COMPUTE), OpKind::Run(kernel), (reads, writes), self.origin)
    }

    /// What a kernel costs on the block of two slices.
    fn cost(&self, kernel: Kernel, [times, of]: [u64; 2], operands: &[BufferId], (rank, source): (usize, usize)) -> KernelCost {
        let (attention, grain) = (&self.attention, self.stock.grain);
        let pairs = self.pairs(rank, source);
        let parts = if self.share == HeadShare::All { 1 } else { attention.slices as u64 };
        let number = |grains: u64| u32::try_from(grains).expect("a checked length of a sequence");
        KernelCost {
            // In a training step a layer's products share its slot.
            shares: if self.of.is_some() { 0 } else { number(attention.slot() / grain * parts) },
            taken: if self.of.is_some() { 1 } else { number(pairs / grain) },
            flops: attention.flops_per_pair() / parts * pairs * times / of,
            bytes: operands.iter().map(|&buffer| self.program.bytes(buffer).0).sum(),
            ..KernelCost::free(kernel)
        }
    }

    /// Attention on `rank` of the queries of one slice to the keys of `source`, if they see any of them. `is_first` begins the state.
    fn attend(&mut self, rank: usize, (queries, source): (usize, usize), is_first: bool) {
        if self.pairs(queries, source) == 0 {
            return;
        }
        let [q, state] = [AttentionTensor::Query, AttentionTensor::State].map(|tensor| self.buffer(rank, tensor, queries));
        let kv = self.buffer(rank, AttentionTensor::KeyValue, source);
        let reads: &[BufferId] = if is_first { &[q, kv] } else { &[q, kv, state] };
        let cost = self.cost(Kernel::Attend, [1, 1], &[q, kv, state, state], (queries, source));
        self.run(rank, cost, reads, &[state]);
    }

    /// The output of the queries of one slice.
    fn finish(&mut self, rank: usize, queries: usize) {
        let [state, output] = [AttentionTensor::State, AttentionTensor::Output].map(|tensor| self.buffer(rank, tensor, queries));
        let bytes = [state, output].map(|buffer| self.program.bytes(buffer).0).iter().sum();
        self.run(rank, KernelCost { bytes, ..KernelCost::free(Kernel::FinishAttention) }, &[state], &[output]);
    }

    /// The gradients of a block on `rank`, if there is one. `is_first` begins those of the queries, `begins_keys` those of the keys.
    fn attend_backward(&mut self, rank: usize, block: Backward, [is_first, begins_keys]: [bool; 2]) {
        use AttentionTensor::{KeyValue, Output, OutputGradient, Query, QueryGradient};
        let Backward { queries, source, gradient: (gradient, of) } = block;
        if self.pairs(queries, source) == 0 {
            return;
        }
        let [q, out, d_out, dq] = [Query, Output, OutputGradient, QueryGradient].map(|tensor| self.buffer(rank, tensor, queries));
        let (kv, dkv) = (self.buffer(rank, KeyValue, source), self.buffer(rank, gradient, of));
        let mut reads = vec![q, kv, out, d_out];
        if !is_first {
            reads.push(dq);
        }
        if !begins_keys {
            reads.push(dkv);
        }
        let cost =
            self.cost(Kernel::AttendBackward, BACKWARD_PRODUCTS, &[q, kv, out, d_out, dq, dq, dkv, dkv], (queries, source));
        self.run(rank, cost, &reads, &[dq, dkv]);
    }
    /// Adds the gradients of a block's keys to those of a slice that are on `rank`, if there is such a block.
    fn add_part(&mut self, rank: usize, (queries, source): (usize, usize), slice: usize) {
        if self.pairs(queries, source) == 0 {
            return;
        }
        let sum = self.buffer(rank, AttentionTensor::KeyValueGradient, slice);
        let part = self.buffer(rank, AttentionTensor::KeyValuePart, source);
        let bytes = [sum, sum, part].map(|buffer| self.program.bytes(buffer).0).iter().sum();
        self.run(rank, KernelCost { bytes, ..KernelCost::free(Kernel::AddGradients) }, &[sum, part], &[sum]);
    }
}
