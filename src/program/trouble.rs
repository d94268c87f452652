//! Trouble: the faults that a scenario asks for, as data. One row of the table for each kind; the first rule that fits an op applies.

mod experts;

use crate::base::{AttentionBug, Rank};

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// What goes wrong.
    pub kind: TroubleKind,
    /// The rank it meets; `None` meets all ranks.
    pub rank: Option<Rank>,
    /// The ops it meets, as a prefix of an op's head in the program's text syntax (`all-reduce bucket0`, `F3`); empty meets all.
    pub op: String,
    /// The step it meets, from 0; `None` meets all steps.
    pub step: Option<u32>,
    /// How many times longer ops or messages take, or which share of memory or tokens is there.
    pub factor: f64,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// Compute ops of the rank take `factor` times as long.
    SlowRank,
    /// Messages from the rank take `factor` times as long.
    SlowLink,
    /// The op is left out; what it would have written stays as it was (zeros, if it was never written).
    SkipOp,
    /// The op changes places with the next op of its stream.
    SwapOps,
    /// Whole gradients are summed behind every micro-batch.
    SyncAlways,
    /// Whole gradients are not summed at all.
    SyncNever,
    /// Gradients are divided by the micro-batches of one rank.
    SumGradients,
    /// A rank gathers sharded parameters by itself.
    LoneRead,
    /// A rank does nothing from a step on.
    FewerSteps,
    /// A rank's device has `factor` times the memory of the others.
    LessMemory,
    /// A share of the tokens of one rank counts, and its mean as much as the others'.
    UnequalTokens,
    /// The model is saved as rank 0 has it.
    SaveAlone,
    /// Tensor-parallel ranks start their slices from the same random numbers: all have the first one's.
    SameSeed,
    /// The one matrix of queries, keys and values is cut by rows, as they lie, and not by heads.
    RowsOfQkv,
    /// The bias behind a row-parallel product is added on every rank, before the sum: it counts as often as there are ranks.
    BiasBeforeSum,
    /// Attention: the output so far is not rescaled when a block joins it.
    NoRescale,
    /// Attention: blocks' outputs are averaged, whatever their weights.
    AverageMerge,
    /// Attention: the log-sum-exp of two blocks is the larger one.
    MaxLse,
    /// Attention: a block's output is rounded to bf16 before it joins the others.
    Bf16Blocks,
    /// Attention: the causal mask compares places inside the slices.
    LocalMask,
    /// Attention: forward, blocks come from the wrong neighbour of the ring.
    WrongNeighbour,
    /// Attention: backward leaves out D = rowsum(dO O).
    NoDelta,
    /// Attention: backward takes each block's log-sum-exp, not the final one.
    BlockLse,
    /// Attention: the gradients of keys and values stop one hop before home.
    ShortHop,
    /// Attention: strict and inclusive masks of stripes have changed places.
    SwappedStripes,
    /// Attention: the log-sum-exp is a + log(1 + e^(b-a)), which overflows.
    NaiveLse,
    /// Messages hold their rank until the peer stands at the other end.
    BlockingSends,
    /// Whole gradients are summed behind the first micro-batch of a step.
    EarlySum,
    /// Micro-batches of different sizes count alike.
    MeanOfMeans,
    /// A stage begins one layer too late.
    LayerMissing,
    /// A stage begins one layer too early.
    LayerTwice,
    /// In a pipeline that is never drained: backward uses the newest weights, not those of its forward.
    NoStash,
    /// Experts: those of a rank are chosen `factor` times as often.
    ExpertOverload,
    /// Experts: each takes `factor` times its even share, and drops the rest.
    CapacityDrop,
    /// Experts: a rank cuts its rows as those of another batch.
    StaleSplits,
}

/// A row of the table: a fault.
#[derive(Debug)]
pub struct Fault {
    /// Which one.
    pub kind: TroubleKind,
    /// Its name in scenarios.
    pub name: &'static str,
    /// What goes wrong.
    pub meaning: &'static str,
    /// What is seen of it.
    pub seen: &'static str,
    /// Where it is seen to.
    pub acts: Acts,
    /// The keys beside `kind` that say something to it.
    pub takes: &'static [RuleKey],
    /// Those of them that it cannot do without.
    pub needs: &'static [RuleKey],
    /// What a run must have for it; empty if any will do.
    pub wants: &'static str,
}

