//! A mixture of experts that stands alone, forward and backward: every rank routes its own tokens, and computes what is sent to its experts.
//!
//! Two all-to-alls forward: tokens go to the experts that they chose, results come back. Two backward, of the gradients: the same rows the
//! same ways. The statistics of the auxiliary loss are gathered from all ranks, and the router, which all have, sums its gradient. Source:
//! Lepikhin et al. 2020, `GShard`, arXiv 2006.16668, section 3.

use std::collections::BTreeMap;

use crate::base::experts::Experts;
use crate::base::routing::Routing;
use crate::base::{BufferId, Bytes, CollectiveId, ExpertTensor, OpId, Rank};
use crate::program::tables::{COMPUTE, Collective, CollectiveKind, Group, Layout, TensorPart};
use crate::program::trouble::TroubleKind;
use crate::program::{Kernel, KernelCost, Name, OpKind, Origin, PassName, Program};
use crate::scenario::{Scenario, Task};

use super::Build;
use ExpertTensor as Tensor;

/// Backward multiplies for the rows and for the matrices.
const BACKWARD_PRODUCTS: u64 = 2;

const ORIGIN: Origin = Origin { slot: None, step: 0, pass: PassName::Lower };

/// Makes all ops of the layer.
pub(super) fn run(build: &mut Build) {
    let Task::Experts(layer) = &build.scenario.task else { return };
    let mut work = Work { program: &mut build.program, routing: Routing::planned(layer), layer, buffers: BTreeMap::new() };
    for rank in 0..layer.ranks {
        for tensor in [Tensor::Input, Tensor::OutputGradient, Tensor::Router, Tensor::Weights] {
            work.buffer(rank, tensor, rank);
        }
        for tensor in [Tensor::RouterGradient, Tensor::WeightGradient] {
            work.buffer(rank, tensor, rank);
        }
    }
    let meetings = (layer.ranks > 1).then(|| Meetings::new(&mut work, stale(build.scenario)));
    for rank in 0..layer.ranks {
        work.forward(rank, meetings.as_ref());
        work.backward(rank, meetings.as_ref());
    }
}

/// The rank that cuts its rows as those of another batch, if one does.
fn stale(scenario: &Scenario) -> Option<usize> {
    let rule = scenario.trouble.iter().find(|rule| rule.kind == TroubleKind::StaleSplits)?;
    rule.rank.map(Rank::index)
}

/// What the ranks do together.
struct Meetings {
    statistics: CollectiveId,
    dispatch: CollectiveId,
    combine: CollectiveId,
    combine_backward: CollectiveId,
    dispatch_backward: CollectiveId,
    router: CollectiveId,
    /// A rank that comes to another dispatch than the others: sizes that do not agree never meet.
    stale: Option<(usize, CollectiveId)>,
}

impl Meetings {
    fn new(work: &mut Work, stale: Option<usize>) -> Self {
        let layer = work.layer;
        let dtype = work.program.setting.dtype;
        let [each, router] = [Tensor::Statistics, Tensor::Router].map(|tensor| work.buffer(0, tensor, 0));
        let [each, router] = [each, router].map(|buffer| work.program.bytes(buffer));
        let rows = Bytes(work.layer.row_bytes(dtype).0 * layer.even_rows());
        let mut meet = |kind, label: &str, bytes| work.collective(kind, label, bytes);
        let statistics = meet(CollectiveKind::AllGather, "stats", Bytes(each.0 * layer.ranks as u64));
        let [dispatch, combine, combine_backward, dispatch_backward] =
            ["dispatch", "combine", "combine-backward", "dispatch-backward"]
                .map(|label| meet(CollectiveKind::AllToAll, label, rows));
        let router = meet(CollectiveKind::AllReduce, "router", router);
        let stale = stale.map(|rank| (rank, meet(CollectiveKind::AllToAll, "dispatch-of-another-batch", rows)));
        Self { statistics, dispatch, combine, combine_backward, dispatch_backward, router, stale }
    }

    /// The dispatch that `rank` comes to.
    fn dispatch(&self, rank: usize) -> CollectiveId {
        self.stale.filter(|(stale, _)| *stale == rank).map_or(self.dispatch, |(_, other)| other)
    }
}

