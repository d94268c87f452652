//! The cube: the ranks along the axes of the mesh. Whom a rank meets, over which wires, and what it sends them in the first step.
//!
//! Who meets is read off the run: an axis is one along which those who meet differ. So nothing here knows what a strategy does, and groups
//! that lie across several axes have a line of their own.

mod picture;
mod text;

use std::collections::{BTreeMap, BTreeSet};

pub use self::picture::{Cell, Mark};
use super::run::Run;
use super::traffic::{collective_of, sent};
use crate::base::mesh::{Axis, Mesh};
use crate::base::words::counted;
use crate::base::{Bytes, CollectiveId, OpId, Rank};
use crate::program::OpKind;
use crate::scenario::{Scenario, Task};

/// The mesh of a run, and where its ranks stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cube {
    /// All ranks, each by itself.
    pub mesh: Mesh,
    /// Ranks in a node.
    pub ranks_per_node: usize,
    /// Ranks that share out the experts of each layer: they are replicas, and no axis of the mesh.
    pub experts: usize,
}

/// A group of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// The axes along which its members differ, fastest first: one, but where ranks meet across several.
    pub axes: Vec<Axis>,
    /// Its members share out the experts of each layer: tokens go between them, and not what replicas share.
    pub shares_experts: bool,
    /// Its members in order.
    pub ranks: Vec<Rank>,
    /// Over which wires they talk.
    pub wires: Wires,
    /// What the rank sends them in the first step.
    pub sent: Bytes,
    /// Collectives of the first step in which it meets them.
    pub collectives: usize,
    /// Messages from stage to stage of the first step that it sends them.
    pub messages: usize,
}

/// What frameworks call the group that shares out experts; the stream on which it meets has that name.
const EXPERTS: &str = "ep";

/// Over which wires the members of a group talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wires {
    /// All stand in one node.
    Node,
    /// So many nodes, and in each some of them.
    Both(usize),
    /// Each stands in a node of its own.
    Network,
}

impl Wires {
    /// In words.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Node => "inside a node".to_owned(),
            Self::Both(nodes) => format!("inside and between {nodes} nodes"),
            Self::Network => "between nodes".to_owned(),
        }
    }
}

impl Party {
    /// Its name: `tp`, `dp x cp`; `ep` where experts are shared out, which lies along no axis of its own.
    #[must_use]
    pub fn name(&self) -> String {
        if self.shares_experts {
            return EXPERTS.to_owned();
        }
        self.axes.iter().map(|axis| axis.short()).collect::<Vec<_>>().join(" x ")
    }

    /// Whether it meets at all.
    fn is_used(&self) -> bool {
        self.collectives + self.messages > 0
    }

    /// What is done in it: `12 collectives, 4 messages`.
    #[must_use]
    pub fn work(&self) -> String {
        let parts = [(self.collectives, "collective"), (self.messages, "message")];
        let done = parts.into_iter().filter(|&(number, _)| number > 0).map(|(number, what)| counted(number as u64, what));
        let done: Vec<String> = done.collect();
        if done.is_empty() { "nothing".to_owned() } else { done.join(", ") }
    }
}

