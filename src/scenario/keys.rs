//! The one table of a scenario's keys. Reading, checking, `show scenario` and `new` all follow it.

use crate::base::precision::CONVENTIONS;
use crate::base::settings::{
    Activation, Bias, ContextMethod, FeedForwardSplit, LayerKind, Norm, Placement, Positions, Recompute, SavedTensors, Strategy,
    Wrap,
};
use crate::base::tables::TABLES;
use crate::base::{AllReduce, ChunkCosts, CollectiveKind, OptimizerKind, PointToPoint, Values};
use crate::program::trouble::FAULTS;
use crate::schedule::SCHEDULES;

/// A row of the table: one key.
#[derive(Debug)]
pub struct Key {
    /// The section that it stands in.
    pub section: Section,
    /// Its name.
    pub name: &'static str,
    /// What may be written.
    pub kind: Kind,
    /// What it means when it is not written.
    pub unwritten: Unwritten,
    /// The unit of its number; empty if it has none.
    pub unit: &'static str,
    /// What it is, in a line.
    pub meaning: &'static str,
}

/// What may be written as a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number in this range.
    Integer(i64, i64),
    /// A number in this range.
    Number(f64, f64),
    /// `true` or `false`.
    Bool,
    /// `true`, `false`, or a whole number in this range.
    BoolOr(i64, i64),
    /// A text without line breaks.
    Text,
    /// A text: the name of a file with a sheet, or the sheet itself, which has a line for each row.
    Sheet,
    /// A text: one of these.
    Choice(fn() -> Vec<&'static str>),
    /// A list of whole numbers, each in this range.
    Integers(i64, i64),
    /// A text: the name of a preset, or a number of parameters.
    Preset,
}

/// What a key means when it is not written.
#[derive(Clone, Copy, Debug)]
pub enum Unwritten {
    /// This value; texts without quotes.
    Is(&'static str),
    /// What the second text says; the first is a value that could be written.
    Like(&'static str, &'static str),
}

/// A section of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The keys above all sections.
    Top,
    /// `[model]`
    Model,
    /// `[batch]`
    Batch,
    /// `[parallel]`
    Parallel,
    /// `[tensor_parallel]`
    TensorParallel,
    /// `[context_parallel]`
    ContextParallel,
    /// `[experts]`
    Experts,
    /// `[data_parallel]`
    DataParallel,
    /// `[fsdp]`
    Fsdp,
    /// `[recompute]`
    Recompute,
    /// `[pipeline]`
    Pipeline,
    /// `[optimizer]`
    Optimizer,
    /// `[numerics]`
    Numerics,
    /// `[hardware]`
    Hardware,
    /// `[hardware.device]`
    Device,
    /// `[hardware.inside]`
    Inside,
    /// `[hardware.between]`
    Between,
    /// `[[trouble]]`
    Trouble,
    /// `[collective]`
    Collective,
    /// `[layer]`
    Layer,
}

/// Every section with its path and what it is about, in the order of the documents.
pub static SECTIONS: [(Section, &str, &str); 20] = [
    (Section::Top, "", "the scenario"),
    (Section::Model, "model", "the transformer"),
    (Section::Batch, "batch", "how much data a step takes"),
    (Section::Parallel, "parallel", "sizes of the axes; their product is the number of ranks"),
    (Section::TensorParallel, "tensor_parallel", "ranks that share the matrices of each layer"),
    (Section::ContextParallel, "context_parallel", "ranks hold pieces of every sequence, and bring queries and keys together"),
    (Section::Experts, "experts", "experts in every layer, of which each token uses a few; without the section there are none"),
    (Section::DataParallel, "data_parallel", "replicas average their gradients, and may share out their state"),
    (Section::Fsdp, "fsdp", "with zero-3 and fsdp: how sharded parameters are gathered"),
    (Section::Recompute, "recompute", "activations computed again instead of being kept"),
    (Section::Pipeline, "pipeline", "stages of the model pass activations on"),
    (Section::Optimizer, "optimizer", "what a step does with the gradients"),
    (Section::Numerics, "numerics", "real numbers, or shapes alone"),
    (Section::Hardware, "hardware", "what things cost"),
    (Section::Device, "hardware.device", "with a hardware table: replaces numbers of its device"),
    (Section::Inside, "hardware.inside", "with a hardware table: replaces numbers of the link inside a node"),
    (Section::Between, "hardware.between", "with a hardware table: replaces numbers of the link between nodes"),
    (Section::Trouble, "trouble", "a fault; repeat the section for more, the first that fits an op applies"),
    (Section::Collective, "collective", "a bare collective in place of a training step"),
    (Section::Layer, "layer", "a bare layer in place of a training step; [model] has its sizes"),
];