/// Where a fault is seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acts {
    /// By the engine's prices and limits.
    Machine,
    /// By the pass `trouble`, on the ops that it meets.
    Ops,
    /// By the passes that make the program.
    Making,
}

/// A key of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the keys' own names")]
pub enum RuleKey {
    Rank,
    Op,
    Step,
    Factor,
}

use Acts::{Machine, Making, Ops};
use RuleKey::{Factor, Op, Rank as OneRank, Step};

/// Every fault, in the order of [`TroubleKind`].
pub static FAULTS: [Fault; 35] = [
    Fault {
        kind: TroubleKind::SlowRank,
        name: "slow-rank",
        meaning: "compute ops of the rank take `factor` times as long",
        seen: "a straggler: all ranks wait a little in every collective, and none of them fails",
        acts: Machine,
        takes: &[OneRank, Op, Step, Factor],
        needs: &[],
        wants: "",
    },
    Fault {
        kind: TroubleKind::SlowLink,
        name: "slow-link",
        meaning: "messages sent by the rank take `factor` times as long",
        seen: "every ring through the link is as slow as the link",
        acts: Machine,
        takes: &[OneRank, Op, Step, Factor],
        needs: &[],
        wants: "",
    },
    Fault {
        kind: TroubleKind::SkipOp,
        name: "skip-op",
        meaning: "the op is left out",
        seen: "others wait for it for ever, or numbers are wrong",
        acts: Ops,
        takes: &[OneRank, Op, Step],
        needs: &[Op],
        wants: "",
    },
    Fault {
        kind: TroubleKind::SwapOps,
        name: "swap-ops",
        meaning: "the op changes places with the next one of its stream",
        seen: "a circle of ranks that wait for each other, or wrong numbers",
        acts: Ops,
        takes: &[OneRank, Op, Step],
        needs: &[Op],
        wants: "",
    },
    Fault {
        kind: TroubleKind::SyncAlways,
        name: "sync-every-micro-batch",
        meaning: "`no_sync` is forgotten: gradients are summed over the ranks behind every micro-batch",
        seen: "right numbers, and as many times the traffic as there are micro-batches",
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "ddp or zero-1 on several data-parallel ranks, with several micro-batches and no_sync = true",
    },
    Fault {
        kind: TroubleKind::SyncNever,
        name: "no-sync-on-last",
        meaning: "`no_sync` holds for the last micro-batch, too: nobody sums gradients over the ranks",
        seen: "no traffic, a loss that falls, and replicas that drift apart",
        acts: Ops,
        takes: &[Op, Step],
        needs: &[],
        wants: "data-parallel ranks that all-reduce whole gradients, as with ddp",
    },
    Fault {
        kind: TroubleKind::SumGradients,
        name: "sum-gradients",
        meaning: "gradients are summed over the ranks, and not averaged",
        seen: "every gradient is N times what it should be; AdamW hides it in the loss, SGD does not",
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "several data-parallel ranks",
    },
    Fault {
        kind: TroubleKind::LoneRead,
        name: "read-on-one-rank",
        meaning: "before the op the rank alone gathers the sharded parameters that it works on, as a read of them does",
        seen: "a hang: a gather takes all ranks, and the others never come",
        acts: Ops,
        takes: &[OneRank, Op, Step],
        needs: &[OneRank, Op],
        wants: "an op that works on gathered parameters, with zero-3 or fsdp",
    },
    Fault {
        kind: TroubleKind::FewerSteps,
        name: "fewer-steps",
        meaning: "the rank's data ends before `step`: it does nothing from there on",
        seen: "all is well to the end, where the others wait for a rank that has finished",
        acts: Ops,
        takes: &[OneRank, Step],
        needs: &[OneRank, Step],
        wants: "",
    },
    Fault {
        kind: TroubleKind::LessMemory,
        name: "less-memory",
        meaning: "the rank's device has `factor` times the memory: somebody else uses the rest",
        seen: "one rank dies of a full card, and the others report a time-out, in other ops",
        acts: Machine,
        takes: &[OneRank, Factor],
        needs: &[OneRank],
        wants: "a limit of memory: a hardware table, or memory_gb",
    },
    Fault {
        kind: TroubleKind::UnequalTokens,
        name: "unequal-tokens",
        meaning: "of the rank's sequences a share of `factor` counts, the rest is padding; ranks average their means all the same",
        seen: "a small bias: tokens of short sequences count for more than others",
        acts: Making,
        takes: &[OneRank, Factor],
        needs: &[OneRank],
        wants: "several data-parallel ranks, and a factor below 1",
    },
    Fault {
        kind: TroubleKind::SaveAlone,
        name: "save-without-gather",
        meaning: "rank 0 saves the model by itself: what the ranks share out is not gathered",
        seen: "nothing while it trains; the file has the right names, tensors of the shape [0], and is far too small",
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "zero-3 or fsdp on several ranks",
    },
    Fault {
        kind: TroubleKind::SameSeed,
        name: "same-seed",
        meaning: "tensor-parallel ranks start their slices with the same random numbers",
        seen: "a loss that falls: slices are copies, and the matrix has a part of its rank",
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "several tensor-parallel ranks",
    },
    Fault {
        kind: TroubleKind::RowsOfQkv,
        name: "rows-of-qkv",
        meaning: "the one matrix of queries, keys and values is cut as its rows lie, and not by heads",
        seen: "right shapes and wrong values: a rank's queries are no queries",
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "several tensor-parallel ranks, and fused_qkv = true",
    },
    Fault {
        kind: TroubleKind::BiasBeforeSum,
        name: "bias-before-sum",
        meaning: "tensor-parallel ranks each add the bias that belongs behind their sum",
        seen: "biases count as often as there are ranks, from the second step on: they start at zero",
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "several tensor-parallel ranks, and biases",
    },
    attention(
        TroubleKind::NoRescale,
        "no-rescale",
        "attention: the output so far is not rescaled when a block joins it",
        "o, dq and dk are wrong; lse and dv are right",
    ),
    attention(
        TroubleKind::AverageMerge,
        "average-merge",
        "attention: blocks' outputs are averaged, whatever their weights",
        "o, dq and dk are wrong; lse and dv are right",
    ),
    attention(
        TroubleKind::MaxLse,
        "max-lse",
        "attention: the log-sum-exp of two blocks is the larger one",
        "everything is wrong, and no lse is too large",
    ),
    attention(
        TroubleKind::Bf16Blocks,
        "bf16-blocks",
        "attention: a block's output is rounded to bf16 before it joins the others",
        "o, dq and dk are a little wrong; lse and dv are right",
    ),
    attention(
        TroubleKind::LocalMask,
        "local-mask",
        "attention: the causal mask compares places inside the slices",
        "everything is wrong, and all ranks compute equally many pairs",
    ),
    attention(
        TroubleKind::WrongNeighbour,
        "wrong-neighbour",
        "attention: forward, blocks come from the wrong neighbour of the ring",
        "everything is wrong, with masks that are right",
    ),
    attention(
        TroubleKind::NoDelta,
        "no-delta",
        "attention: backward leaves out D = rowsum(dO O)",
        "dq and dk are wrong; the forward pass and dv are right",
    ),
    attention(
        TroubleKind::BlockLse,
        "block-lse",
        "attention: backward takes each block's log-sum-exp, not the final one",
        "dq, dk and dv are wrong; the forward pass is right",
    ),
    attention(
        TroubleKind::ShortHop,
        "short-hop",
        "attention: the gradients of keys and values stop one hop before home",
        "dk and dv are another rank's; all else is right",
    ),
    attention(
        TroubleKind::SwappedStripes,
        "swapped-stripes",
        "attention: strict and inclusive masks of stripes have changed places",
        "everything is wrong, and ranks compute other pairs",
    ),
    attention(
        TroubleKind::NaiveLse,
        "naive-lse",
        "attention: the log-sum-exp is a + log(1 + e^(b-a)), which overflows",
        "large scores become no numbers; small ones are right",
    ),
    Fault {
        kind: TroubleKind::BlockingSends,
        name: "blocking-sends",
        meaning: "sends and receives between stages hold their rank until the peer stands at the other end",
        seen: "two neighbours that both send first wait for each other in a circle",
        acts: Making,
        takes: &[OneRank],
        needs: &[],
        wants: "a pipeline of several ranks, with other semantics than blocking",
    },
    Fault {
        kind: TroubleKind::EarlySum,
        name: "early-sum",
        meaning: "gradients are summed over the ranks behind the first micro-batch of a step, and later ones add to the sum",
        seen: "the usual traffic, a loss that falls, and replicas that drift apart",
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "data-parallel ranks that sum whole gradients once a step, and several micro-batches",
    },
    Fault {
        kind: TroubleKind::MeanOfMeans,
        name: "mean-of-means",
        meaning: "the mean losses of micro-batches are averaged, whatever their sizes",
        seen: "a small bias: sequences of small micro-batches count more",
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "micro-batches of different sizes: micro_batch_sizes",
    },
    Fault {
        kind: TroubleKind::LayerMissing,
        name: "layer-missing",
        meaning: "the rank's stage begins one layer too late, and nobody runs that layer",
        seen: "a loss that falls all the same, and other numbers than one device's",
        acts: Making,
        takes: &[OneRank],
        needs: &[OneRank],
        wants: "a rank behind the first, with one stage of at least two layers",
    },
    Fault {
        kind: TroubleKind::LayerTwice,
        name: "layer-twice",
        meaning: "the rank's stage begins one layer too early, and that layer runs on two ranks",
        seen: "a loss that falls all the same, and other numbers than one device's",
        acts: Making,
        takes: &[OneRank],
        needs: &[OneRank],
        wants: "a rank behind the first, with one stage of at least two layers",
    },
    Fault {
        kind: TroubleKind::NoStash,
        name: "no-stash",
        meaning: "backward uses the newest weights, not those that its forward used",
        seen: "a loss that falls, and gradients that belong to no weights",
        acts: Ops,
        takes: &[OneRank, Op, Step],
        needs: &[],
        wants: "a pipeline that is never drained: pipedream, or pipedream-2bw",
    },
    experts::OVERLOAD,
    experts::CAPACITY_DROP,
    experts::STALE_SPLITS,
];

