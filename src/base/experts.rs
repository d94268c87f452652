//! The expert axis: a mixture-of-experts layer whose experts are spread over ranks, its tensors, and what a layer that stands alone is given.

use super::model::Activation;
use super::routing::Routing;
use super::settings::{Dtype, ExpertTensor};
use super::units::Bytes;

/// A mixture-of-experts layer.
///
/// Its ranks are data-parallel ranks: each has tokens of its own and, of the layer, its share of the experts. One device has all experts
/// and the tokens of all ranks, group by group.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// Tokens of a group.
    pub tokens: usize,
    /// Groups of tokens: capacity counts within one. A rank has one, one device has them all.
    pub groups: usize,
    /// Ranks; they divide groups and experts.
    pub ranks: usize,
    /// Experts.
    pub count: usize,
    /// Experts that a token goes to.
    pub top_k: usize,
    /// An expert takes so many times its even share of a group's choices; 0 takes all.
    pub capacity_factor: f64,
    /// Trouble: experts take so much instead.
    pub lost: Option<f64>,
    /// What the auxiliary loss is multiplied by.
    pub auxiliary: f64,
    /// Width of a token.
    pub hidden: usize,
    /// Width inside an expert.
    pub ffn: usize,
    /// An expert's non-linearity.
    pub activation: Activation,
    /// How often each expert is chosen, over all groups.
    pub loads: Vec<u64>,
    /// Start of the lots by which tokens choose.
    pub seed: u64,
}

/// One tensor of a value: its name inside it, what its elements are, its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name; empty if it is the only one.
    pub name: String,
    /// What its elements are.
    pub elements: Elements,
    /// Its shape.
    pub dims: Vec<usize>,
}

/// What a tensor's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Values, in the type of the run.
    Values,
    /// Values in a type that is no half precision: routers and statistics.
    Wide,
    /// Numbers of experts.
    Numbers,
}

impl Elements {
    /// Their type in a run of this type.
    #[must_use]
    pub fn dtype(self, run: Dtype) -> Dtype {
        match self {
            Self::Values => run,
            Self::Wide => run.widened(),
            Self::Numbers => Dtype::U32,
        }
    }
}

impl Experts {
    /// Tokens of all groups.
    #[must_use]
    pub fn all_tokens(&self) -> usize {
        self.tokens * self.groups
    }

    /// Groups of a rank.
    #[must_use]
    pub fn groups_per_rank(&self) -> usize {
        self.groups / self.ranks.max(1)
    }

    /// Tokens of a rank.
    #[must_use]
    pub fn tokens_per_rank(&self) -> usize {
        self.tokens * self.groups_per_rank()
    }

    /// Experts of a rank.
    #[must_use]
    pub fn experts_per_rank(&self) -> usize {
        self.count / self.ranks.max(1)
    }

    /// The rank of an expert.
    #[must_use]
    pub fn home(&self, expert: usize) -> usize {
        expert / self.experts_per_rank().max(1)
    }