macro_rules! keys {
    ($($module:ident $section:ident {
        $($name:ident $text:literal $kind:expr, $unwritten:ident($($default:literal),+), $unit:literal, $meaning:literal;)+
    })+) => {
        $(pub(super) mod $module {
            #[allow(clippy::wildcard_imports, reason = "the table is one text in one file")]
            use super::*;
            $(pub static $name: Key = Key {
                section: Section::$section,
                name: $text,
                kind: $kind,
                unwritten: Unwritten::$unwritten($($default),+),
                unit: $unit,
                meaning: $meaning,
            };)+
        })+

        /// Every key, section by section.
        pub static KEYS: &[&Key] = &[$($(&$module::$name),+),+];
    };
}

use Kind::{Bool, BoolOr, Choice, Integer, Integers, Number, Preset, Sheet, Text};

keys! {
    top Top {
        TITLE "title" Text, Is("untitled"), "", "name on the screen and in reports";
        SEED "seed" Integer(0, 0xffff_ffff), Is("0"), "", "start of all random numbers: weights and data";
    }
    model Model {
        PRESET "preset" Preset, Is("tiny"), "", "sizes to start from; the keys below replace some of them";
        LAYERS "layers" Integer(1, 10_000), Like("8", "the preset's"), "", "transformer blocks";
        HIDDEN "hidden" Integer(1, 1 << 20), Like("64", "the preset's"), "", "width of the residual stream";
        HEADS "heads" Integer(1, 65_536), Like("8", "the preset's"), "", "query heads; divides hidden";
        KV_HEADS "kv_heads" Integer(1, 65_536), Like("8", "the preset's, or heads"), "", "key and value heads; divides heads";
        SEQUENCE "sequence" Integer(1, 1 << 24), Like("32", "the preset's"), "tokens", "length of a sequence";
        VOCAB "vocab" Integer(1, 1 << 24), Like("256", "the preset's"), "", "size of the vocabulary";
        FFN "ffn" Integer(1, 1 << 22), Like("256", "the preset's, or 4 x hidden"), "", "width of the feed-forward layer";
        ACTIVATION "activation" Choice(|| Activation::NAMES.to_vec()), Like("gelu", "the preset's"), "",
            "non-linearity of the feed-forward layer";
        NORM "norm" Choice(|| Norm::NAMES.to_vec()), Like("layer", "the preset's"), "", "layer norm or root-mean-square norm";
        POSITIONS "positions" Choice(|| Positions::NAMES.to_vec()), Like("learned", "the preset's"), "",
            "how a token knows its place";
        BIAS "bias" Choice(|| Bias::NAMES.to_vec()), Like("no-qkv", "the preset's"), "", "which layers have a bias";
        FUSED_QKV "fused_qkv" Bool, Like("true", "the preset's"), "", "one matrix for queries, keys and values, or three";
        TIED "tied" Bool, Like("false", "the preset's"), "", "the head shares the token embedding's weight";
        DROPOUT "dropout" Number(0.0, 0.99), Like("0", "the preset's"), "", "probability of dropping an element: embedding, attention probabilities, what each half of a block adds";
        PARAMETER_DTYPE "parameter_dtype" Choice(dtypes), Like("f32", "the type of the run"), "",
            "type of the parameters and their gradients";
        BYTES_PER_PARAMETER "bytes_per_parameter" Choice(conventions), Like("fp32-adam-16", "as parameter_dtype says; real values in bf16: mixed-adam-18"), "",
            "convention for the types of parameters, gradients and optimizer state";
    }
    batch Batch {
        MICRO_BATCHES "micro_batches" Integer(1, 1_000_000), Is("8"), "", "micro-batches per data-parallel rank and step";
        MICRO_BATCH_SIZE "micro_batch_size" Integer(1, 65_536), Is("1"), "sequences", "size of a micro-batch";
        MICRO_BATCH_SIZES "micro_batch_sizes" Integers(1, 65_536), Like("[1, 1, 1, 1, 1, 1, 1, 1]", "all as micro_batch_size"), "sequences",
            "sizes of micro-batches that differ, one for each; losses are weighted by them";
        STEPS "steps" Integer(1, 1_000_000), Is("2"), "", "training steps";
    }
    parallel Parallel {
        DATA "data" Integer(1, 65_536), Is("1"), "ranks", "data-parallel replicas";
        PIPELINE "pipeline" Integer(1, 65_536), Is("1"), "ranks", "pipeline stages";
        TENSOR "tensor" Integer(1, 65_536), Is("1"), "ranks", "tensor-parallel ranks, which share the matrices of each layer";
        CONTEXT "context" Integer(1, 65_536), Is("1"), "ranks", "context-parallel slices of every sequence";
        EXPERT "expert" Integer(1, 65_536), Is("1"), "ranks",
            "ranks that share out the experts: no factor of the world, they are ranks with other tokens";
        EXPERT_TENSOR "expert_tensor" Integer(1, 65_536), Like("1", "as tensor"), "ranks",
            "ranks that share each expert's matrices: expert_tensor x expert x pipeline divides the world";
        ORDER "order" Text, Is("tp-cp-ep-dp-pp"), "", "the axes, fastest first: neighbouring ranks differ along the first";
        FOLD "fold" Bool, Like("false", "true where it can be"), "",
            "ranks that do the same are followed as one: shapes alone, no trouble, whole collectives";
    }
    tensor_parallel TensorParallel {
        SEQUENCE_PARALLEL "sequence_parallel" Bool, Is("false"), "",
            "each rank keeps its own tokens of the residual stream: all-reduces become reduce-scatters and all-gathers";
        SPLIT "split" Choice(|| FeedForwardSplit::NAMES.to_vec()), Is("col-row"), "",
            "how the feed-forward's two matrices are cut: by columns of what they make, or by rows of what they take";
    }
    context_parallel ContextParallel {
        METHOD "method" Choice(|| ContextMethod::NAMES.to_vec()), Is("ring"), "", "how queries meet the keys of other ranks";
        PLACEMENT "placement" Choice(|| Placement::NAMES.to_vec()), Is("zigzag"), "",
            "which tokens a rank holds: under a causal mask they differ in work";
    }
    experts Experts {
        COUNT "count" Integer(1, 4_096), Is("8"), "", "experts of a layer; the ranks of `expert` share them out evenly";
        TOP_K "top_k" Integer(1, 64), Is("2"), "", "experts that each token goes to";
        CAPACITY_FACTOR "capacity_factor" Number(0.0, 1_000.0), Is("0"), "",
            "an expert takes so many times its even share of a rank's choices, and drops the rest; 0 takes all";
        SKEW "skew" Number(0.0, 10.0), Is("0"), "", "how uneven the experts are chosen: the i-th as often as 1 / i^skew";
        LOADS "loads" Integers(0, 1_000_000_000), Like("[4, 3, 2, 1]", "as skew says"), "", "how often each expert is chosen, in proportion";
        AUXILIARY "auxiliary" Number(0.0, 1_000.0), Is("0.01"), "", "weight of the auxiliary loss that evens out choices";
    }
    data_parallel DataParallel {
        STRATEGY "strategy" Choice(|| Strategy::NAMES.to_vec()), Is("ddp"), "", "what the ranks share out among themselves";
        NO_SYNC "no_sync" Bool, Is("true"), "", "ddp, zero-1: ranks sum gradients once a step, not once a micro-batch";
        ALL_REDUCE "all_reduce" Choice(|| AllReduce::NAMES.to_vec()), Is("ring"), "",
            "how an all-reduce sums; shards always go around a ring";
        BUCKET_MIB "bucket_mib" Number(0.000_01, 65_536.0), Like("25", "25; with ZeRO DeepSpeed's 5e8 elements"), "MiB",
            "a bucket of gradients closes at this size";
        FIRST_BUCKET_MIB "first_bucket_mib" Number(0.000_01, 65_536.0), Like("1", "1; with ZeRO as all others"), "MiB",
            "size of the first bucket, so that it leaves early";
        OVERLAP "overlap" Bool, Is("true"), "", "a bucket leaves while the backward pass goes on";
        EXPAND "expand" Bool, Like("true", "true where that is few messages"), "",
            "every message of a collective is a step of its own; otherwise a collective is one operation";
    }
    fsdp Fsdp {
        SHARD_SIZE "shard_size" Integer(1, 65_536), Like("1", "all data-parallel ranks"), "ranks",
            "ranks that share one copy; fewer than data is hybrid sharding";
        RESHARD_AFTER_FORWARD "reshard_after_forward" BoolOr(2, 32_768), Like("true", "true; of several stages false"), "",
            "gathered parameters are freed after forward and gathered again for backward; a number: kept as shards of so many ranks";
        PREFETCH "prefetch" Integer(0, 10_000), Is("1"), "units", "how many units ahead of computation parameters are gathered";
        IN_FLIGHT "in_flight" Integer(1, 10_000), Is("2"), "units", "the most units that are gathered at a time";
        WRAP "wrap" Choice(|| Wrap::NAMES.to_vec()), Is("layer"), "", "what is gathered as a whole: a layer, four layers, everything";
    }
    recompute Recompute {
        MODE "mode" Choice(|| Recompute::NAMES.to_vec()), Is("none"), "", "what backward computes again instead of keeping it; with unit costs selective takes no time";
        EVERY "every" Integer(1, 10_000), Is("1"), "layers", "recompute one layer in so many";
        SAVED "saved" Choice(|| SavedTensors::NAMES.to_vec()), Like("lab", "megatron for shapes in half precision, else lab"), "",
            "which tensors a layer keeps";
        PRESERVE_RNG_STATE "preserve_rng_state" Bool, Is("true"), "",
            "forward leaves word where its random numbers stood, so that dropout drops the same elements again";
    }
    pipeline Pipeline {
        SCHEDULE "schedule" Choice(schedules), Is("1f1b"), "", "order of forward and backward passes on each stage";
        CSV "csv" Sheet, Is("none"), "", "a file beside this one with a plan in PyTorch's pipelining CSV, in place of a schedule";
        CHUNKS "chunks" Integer(1, 1_000), Like("1", "2 for schedules on a loop or a V, else 1"), "stages",
            "stages of each rank";
        SEGMENTS "segments" Integer(1, 1_000), Like("1", "2 for schedules that take segments, else 1"), "segments",
            "pieces that each sequence is cut into; they go through the pipeline one after the other";
        CHUNK_COSTS "chunk_costs" Choice(|| ChunkCosts::NAMES.to_vec()), Is("whole"), "",
            "unit costs: a chunk takes a whole slot, or its share of the rank's";
        P2P "p2p" Choice(|| PointToPoint::NAMES.to_vec()), Is("edge-fifo"), "",
            "who waits for whom when stages exchange a message";
        BARRIER "barrier" Bool, Is("true"), "", "ranks meet at the end of a step, as a global gradient norm makes them";
        LAYERS_PER_STAGE "layers_per_stage" Integers(1, 10_000), Like("[8]", "evenly; the first stages get one more"), "",
            "blocks of each stage";
    }
    optimizer Optimizer {
        KIND "kind" Choice(|| OptimizerKind::NAMES.to_vec()), Is("adamw"), "", "update rule";
        LR "lr" Number(0.0, 1_000.0), Is("0.001"), "", "learning rate";
        BETA1 "beta1" Number(0.0, 0.999_999), Is("0.9"), "", "AdamW: decay of the first moment";
        BETA2 "beta2" Number(0.0, 0.999_999), Is("0.999"), "", "AdamW: decay of the second moment";
        EPSILON "epsilon" Number(1e-30, 1.0), Is("1e-8"), "", "AdamW: added to the denominator";
        WEIGHT_DECAY "weight_decay" Number(0.0, 1.0), Is("0.01"), "", "share of the weights that a step takes away, times lr";
    }
    numerics Numerics {
        VALUES "values" Choice(|| Values::NAMES.to_vec()), Is("real"), "", "compute every tensor, or follow shapes alone";
        DTYPE "dtype" Choice(dtypes), Is("f32"), "", "type of the tensors; real values need f32, f64 or bf16, and follow parameter_dtype";
        EXACT "exact" Bool, Is("false"), "", "round gradients to a grid before they are summed: sums lose their order";
    }
    hardware Hardware {
        COSTS "costs" Choice(costs), Is("unit"), "", "textbook slots, or a hardware table";
        FORWARD "forward" Number(0.0, 1_000.0), Is("1"), "slots", "unit costs: forward pass of a stage";
        BACKWARD_INPUT "backward_input" Number(0.0, 1_000.0), Is("1"), "slots", "unit costs: backward pass for a stage's input";
        BACKWARD_WEIGHT "backward_weight" Number(0.0, 1_000.0), Is("1"), "slots",
            "unit costs: backward pass for a stage's weights";
        OVERLAPPED "overlapped" Number(0.0, 1_000.0), Like("3", "one after the other"), "slots",
            "unit costs: a forward and a backward that run as one";
        MEMORY_GB "memory_gb" Number(0.000_001, 1_000_000.0), Like("80", "the table's; no limit with unit costs"), "GB",
            "memory of a device; a GB is 1e9 bytes";
        NODES "nodes" Integer(1, 65_536), Like("1", "as many as the ranks fill"), "", "number of nodes";
        RANKS_PER_NODE "ranks_per_node" Integer(1, 65_536), Like("8", "8, or ranks / nodes"), "ranks", "ranks in a node";
        TOPOLOGY "topology" Text, Is("none"), "",
            "a file beside this one with the table of nvidia-smi topo -m: ranks and NICs of a node, and the link inside";
        SHARING "sharing" Bool, Is("false"), "",
            "messages and collectives in flight share ports and NICs max-min fairly";
        NICS_PER_NODE "nics_per_node" Integer(1, 65_536), Like("8", "one for each rank"), "",
            "with sharing: NICs that the ranks of a node share, each as fast as the link between nodes";
    }
    device Device {
        FLOPS "flops" Number(0.000_1, 1e6), Like("400", "the table's"), "TFLOP/s", "achieved speed of matrix products";
        PEAK_FLOPS "peak_flops" Number(0.000_1, 1e6), Like("1000", "the table's"), "TFLOP/s",
            "dense peak of matrix products, as a data sheet says: MFU and HFU are shares of it";
        BANDWIDTH "bandwidth" Number(0.01, 1e6), Like("100", "the table's"), "GB/s", "speed of its memory";
        SOURCE "source" Text, Like("my own measurement", "says that the scenario set them"), "", "where the numbers come from";
    }
    inside Inside {
        ALPHA "alpha" Number(0.0, 1e6), Like("5", "the table's"), "us", "latency of a message";
        BANDWIDTH "bandwidth" Number(0.01, 1e6), Like("100", "the table's"), "GB/s", "bandwidth of one direction";
        SOURCE "source" Text, Like("my own measurement", "says that the scenario set them"), "", "where the numbers come from";
    }
    between Between {
        ALPHA "alpha" Number(0.0, 1e6), Like("5", "the table's"), "us", "latency of a message";
        BANDWIDTH "bandwidth" Number(0.01, 1e6), Like("100", "the table's"), "GB/s", "bandwidth of one direction";
        SOURCE "source" Text, Like("my own measurement", "says that the scenario set them"), "", "where the numbers come from";
    }
    trouble Trouble {
        KIND "kind" Choice(troubles), Like("slow-rank", "none, it is needed"), "", "what goes wrong";
        RANK "rank" Integer(0, 65_535), Like("0", "all ranks"), "", "the rank that it meets";
        OP "op" Text, Like("0F3", "all ops"), "",
            "the ops that it meets: the first words of their text, whole: `all-reduce bucket0` or `0F3`";
        STEP "step" Integer(0, 999_999), Like("1", "all steps"), "", "the step that it meets, from 0";
        FACTOR "factor" Number(0.001, 1_000.0), Like("2", "2, or 0.5 as a share"), "",
            "slow-rank, slow-link: how many times as long it takes; less-memory, unequal-tokens: the share that is there";
    }
    collective Collective {
        KIND "kind" Choice(|| CollectiveKind::NAMES.to_vec()), Is("all-reduce"), "", "which collective";
        BYTES "bytes" Integer(1, 1 << 40), Is("1048576"), "", "payload of each rank in bytes";
        RANKS "ranks" Integer(1, 65_536), Is("8"), "ranks", "ranks that take part";
        ALGORITHM "algorithm" Choice(|| AllReduce::NAMES.to_vec()), Is("ring"), "", "how the data moves";
        CHUNKS "chunks" Integer(1, 65_536), Like("8", "as many as the algorithm cuts, else 1"), "", "pieces that the payload is cut into";
    }
    layer Layer {
        KIND "kind" Choice(|| LayerKind::NAMES.to_vec()), Is("attention"), "", "which layer";
        CAUSAL "causal" Bool, Is("true"), "", "a token sees none behind it";
        SHARPNESS "sharpness" Number(0.0, 1_000.0), Is("1"), "",
            "queries and keys are so many times as large: scores grow with its square";
    }
}

