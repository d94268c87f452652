//! The one cost function: from an op and the hardware to the time that it takes.

use std::collections::BTreeMap;

use crate::base::hardware::{Costs, Hardware, Link, UnitCosts};
use crate::base::prefetch::prefetch;
use crate::base::units::{Clock, Ticks};
use crate::base::{Bytes, OpId, Rank};
use crate::program::exchange::Exchange;
use crate::program::head;
use crate::program::tables::{Collective, Layout};
use crate::program::trouble::{Trouble, TroubleKind};
use crate::program::{CollectiveKind, Kernel, KernelCost, OpKind, Program};

/// What every op of a program costs: found once, since a run asks for it in the midst of everything.
#[derive(Debug)]
pub struct CostModel {
    clock: Clock,
    /// Per rank, its device's memory; empty where there is no limit.
    memory: Vec<Bytes>,
    /// The different prices.
    prices: Vec<Ticks>,
    /// Per op, the place of its price.
    of: Vec<u32>,
}

impl CostModel {
    /// The costs of `program` on `hardware`, under the trouble that slows ranks and links.
    #[must_use]
    pub fn new(program: &Program, hardware: &Hardware, trouble: &[Trouble]) -> Self {
        let mut list = PriceList::new(program, hardware);
        let mut costs = Self {
            clock: hardware.clock(),
            memory: hardware.memory.map_or_else(Vec::new, |memory| memories(program, memory, trouble)),
            of: (0..program.ops()).map(|op| list.place(program, OpId::new(op))).collect(),
            prices: list.prices,
        };
        let slow = slow_rules(trouble);
        if !slow.is_empty() {
            (0..program.ops()).map(OpId::new).for_each(|op| costs.slow(program, op, &slow));
        }
        costs
    }

    /// What a tick is.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The memory of the device of `rank`.
    #[must_use]
    pub fn memory(&self, rank: Rank) -> Option<Bytes> {
        self.memory.get(rank.index()).copied()
    }

    /// The time that `op` takes once it has started: a computation; a message from start to arrival; a whole collective.
    #[must_use]
    pub fn cost(&self, op: OpId) -> Ticks {
        self.prices[self.of[op.index()] as usize]
    }

    /// Gets the price of `op` closer, if it will soon be asked for.
    pub(super) fn prefetch(&self, op: OpId) {
        prefetch(self.of.get(op.index()));
    }

    fn slow(&mut self, program: &Program, op: OpId, rules: &[&Trouble]) {
        if let Some(factor) = slowdown(program, op, rules) {
            let price = scale(self.cost(op), factor);
            self.of[op.index()] = number(self.prices.len());
            self.prices.push(price);
        }
    }
}

/// Per rank, the memory of its device: the first rule that meets the rank decides.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a checked, positive factor"
)]
fn memories(program: &Program, memory: Bytes, trouble: &[Trouble]) -> Vec<Bytes> {
    let rules: Vec<&Trouble> = trouble.iter().filter(|rule| rule.kind == TroubleKind::LessMemory).collect();
    let of_rank = |rank: Rank| {
        let rule = rules.iter().find(|rule| rule.rank == Some(rank));
        rule.map_or(memory, |rule| Bytes((memory.0 as f64 * rule.factor) as u64))
    };
    (0..program.ranks()).map(Rank::new).map(of_rank).collect()
}

/// The rules that slow ranks and links.
pub(super) fn slow_rules(trouble: &[Trouble]) -> Vec<&Trouble> {
    trouble.iter().filter(|rule| matches!(rule.kind, TroubleKind::SlowRank | TroubleKind::SlowLink)).collect()
}

/// The factor by which trouble slows `op`: the first rule that fits decides.
pub(super) fn slowdown(program: &Program, op: OpId, rules: &[&Trouble]) -> Option<f64> {
    let kind = match program.kind(op) {
        OpKind::Run(_) => TroubleKind::SlowRank,
        OpKind::Send(_) => TroubleKind::SlowLink,
        _ => return None,
    };
    rules.iter().find(|rule| rule.kind == kind && head::fits(program, op, rule)).map(|rule| rule.factor)
}

/// The prices without trouble: of kernels, then of messages by layout inside a node and between nodes, then of collectives, then zero,
/// last of messages that carry several buffers.
struct PriceList<'a> {
    costs: &'a Costs,
    prices: Vec<Ticks>,
    kernels: usize,
    layouts: usize,
    zero: usize,
    /// Places of the prices of messages that carry several buffers, by their bytes and whether they leave their node.
    several: BTreeMap<(Bytes, bool), usize>,
    /// Per channel, whether it leaves its node.
    leaves: Vec<bool>,
}

