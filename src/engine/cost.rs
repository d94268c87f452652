//! The one cost function: from an op and the hardware to the time that it takes.

use crate::base::hardware::{Costs, Hardware, Link, Table, UnitCosts};
use crate::base::units::{Clock, Ticks};
use crate::base::{Bytes, LayoutId, OpId};
use crate::program::head;
use crate::program::trouble::{Trouble, TroubleKind};
use crate::program::{CollectiveKind, Kernel, KernelCost, OpKind, Program};

/// What every op of a program costs.
#[derive(Debug)]
pub struct CostModel {
    hardware: Hardware,
    /// Rules that make ranks or links slow.
    slow: Vec<Trouble>,
    /// Per kernel, what it costs without trouble.
    kernels: Vec<Ticks>,
    /// Per layout, its bytes.
    bytes: Vec<Bytes>,
    /// How many ranks each rank stands for.
    fold: usize,
    /// Per buffer, its layout: close together, as rings of thousands of ranks ask for those of all.
    layouts: Vec<LayoutId>,
}

impl CostModel {
    /// The costs of `program` on `hardware`, under the trouble that slows ranks and links.
    #[must_use]
    pub fn new(program: &Program, hardware: &Hardware, trouble: &[Trouble]) -> Self {
        let is_slow = |rule: &&Trouble| matches!(rule.kind, TroubleKind::SlowRank | TroubleKind::SlowLink);
        Self {
            hardware: hardware.clone(),
            fold: program.fold(),
            slow: trouble.iter().filter(is_slow).cloned().collect(),
            kernels: program.kernels.iter().map(|kernel| kernel_cost(&hardware.costs, kernel)).collect(),
            bytes: program.layouts.iter().map(crate::program::Layout::bytes).collect(),
            layouts: program.buffers.iter().map(|buffer| buffer.layout).collect(),
        }
    }

    /// What a tick is.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.hardware.clock()
    }

    /// A device's memory.
    #[must_use]
    pub fn memory(&self) -> Option<Bytes> {
        self.hardware.memory
    }

    /// The time that `op` takes once it has started: a computation; a message from start to arrival; a whole collective.
    #[must_use]
    pub fn cost(&self, program: &Program, op: OpId) -> Ticks {
        let ticks = match program.kind(op) {
            OpKind::Run(kernel) => self.kernels[kernel.index()],
            OpKind::Send(channel) => {
                let Costs::Table(table) = &self.hardware.costs else { return Ticks::ZERO };
                let channel = program.channels[channel.index()];
                let sent = self.layouts[program.reads(op)[0].index()];
                let [from, to] = [channel.from, channel.to].map(|rank| rank.index() * self.fold);
                transfer(self.link(table, from, to), self.bytes[sent.index()])
            }
            OpKind::Collective(collective) => self.collective(program, collective.index()),
            // A receive ends with its send; a skipped op takes no time.
            OpKind::Recv(_) | OpKind::RecvReduce(_) | OpKind::Skipped(_) => Ticks::ZERO,
        };
        if self.slow.is_empty() { ticks } else { self.slowed(program, op, ticks) }
    }

    /// The link between two ranks, by their numbers before folding.
    fn link<'table>(&self, table: &'table Table, from: usize, to: usize) -> &'table Link {
        let node = |rank: usize| rank / self.hardware.ranks_per_node;
        if node(from) == node(to) { &table.inside } else { &table.between }
    }

    /// A collective as one op: a ring's closed form, N-1 times (alpha + bytes / N / bandwidth), twice that for an all-reduce; a barrier
    /// takes one latency.
    fn collective(&self, program: &Program, collective: usize) -> Ticks {
        let Costs::Table(table) = &self.hardware.costs else { return Ticks::ZERO };
        let collective = &program.collectives[collective];
        let group = &program.groups[collective.group.index()];
        let (Some(&first), Some(&last)) = (group.ranks.first(), group.ranks.last()) else { return Ticks::ZERO };
        let [first, last] = [first, last].map(|rank| rank.index() * self.fold);
        let link = self.link(table, first, last + (group.fold.size - 1) * group.fold.stride);
        let n = group.size() as u64;
        match collective.kind {
            CollectiveKind::Barrier => link.alpha,
            moving => transfer(link, Bytes(collective.bytes.0.div_ceil(n))) * (moving.rounds() * (n - 1)),
        }
    }

    /// The first rule that fits decides.
    fn slowed(&self, program: &Program, op: OpId, ticks: Ticks) -> Ticks {
        let kind = match program.kind(op) {
            OpKind::Run(_) => TroubleKind::SlowRank,
            OpKind::Send(_) => TroubleKind::SlowLink,
            _ => return ticks,
        };
        let rule = self.slow.iter().find(|rule| rule.kind == kind && head::fits(program, op, rule));
        rule.map_or(ticks, |rule| scale(ticks, rule.factor))
    }
}

fn kernel_cost(costs: &Costs, kernel: &KernelCost) -> Ticks {
    match costs {
        Costs::Unit(unit) => unit_cost(unit, kernel),
        Costs::Table(table) => {
            let device = &table.device;
            seconds(ratio(kernel.flops, device.flops_per_second) + ratio(kernel.bytes, device.memory_bytes_per_second))
        }
    }
}

/// A stage's blocks share its slot evenly; all else is free.
fn unit_cost(unit: &UnitCosts, kernel: &KernelCost) -> Ticks {
    let slot = match kernel.kernel {
        Kernel::Forward(_) | Kernel::Recompute(_) => unit.forward,
        Kernel::BackwardInput(_) => unit.backward_input,
        Kernel::BackwardWeight(_) => unit.backward_weight,
        _ => return Ticks::ZERO,
    };
    slot.0.checked_div(u64::from(kernel.shares)).map_or(Ticks::ZERO, Ticks)
}

/// alpha + bytes / bandwidth.
fn transfer(link: &Link, bytes: Bytes) -> Ticks {
    link.alpha + seconds(ratio(bytes.0, link.bytes_per_second))
}

#[expect(clippy::cast_precision_loss, reason = "FLOPs and bytes far below 2^53, or rounded a little")]
fn ratio(amount: u64, per_second: f64) -> f64 {
    amount as f64 / per_second
}

/// Seconds as whole nanoseconds, rounded up: what is not free takes time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and far below 2^64 ns")]
fn seconds(seconds: f64) -> Ticks {
    Ticks((seconds * 1e9).ceil() as u64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a checked, positive factor"
)]
fn scale(ticks: Ticks, factor: f64) -> Ticks {
    Ticks((ticks.0 as f64 * factor).round() as u64)
}
