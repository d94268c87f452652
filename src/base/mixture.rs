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
    /// Groups of a micro-batch's tokens, one for each rank that keeps tokens of its own: capacity counts within one, and all have the same loads.
    pub groups: usize,
    /// How often each expert is chosen, in proportion.
    pub popularity: Vec<u64>,
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

    /// Where the tokens of so many groups go, of a layer and micro-batch: `tokens` of each group, from `first` on.
    #[must_use]
    pub fn routing(
        &self,
        model: &Model,
        tokens: usize,
        (seed, layer, micro_batch): (u64, u32, u32),
        groups: Range<usize>,
    ) -> Routing {
        let place = (u64::from(layer) << 32) | u64::from(micro_batch);
        let seed = seed ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let of_group = |group: usize| {
            let lot = (group as u64).wrapping_mul(0xa076_1d64_78bd_642f);
            Routing::planned(&self.group(model, tokens, seed ^ lot)).chosen
        };
        Routing::of(&self.group(model, tokens, seed), groups.flat_map(of_group).collect())
    }

    /// Tokens of a group that each expert takes: the same in every one.
    #[must_use]
    pub fn rows(&self, model: &Model, tokens: usize) -> Vec<usize> {
        let group = self.group(model, tokens, 0);
        let most = group.capacity().unwrap_or(usize::MAX);
        group.loads.iter().map(|&load| usize::try_from(load).map_or(most, |load| load.min(most))).collect()
    }

    /// Why there are no such experts, if their numbers came from outside.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        let Self { count, top_k, .. } = *self;
        let is_number = |number: f64| number.is_finite() && number >= 0.0;
        if self.groups == 0 || !(1..=4_096).contains(&count) || !(1..=count).contains(&top_k) {
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

    /// Columns of the feed-forward that a token goes through: of all the experts that it chooses.
    #[must_use]
    pub fn active_ffn(&self) -> usize {
        self.ffn * self.experts.as_ref().map_or(1, |experts| experts.top_k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::split::tests::MODEL;

    fn mixture(popularity: Vec<u64>, capacity_factor: f64) -> Mixture {
        Mixture { count: popularity.len(), top_k: 2, capacity_factor, auxiliary: 0.01, groups: 1, popularity }
    }

    #[test]
    fn every_micro_batch_has_the_same_loads_and_other_routes() {
        for (popularity, tokens) in [(vec![1; 5], 7), (vec![4, 3, 2, 1], 11), (vec![9, 0, 1], 6)] {
            let mixture = mixture(popularity, 0.0);
            let of = |layer, m| mixture.routing(&MODEL, tokens, (3, layer, m), 0..1);
            let rows = mixture.rows(&MODEL, tokens);
            assert_eq!(rows.iter().sum::<usize>(), 2 * tokens);
            for (layer, m) in [(0, 0), (0, 1), (1, 0), (2, 5)] {
                let found: Vec<usize> = (0..rows.len()).map(|expert| of(layer, m).load(expert)).collect();
                assert_eq!(found, rows);
            }
            assert_eq!(of(1, 2), of(1, 2));
        }
        let mixture = mixture(vec![1; 8], 0.0);
        let of = |layer, m| mixture.routing(&MODEL, 32, (3, layer, m), 0..1).chosen;
        let both = mixture.routing(&MODEL, 32, (3, 1, 2), 0..2).chosen;
        let second = mixture.routing(&MODEL, 32, (3, 1, 2), 1..2).chosen;
        assert!(both == [of(1, 2), second.clone()].concat() && second != of(1, 2), "groups choose for themselves");
        assert!(of(0, 0) != of(0, 1) && of(0, 0) != of(1, 0) && of(0, 1) != of(1, 0));
    }

    #[test]
    fn an_expert_takes_no_more_than_its_capacity() {
        // 9 tokens with 2 choices over 3 experts: 6 each, 7.5 with a quarter more.
        assert_eq!(mixture(vec![1, 0, 0], 1.25).rows(&MODEL, 9), [8, 5, 4]);
        assert_eq!(mixture(vec![1, 0, 0], 0.0).rows(&MODEL, 9), [9, 5, 4]);
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