impl<'a> PriceList<'a> {
    fn new(program: &Program, hardware: &'a Hardware) -> Self {
        // A folded rank stands for several: nodes are cut by the numbers before folding.
        let whole = |rank: Rank| program.whole(rank);
        let node = |rank: Rank| rank.index() / hardware.ranks_per_node;
        let messages = |layout: &Layout| match &hardware.costs {
            Costs::Unit(_) => [Ticks::ZERO; 2],
            Costs::Table(table) => [&table.inside, &table.between].map(|link| transfer(link, layout.bytes())),
        };
        let kernels = program.kernels.iter().map(|kernel| kernel_cost(&hardware.costs, kernel));
        let messages = program.layouts.iter().flat_map(messages);
        let unequal = unequal(program);
        let collectives = program.collectives.iter().enumerate().map(|(place, collective)| match &hardware.costs {
            Costs::Unit(_) => Ticks::ZERO,
            Costs::Table(table) => {
                let group = &program.groups[collective.group.index()];
                let [first, last] = group.ends(&program.setting.folding);
                let link = if node(first) == node(last) { &table.inside } else { &table.between };
                match unequal[place] {
                    Some(most) => transfer(link, most) + link.alpha * (group.size() as u64).saturating_sub(2),
                    None => collective_cost(collective, group.size() as u64, link),
                }
            }
        });
        let prices: Vec<Ticks> = kernels.chain(messages).chain(collectives).chain([Ticks::ZERO]).collect();
        Self {
            costs: &hardware.costs,
            zero: prices.len() - 1,
            several: BTreeMap::new(),
            prices,
            kernels: program.kernels.len(),
            layouts: program.layouts.len(),
            leaves: program.channels.iter().map(|channel| node(whole(channel.from)) != node(whole(channel.to))).collect(),
        }
    }

    /// The place of the price of `op`.
    fn place(&mut self, program: &Program, op: OpId) -> u32 {
        number(match program.kind(op) {
            OpKind::Run(kernel) => kernel.index(),
            OpKind::Send(channel) => {
                let leaves = self.leaves[channel.index()];
                match program.reads(op) {
                    [buffer] => self.kernels + 2 * program.buffers[buffer.index()].layout.index() + usize::from(leaves),
                    several => self.several(several.iter().map(|&buffer| program.bytes(buffer)).sum(), leaves),
                }
            }
            OpKind::Collective(collective) => self.kernels + 2 * self.layouts + collective.index(),
            // A receive ends with its send; a skipped op takes no time.
            OpKind::Recv(_) | OpKind::RecvReduce(_) | OpKind::Skipped(_) => self.zero,
        })
    }

    fn several(&mut self, bytes: Bytes, leaves: bool) -> usize {
        *self.several.entry((bytes, leaves)).or_insert_with(|| {
            self.prices.push(match self.costs {
                Costs::Unit(_) => Ticks::ZERO,
                Costs::Table(table) => transfer(if leaves { &table.between } else { &table.inside }, bytes),
            });
            self.prices.len() - 1
        })
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("fewer than 2^32 prices")
}

/// Per collective of unequal pieces, the most that a member sends or receives: all are through when it is.
fn unequal(program: &Program) -> Vec<Option<Bytes>> {
    let mut most: Vec<Option<Bytes>> = vec![None; program.collectives.len()];
    if program.collectives.iter().any(|collective| collective.kind == CollectiveKind::AllToAll) {
        for op in program.all() {
            if let (OpKind::Collective(collective), Some(exchange)) = (program.kind(op), Exchange::of(program, op)) {
                let most = &mut most[collective.index()];
                *most = (*most).max(Some(exchange.most()));
            }
        }
    }
    most
}

/// A collective as one op: a ring's closed form, N-1 times (alpha + bytes / N / bandwidth), twice that for an all-reduce; a barrier takes
/// one latency.
fn collective_cost(collective: &Collective, ranks: u64, link: &Link) -> Ticks {
    match collective.kind {
        CollectiveKind::Barrier => link.alpha,
        moving => transfer(link, Bytes(collective.bytes.0.div_ceil(ranks.max(1)))) * moving.latencies(ranks),
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

/// A stage's blocks share its slot evenly, passes that run as one share theirs as they share the sum of their own; all else is free.
/// So is the attention core computed again: its share of a forward slot, t / (t + 6 h) where f = 4h, is a few hundredths in the papers'
/// models, and depends on sizes that a slot knows nothing of. Hardware tables charge its FLOPs.
fn unit_cost(unit: &UnitCosts, kernel: &KernelCost) -> Ticks {
    let slot = match kernel.kernel {
        Kernel::Forward(_) | Kernel::Recompute(_) | Kernel::Attend | Kernel::Experts => unit.forward,
        Kernel::BackwardInput(_) => unit.backward_input,
        Kernel::BackwardWeight(_) => unit.backward_weight,
        Kernel::AttendBackward | Kernel::ExpertsBackward => unit.backward_input + unit.backward_weight,
        _ => return Ticks::ZERO,
    };
    let slot = if kernel.overlapped { slot.0 * unit.overlapped.0 / unit.all().0 } else { slot.0 };
    let share = slot.checked_div(u64::from(kernel.shares)).unwrap_or(0);
    Ticks(share * u64::from(kernel.taken))
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
pub(super) fn scale(ticks: Ticks, factor: f64) -> Ticks {
    Ticks((ticks.0 as f64 * factor).round() as u64)
}
