//! A mixture of experts inside a model: in the place of each layer's feed-forward stand a router and experts, of which every token uses a few.
//!
//! Routes are known before a run: the tokens of a micro-batch choose so that every expert has its load, by lots that depend on seed, layer and
//! micro-batch alone. The router's own logits decide the weights of the chosen experts, and with them all gradients; which ones are chosen, a
//! bias decides that stands beside them, as where one evens out loads without an auxiliary loss (Wang et al. 2024, arXiv 2408.15664).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::experts::Experts;
use super::model::{Activation, Model, Parameter};
use super::routing::{Routing, apportion};
use super::settings::Placement;

/// The experts of every layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    /// Experts.
    pub count: usize,
    /// Experts that a token goes to.
    pub top_k: usize,
    /// An expert takes so many times its even share of a micro-batch's choices; 0 takes all.
    pub capacity_factor: f64,
    /// What the auxiliary loss is multiplied by.
    pub auxiliary: f64,
    /// Groups of a micro-batch's tokens: capacity counts within one, and all have the same loads. The mesh makes them, so they are not saved.
    #[serde(skip)]
    pub groups: Groups,
    /// How often each expert is chosen, in proportion.
    pub popularity: Vec<u64>,
}

/// How the tokens of a micro-batch fall into groups: one for each rank that keeps tokens of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Slices of every sequence.
    pub slices: usize,
    /// Which tokens belong to which slice.
    pub placement: Placement,
    /// Stretches of the tokens of a slice, one sequence behind the other.
    pub stretches: usize,
}

impl Default for Groups {
    /// All tokens together.
    fn default() -> Self {
        Self { slices: 1, placement: Placement::Contiguous, stretches: 1 }
    }
}

impl Groups {
    /// How many there are.
    #[must_use]
    pub fn count(self) -> usize {
        self.slices * self.stretches
    }

    /// The group of the rank that has this slice, and this stretch of it.
    #[must_use]
    pub fn number(self, slice: usize, stretch: usize) -> usize {
        slice * self.stretches + stretch
    }

    /// The tokens of a group, by their numbers in the micro-batch: `size` sequences of so many tokens, one behind the other. They ascend.
    ///
    /// The groups must [fit](Self::fit) the micro-batch.
    #[must_use]
    pub fn tokens(self, (size, sequence): (usize, usize), group: usize) -> Vec<usize> {
        let own = sequence / self.slices;
        let positions = self.placement.positions(sequence, self.slices, group / self.stretches);
        let each = size * own / self.stretches;
        let first = group % self.stretches * each;
        (first..first + each).map(|token| token / own * sequence + positions[token % own] as usize).collect()
    }

    /// Whether a micro-batch of `size` sequences of so many tokens falls into such groups, all of the same length.
    #[must_use]
    pub fn fit(self, (size, sequence): (usize, usize)) -> bool {
        let Self { slices, placement, stretches } = self;
        slices > 0
            && stretches > 0
            && sequence.is_multiple_of(placement.divisor(slices))
            && (size * sequence / slices).is_multiple_of(stretches)
    }
}

impl Mixture {
    /// How many matrices an expert has: gate, up and down, or two.
    #[must_use]
    pub fn matrices(activation: Activation) -> usize {
        if activation == Activation::Swiglu { 3 } else { 2 }
    }

    #[expect(clippy::cast_precision_loss, reason = "at most a billion")]
    fn weights(&self) -> Vec<f64> {
        self.popularity.iter().map(|&share| share as f64).collect()
    }

    /// So many tokens of one group as a layer that stands alone.
    #[must_use]
    pub fn group(&self, model: &Model, tokens: usize, seed: u64) -> Experts {
        let choices = (tokens * self.top_k) as u64;
        Experts {
            tokens,
            groups: 1,
            ranks: 1,
            count: self.count,
            top_k: self.top_k,
            capacity_factor: self.capacity_factor,
            lost: None,
            auxiliary: self.auxiliary,
            hidden: model.hidden,
            ffn: model.ffn,
            activation: model.activation,
            loads: apportion(&self.weights(), choices, tokens as u64),
            seed,
        }
    }