/// The program of a layer under construction.
struct Work<'a> {
    program: &'a mut Program,
    layer: &'a Experts,
    routing: Routing,
    /// By rank and name.
    buffers: BTreeMap<(usize, Name), BufferId>,
}

impl Work<'_> {
    fn forward(&mut self, rank: usize, meetings: Option<&Meetings>) {
        let own = |work: &mut Self, tensor| work.buffer(rank, tensor, rank);
        let [x, router, gates, statistics, balance, weights, hidden, output] = [
            Tensor::Input,
            Tensor::Router,
            Tensor::Gates,
            Tensor::Statistics,
            Tensor::Balance,
            Tensor::Weights,
            Tensor::Hidden,
            Tensor::Output,
        ]
        .map(|tensor| own(self, tensor));
        self.run(rank, self.routing_cost(Kernel::Route, 1), &[x, router], &[gates, statistics]);
        let mut all = vec![statistics];
        if let Some(meetings) = meetings {
            all = self.with_each(rank, Tensor::Statistics);
            self.issue(meetings.statistics, "ep.stats", rank, (&[statistics], &all));
        }
        self.run(rank, KernelCost::free(Kernel::Balance), &all, &[balance]);
        let rows = self.with_each(rank, Tensor::Rows);
        self.run(rank, KernelCost::free(Kernel::Dispatch), &[x, gates], &rows);
        let arrived = self.exchanged(rank, meetings.map(|all| all.dispatch(rank)), Tensor::Rows, Tensor::Arrived);
        let results = self.with_each(rank, if meetings.is_some() { Tensor::Results } else { Tensor::Returned });
        let writes: Vec<BufferId> = std::iter::once(hidden).chain(results).collect();
        self.run(rank, self.expert_cost(Kernel::Experts, rank, 1), &joined(&[weights], &arrived), &writes);
        let returned = self.exchanged(rank, meetings.map(|all| all.combine), Tensor::Results, Tensor::Returned);
        self.run(rank, KernelCost::free(Kernel::Combine), &joined(&[gates], &returned), &[output]);
    }

    fn backward(&mut self, rank: usize, meetings: Option<&Meetings>) {
        let own = |work: &mut Self, tensor| work.buffer(rank, tensor, rank);
        let [x, router, gates, balance, weights, hidden] =
            [Tensor::Input, Tensor::Router, Tensor::Gates, Tensor::Balance, Tensor::Weights, Tensor::Hidden]
                .map(|tensor| own(self, tensor));
        let [d_out, d_gates, d_weights, d_x, d_router] =
            [Tensor::OutputGradient, Tensor::GateGradient, Tensor::WeightGradient, Tensor::InputGradient, Tensor::RouterGradient]
                .map(|tensor| own(self, tensor));
        let is_alone = meetings.is_none();
        let returned = self.with_each(rank, Tensor::Returned);
        let d_returned = self.with_each(rank, Tensor::ReturnedGradient);
        let reads = joined(&[d_out, gates], &returned);
        self.run(rank, KernelCost::free(Kernel::CombineBackward), &reads, &joined(&[d_gates], &d_returned));
        let meeting = meetings.map(|all| all.combine_backward);
        let d_results = self.exchanged(rank, meeting, Tensor::ReturnedGradient, Tensor::ResultGradient);
        let arrived = self.with_each(rank, if is_alone { Tensor::Rows } else { Tensor::Arrived });
        let d_arrived = self.with_each(rank, if is_alone { Tensor::RowGradient } else { Tensor::ArrivedGradient });
        let reads = joined(&joined(&[weights, hidden], &arrived), &d_results);
        let cost = self.expert_cost(Kernel::ExpertsBackward, rank, BACKWARD_PRODUCTS);
        self.run(rank, cost, &reads, &joined(&[d_weights], &d_arrived));
        let meeting = meetings.map(|all| all.dispatch_backward);
        let d_rows = self.exchanged(rank, meeting, Tensor::ArrivedGradient, Tensor::RowGradient);
        let reads = joined(&[x, router, gates, d_gates, balance], &d_rows);
        self.run(rank, self.routing_cost(Kernel::RouteBackward, BACKWARD_PRODUCTS), &reads, &[d_x, d_router]);
        if let Some(meetings) = meetings {
            self.issue(meetings.router, "ep.router", rank, (&[d_router], &[d_router]));
        }
    }

    /// What `rank` gets where it and the others send `sent`, and receive it as `received`; alone it has that already.
    fn exchanged(&mut self, rank: usize, meeting: Option<CollectiveId>, sent: Tensor, received: Tensor) -> Vec<BufferId> {
        let Some(meeting) = meeting else {
            // Alone, what is sent and what is received are one.
            let kept = if matches!(sent, Tensor::Results | Tensor::ArrivedGradient) { received } else { sent };
            return self.with_each(rank, kept);
        };
        let (sent, received) = (self.with_each(rank, sent), self.with_each(rank, received));
        self.issue(meeting, "ep", rank, (&sent, &received));
        received
    }

    /// The buffers of `rank` for a tensor to or from each rank.
    fn with_each(&mut self, rank: usize, tensor: Tensor) -> Vec<BufferId> {
        (0..self.layer.ranks).map(|other| self.buffer(rank, tensor, other)).collect()
    }

    fn buffer(&mut self, rank: usize, tensor: Tensor, other: usize) -> BufferId {
        let name = Name::Expert(tensor, u32::try_from(other).expect("a checked number of ranks"));
        if let Some(&buffer) = self.buffers.get(&(rank, name)) {
            return buffer;
        }
        let dtype = self.program.setting.dtype;
        let parts = self.layer.parts(&self.routing, tensor, rank, other);
        let part =
            |part: crate::base::experts::Part| TensorPart { name: part.name, dtype: part.elements.dtype(dtype), dims: part.dims };
        let layout = self.program.layout(Layout { parts: parts.into_iter().map(part).collect() });
        let buffer = self.program.buffer(Rank::new(rank), name, name.usual_role(), layout);
        self.buffers.insert((rank, name), buffer);
        buffer
    }

    fn collective(&mut self, kind: CollectiveKind, label: &str, bytes: Bytes) -> CollectiveId {
        let ranks = (0..self.layer.ranks).map(Rank::new).collect();
        let group = self.program.group(Group::of("ep", ranks));
        let (dtype, label) = (self.program.setting.dtype, label.to_owned());
        self.program.collective(Collective { group, kind, label, step: 0, bytes, dtype, padding: Bytes::ZERO, shards: 1 })
    }

    /// The part of `rank` in a collective.
    fn issue(&mut self, collective: CollectiveId, stream: &str, rank: usize, operands: (&[BufferId], &[BufferId])) {
        let stream = self.program.communication_stream(stream);
        self.program.append((Rank::new(rank), stream), OpKind::Collective(collective), operands, ORIGIN);
    }

    /// Adds a computation; it moves its operands.
    fn run(&mut self, rank: usize, cost: KernelCost, reads: &[BufferId], writes: &[BufferId]) -> OpId {
        let bytes = reads.iter().chain(writes).map(|&buffer| self.program.bytes(buffer).0).sum();
        let kernel = self.program.kernel(KernelCost { bytes, ..cost });
        self.program.append((Rank::new(rank), COMPUTE), OpKind::Run(kernel), (reads, writes), ORIGIN)
    }

    /// The router's product, so many times.
    fn routing_cost(&self, kernel: Kernel, times: u64) -> KernelCost {
        let one = 2 * (self.layer.tokens_per_rank() * self.layer.hidden * self.layer.count) as u64;
        KernelCost { flops: times * one, ..KernelCost::free(kernel) }
    }

    /// The rank's experts on their rows: a slot holds an even share of all rows.
    fn expert_cost(&self, kernel: Kernel, rank: usize, times: u64) -> KernelCost {
        let rows = self.layer.rank_rows(&self.routing, rank);
        let number = |rows: u64| u32::try_from(rows).expect("a checked number of tokens");
        KernelCost {
            shares: number(self.layer.even_rows()),
            taken: number(rows as u64),
            flops: times * self.layer.flops_per_row() * rows as u64,
            ..KernelCost::free(kernel)
        }
    }
}

fn joined(first: &[BufferId], rest: &[BufferId]) -> Vec<BufferId> {
    [first, rest].concat()
}
