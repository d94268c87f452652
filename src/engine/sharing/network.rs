//! The network: which links there are, what each can carry, and which of them a message crosses.
//!
//! Every rank has a port into its node, every NIC of a node leads out of it; both carry as much in each direction at once. A message
//! inside a node leaves by one port and enters by another, a message between nodes crosses two NICs.

use std::collections::BTreeMap;

use crate::base::hardware::{Costs, Hardware, Link};
use crate::base::{OpId, Rank, Ticks};
use crate::engine::cost::{scale, slow_rules, slowdown};
use crate::program::trouble::Trouble;
use crate::program::{OpKind, Program};

/// The links, two for each port and NIC: outward, and inward behind it.
#[derive(Debug)]
pub struct Network {
    /// Per link, bytes a second.
    pub(super) capacities: Vec<u64>,
    /// Per channel, the links that its messages cross.
    routes: Vec<[u32; 2]>,
    /// Per channel, its messages' latency.
    latencies: Vec<Ticks>,
    /// Sends that trouble slows, each with its factor.
    slow: BTreeMap<OpId, f64>,
}

/// What a message asks of the network.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Transfer {
    pub route: [u32; 2],
    /// The most that it can use, bytes a second.
    pub ceiling: u64,
    pub bytes: u64,
}

impl Network {
    /// The network of `program` on `hardware`; `None` if transfers do not share.
    #[must_use]
    pub fn new(program: &Program, hardware: &Hardware, trouble: &[Trouble]) -> Option<Self> {
        let (Costs::Table(table), Some(nics)) = (&hardware.costs, hardware.sharing) else { return None };
        let (ranks, per_node) = (program.ranks(), hardware.ranks_per_node);
        let all_nics = ranks.div_ceil(per_node) * nics;
        let each = |count: usize, link: &Link| std::iter::repeat_n(whole(link.bytes_per_second), 2 * count);
        let nic = |rank: Rank| {
            let (node, local) = (rank.index() / per_node, rank.index() % per_node);
            2 * (ranks + node * nics + local * nics / per_node)
        };
        let leaves = |from: Rank, to: Rank| from.index() / per_node != to.index() / per_node;
        let ends = || program.channels.iter().map(|channel| (channel.from, channel.to));
        let route = |(from, to): (Rank, Rank)| {
            let [out, into] = if leaves(from, to) { [nic(from), nic(to)] } else { [2 * from.index(), 2 * to.index()] };
            [out, into + 1].map(|link| u32::try_from(link).expect("fewer than 2^32 links"))
        };
        Some(Self {
            capacities: each(ranks, &table.inside).chain(each(all_nics, &table.between)).collect(),
            routes: ends().map(route).collect(),
            latencies: ends().map(|(from, to)| if leaves(from, to) { table.between.alpha } else { table.inside.alpha }).collect(),
            slow: slow(program, trouble),
        })
    }

    /// Links alone, for tests of what crosses them.
    #[cfg(test)]
    pub(super) fn of_links(capacities: &[u64]) -> Self {
        Self { capacities: capacities.to_vec(), routes: Vec::new(), latencies: Vec::new(), slow: BTreeMap::new() }
    }

    /// How long the message of `send` is under way before its first byte moves.
    pub(in crate::engine) fn latency(&self, program: &Program, send: OpId) -> Ticks {
        let latency = program.kind(send).channel().map_or(Ticks::ZERO, |channel| self.latencies[channel.index()]);
        self.slow.get(&send).map_or(latency, |&factor| scale(latency, factor))
    }

    /// What the message of `send` asks for.
    pub(in crate::engine) fn transfer(&self, program: &Program, send: OpId) -> Transfer {
        let route = program.kind(send).channel().map_or([0, 1], |channel| self.routes[channel.index()]);
        let free = route.map(|link| self.capacities[link as usize]).into_iter().min().unwrap_or(1);
        let ceiling = self.slow.get(&send).map_or(free, |&factor| slowed(free, factor));
        let bytes = program.carried(send).iter().map(|&buffer| program.bytes(buffer).0).sum();
        Transfer { route, ceiling, bytes }
    }
}

/// The sends that trouble slows, each with its factor.
fn slow(program: &Program, trouble: &[Trouble]) -> BTreeMap<OpId, f64> {
    let rules = slow_rules(trouble);
    if rules.is_empty() {
        return BTreeMap::new();
    }
    let sends = program.all().filter(|&op| matches!(program.kind(op), OpKind::Send(_)));
    sends.filter_map(|op| Some((op, slowdown(program, op, &rules)?))).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bandwidth is positive and far below 2^64")]
fn whole(bytes_per_second: f64) -> u64 {
    bytes_per_second.round().max(1.0) as u64
}

/// A message that trouble slows uses less of its links. Trouble that speeds it up cannot widen them.
#[expect(clippy::cast_precision_loss, reason = "a bandwidth, rounded a little")]
fn slowed(ceiling: u64, factor: f64) -> u64 {
    whole(ceiling as f64 / factor).min(ceiling)
}
