//! Routes: a mixture of experts as a grid of ranks with tokens against experts, how far each of its pieces is at any event, and who has most.

use super::blocks::Stage;
use super::metrics::Metrics;
use super::state::{At, State};
use super::traffic::CollectiveStats;
use crate::base::experts::Experts;
use crate::base::routing::Routing;
use crate::base::units::short_number;
use crate::base::{ExpertTensor, OpId};
use crate::program::{CollectiveKind, Kernel, Name, OpKind, Program};

/// The routes of a mixture of experts that stands alone.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The layer.
    pub layer: Experts,
    /// Where its tokens go.
    pub routing: Routing,
    /// Per rank, its experts' passes.
    ops: Vec<Passes>,
}

/// What a rank does for its experts' tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Passes {
    arrives: Option<OpId>,
    forward: Option<OpId>,
    backward: Option<OpId>,
}

/// How far the tokens of a rank are at an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Not sent yet.
    Waiting,
    /// On their way.
    Moving,
    /// At the expert, and not looked at.
    There,
    /// As far as a block of attention may be.
    Computed(Stage),
}

impl Routes {
    /// The routes of `program`, if it is a mixture of experts.
    #[must_use]
    pub fn of(program: &Program) -> Option<Self> {
        let layer = program.setting.experts.clone()?;
        let mut ops = vec![Passes::default(); program.ranks()];
        for op in program.all() {
            let passes = &mut ops[program.rank_of(op).index()];
            match program.kind(op).original() {
                OpKind::Run(kernel) => match program.kernels[kernel.index()].kernel {
                    Kernel::Dispatch if layer.ranks == 1 => passes.arrives = Some(op),
                    Kernel::Experts => passes.forward = Some(op),
                    Kernel::ExpertsBackward => passes.backward = Some(op),
                    _ => {}
                },
                OpKind::Collective(_) if writes(program, op, ExpertTensor::Arrived) => passes.arrives = Some(op),
                _ => {}
            }
        }
        Some(Self { routing: Routing::planned(&layer), layer, ops })
    }

    /// Tokens of `from` that `expert` takes.
    #[must_use]
    pub fn sent(&self, from: usize, expert: usize) -> usize {
        self.layer.sent(&self.routing, from, expert)
    }

    /// How far the tokens for the experts of `rank` are.
    #[must_use]
    pub fn way(&self, at: &At, rank: usize) -> Way {
        let state = |op: Option<OpId>| op.map(|op| at.state(op));
        let Some(passes) = self.ops.get(rank) else { return Way::Waiting };
        match (state(passes.arrives), state(passes.forward), state(passes.backward)) {
            (.., Some(State::Done)) => Way::Computed(Stage::HasGradients),
            (.., Some(State::Running)) => Way::Computed(Stage::Backward),
            (_, Some(State::Done), _) => Way::Computed(Stage::HasOutput),
            (_, Some(State::Running), _) => Way::Computed(Stage::Forward),
            (Some(State::Done), ..) => Way::There,
            (Some(State::Running), ..) => Way::Moving,
            _ => Way::Waiting,
        }
    }

    /// Rows that the experts of `rank` compute.
    #[must_use]
    pub fn rows(&self, rank: usize) -> usize {
        self.layer.rank_rows(&self.routing, rank)
    }

    /// How many times an even share of all choices the experts of `rank` compute.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of tokens")]
    pub fn burden(&self, rank: usize) -> f64 {
        self.rows(rank) as f64 / self.layer.even_rows().max(1) as f64
    }

    /// The rank whose experts compute most; `None` if none has more than another.
    #[must_use]
    pub fn slowest(&self) -> Option<usize> {
        let rows: Vec<usize> = (0..self.layer.ranks).map(|rank| self.rows(rank)).collect();
        let most = rows.iter().copied().max()?;
        if rows.iter().all(|&own| own == most) { None } else { rows.iter().position(|&own| own == most) }
    }

    /// What the ranks send and compute, and what finds no room.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a report's number")]
    pub fn words(&self, metrics: &Metrics, program: &Program) -> String {
        let layer = &self.layer;
        let mut words = vec![format!("{} on {} ranks, {} for each token", layer.count, layer.ranks, layer.top_k)];
        let is_exchange =
            |stats: &&CollectiveStats| program.collectives[stats.collective.index()].kind == CollectiveKind::AllToAll;
        let exchanges: Vec<&CollectiveStats> = metrics.collectives.iter().filter(is_exchange).collect();
        if let Some(first) = exchanges.first() {
            let each = first.sent.0 as f64 / layer.ranks as f64;
            let each =
                if each < 1e6 { format!("{} kB", short_number(each / 1e3)) } else { format!("{} MB", short_number(each / 1e6)) };
            words.push(format!("{} all-to-alls, in each of which a rank sends {each} on average", exchanges.len()));
        }
        words.extend(self.slowest().map(|rank| format!("r{rank} computes {:.2} times an even share", self.burden(rank))));
        if self.routing.dropped() > 0 {
            words.push(format!("{} of {} choices find no room", self.routing.dropped(), self.routing.chosen.len()));
        }
        words.join("; ")
    }

    /// Choices of an expert that it does not take.
    #[must_use]
    pub fn dropped(&self, expert: usize) -> usize {
        self.routing.choices(expert) - self.routing.load(expert)
    }
}

fn writes(program: &Program, op: OpId, tensor: ExpertTensor) -> bool {
    let is_it = |name: Name| matches!(name, Name::Expert(of, _) if of == tensor);
    program.writes(op).first().is_some_and(|buffer| is_it(program.buffers[buffer.index()].name))
}
