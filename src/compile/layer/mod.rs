//! A layer that stands alone: attention whose sequence is cut up over context-parallel ranks, forward and backward.
//!
//! Every rank has the queries, keys and values of its own slice. How it comes by the others' keys and values is the method.

mod all_gather;
mod ring;

use std::collections::BTreeMap;

use crate::base::context::Attention;
use crate::base::settings::{AttentionTensor, ContextMethod};
use crate::base::{BufferId, OpId, Rank};
use crate::program::tables::{COMPUTE, Layout, Setting, TensorPart};
use crate::program::{Kernel, KernelCost, Name, OpKind, Origin, PassName, Program, Role};
use crate::scenario::{Layer, Scenario, Task};

use super::Build;

/// Forward multiplies twice, a score and its share of the output; backward five times.
const BACKWARD_PRODUCTS: [u64; 2] = [5, 2];

/// What the kernels need to know: there is no model.
pub(super) fn setting(scenario: &Scenario, layer: &Layer) -> Setting {
    Setting {
        attention: Some(layer.attention),
        steps: 1,
        dtype: scenario.numerics.dtype,
        initial: scenario.numerics.dtype,
        seed: scenario.seed,
        ..Setting::default()
    }
}

/// Makes all ops of the layer.
pub(super) fn run(build: &mut Build) {
    let Task::Layer(layer) = &build.scenario.task else { return };
    let mut work = Work { program: &mut build.program, attention: layer.attention, buffers: BTreeMap::new() };
    work.give();
    match layer.method {
        ContextMethod::Ring => ring::run(&mut work),
        ContextMethod::AllGather => all_gather::run(&mut work),
    }
}

/// The program of a layer under construction. A rank is known by its slice.
struct Work<'program> {
    program: &'program mut Program,
    attention: Attention,
    /// By rank, tensor and slice.
    buffers: BTreeMap<(usize, AttentionTensor, usize), BufferId>,
}

const ORIGIN: Origin = Origin { slot: None, step: 0, pass: PassName::Lower };

impl Work<'_> {
    fn ranks(&self) -> usize {
        self.attention.slices
    }

    /// Makes the buffers that are there from the start.
    fn give(&mut self) {
        for rank in 0..self.ranks() {
            for &tensor in AttentionTensor::ALL.iter().filter(|tensor| tensor.is_given()) {
                self.buffer(rank, tensor, rank);
            }
        }
    }

    /// The buffer of `rank` for a tensor of a slice.
    fn buffer(&mut self, rank: usize, tensor: AttentionTensor, slice: usize) -> BufferId {
        if let Some(&buffer) = self.buffers.get(&(rank, tensor, slice)) {
            return buffer;
        }
        let dtype = self.program.setting.dtype;
        let part = |(name, dims): (&str, Vec<usize>)| TensorPart { name: name.to_owned(), dtype, dims };
        let layout = Layout { parts: self.attention.parts(tensor).into_iter().map(part).collect() };
        let layout = self.program.layout(layout);
        let name = Name::Attention(tensor, u32::try_from(slice).expect("a checked number of ranks"));
        let role = if slice == rank { name.usual_role() } else { Role::Message };
        let buffer = self.program.buffer(Rank::new(rank), name, role, layout);
        self.buffers.insert((rank, tensor, slice), buffer);
        buffer
    }

    fn run(&mut self, rank: usize, kernel: KernelCost, reads: &[BufferId], writes: &[BufferId]) -> OpId {
        let kernel = self.program.kernel(kernel);
        self.program.append((Rank::new(rank), COMPUTE), OpKind::Run(kernel), (reads, writes), ORIGIN)
    }

    /// What a kernel costs on the block of two slices.
    fn cost(&self, kernel: Kernel, [times, of]: [u64; 2], operands: &[BufferId], (rank, source): (usize, usize)) -> KernelCost {
        let (attention, grain) = (&self.attention, self.attention.grain());
        let pairs = attention.pairs(rank, source);
        let number = |grains: u64| u32::try_from(grains).expect("a checked length of a sequence");
        KernelCost {
            shares: number(attention.slot() / grain),
            taken: number(pairs / grain),
            flops: attention.flops_per_pair() * pairs * times / of,
            bytes: operands.iter().map(|&buffer| self.program.bytes(buffer).0).sum(),
            ..KernelCost::free(kernel)
        }
    }

    /// Attention of the rank's queries to the keys of `source`, if it sees any of them. `is_first` begins the state.
    fn attend(&mut self, rank: usize, source: usize, is_first: bool) {
        if self.attention.pairs(rank, source) == 0 {
            return;
        }
        let [q, state] = [AttentionTensor::Query, AttentionTensor::State].map(|tensor| self.buffer(rank, tensor, rank));
        let kv = self.buffer(rank, AttentionTensor::KeyValue, source);
        let reads: &[BufferId] = if is_first { &[q, kv] } else { &[q, kv, state] };
        let cost = self.cost(Kernel::Attend, [1, 1], &[q, kv, state, state], (rank, source));
        self.run(rank, cost, reads, &[state]);
    }

    /// The output of the rank's queries.
    fn finish(&mut self, rank: usize) {
        let [state, output] = [AttentionTensor::State, AttentionTensor::Output].map(|tensor| self.buffer(rank, tensor, rank));
        let bytes = [state, output].map(|buffer| self.program.bytes(buffer).0).iter().sum();
        self.run(rank, KernelCost { bytes, ..KernelCost::free(Kernel::FinishAttention) }, &[state], &[output]);
    }

    /// The gradients of the block of the rank's queries and the keys of `source`, if there is one; those of the keys belong to
    /// `gradient_of`. `is_first` begins those of the queries, `begins_keys` those of the keys.
    fn attend_backward(&mut self, rank: usize, (source, gradient_of): (usize, usize), [is_first, begins_keys]: [bool; 2]) {
        use AttentionTensor::{KeyValue, KeyValueGradient, Output, OutputGradient, Query, QueryGradient};
        if self.attention.pairs(rank, source) == 0 {
            return;
        }
        let [q, out, d_out, dq] = [Query, Output, OutputGradient, QueryGradient].map(|tensor| self.buffer(rank, tensor, rank));
        let (kv, dkv) = (self.buffer(rank, KeyValue, source), self.buffer(rank, KeyValueGradient, gradient_of));
        let mut reads = vec![q, kv, out, d_out];
        if !is_first {
            reads.push(dq);
        }
        if !begins_keys {
            reads.push(dkv);
        }
        let cost = self.cost(Kernel::AttendBackward, BACKWARD_PRODUCTS, &[q, kv, out, d_out, dq, dq, dkv, dkv], (rank, source));
        self.run(rank, cost, &reads, &[dq, dkv]);
    }
}