    /// The most tokens of a group that an expert takes; `None` if it takes all.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive share of a number of tokens"
    )]
    pub fn capacity(&self) -> Option<usize> {
        let factor = self.lost.unwrap_or(self.capacity_factor);
        let even = (self.tokens * self.top_k) as f64 / self.count.max(1) as f64;
        (factor > 0.0).then(|| (factor * even).ceil() as usize)
    }

    /// Rows that each rank would compute if all experts were chosen equally often: a slot under unit costs.
    #[must_use]
    pub fn even_rows(&self) -> u64 {
        (self.tokens_per_rank() * self.top_k) as u64
    }

    /// Rows that the experts of `rank` compute.
    #[must_use]
    pub fn rank_rows(&self, routing: &Routing, rank: usize) -> usize {
        let own = self.experts_per_rank();
        (rank * own..(rank + 1) * own).map(|expert| routing.load(expert)).sum()
    }

    /// Columns of an expert's first matrix: gate and up stand side by side.
    #[must_use]
    pub fn inner(&self) -> usize {
        if self.activation == Activation::Swiglu { 2 * self.ffn } else { self.ffn }
    }

    /// Multiplications and additions of one row through one expert, forward.
    #[must_use]
    pub fn flops_per_row(&self) -> u64 {
        2 * (self.hidden * (self.inner() + self.ffn)) as u64
    }

    /// Rows of the groups of rank `from` that go to `expert`.
    #[must_use]
    pub fn sent(&self, routing: &Routing, from: usize, expert: usize) -> usize {
        let own = self.groups_per_rank();
        (from * own..(from + 1) * own).map(|group| routing.rows(group, expert).len()).sum()
    }

    /// The parts of a tensor of `rank`; of what travels, to or from `other`.
    #[must_use]
    pub fn parts(&self, routing: &Routing, tensor: ExpertTensor, rank: usize, other: usize) -> Vec<Part> {
        use ExpertTensor as Tensor;
        let (t, e, h) = (self.tokens_per_rank(), self.count, self.hidden);
        let one = |elements, dims: Vec<usize>| vec![Part { name: String::new(), elements, dims }];
        match tensor {
            Tensor::Input | Tensor::Output | Tensor::OutputGradient | Tensor::InputGradient => one(Elements::Values, vec![t, h]),
            Tensor::Router | Tensor::RouterGradient => one(Elements::Wide, vec![e, h]),
            Tensor::Weights | Tensor::WeightGradient => self.of_own_experts(rank, |expert| {
                let fc1 = Part { name: format!("{expert}.fc1"), elements: Elements::Values, dims: vec![self.inner(), h] };
                let fc2 = Part { name: format!("{expert}.fc2"), elements: Elements::Values, dims: vec![h, self.ffn] };
                vec![fc1, fc2]
            }),
            Tensor::Gates => vec![
                Part { name: "p".to_owned(), elements: Elements::Wide, dims: vec![t, e] },
                Part { name: "chosen".to_owned(), elements: Elements::Numbers, dims: vec![t, self.top_k] },
            ],
            Tensor::GateGradient => one(Elements::Wide, vec![t, self.top_k]),
            Tensor::Statistics => one(Elements::Wide, vec![2, e]),
            Tensor::Balance => vec![
                Part { name: "loss".to_owned(), elements: Elements::Wide, dims: vec![1] },
                Part { name: "share".to_owned(), elements: Elements::Wide, dims: vec![e] },
            ],
            Tensor::Hidden => self.of_own_experts(rank, |expert| {
                let dims = vec![routing.load(expert), self.inner()];
                vec![Part { name: expert.to_string(), elements: Elements::Values, dims }]
            }),
            // Rows of the sender's tokens for the experts of the other.
            Tensor::Rows | Tensor::Returned | Tensor::ReturnedGradient | Tensor::RowGradient => {
                self.rows_of(routing, rank, other)
            }
            Tensor::Arrived | Tensor::Results | Tensor::ResultGradient | Tensor::ArrivedGradient => {
                self.rows_of(routing, other, rank)
            }
        }
    }

    /// A part for each expert of `to`: rows of tokens of `from`.
    fn rows_of(&self, routing: &Routing, from: usize, to: usize) -> Vec<Part> {
        self.of_own_experts(to, |expert| {
            let dims = vec![self.sent(routing, from, expert), self.hidden];
            vec![Part { name: expert.to_string(), elements: Elements::Values, dims }]
        })
    }

    fn of_own_experts(&self, rank: usize, parts: impl Fn(usize) -> Vec<Part>) -> Vec<Part> {
        let own = self.experts_per_rank();
        (rank * own..(rank + 1) * own).flat_map(parts).collect()
    }

    /// Memory of a row that travels.
    #[must_use]
    pub fn row_bytes(&self, dtype: Dtype) -> Bytes {
        Bytes(self.hidden as u64 * dtype.size())
    }

    /// What is impossible about the sizes, as a sentence; `None` if nothing is.
    #[must_use]
    pub fn misfit(&self) -> Option<&'static str> {
        let all = self.all_tokens() as u64;
        match () {
            () if [self.tokens, self.groups, self.ranks, self.count, self.top_k, self.hidden, self.ffn].contains(&0) => {
                Some("no size is 0")
            }
            () if !self.groups.is_multiple_of(self.ranks) => Some("ranks divide groups"),
            () if !self.count.is_multiple_of(self.ranks) => Some("ranks divide experts"),
            () if self.top_k > self.count => Some("a token goes to at most all experts"),
            () if self.loads.len() != self.count => Some("every expert has a load"),
            () if self.loads.iter().any(|&load| load > all) => Some("an expert is chosen at most once for each token"),
            () if self.loads.iter().sum::<u64>() != all * self.top_k as u64 => Some("loads sum to the choices of all tokens"),
            () => None,
        }
    }

    /// Element `column` of a token, by its number among all groups, which chose `chosen`, the first choice first.
    ///
    /// The router is given so that it looks at element e for expert e: what was chosen stands out there.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of tokens and columns")]
    pub fn input(&self, token: usize, chosen: &[u32], column: usize) -> f64 {
        let (i, c) = (token as f64, column as f64);
        match chosen.iter().position(|&expert| expert as usize == column) {
            Some(choice) => 1.5 + 0.5 * (chosen.len() - choice) as f64 + 0.1 * (0.9 * i + 0.4 * c + 0.2).sin(),
            None => 0.5 * (0.7 * i + 1.3 * c + 0.1).sin(),
        }
    }

    /// Element `column` of the router's row for `expert`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of experts and columns")]
    pub fn router(&self, expert: usize, column: usize) -> f64 {
        let own = if expert == column { 1.0 } else { 0.0 };
        own + 0.2 / self.hidden as f64 * (0.5 * expert as f64 - 0.9 * column as f64 + 0.2).cos()
    }

    /// Element `column` of the gradient of a token's output.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of tokens and columns")]
    pub fn output_gradient(&self, token: usize, column: usize) -> f64 {
        (0.2 * token as f64 + 0.6 * column as f64 + 0.05).cos()
    }

    /// An element of an expert's first or second matrix.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of experts, rows and columns")]
    pub fn weight(&self, expert: usize, is_second: bool, row: usize, column: usize) -> f64 {
        let (inputs, phase) = if is_second { (self.ffn, 0.7) } else { (self.hidden, 0.0) };
        let wave = (1.1 * expert as f64 + 0.37 * row as f64 + 0.83 * column as f64 + phase).sin();
        wave * (2.0 / inputs as f64).sqrt()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Three ranks with seven tokens each, six experts, two choices.
    pub(in crate::base) fn experts() -> Experts {
        Experts {
            tokens: 7,
            groups: 3,
            ranks: 3,
            count: 6,
            top_k: 2,
            capacity_factor: 0.0,
            lost: None,
            auxiliary: 0.01,
            hidden: 8,
            ffn: 5,
            activation: Activation::Gelu,
            loads: vec![15, 9, 7, 5, 4, 2],
            seed: 1,
        }
    }

    #[test]
    fn what_is_sent_arrives() {
        let experts = experts();
        let routing = Routing::planned(&experts);
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            let sent = experts.parts(&routing, ExpertTensor::Rows, from, to);
            assert_eq!(sent, experts.parts(&routing, ExpertTensor::Arrived, to, from));
            assert_eq!(sent.len(), 2, "a part for each expert of the receiver");
        }
        let rows: usize = (0..3).map(|rank| experts.rank_rows(&routing, rank)).sum();
        assert_eq!(rows, 42);
        assert_eq!(experts.rank_rows(&routing, 0), 24);
    }

    #[test]
    fn the_router_finds_what_was_chosen() {
        for hidden in [6, 9, 64] {
            let experts = Experts { hidden, ..experts() };
            let routing = Routing::planned(&experts);
            for (token, chosen) in routing.chosen.chunks(experts.top_k).enumerate() {
                let logit = |expert: usize| -> f64 {
                    (0..hidden).map(|c| experts.input(token, chosen, c) * experts.router(expert, c)).sum()
                };
                let mut order: Vec<usize> = (0..experts.count).collect();
                order.sort_by(|&a, &b| logit(b).total_cmp(&logit(a)));
                assert!(order.iter().zip(chosen).all(|(&found, &chosen)| found == chosen as usize), "{hidden}, {token}");
                assert!(logit(order[1]) - logit(order[2]) > 0.5);
            }
        }
    }

    #[test]
    fn capacity_is_a_share_of_an_even_load() {
        let of = |capacity_factor| Experts { capacity_factor, ..experts() }.capacity();
        // 7 tokens with 2 choices over 6 experts are 2.33 each.
        assert_eq!([of(0.0), of(1.0), of(1.25), of(2.0)], [None, Some(3), Some(3), Some(5)]);
    }
}
