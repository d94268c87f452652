//! Experts in reports: how often each is chosen, which choices find no room, and which rank's experts have most to do.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::base::Rank;
use crate::base::experts::Experts;
use crate::base::routing::Routing;
use crate::program::{Name, Program};

/// The experts of a layer: of a training step for the tokens of one micro-batch of each rank, which are as many in every one; of a layer that
/// stands alone for all tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mixture {
    /// Experts.
    pub count: usize,
    /// Experts that a token goes to.
    pub top_k: usize,
    /// Ranks that share them out.
    pub ranks: usize,
    /// How often each expert is chosen.
    pub chosen: Vec<u64>,
    /// Tokens that each expert takes.
    pub taken: Vec<u64>,
    /// Choices that find no room.
    pub dropped: u64,
    /// Per rank that shares them out, what its experts compute, in even shares of all choices.
    pub rank_share: Vec<f64>,
    /// Per step, the auxiliary losses of all layers, as a mean over micro-batches; empty without real values.
    pub auxiliary_loss: Vec<f64>,
}

impl Mixture {
    /// The experts of `program`, if it has any.
    #[must_use]
    pub fn of(program: &Program, auxiliary_loss: &[f64]) -> Option<Self> {
        let auxiliary_loss = auxiliary_loss.to_vec();
        if let Some(layer) = &program.setting.experts {
            let routing = Routing::planned(layer);
            let number = |tokens: usize| tokens as u64;
            let taken = (0..layer.count).map(|expert| number(routing.load(expert))).collect();
            return Some(Self { auxiliary_loss, ..Self::new(layer, layer.ranks, layer.loads.clone(), taken) });
        }
        let model = program.setting.model.as_ref()?;
        let experts = model.experts.as_ref()?;
        let (size, groups) = (program.setting.micro_batch_size, experts.groups.count() as u64);
        let taken = experts.rows(model, size).into_iter().map(|rows| rows as u64 * groups).collect();
        let layer = experts.group(model, experts.group_tokens(model, size), 0);
        let ranks = experts.count / own_experts(program).max(1);
        let chosen = layer.loads.iter().map(|load| load * groups).collect();
        Some(Self { auxiliary_loss, ..Self::new(&layer, ranks, chosen, taken) })
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of tokens")]
    fn new(layer: &Experts, ranks: usize, chosen: Vec<u64>, taken: Vec<u64>) -> Self {
        let (all, rows): (u64, u64) = (chosen.iter().sum(), taken.iter().sum());
        let each = (layer.count / ranks.max(1)).max(1);
        let share = |own: &[u64]| own.iter().sum::<u64>() as f64 * ranks as f64 / all.max(1) as f64;
        let rank_share = taken.chunks(each).map(share).collect();
        let (count, top_k) = (layer.count, layer.top_k);
        Self { count, top_k, ranks, chosen, taken, dropped: all - rows, rank_share, auxiliary_loss: Vec::new() }
    }

    /// The rank whose experts compute most, and how many times an even share; `None` if none has more than another.
    #[must_use]
    pub fn busiest(&self) -> Option<(usize, f64)> {
        let most = self.rank_share.iter().copied().fold(0.0, f64::max);
        let is_less = |share: &f64| most - share > 1e-9;
        self.rank_share
            .iter()
            .any(is_less)
            .then(|| self.rank_share.iter().position(|share| !is_less(share)))?
            .map(|rank| (rank, most))
    }

    /// What there is to say about a training step's.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { count, top_k, ranks, .. } = self;
        let mut words = vec![format!("{count} in a layer, {top_k} for each token, shared out among {ranks} ranks")];
        let busiest = self.busiest();
        let busiest = busiest.map(|(rank, share)| format!("number {rank} of them computes {share:.2} times an even share"));
        words.extend(busiest);
        if self.dropped > 0 {
            words.push(format!("{} of {} choices find no room", self.dropped, self.chosen.iter().sum::<u64>()));
        }
        if let (Some(first), Some(last)) = (self.auxiliary_loss.first(), self.auxiliary_loss.last()) {
            words.push(format!("auxiliary loss {first:.4} to {last:.4}"));
        }
        words.join("; ")
    }
}

/// Experts of a layer that the first rank with any holds.
fn own_experts(program: &Program) -> usize {
    let of = |rank: Rank| -> BTreeSet<usize> {
        let held = program.buffers.iter().filter(|buffer| buffer.rank == rank).filter_map(|buffer| match buffer.name {
            Name::Parameter(id) => program.parameters.get(id.index())?.expert(),
            _ => None,
        });
        held.collect()
    };
    (0..program.ranks()).map(|rank| of(Rank::new(rank)).len()).find(|&own| own > 0).unwrap_or(0)
}