impl Section {
    /// The path in a file: `model`, `hardware.inside`; empty for the keys above all sections.
    #[must_use]
    pub fn path(self) -> &'static str {
        SECTIONS[self as usize].1
    }

    /// The section as its header: `[model]`, `[[trouble]]`.
    #[must_use]
    pub fn header(self) -> String {
        if self == Self::Trouble { "[[trouble]]".to_owned() } else { format!("[{}]", self.path()) }
    }

    /// Where its keys stand, in words.
    pub(super) fn place(self) -> String {
        if self == Self::Top { "above the sections".to_owned() } else { format!("in {}", self.header()) }
    }

    /// The section with this path.
    #[must_use]
    pub fn find(path: &str) -> Option<Self> {
        SECTIONS.iter().find(|row| row.1 == path).map(|row| row.0)
    }

    /// The section called `name` inside this one.
    pub(super) fn child(self, name: &str) -> Option<Self> {
        let path = |section: &Self| section.path().rsplit_once('.').unwrap_or(("", section.path()));
        let mut sections = SECTIONS.iter().map(|row| row.0).filter(|section| *section != Self::Top);
        sections.find(|section| path(section) == (self.path(), name))
    }

    /// Its keys.
    pub fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().copied().filter(move |key| key.section == self)
    }

    /// Whether it says something about a training step alone.
    pub(super) fn is_training(self) -> bool {
        use Section::{
            Batch, ContextParallel, DataParallel, Experts, Fsdp, Model, Optimizer, Parallel, Pipeline, Recompute, TensorParallel,
        };
        let is_cut = matches!(self, Parallel | TensorParallel | ContextParallel | Experts | DataParallel | Fsdp | Pipeline);
        is_cut || matches!(self, Model | Batch | Recompute | Optimizer)
    }
}

