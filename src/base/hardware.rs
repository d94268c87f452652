//! What things cost: textbook slots, or a table of devices and links, each with its source.

use super::Rank;
use super::units::{Bytes, Clock, Ticks};

/// The costs of a run and the memory of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// What compute and messages cost.
    pub costs: Costs,
    /// Memory of one device; `None` is without limit.
    pub memory: Option<Bytes>,
    /// Ranks in one node: messages inside use `inside`, others `between` (see [`Table`]).
    pub ranks_per_node: usize,
    /// If messages that are in flight together share the ports of ranks and the NICs of nodes: how many NICs a node has.
    pub sharing: Option<usize>,
}

/// What compute and messages cost.
#[derive(Clone, Debug, PartialEq)]
pub enum Costs {
    /// Textbook slots; messages, collectives, optimizer, embedding and head are free.
    Unit(UnitCosts),
    /// Time = alpha + bytes / bandwidth, FLOPs / speed.
    Table(Table),
}

/// Ticks of one whole slot of each kind; a stage's blocks share a slot evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitCosts {
    /// Ticks that make one slot of the clock.
    pub ticks_per_slot: u64,
    /// Forward of a stage.
    pub forward: Ticks,
    /// Backward for the input of a stage.
    pub backward_input: Ticks,
    /// Backward for the weights of a stage.
    pub backward_weight: Ticks,
    /// A forward and a backward that run as one; every pass's share of it is a whole number of ticks.
    pub overlapped: Ticks,
}

/// A device and the links around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name in scenarios.
    pub name: String,
    /// The device.
    pub device: Device,
    /// Link between two ranks of a node.
    pub inside: Link,
    /// Link between two nodes.
    pub between: Link,
}

/// A device's speeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Achieved floating-point operations a second in matrix products.
    pub flops_per_second: f64,
    /// Dense peak of its matrix units, which the utilizations MFU and HFU are shares of; `None` where nobody says.
    pub peak_flops_per_second: Option<f64>,
    /// Bytes a second to and from its memory, for element-wise work.
    pub memory_bytes_per_second: f64,
    /// Memory.
    pub memory: Bytes,
    /// Where the numbers come from.
    pub source: String,
}

/// A link's latency and bandwidth, one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Latency of a message.
    pub alpha: Ticks,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Where the numbers come from.
    pub source: String,
}

/// How many of `ranks` stand in each node, those of a node behind each other; `None` if the nodes cut them unevenly.
#[must_use]
pub fn members_per_node(ranks: &[Rank], ranks_per_node: usize) -> Option<usize> {
    let nodes = ranks.chunk_by(|a, b| a.index() / ranks_per_node == b.index() / ranks_per_node);
    let mut sizes = nodes.map(<[Rank]>::len);
    let first = sizes.next()?;
    sizes.all(|size| size == first).then_some(first)
}

impl UnitCosts {
    /// A forward and a backward, one after the other.
    #[must_use]
    pub fn all(&self) -> Ticks {
        self.forward + self.backward_input + self.backward_weight
    }
}

impl Hardware {
    /// The clock that these costs tick on.
    #[must_use]
    pub fn clock(&self) -> Clock {
        match &self.costs {
            Costs::Unit(unit) => Clock::Slots { ticks_per_slot: unit.ticks_per_slot },
            Costs::Table(_) => Clock::Nanoseconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_cut_groups_evenly_or_not() {
        let check = |ranks: &[u32], ranks_per_node, expected| {
            let ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
            assert_eq!(members_per_node(&ranks, ranks_per_node), expected, "{ranks:?} {ranks_per_node}");
        };
        check(&[0, 1, 2, 3, 4, 5], 3, Some(3));
        check(&[0, 1, 2, 3, 4, 5], 8, Some(6));
        check(&[0, 1, 2, 3, 4, 5], 4, None);
        check(&[6, 7, 8, 9], 4, Some(2));
        check(&[1, 3, 5, 7], 4, Some(2));
        check(&[1, 3, 5, 7], 1, Some(1));
        check(&[], 4, None);
    }
}