/// The row of a bug of attention: it is in the code that all ranks run, and in every op.
const fn attention(kind: TroubleKind, name: &'static str, meaning: &'static str, seen: &'static str) -> Fault {
    Fault {
        kind,
        name,
        meaning,
        seen,
        acts: Making,
        takes: &[],
        needs: &[],
        wants: "a bare [layer] of attention over several ranks",
    }
}

impl TroubleKind {
    /// The bug of attention that it is, if it is one: they have the same names.
    #[must_use]
    pub fn attention_bug(self) -> Option<AttentionBug> {
        AttentionBug::find(self.name())
    }

    /// Whether it is about a mixture of experts.
    #[must_use]
    pub fn is_of_experts(self) -> bool {
        matches!(self, Self::ExpertOverload | Self::CapacityDrop | Self::StaleSplits)
    }

    /// Its row.
    #[must_use]
    pub fn fault(self) -> &'static Fault {
        &FAULTS[self as usize]
    }

    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.fault().name
    }
}

impl Fault {
    /// The fault called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        FAULTS.iter().find(|fault| fault.name == name)
    }
}

impl RuleKey {
    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["rank", "op", "step", "factor"][self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_finds_its_row() {
        for (place, fault) in FAULTS.iter().enumerate() {
            assert_eq!(fault.kind as usize, place, "{}", fault.name);
            assert!(fault.needs.iter().all(|key| fault.takes.contains(key)), "{}", fault.name);
            assert_eq!(Fault::find(fault.name).map(|fault| fault.kind), Some(fault.kind));
        }
    }
}
