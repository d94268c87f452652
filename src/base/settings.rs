//! Closed sets of choices that scenarios, programs and reports share, each with its name.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A closed set with a name for each member.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$member_doc:meta])* $member:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$member_doc])* $member),+ }

        impl $name {
            /// All members, in the order of the documents.
            pub const ALL: &'static [Self] = &[$(Self::$member),+];
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// Its name in scenarios, programs and reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$member => $text),+ }
            }

            /// The member called `name`.
            #[must_use]
            pub fn find(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|member| member.name() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = String::deserialize(deserializer)?;
                Self::find(&name).ok_or_else(|| D::Error::unknown_variant(&name, Self::NAMES))
            }
        }
    };
}

choices! {
    /// The type of a tensor's elements.
    #[derive(Default)]
    Dtype {
        /// 32-bit floating point.
        #[default]
        F32 = "f32",
        /// 64-bit floating point.
        F64 = "f64",
        /// 16-bit brain floating point.
        Bf16 = "bf16",
        /// 16-bit floating point.
        F16 = "f16",
        /// 32-bit unsigned integers: tokens.
        U32 = "u32",
        /// Bytes: masks.
        U8 = "u8",
    }
}

choices! {
    /// How an all-reduce moves its data.
    AllReduce {
        /// Reduce-scatter and all-gather around a ring, N-1 steps each.
        Ring = "ring",
        /// Reduction up a binary tree, broadcast down.
        Tree = "tree",
        /// Everybody sends to one root, which sends the sum back.
        Star = "star",
        /// Partners halve the payload between them while they reduce, and double it while they gather, log2 N steps each.
        HalvingDoubling = "halving-doubling",
        /// Rings in two levels: reduce-scatter inside each node, all-reduce between nodes, all-gather inside.
        Hierarchical = "hierarchical",
    }
}

choices! {
    /// Who waits for whom when two ranks exchange a message.
    PointToPoint {
        /// A send completes at once, a receive waits for its message.
        Buffered = "buffered",
        /// One ordered queue per directed pair of ranks; a send and its receive meet at the heads.
        EdgeFifo = "edge-fifo",
        /// One ordered queue per pair of ranks, both directions in program order.
        PairFifo = "pair-fifo",
        /// One ordered queue per rank for all its messages.
        RankFifo = "rank-fifo",
        /// A send holds its rank until the peer stands at the matching receive.
        Blocking = "blocking",
    }
}

choices! {
    /// When a stage updates its weights.
    #[derive(Default)]
    Updates {
        /// Behind all micro-batches of a step; the next step's come behind it.
        #[default]
        EachStep = "each-step",
        /// Behind each micro-batch's backward, while others are under way.
        EachMicroBatch = "each-micro-batch",
        /// Once a step, while the next step's micro-batches are under way: those use the weights from before it.
        Delayed = "delayed",
    }
}

impl Updates {
    /// Whether the pipeline is never drained: the micro-batches of all steps follow each other.
    #[must_use]
    pub fn is_asynchronous(self) -> bool {
        self != Self::EachStep
    }
}

choices! {
    /// What a stage costs in slots where a rank holds several.
    ChunkCosts {
        /// A slot each: the schedules' own unit.
        Whole = "whole",
        /// The rank's slot is divided among them: the same work for any number of chunks.
        Split = "split",
    }
}

choices! {
    /// How ranks that share a layer cut the two matrices of its feed-forward: by columns of what a matrix makes, or by rows of what it takes.
    #[derive(Default)]
    FeedForwardSplit {
        /// Nothing between the products, a sum behind them.
        #[default]
        ColRow = "col-row",
        /// A sum between the products, columns brought together behind them.
        RowCol = "row-col",
        /// Columns brought together between the products, and behind them.
        ColCol = "col-col",
    }
}

choices! {
    /// A layer that stands alone.
    LayerKind {
        /// Attention without its projections, of which q, k, v and the gradient of the output are given.
        Attention = "attention",
        /// A mixture of experts, of which the tokens and the gradient of the output are given.
        Experts = "experts",
    }
}

choices! {
    /// How context-parallel ranks bring queries and keys together.
    ContextMethod {
        /// Keys and values travel around a ring, a block a hop, while blocks are computed.
        Ring = "ring",
        /// Every rank gathers all keys and values first.
        AllGather = "all-gather",
        /// Ranks swap pieces of the sequence for heads: each has some heads of all tokens, and back (`DeepSpeed` Ulysses).
        Ulysses = "ulysses",
    }
}

