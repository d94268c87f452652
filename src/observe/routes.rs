//! Routes: a mixture of experts as a grid of ranks with tokens against experts, how far each of its pieces is at any event, and who has most.
//! It stands alone, or is a layer of a training step, to which each rank brings a micro-batch ([`step`]).

pub mod step;

use super::blocks::Stage;
use super::metrics::Metrics;
use super::state::{At, State};
use super::traffic::CollectiveStats;
use crate::base::experts::Experts;
use crate::base::routing::Routing;
use crate::base::units::short_number;
use crate::base::{CollectiveId, ExpertTensor, OpId, Rank};
use crate::program::{CollectiveKind, Kernel, Name, OpKind, Program};

/// The routes of a mixture of experts. Its ranks are told by their places among those that share out the experts.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The layer, with the tokens of all its ranks.
    pub layer: Experts,
    /// Its ranks.
    pub ranks: Vec<Rank>,
    /// Which layer of a training step it is, and per place the micro-batch; `None` where it stands alone.
    pub site: Option<(u32, Vec<u32>)>,
    /// Its collectives, in their order.
    pub collectives: Vec<CollectiveId>,
    /// Where the tokens of a layer that stands alone go.
    routing: Option<Routing>,
    /// Per place, how many tokens each expert takes.
    sent: Vec<Vec<usize>>,
    /// Per place, its experts' passes.
    ops: Vec<Passes>,
}

/// A token's choice of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The expert.
    pub expert: u32,
    /// Whether it takes the token.
    pub kept: bool,
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
    /// The routes of `program`, if it is a mixture of experts that stands alone.
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
        let routing = Routing::planned(&layer);
        let of_rank = |from| (0..layer.count).map(|expert| layer.sent(&routing, from, expert)).collect();
        let sent = (0..layer.ranks).map(of_rank).collect();
        let ranks = (0..layer.ranks).map(Rank::new).collect();
        let collectives = (0..program.collectives.len()).map(CollectiveId::new).collect();
        Some(Self { layer, ranks, site: None, collectives, routing: Some(routing), sent, ops })
    }

    /// Tokens of `from` that `expert` takes.
    #[must_use]
    pub fn sent(&self, from: usize, expert: usize) -> usize {
        self.sent[from][expert]
    }

    /// Tokens that `expert` takes.
    #[must_use]
    pub fn load(&self, expert: usize) -> usize {
        self.sent.iter().map(|of_rank| of_rank[expert]).sum()
    }

    /// The choices of the tokens of the rank at `place`, token by token; `None` where they are too many to draw again.
    #[must_use]
    pub fn choices(&self, program: &Program, place: usize) -> Option<Vec<Choice>> {
        let choices = |routing: &Routing, places: std::ops::Range<usize>| {
            let choice = |at| Some(Choice { expert: *routing.chosen.get(at)?, kept: *routing.kept.get(at)? });
            places.map_while(choice).collect()
        };
        let own = self.layer.tokens_per_rank() * self.layer.top_k;
        match &self.routing {
            Some(routing) => Some(choices(routing, place * own..(place + 1) * own)),
            None => step::routing(program, self, place).map(|routing| choices(&routing, 0..own)),
        }
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
        let own = self.layer.experts_per_rank();
        (rank * own..(rank + 1) * own).map(|expert| self.load(expert)).sum()
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
        if self.all_dropped() > 0 {
            words.push(format!("{} of {} choices find no room", self.all_dropped(), self.all_choices()));
        }
        words.join("; ")
    }

    /// Choices of an expert that it does not take.
    #[must_use]
    pub fn dropped(&self, expert: usize) -> usize {
        self.chosen(expert) - self.load(expert)
    }

    /// How often an expert was chosen.
    #[must_use]
    pub fn chosen(&self, expert: usize) -> usize {
        self.layer.loads.get(expert).map_or(0, |&load| usize::try_from(load).unwrap_or(usize::MAX))
    }

    /// Choices of all tokens that no expert takes.
    #[must_use]
    pub fn all_dropped(&self) -> usize {
        (0..self.layer.count).map(|expert| self.dropped(expert)).sum()
    }

    /// Choices of all tokens.
    #[must_use]
    pub fn all_choices(&self) -> usize {
        self.layer.all_tokens() * self.layer.top_k
    }
}

fn writes(program: &Program, op: OpId, tensor: ExpertTensor) -> bool {
    let is_it = |name: Name| matches!(name, Name::Expert(of, _) if of == tensor);
    program.writes(op).first().is_some_and(|buffer| is_it(program.buffers[buffer.index()].name))
}