impl Key {
    /// The key of `section` called `name`.
    #[must_use]
    pub fn find(section: Section, name: &str) -> Option<&'static Self> {
        section.keys().find(|key| key.name == name)
    }

    /// Section and name, as in `--set`: `pipeline.schedule`.
    #[must_use]
    pub fn path(&self) -> String {
        match self.section.path() {
            "" => self.name.to_owned(),
            section => format!("{section}.{}", self.name),
        }
    }
}

fn dtypes() -> Vec<&'static str> {
    vec!["f32", "f64", "bf16", "f16"]
}

fn conventions() -> Vec<&'static str> {
    CONVENTIONS.iter().map(|convention| convention.name).collect()
}

fn schedules() -> Vec<&'static str> {
    SCHEDULES.iter().map(|schedule| schedule.name).collect()
}

fn costs() -> Vec<&'static str> {
    std::iter::once("unit").chain(TABLES.iter().map(|table| table.name)).collect()
}

fn troubles() -> Vec<&'static str> {
    FAULTS.iter().map(|fault| fault.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_stand_at_their_place() {
        for (place, (section, path, _)) in SECTIONS.iter().enumerate() {
            assert_eq!(*section as usize, place, "{path}");
            assert!(section.keys().next().is_some(), "{path} has keys");
        }
    }

    #[test]
    fn a_key_is_named_once() {
        for key in KEYS {
            let same = KEYS.iter().filter(|other| other.path() == key.path()).count();
            assert_eq!(same, 1, "{}", key.path());
        }
    }
}