choices! {
    /// A mistake that implementations of ring attention have had: the whole program runs with it.
    AttentionBug {
        /// The output so far is not brought to the new sum of weights.
        NoRescale = "no-rescale",
        /// Two blocks' outputs are averaged, whatever their weights.
        AverageMerge = "average-merge",
        /// The log-sum-exp of two blocks is taken to be the larger one.
        MaxLse = "max-lse",
        /// A block's output is rounded to bf16 before it joins the others.
        Bf16Blocks = "bf16-blocks",
        /// The causal mask compares places inside the slices, not in the sequence.
        LocalMask = "local-mask",
        /// Forward, blocks come from the right instead of the left; masks are those of the blocks that were expected.
        WrongNeighbour = "wrong-neighbour",
        /// Backward leaves out D, the sum over a row of dO O.
        NoDelta = "no-delta",
        /// Backward takes each block's own log-sum-exp, not the final one.
        BlockLse = "block-lse",
        /// The gradients of keys and values stop one hop before home.
        ShortHop = "short-hop",
        /// Striped: inclusive and strict masks have changed places.
        SwappedStripes = "swapped-stripes",
        /// The log-sum-exp is a + log(1 + e^(b-a)), which overflows where b is far above a.
        NaiveLse = "naive-lse",
    }
}

choices! {
    /// A tensor of attention by blocks, of the tokens of one slice of the sequence.
    AttentionTensor {
        /// q `[1,t,n,d]`.
        Query = "q",
        /// k and v, one behind the other `[2,1,t,kv,d]`: what travels.
        KeyValue = "kv",
        /// The running maximum m, denominator l and output O of each query.
        State = "state",
        /// The output, and the log-sum-exp of the scores.
        Output = "out",
        /// The gradient of the output.
        OutputGradient = "dout",
        /// The gradient of q.
        QueryGradient = "dq",
        /// The gradients of k and v.
        KeyValueGradient = "dkv",
        /// One block's part of them, before it joins those that come around the ring.
        KeyValuePart = "part",
    }
}

choices! {
    /// A tensor of a mixture of experts on one rank, in the order of the passes; t tokens, h their width, e experts.
    ExpertTensor {
        /// The tokens `[t,h]`.
        Input = "tokin",
        /// The router's matrix `[e,h]`.
        Router = "router",
        /// The rank's experts: two matrices each.
        Weights = "experts",
        /// The softmax over all experts `[t,e]`, and which were chosen `[t,k]`.
        Gates = "gates",
        /// A rank's choices of each expert, and the sums of their probabilities `[2,e]`.
        Statistics = "stats",
        /// The auxiliary loss, and each expert's share of all choices `[e]`.
        Balance = "balance",
        /// Tokens for the experts of a rank: a part for each `[rows,h]`.
        Rows = "rows",
        /// Tokens from a rank.
        Arrived = "arrived",
        /// What each own expert's first matrix made of its rows.
        Hidden = "hidden",
        /// What the experts made of a rank's tokens.
        Results = "results",
        /// What a rank's experts made of own tokens.
        Returned = "returned",
        /// The layer's output `[t,h]`.
        Output = "tokout",
        /// Its gradient.
        OutputGradient = "dtokout",
        /// The gradient of what a rank's experts made of own tokens.
        ReturnedGradient = "dreturned",
        /// The same, arrived at the experts.
        ResultGradient = "dresults",
        /// The gradient of a rank's tokens at the own experts.
        ArrivedGradient = "darrived",
        /// The same, back at the tokens' rank.
        RowGradient = "drows",
        /// The gradient of the probabilities that outputs were weighted by `[t,k]`.
        GateGradient = "dgates",
        /// The gradient of the tokens.
        InputGradient = "dtokin",
        /// The gradient of the router's matrix.
        RouterGradient = "drouter",
        /// The gradients of the rank's experts.
        WeightGradient = "dexperts",
    }
}

choices! {
    /// Which tokens of a sequence a context-parallel rank holds.
    Placement {
        /// One piece after the other: under a causal mask the last rank has nearly twice the mean work.
        Contiguous = "contiguous",
        /// The sequence is cut into twice as many pieces, and a rank holds one from the front and its mirror image from the back.
        Zigzag = "zigzag",
        /// Every N-th token.
        Striped = "striped",
    }
}

choices! {
    /// The feed-forward's non-linearity.
    Activation {
        /// GELU in its tanh form (GPT-2): fc1 `[f,h]`, fc2 `[h,f]`.
        Gelu = "gelu",
        /// `SwiGLU` (LLaMA): gate `[f,h]`, up `[f,h]`, down `[h,f]`.
        Swiglu = "swiglu",
    }
}

choices! {
    /// A normalisation.
    Norm {
        /// Layer norm with epsilon 1e-5.
        Layer = "layer",
        /// Root-mean-square norm with epsilon 1e-5, never with a bias.
        Rms = "rms",
    }
}