    /// Where the tokens of some groups go, of a layer and micro-batch of `size` sequences: as rows of these tokens alone, in their order.
    #[must_use]
    pub fn routing(
        &self,
        model: &Model,
        size: usize,
        (seed, layer, micro_batch): (u64, u32, u32),
        groups: Range<usize>,
    ) -> Routing {
        let place = (u64::from(layer) << 32) | u64::from(micro_batch);
        let seed = seed ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let tokens: Vec<Vec<usize>> = groups.clone().map(|group| self.groups.tokens((size, model.sequence), group)).collect();
        let mut all = tokens.concat();
        all.sort_unstable();
        let rows = tokens.iter().map(|tokens| tokens.iter().map(|token| all.partition_point(|other| other < token)).collect());
        let rows: Vec<Vec<usize>> = rows.collect();
        let (k, mut chosen) = (self.top_k, vec![0; all.len() * self.top_k]);
        for (group, rows) in groups.zip(&rows) {
            let lot = (group as u64).wrapping_mul(0xa076_1d64_78bd_642f);
            let own = Routing::planned(&self.group(model, rows.len(), seed ^ lot)).chosen;
            rows.iter().zip(own.chunks(k)).for_each(|(row, choices)| chosen[row * k..][..k].copy_from_slice(choices));
        }
        let each = rows.first().map_or(0, Vec::len);
        Routing::of_groups(&self.group(model, each, seed), chosen, rows)
    }

    /// Tokens of each group, of a micro-batch of `size` sequences.
    #[must_use]
    pub fn group_tokens(&self, model: &Model, size: usize) -> usize {
        size * model.sequence / self.groups.count().max(1)
    }

    /// Tokens of a group that each expert takes, of a micro-batch of `size` sequences: the same in every one.
    #[must_use]
    pub fn rows(&self, model: &Model, size: usize) -> Vec<usize> {
        let group = self.group(model, self.group_tokens(model, size), 0);
        let most = group.capacity().unwrap_or(usize::MAX);
        group.loads.iter().map(|&load| usize::try_from(load).map_or(most, |load| load.min(most))).collect()
    }

    /// Why there are no such experts, if their numbers came from outside.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        let Self { count, top_k, .. } = *self;
        let is_number = |number: f64| number.is_finite() && number >= 0.0;
        if self.groups.count() == 0 || !(1..=4_096).contains(&count) || !(1..=count).contains(&top_k) {
            return Some(format!("a token cannot go to {top_k} of {count} experts"));
        }
        if self.popularity.len() != count || self.popularity.iter().any(|&share| share > 1 << 40) {
            return Some(format!("{count} experts are not chosen in {} proportions", self.popularity.len()));
        }
        let are_numbers = is_number(self.capacity_factor) && is_number(self.auxiliary);
        (!are_numbers).then(|| "capacity factor and auxiliary loss are no numbers from 0 on".to_owned())
    }
}

impl Parameter {
    /// The expert whose matrix it is.
    #[must_use]
    pub fn expert(&self) -> Option<usize> {
        let inside = self.name.strip_prefix("blocks.")?.split_once('.')?.1;
        inside.strip_prefix("experts.")?.split_once('.')?.0.parse().ok()
    }
}

impl Model {
    /// Whether a token uses a part of the model alone.
    #[must_use]
    pub fn has_experts(&self) -> bool {
        self.experts.is_some()
    }

    /// The model without what a mesh makes of it: the tokens of a micro-batch are one group.
    #[must_use]
    pub fn on_any_mesh(&self) -> Self {
        let whole = |experts: &Mixture| Mixture { groups: Groups::default(), ..experts.clone() };
        Self { experts: self.experts.as_ref().map(whole), ..self.clone() }
    }

    /// Columns of the feed-forward that a token goes through: of all the experts that it chooses.
    #[must_use]
    pub fn active_ffn(&self) -> usize {
        self.ffn * self.experts.as_ref().map_or(1, |experts| experts.top_k)
    }
}

#[cfg(test)]
pub(in crate::base) mod tests {
    use super::*;
    use crate::base::split::tests::MODEL;

    /// Experts that are chosen so often, two by each token.
    pub fn mixture(popularity: Vec<u64>, capacity_factor: f64) -> Mixture {
        Mixture { count: popularity.len(), top_k: 2, capacity_factor, auxiliary: 0.01, groups: Groups::default(), popularity }
    }

    /// A model of so long sequences.
    fn model(sequence: usize) -> Model {
        Model { sequence, ..MODEL }
    }

    #[test]
    fn every_micro_batch_has_the_same_loads_and_other_routes() {
        for (popularity, tokens) in [(vec![1; 5], 7), (vec![4, 3, 2, 1], 11), (vec![9, 0, 1], 6)] {
            let (mixture, model) = (mixture(popularity, 0.0), model(tokens));
            let of = |layer, m| mixture.routing(&model, 1, (3, layer, m), 0..1);
            let rows = mixture.rows(&model, 1);
            assert_eq!(rows.iter().sum::<usize>(), 2 * tokens);
            for (layer, m) in [(0, 0), (0, 1), (1, 0), (2, 5)] {
                let found: Vec<usize> = (0..rows.len()).map(|expert| of(layer, m).load(expert)).collect();
                assert_eq!(found, rows);
            }
            assert_eq!(of(1, 2), of(1, 2));
        }
        let (mixture, model) = (mixture(vec![1; 8], 0.0), model(32));
        let of = |layer, m| mixture.routing(&model, 1, (3, layer, m), 0..1).chosen;
        assert!(of(0, 0) != of(0, 1) && of(0, 0) != of(1, 0) && of(0, 1) != of(1, 0));
    }

