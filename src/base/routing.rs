//! Routing: which token goes to which expert, and which of those that are chosen have no room for it.

use super::experts::Experts;

/// Where the tokens of some groups go. A place is a token and one of its choices: `token * top_k + choice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// By place, the expert.
    pub chosen: Vec<u32>,
    /// By place, whether the expert takes the token.
    pub kept: Vec<bool>,
    /// By group and expert, the places that the expert takes: tokens in their order.
    rows: Vec<Vec<u32>>,
    /// By expert, how often it was chosen.
    choices: Vec<usize>,
    dropped: usize,
}

impl Routing {
    /// What a layer that stands alone is given: tokens of all groups choose so that every expert has its load exactly; where all loads are
    /// equal and a group can have equal ones, it has.
    ///
    /// Token by token, experts are drawn without putting them back, each as likely as what it still lacks; one that lacks as many tokens
    /// as are left must be taken.
    #[must_use]
    pub fn planned(experts: &Experts) -> Self {
        let (all, groups) = (experts.all_tokens(), experts.groups.max(1));
        let first = experts.loads.first().copied().unwrap_or(0);
        let is_even = experts.loads.iter().all(|&load| load == first) && first.is_multiple_of(groups as u64);
        let rounds = if is_even { groups } else { 1 };
        let mut chosen = Vec::with_capacity(all * experts.top_k);
        let mut draws = Draws(experts.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        for _ in 0..rounds {
            let mut lacks: Vec<u64> = experts.loads.iter().map(|load| load / rounds as u64).collect();
            for left in (1..=all / rounds).rev() {
                let first = chosen.len();
                while chosen.len() < first + experts.top_k {
                    let expert = draw(&lacks, &chosen[first..], left as u64, &mut draws);
                    lacks[expert] = lacks[expert].saturating_sub(1);
                    chosen.push(u32::try_from(expert).unwrap_or(u32::MAX));
                }
            }
        }
        Self::of(experts, chosen)
    }

    /// The routing of whole groups, one behind the other, whose tokens choose like this.
    #[must_use]
    pub fn of(experts: &Experts, chosen: Vec<u32>) -> Self {
        let each = experts.tokens;
        let groups = chosen.len() / (each * experts.top_k).max(1);
        Self::of_groups(experts, chosen, (0..groups).map(|group| group * each..(group + 1) * each))
    }

    /// The routing of tokens that choose like this, and stand in such groups. First choices come before second ones, tokens in their order: who
    /// comes when an expert has its capacity of the group is dropped.
    #[must_use]
    pub fn of_groups<G: IntoIterator<Item = usize> + Clone>(
        experts: &Experts,
        chosen: Vec<u32>,
        groups: impl IntoIterator<Item = G>,
    ) -> Self {
        let (k, count) = (experts.top_k, experts.count);
        let mut kept = vec![false; chosen.len()];
        let mut rows = Vec::new();
        for tokens in groups {
            let mut taken = vec![0; count];
            for place in (0..k).flat_map(|choice| tokens.clone().into_iter().map(move |token| token * k + choice)) {
                let taken = &mut taken[chosen[place] as usize];
                kept[place] = experts.capacity().is_none_or(|capacity| *taken < capacity);
                *taken += usize::from(kept[place]);
            }
            let mut own = vec![Vec::new(); count];
            for place in tokens.into_iter().flat_map(|token| token * k..(token + 1) * k).filter(|&place| kept[place]) {
                own[chosen[place] as usize].push(u32::try_from(place).unwrap_or(u32::MAX));
            }
            rows.extend(own);
        }
        let mut choices = vec![0; count];
        chosen.iter().for_each(|&expert| choices[expert as usize] += 1);
        let dropped = kept.iter().filter(|kept| !**kept).count();
        Self { chosen, kept, rows, choices, dropped }
    }

    /// The places of a group that an expert takes.
    #[must_use]
    pub fn rows(&self, group: usize, expert: usize) -> &[u32] {
        self.rows.get(group * self.choices.len() + expert).map_or(&[], Vec::as_slice)
    }

    /// How many tokens of all groups an expert takes.
    #[must_use]
    pub fn load(&self, expert: usize) -> usize {
        self.rows.iter().skip(expert).step_by(self.choices.len().max(1)).map(Vec::len).sum()
    }

    /// How often an expert was chosen.
    #[must_use]
    pub fn choices(&self, expert: usize) -> usize {
        self.choices.get(expert).copied().unwrap_or(0)
    }

    /// Places without an expert that takes the token.
    #[must_use]
    pub fn dropped(&self) -> usize {
        self.dropped
    }
}

/// An expert that is not in `taken`: one that lacks all tokens that are `left`, otherwise by lot.
fn draw(lacks: &[u64], taken: &[u32], left: u64, draws: &mut Draws) -> usize {
    let is_free = |expert: usize| !taken.iter().any(|&other| other as usize == expert);
    if let Some(due) = (0..lacks.len()).find(|&expert| lacks[expert] >= left && is_free(expert)) {
        return due;
    }
    let free = |expert: usize| if is_free(expert) { lacks[expert] } else { 0 };
    let all: u64 = (0..lacks.len()).map(free).sum();
    let mut lot = draws.next() % all.max(1);
    for expert in 0..lacks.len() {
        if lot < free(expert) {
            return expert;
        }
        lot -= free(expert);
    }
    (0..lacks.len()).find(|&expert| is_free(expert)).unwrap_or(0)
}

/// Numbers by lot: `SplitMix64` (Steele et al. 2014).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Shares out `total` by weights, whole numbers of at most `most` each: what rounding leaves goes to those that lack most of it. All zeros
/// are equal weights.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of tokens, and positive shares of them"
)]
pub fn apportion(weights: &[f64], total: u64, most: u64) -> Vec<u64> {
    let weights: Vec<f64> = if weights.iter().sum::<f64>() > 0.0 { weights.to_vec() } else { vec![1.0; weights.len()] };
    let mut shares = vec![0.0; weights.len()];
    // Who would have more than he may has that, and the others share the rest.
    let mut is_full = vec![false; weights.len()];
    loop {
        let full = is_full.iter().filter(|full| **full).count() as u64;
        let rest = total.saturating_sub(full * most) as f64;
        let sum: f64 = weights.iter().zip(&is_full).filter(|(_, full)| !**full).map(|(weight, _)| weight).sum();
        let open = is_full.iter().filter(|full| !**full).count() as f64;
        for (place, share) in shares.iter_mut().enumerate() {
            let of_rest = if sum > 0.0 { weights[place] / sum } else { 1.0 / open.max(1.0) };
            *share = if is_full[place] { most as f64 } else { rest * of_rest };
        }
        let over: Vec<usize> = (0..shares.len()).filter(|&place| !is_full[place] && shares[place] > most as f64).collect();
        if over.is_empty() {
            break;
        }
        over.into_iter().for_each(|place| is_full[place] = true);
    }
    let mut counts: Vec<u64> = shares.iter().map(|share| share.floor() as u64).collect();
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by(|&a, &b| shares[b].fract().total_cmp(&shares[a].fract()).then(a.cmp(&b)));
    let mut left = total.saturating_sub(counts.iter().sum());
    while left > 0 {
        let before = left;
        for &place in &order {
            if left > 0 && counts[place] < most {
                counts[place] += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::experts::tests::experts;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_expert_has_its_load_and_every_token_different_experts(
            (tokens, groups, count) in (1..20usize, 1..5usize, 1..9usize),
            weights in proptest::collection::vec(0.0..9.0f64, 8),
            top_k in 1..9usize,
            seed: u64,
        ) {
            let top_k = top_k.min(count);
            let all = (tokens * groups) as u64;
            let loads = apportion(&weights[..count], all * top_k as u64, all);
            prop_assert_eq!(loads.iter().sum::<u64>(), all * top_k as u64);
            let experts = Experts { tokens, groups, count, top_k, loads: loads.clone(), seed, ..experts() };
            let routing = Routing::planned(&experts);
            for (expert, &load) in loads.iter().enumerate() {
                prop_assert_eq!(routing.choices(expert) as u64, load);
                prop_assert_eq!(routing.load(expert) as u64, load);
            }
            for choices in routing.chosen.chunks(top_k) {
                let mut different = choices.to_vec();
                different.sort_unstable();
                different.dedup();
                prop_assert_eq!(different.len(), top_k);
            }
        }

        #[test]
        fn no_expert_takes_more_than_its_capacity(factor in 0.1..2.0f64, seed: u64) {
            let experts = Experts { capacity_factor: factor, seed, ..experts() };
            let (routing, capacity) = (Routing::planned(&experts), experts.capacity().expect("a limit"));
            for (group, expert) in (0..experts.groups).flat_map(|group| (0..experts.count).map(move |expert| (group, expert))) {
                let places = group * experts.tokens * experts.top_k..(group + 1) * experts.tokens * experts.top_k;
                let wanted = routing.chosen[places].iter().filter(|&&chosen| chosen as usize == expert).count();
                prop_assert_eq!(routing.rows(group, expert).len(), wanted.min(capacity));
            }
            prop_assert_eq!(routing.dropped(), routing.chosen.len() - (0..experts.count).map(|e| routing.load(e)).sum::<usize>());
        }
    }

    #[test]
    fn shares_are_whole_and_fair() {
        assert_eq!(apportion(&[90.0, 60.0, 40.0, 25.0, 18.0, 12.0, 7.0, 4.0], 256, 256), [90, 60, 40, 25, 18, 12, 7, 4]);
        assert_eq!(apportion(&[1.0; 3], 8, 8), [3, 3, 2]);
        assert_eq!(apportion(&[9.0, 1.0, 0.0], 10, 6), [6, 4, 0]);
        assert_eq!(apportion(&[1.0, 0.0, 0.0], 10, 6), [6, 2, 2]);
        assert_eq!(apportion(&[0.0; 4], 4, 1), [1; 4]);
    }
}