choices! {
    /// How a token knows its place.
    Positions {
        /// A learned embedding `[t,h]`, added to the token's.
        Learned = "learned",
        /// Rotary embedding of queries and keys, base 10,000, halves paired (i, i + d/2) as in `transformers`.
        Rotary = "rotary",
    }
}

choices! {
    /// Which layers have a bias.
    Bias {
        /// All linear layers and layer norms.
        All = "all",
        /// All but the query, key and value projections.
        NoQkv = "no-qkv",
        /// None.
        None = "none",
    }
}

choices! {
    /// Where a run's values come from.
    Values {
        /// Every tensor holds numbers, and they are computed.
        Real = "real",
        /// Tensors have shapes alone: time, traffic and memory of models that fit no machine at hand.
        Shape = "shape",
    }
}

choices! {
    /// How parameters follow from gradients.
    #[derive(Default)]
    OptimizerKind {
        /// Adam with decoupled weight decay.
        #[default]
        Adamw = "adamw",
        /// Plain stochastic gradient descent.
        Sgd = "sgd",
    }
}

choices! {
    /// A collective operation.
    CollectiveKind {
        /// Every rank ends with the sum of all ranks' values.
        AllReduce = "all-reduce",
        /// Every rank ends with its own N-th of that sum.
        ReduceScatter = "reduce-scatter",
        /// Every rank ends with the N-ths of all ranks.
        AllGather = "all-gather",
    }
}

choices! {
    /// What data-parallel ranks share out among themselves; [`super::sharing`] is the table that says so.
    Strategy {
        /// Nothing: every rank keeps everything, and gradients are all-reduced.
        Ddp = "ddp",
        /// The optimizer's state.
        Zero1 = "zero-1",
        /// Gradients, too.
        Zero2 = "zero-2",
        /// Parameters, too: gathered before each use, and freed after it.
        Zero3 = "zero-3",
        /// The same as PyTorch names it; it also goes with a pipeline.
        Fsdp = "fsdp",
    }
}

choices! {
    /// How much of the model one unit of sharded parameters holds: it is gathered, reduced and freed as a whole.
    Wrap {
        /// One layer; embedding and head stand alone.
        Layer = "layer",
        /// Four layers that follow each other.
        Block = "block",
        /// All that the rank computes.
        Whole = "whole",
    }
}

choices! {
    /// What is computed again in the backward pass instead of being kept from the forward pass.
    Recompute {
        /// Nothing.
        None = "none",
        /// The attention core: scores, softmax, and their product with the values.
        Selective = "selective",
        /// The whole layer, from its input.
        Full = "full",
    }
}

choices! {
    /// Which tensors the forward pass is taken to keep for the backward pass.
    SavedTensors {
        /// Those that the lab's own kernels keep.
        Lab = "lab",
        /// Those that Megatron keeps without flash attention, dropout masks among them: sbh (34 + 5 a s / h) bytes a layer.
        Megatron = "megatron",
    }
}

choices! {
    /// What a checkpoint keeps of a parameter, under the names that PyTorch and Megatron give them.
    Kept {
        /// The parameter.
        Parameter = "model",
        /// The optimizer's first moment.
        FirstMoment = "exp_avg",
        /// The optimizer's second moment.
        SecondMoment = "exp_avg_sq",
        /// The optimizer's copy in full precision.
        Master = "master_param",
    }
}

/// The optimizer with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    /// The rule.
    pub kind: OptimizerKind,
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for Optimizer {
    /// AdamW with PyTorch's defaults.
    fn default() -> Self {
        Self { kind: OptimizerKind::Adamw, lr: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }
}

impl AllReduce {
    /// Into how many chunks `ranks` ranks cut their payload; `None` if it may stay whole.
    #[must_use]
    pub fn chunks(self, ranks: usize) -> Option<usize> {
        match self {
            Self::Ring | Self::Hierarchical => Some(ranks),
            Self::HalvingDoubling => Some(power_of_two(ranks)),
            Self::Tree | Self::Star => None,
        }
    }
}

/// The largest power of two that is at most `number`; 1 for 0.
#[must_use]
pub fn power_of_two(number: usize) -> usize {
    1 << number.max(1).ilog2()
}

impl OptimizerKind {
    /// Tensors of state that it keeps for each parameter.
    #[must_use]
    pub fn moments(self) -> usize {
        match self {
            Self::Adamw => 2,
            Self::Sgd => 0,
        }
    }
}

impl Dtype {
    /// The type in which sums of this one are taken.
    #[must_use]
    pub fn widened(self) -> Self {
        match self {
            Self::Bf16 | Self::F16 => Self::F32,
            wide => wide,
        }
    }

    /// Bytes of one element.
    #[must_use]
    pub fn size(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::U32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::U8 => 1,
        }
    }
}