    #[test]
    fn groups_choose_for_themselves_wherever_their_tokens_stand() {
        for (groups, size, sequence) in [
            (Groups { stretches: 2, ..Groups::default() }, 2, 6),
            (Groups { slices: 2, placement: Placement::Zigzag, stretches: 1 }, 2, 12),
            (Groups { slices: 3, placement: Placement::Striped, stretches: 1 }, 1, 9),
            (Groups { slices: 3, placement: Placement::Contiguous, stretches: 2 }, 6, 6),
            (Groups { slices: 2, placement: Placement::Zigzag, stretches: 3 }, 3, 8),
        ] {
            let (mixture, model) = (Mixture { groups, ..mixture(vec![3, 1, 1, 0, 2], 1.25) }, model(sequence));
            assert!(groups.fit((size, sequence)));
            let of = |of: Range<usize>| mixture.routing(&model, size, (3, 1, 2), of);
            let all = of(0..groups.count());
            let mut met = vec![0; size * sequence];
            for group in 0..groups.count() {
                let (own, tokens) = (of(group..group + 1), groups.tokens((size, sequence), group));
                assert!(tokens.is_sorted() && tokens.len() == mixture.group_tokens(&model, size), "{groups:?}");
                for (row, &token) in tokens.iter().enumerate() {
                    met[token] += 1;
                    let [own, all] =
                        [(&own, row), (&all, token)].map(|(of, at)| (&of.chosen[2 * at..][..2], &of.kept[2 * at..][..2]));
                    assert_eq!(own, all, "{groups:?}: token {token} of group {group}");
                }
                for expert in 0..5 {
                    let rows =
                        |of: &Routing, group| of.rows(group, expert).iter().map(|&place| place as usize).collect::<Vec<_>>();
                    let as_all: Vec<usize> = rows(&own, 0).into_iter().map(|place| 2 * tokens[place / 2] + place % 2).collect();
                    assert_eq!(as_all, rows(&all, group), "{groups:?}: expert {expert} of group {group}");
                }
                assert!(group == 0 || own.chosen != of(0..1).chosen, "{groups:?}");
            }
            assert_eq!(met, vec![1; size * sequence], "every token is in one group of {groups:?}");
        }
    }

    #[test]
    fn a_group_has_the_tokens_of_a_slice_of_every_sequence() {
        let zigzag = Groups { slices: 2, placement: Placement::Zigzag, stretches: 2 };
        assert_eq!(zigzag.tokens((2, 8), 0), [0, 1, 6, 7]);
        assert_eq!(zigzag.tokens((2, 8), 3), [10, 11, 12, 13]);
        let striped = Groups { slices: 3, placement: Placement::Striped, stretches: 1 };
        assert_eq!(striped.tokens((2, 6), 1), [1, 4, 7, 10]);
        assert_eq!(Groups { stretches: 3, ..Groups::default() }.tokens((2, 6), 1), [4, 5, 6, 7]);
        assert!(!zigzag.fit((2, 6)) && !striped.fit((1, 8)) && !Groups { stretches: 3, ..zigzag }.fit((1, 8)));
    }

    #[test]
    fn an_expert_takes_no_more_than_its_capacity() {
        // 9 tokens with 2 choices over 3 experts: 6 each, 7.5 with a quarter more.
        assert_eq!(mixture(vec![1, 0, 0], 1.25).rows(&model(9), 1), [8, 5, 4]);
        assert_eq!(mixture(vec![1, 0, 0], 0.0).rows(&model(3), 3), [9, 5, 4]);
    }

    #[test]
    fn an_expert_knows_its_matrices() {
        let model = Model { experts: Some(mixture(vec![1; 12], 0.0)), ..MODEL };
        let own: Vec<usize> = model.parameters().iter().filter_map(Parameter::expert).collect();
        assert_eq!(own.len(), 2 * 12 * MODEL.layers);
        assert_eq!(own.iter().filter(|expert| **expert == 11).count(), 2 * MODEL.layers);
        assert!(MODEL.parameters().iter().all(|parameter| parameter.expert().is_none()));
    }
}
