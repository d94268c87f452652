//! The network: which links there are, what each can carry, and which of them a message crosses.
//!
//! Every rank has a port into its node, every NIC of a node leads out of it; both carry as much in each direction at once. A message
//! inside a node leaves by one port and enters by another, a message between nodes crosses two NICs. A collective that is one operation
//! crosses all links of the ring of its members.

use std::collections::BTreeMap;

use super::route::Route;
use crate::base::hardware::{Costs, Hardware, Link};
use crate::base::{OpId, Rank, Ticks};
use crate::engine::cost::{scale, slow_rules, slowdown};
use crate::program::tables::{Channel, Collective};
use crate::program::trouble::Trouble;
use crate::program::{CollectiveKind, OpKind, Program};

/// The links, two for each port and NIC: outward, and inward behind it.
#[derive(Debug)]
pub struct Network {
    /// Per link, bytes a second.
    pub(super) capacities: Vec<u64>,
    places: Places,
    /// Latency of a message inside a node, and between nodes.
    alphas: [Ticks; 2],
    /// Per channel, the links that its messages cross, and their latency.
    channels: Vec<([u32; 2], Ticks)>,
    /// Sends that trouble slows, each with its factor.
    slow: BTreeMap<OpId, f64>,
}

/// What a message or a collective asks of the network.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Transfer {
    pub route: Route,
    /// The most that it can use of a link that it crosses once, bytes a second.
    pub ceiling: u64,
    pub bytes: u64,
}

/// Where ranks, ports and NICs are.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    ranks: usize,
    per_node: usize,
    nics: usize,
}

impl Network {
    /// The network of `program` on `hardware`; `None` if transfers do not share.
    #[must_use]
    pub fn new(program: &Program, hardware: &Hardware, trouble: &[Trouble]) -> Option<Self> {
        let (Costs::Table(table), Some(nics)) = (&hardware.costs, hardware.sharing) else { return None };
        let places = Places { ranks: program.ranks(), per_node: hardware.ranks_per_node, nics };
        let all_nics = places.ranks.div_ceil(places.per_node) * nics;
        let each = |count: usize, link: &Link| std::iter::repeat_n(whole(link.bytes_per_second), 2 * count);
        let alphas = [table.inside.alpha, table.between.alpha];
        let channel = |channel: &Channel| {
            let leaves = places.leaves(&[channel.from, channel.to]);
            ([places.out_at(channel.from, leaves), places.in_at(channel.to, leaves)], alphas[usize::from(leaves)])
        };
        Some(Self {
            capacities: each(places.ranks, &table.inside).chain(each(all_nics, &table.between)).collect(),
            channels: program.channels.iter().map(channel).collect(),
            alphas,
            places,
            slow: slow(program, trouble),
        })
    }

    /// Links alone, for tests of what crosses them.
    #[cfg(test)]
    pub(super) fn of_links(capacities: &[u64]) -> Self {
        let (capacities, places) = (capacities.to_vec(), Places::default());
        Self { capacities, places, alphas: [Ticks::ZERO; 2], channels: Vec::new(), slow: BTreeMap::new() }
    }

    /// How long what `op` sends is under way before its first byte moves; for a collective, all the messages' latencies that stand behind
    /// each other in it.
    pub(in crate::engine) fn latency(&self, program: &Program, op: OpId) -> Ticks {
        match program.kind(op) {
            OpKind::Collective(collective) => {
                let collective = &program.collectives[collective.index()];
                let group = &program.groups[collective.group.index()].ranks;
                self.alphas[usize::from(self.places.leaves(group))] * collective.kind.latencies(group.len() as u64)
            }
            kind => {
                let latency = kind.channel().map_or(Ticks::ZERO, |channel| self.channels[channel.index()].1);
                self.slow.get(&op).map_or(latency, |&factor| scale(latency, factor))
            }
        }
    }

    /// What the message or the collective of `op` asks for.
    pub(in crate::engine) fn transfer(&self, program: &Program, op: OpId) -> Transfer {
        if let OpKind::Collective(collective) = program.kind(op) {
            return self.collective(program, &program.collectives[collective.index()]);
        }
        let route = program.kind(op).channel().map_or([0, 1], |channel| self.channels[channel.index()].0);
        let free = route.map(|link| self.capacities[link as usize]).into_iter().min().unwrap_or(1);
        let ceiling = self.slow.get(&op).map_or(free, |&factor| slowed(free, factor));
        let bytes = program.carried(op).iter().map(|&buffer| program.bytes(buffer).0).sum();
        Transfer { route: Route::message(route), ceiling, bytes }
    }

    /// A collective as one flow, as its price is: a ring, whose hops all move a chunk at once, each as fast as the slowest. Where every
    /// member has something for every other one, all of it leaves the node if the group does.
    fn collective(&self, program: &Program, collective: &Collective) -> Transfer {
        let ranks = &program.groups[collective.group.index()].ranks;
        let leaves = collective.kind == CollectiveKind::AllToAll && self.places.leaves(ranks);
        let hops = ranks.iter().zip(ranks.iter().cycle().skip(1));
        let links = hops.flat_map(|(&from, &to)| {
            let leaves = leaves || self.places.leaves(&[from, to]);
            [self.places.out_at(from, leaves), self.places.in_at(to, leaves)]
        });
        let route = Route::over(links.collect());
        let free = route.iter().map(|crossing| self.capacities[crossing.link as usize] / u64::from(crossing.times)).min();
        let n = ranks.len() as u64;
        let bytes = collective.bytes.0.div_ceil(n.max(1)) * collective.kind.rounds() * n.saturating_sub(1);
        Transfer { route, ceiling: free.unwrap_or(1).max(1), bytes }
    }
}

impl Places {
    /// Whether some of `ranks` are in another node than others.
    fn leaves(&self, ranks: &[Rank]) -> bool {
        let node = |rank: &Rank| rank.index() / self.per_node;
        ranks.windows(2).any(|pair| node(&pair[0]) != node(&pair[1]))
    }

    /// The link on which `rank` sends, inside its node or out of it.
    fn out_at(&self, rank: Rank, leaves: bool) -> u32 {
        let (node, local) = (rank.index() / self.per_node, rank.index() % self.per_node);
        let place = if leaves { self.ranks + node * self.nics + local * self.nics / self.per_node } else { rank.index() };
        u32::try_from(2 * place).expect("fewer than 2^32 links")
    }

    /// The link on which it receives.
    fn in_at(&self, rank: Rank, leaves: bool) -> u32 {
        self.out_at(rank, leaves) + 1
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