impl Cube {
    /// That of `scenario`; `None` for a bare piece.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Option<Self> {
        let Task::Train(training) = &scenario.task else { return None };
        Some(Self { mesh: training.mesh, ranks_per_node: scenario.hardware.ranks_per_node, experts: training.expert })
    }

    /// Whether a rank has several groups.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.axes().len() + usize::from(self.experts > 1) > 1
    }

    /// The axes with several ranks, fastest first.
    #[must_use]
    pub fn axes(&self) -> Vec<Axis> {
        self.mesh.order().into_iter().filter(|&axis| self.mesh.size(axis) > 1).collect()
    }

    /// The node of `rank`.
    #[must_use]
    pub fn node(&self, rank: Rank) -> usize {
        rank.index() / self.ranks_per_node
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.mesh.ranks().div_ceil(self.ranks_per_node)
    }

    /// Over which wires `ranks` talk.
    #[must_use]
    pub fn wires(&self, ranks: &[Rank]) -> Wires {
        let nodes: BTreeSet<usize> = ranks.iter().map(|&rank| self.node(rank)).collect();
        match nodes.len() {
            0 | 1 => Wires::Node,
            all if all == ranks.len() => Wires::Network,
            some => Wires::Both(some),
        }
    }

    /// The axes along which some of `ranks` differ, fastest first.
    #[must_use]
    pub fn apart(&self, ranks: &[Rank]) -> Vec<Axis> {
        let differ = |axis: &Axis| {
            let mut coordinates = ranks.iter().map(|&rank| self.mesh.coordinate(rank, *axis));
            let first = coordinates.next();
            coordinates.any(|coordinate| Some(coordinate) != first)
        };
        self.axes().into_iter().filter(differ).collect()
    }

    /// The groups of `rank`: one for each axis, then those that are no whole line of the mesh and in which it moves data.
    #[must_use]
    pub fn parties(&self, run: &Run, rank: Rank) -> Vec<Party> {
        let mut parties: Vec<Party> =
            self.axes().into_iter().map(|axis| self.party((vec![axis], false), self.mesh.group(rank, axis))).collect();
        let (own, folded) = run.program.setting.folding.fold(rank);
        let mut met = BTreeMap::new();
        for &op in &run.program.order[own.index()] {
            if run.of_step(op, 0)
                && run.times(op).is_some()
                && let Some(meeting) = meeting(run, op)
            {
                let all: &mut Met = met.entry(meeting).or_default();
                all.shares_experts = run.program.streams[run.program.stream_of(op).index()].name == EXPERTS;
                all.sent += sent(run, op);
                all.messages += usize::from(matches!(run.program.kind(op), OpKind::Send(_)));
            }
        }
        for (meeting, met) in met {
            let ranks = members(run, meeting, (rank, folded));
            let axes = self.apart(&ranks);
            if axes.is_empty() {
                continue;
            }
            let is_message = matches!(meeting, Meeting::With(_));
            let is_it = |party: &Party| {
                (&party.axes, party.shares_experts) == (&axes, met.shares_experts) && (is_message || party.ranks == ranks)
            };
            let place = parties.iter().position(is_it).unwrap_or_else(|| {
                parties.push(self.party((axes, met.shares_experts), ranks));
                parties.len() - 1
            });
            parties[place].sent += met.sent;
            match meeting {
                Meeting::Collective(_) => parties[place].collectives += 1,
                Meeting::With(_) => parties[place].messages += met.messages,
            }
        }
        // Where subsets of a line meet, the line itself does nothing.
        let of_replicas = parties.iter().filter(|party| !party.shares_experts);
        let axes: Vec<Vec<Axis>> = of_replicas.map(|party| party.axes.clone()).collect();
        let is_alone = |party: &Party| axes.iter().filter(|axes| **axes == party.axes).count() == 1;
        parties.retain(|party| party.is_used() || is_alone(party));
        parties
    }

    fn party(&self, (axes, shares_experts): (Vec<Axis>, bool), ranks: Vec<Rank>) -> Party {
        let wires = self.wires(&ranks);
        Party { axes, shares_experts, ranks, wires, sent: Bytes::ZERO, collectives: 0, messages: 0 }
    }
}

/// What was sent in a meeting.
#[derive(Default)]
struct Met {
    shares_experts: bool,
    sent: Bytes,
    messages: usize,
}

/// Whom an op meets: those of a collective, or the other end of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meeting {
    Collective(CollectiveId),
    With(Rank),
}

fn meeting(run: &Run, op: OpId) -> Option<Meeting> {
    if let Some(collective) = collective_of(run, op) {
        return Some(Meeting::Collective(collective));
    }
    match run.program.kind(op) {
        OpKind::Send(channel) => Some(Meeting::With(run.program.channels[channel.index()].to)),
        _ => None,
    }
}

/// Who meets `rank`, each by itself, where it is the `folded`-th that its follower stands for.
fn members(run: &Run, meeting: Meeting, (rank, folded): (Rank, usize)) -> Vec<Rank> {
    match meeting {
        Meeting::With(other) => vec![rank, run.program.unfolded(other, folded)],
        Meeting::Collective(id) => run.program.group_of(id).members(&run.program.setting.folding, rank),
    }
}
