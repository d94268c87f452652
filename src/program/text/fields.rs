//! Records as text: tables of named fields, each described once for printing and for reading.

use std::fmt;

use super::words::{Problem, Read, Words, numbered, real, whole};
use crate::base::context::Attention;
use crate::base::experts::Experts;
use crate::base::folding::Folding;
use crate::base::mesh::Line;
use crate::base::mixture::{Groups, Mixture};
use crate::base::model::{Activation, Bias, Model, Norm, Positions};
use crate::base::settings::FeedForwardSplit;
use crate::base::settings::{AttentionBug, Optimizer, OptimizerKind, Placement};
use crate::base::{Bytes, Dtype, GroupId};
use crate::program::op::KernelCost;
use crate::program::tables::{Collective, Padded, Setting};

/// A named field of a `T`.
pub(super) struct Field<T> {
    name: &'static str,
    /// Its text; `None` leaves it out.
    show: fn(&T) -> Option<String>,
    /// Sets it from its text; `None` if the text is no value of it.
    read: fn(&mut T, &str) -> Option<()>,
    /// What its text must be.
    allowed: &'static str,
}

/// A field at `$place` that `$read` understands and `Display` prints.
macro_rules! field {
    ($name:literal, $($place:ident).+, $read:expr, $allowed:literal) => {
        Field {
            name: $name,
            show: |record| Some(record.$($place).+.to_string()),
            read: |record, text| $read(text).map(|value| record.$($place).+ = value),
            allowed: $allowed,
        }
    };
}

/// A size of a model at `$place`.
macro_rules! size_field {
    ($name:literal, $($place:ident).+) => {
        field!($name, $($place).+, size, "a whole number from 1 to 1048576")
    };
}

/// Ranks along a line at `$place`; printed if there are several.
macro_rules! line_field {
    ($name:literal, $place:ident) => {
        Field {
            name: $name,
            show: |setting| (setting.$place.ranks > 1).then(|| show_line(setting.$place)),
            read: |setting, text| read_line(text).map(|line| setting.$place = line),
            allowed: "a number of ranks up to 65536, and x how far apart they are where they are no neighbours",
        }
    };
}

/// A finite number at `$place`, printed with all its digits.
macro_rules! real_field {
    ($name:literal, $place:ident) => {
        Field {
            name: $name,
            show: |record| Some(format!("{:?}", record.$place)),
            read: |record, text| real(text).map(|value| record.$place = value),
            allowed: "a finite number",
        }
    };
}

/// Something that is so or is not, at `$place`; printed if it is so.
macro_rules! flag_field {
    ($name:literal, $place:ident) => {
        Field {
            name: $name,
            show: |record| record.$place.then(|| "true".to_owned()),
            read: |record, text| flag(text).map(|value| record.$place = value),
            allowed: "true or false",
        }
    };
}

pub(super) const SETTING: &[Field<Setting>] = &[
    field!("steps", steps, whole, "a whole number"),
    field!("micro-batch-size", micro_batch_size, whole, "a whole number"),
    Field {
        name: "micro-batch-sizes",
        show: |setting| {
            let sizes: Vec<String> = setting.micro_batch_sizes.iter().map(ToString::to_string).collect();
            (!sizes.is_empty()).then(|| sizes.join(","))
        },
        read: |setting, text| {
            let sizes: Option<Vec<u32>> = text.split(',').map(|size| whole(size).filter(|&size| size > 0)).collect();
            sizes.map(|sizes| setting.micro_batch_sizes = sizes)
        },
        allowed: "positive whole numbers between commas",
    },
    flag_field!("mean-of-means", mean_of_means),
    Field {
        name: "segments",
        show: |setting| (setting.segments > 1).then(|| setting.segments.to_string()),
        read: |setting, text| whole(text).map(|segments| setting.segments = segments),
        allowed: "a whole number",
    },
    field!("micro-batches-per-step", micro_batches_per_step, whole, "a whole number"),
    field!("dtype", dtype, Dtype::find, "a type such as f32"),
    field!("initial", initial, Dtype::find, "a type such as f32"),
    Field {
        name: "grid",
        show: |setting| setting.grid.map(|grid| grid.to_string()),
        read: |setting, text| text.parse().ok().map(|grid| setting.grid = Some(grid)),
        allowed: "a whole number",
    },
    field!("seed", seed, whole, "a whole number"),
    line_field!("tensor", tensor),
    line_field!("context", context),
    line_field!("data", data),
    Field {
        name: "split",
        show: |setting| (setting.feed_forward != FeedForwardSplit::ColRow).then(|| setting.feed_forward.to_string()),
        read: |setting, text| FeedForwardSplit::find(text).map(|split| setting.feed_forward = split),
        allowed: "col-row, row-col or col-col",
    },
    flag_field!("same-seed", same_seed),
    flag_field!("bias-before-sum", bias_before_sum),
    Field {
        name: "first-step",
        show: |setting| (setting.first_step > 0).then(|| setting.first_step.to_string()),
        read: |setting, text| whole(text).filter(|step| *step <= 1 << 24).map(|step| setting.first_step = step),
        allowed: "a whole number up to 16777216",
    },
    Field {
        name: "padded",
        show: |setting| setting.padded.map(show_padded),
        read: |setting, text| read_padded(text).map(|padded| setting.padded = Some(padded)),
        allowed: "first/each/ranks/place/tokens/weighted, such as 0/2/4/1/16/false",
    },
    Field {
        name: "folded",
        show: |setting| {
            let lines: Vec<String> = setting.folding.lines().iter().map(|&line| show_line(line)).collect();
            (!lines.is_empty()).then(|| lines.join(","))
        },
        read: |setting, text| {
            let lines = text.split(',').map(read_line).collect::<Option<Vec<Line>>>();
            lines.filter(|lines| is_small(lines)).map(|lines| setting.folding = Folding::new(lines))
        },
        allowed: "lines between commas, such as 8x1,64x128, of at most 65536 ranks together",
    },
];

/// So many ranks and how far apart they are, which is left out for neighbours.
pub(super) fn show_line(line: Line) -> String {
    let Line { ranks, stride } = line;
    if stride == 1 { ranks.to_string() } else { format!("{ranks}x{stride}") }
}

pub(super) fn read_line(text: &str) -> Option<Line> {
    let (ranks, stride) = text.split_once('x').unwrap_or((text, "1"));
    let line = Line { ranks: some_ranks(ranks)?, stride: some_ranks(stride)? };
    (line.ranks * line.stride <= MOST_RANKS).then_some(line)
}

/// Whether numbers of ranks that are folded along `lines` stay small.
fn is_small(lines: &[Line]) -> bool {
    lines.iter().try_fold(1_usize, |all, line| all.checked_mul(line.ranks)).is_some_and(|all| all <= MOST_RANKS)
}

fn show_padded(padded: Padded) -> String {
    let Padded { first, each, ranks, place, tokens, weighted } = padded;
    format!("{first}/{each}/{ranks}/{place}/{tokens}/{weighted}")
}

fn read_padded(text: &str) -> Option<Padded> {
    let [first, each, ranks, place, tokens, weighted] = text.split('/').collect::<Vec<_>>().try_into().ok()?;
    let padded = Padded {
        first: whole(first)?,
        each: whole(each)?,
        ranks: whole(ranks)?,
        place: whole(place)?,
        tokens: whole(tokens)?,
        weighted: weighted.parse().ok()?,
    };
    (padded.each > 0 && padded.ranks > 0 && padded.tokens > 0).then_some(padded)
}

pub(super) const OPTIMIZER: &[Field<Optimizer>] = &[
    field!("kind", kind, OptimizerKind::find, "adamw or sgd"),
    real_field!("lr", lr),
    real_field!("beta1", beta1),
    real_field!("beta2", beta2),
    real_field!("epsilon", epsilon),
    real_field!("weight-decay", weight_decay),
];

pub(super) const MODEL: &[Field<Model>] = &[
    size_field!("layers", layers),
    size_field!("hidden", hidden),
    size_field!("heads", heads),
    size_field!("kv-heads", kv_heads),
    size_field!("sequence", sequence),
    size_field!("vocab", vocab),
    size_field!("ffn", ffn),
    field!("activation", activation, Activation::find, "gelu or swiglu"),
    field!("norm", norm, Norm::find, "layer or rms"),
    field!("positions", positions, Positions::find, "learned or rotary"),
    field!("bias", bias, Bias::find, "all, no-qkv or none"),
    field!("fused-qkv", fused_qkv, flag, "true or false"),
    field!("tied", tied, flag, "true or false"),
    real_field!("dropout", dropout),
];

pub(super) const MIXTURE: &[Field<Mixture>] = &[
    size_field!("count", count),
    size_field!("top-k", top_k),
    real_field!("capacity-factor", capacity_factor),
    real_field!("auxiliary", auxiliary),
    size_field!("slices", groups.slices),
    field!("placement", groups.placement, Placement::find, "contiguous, zigzag or striped"),
    size_field!("stretches", groups.stretches),
    Field {
        name: "popularity",
        show: |experts| Some(experts.popularity.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        read: |experts, text| text.split(',').map(whole).collect::<Option<_>>().map(|shares| experts.popularity = shares),
        allowed: "whole numbers between commas, one for each expert",
    },
];

pub(super) const ATTENTION: &[Field<Attention>] = &[
    size_field!("batch", batch),
    size_field!("sequence", sequence),
    size_field!("heads", heads),
    size_field!("kv-heads", kv_heads),
    size_field!("head-size", head_size),
    field!("causal", causal, flag, "true or false"),
    size_field!("slices", slices),
    field!("placement", placement, Placement::find, "contiguous, zigzag or striped"),
    real_field!("sharpness", sharpness),
    Field {
        name: "bug",
        show: |attention| Some(attention.bug.map_or("none", AttentionBug::name).to_owned()),
        read: |attention, text| {
            attention.bug = AttentionBug::find(text);
            (attention.bug.is_some() || text == "none").then_some(())
        },
        allowed: "none, or a bug such as no-rescale",
    },
];

pub(super) const EXPERTS: &[Field<Experts>] = &[
    size_field!("tokens", tokens),
    size_field!("groups", groups),
    size_field!("ranks", ranks),
    size_field!("count", count),
    size_field!("top-k", top_k),
    real_field!("capacity-factor", capacity_factor),
    Field {
        name: "lost",
        show: |experts| Some(experts.lost.map_or_else(|| "none".to_owned(), |factor| format!("{factor:?}"))),
        read: |experts, text| {
            experts.lost = real(text);
            (experts.lost.is_some() || text == "none").then_some(())
        },
        allowed: "none, or a capacity factor",
    },
    real_field!("auxiliary", auxiliary),
    size_field!("hidden", hidden),
    size_field!("ffn", ffn),
    field!("activation", activation, Activation::find, "gelu or swiglu"),
    Field {
        name: "loads",
        show: |experts| Some(experts.loads.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        read: |experts, text| {
            let loads: Option<Vec<u64>> = text.split(',').map(|load| whole(load).filter(|load| *load <= 1 << 40)).collect();
            loads.map(|loads| experts.loads = loads)
        },
        allowed: "whole numbers between commas, one for each expert",
    },
    field!("seed", seed, whole, "a whole number"),
];

pub(super) const KERNEL: &[Field<KernelCost>] = &[
    field!("shares", shares, whole, "a whole number"),
    Field {
        name: "taken",
        show: |kernel| (kernel.taken != 1).then(|| kernel.taken.to_string()),
        read: |kernel, text| whole(text).map(|taken| kernel.taken = taken),
        allowed: "a whole number",
    },
    flag_field!("overlapped", overlapped),
    field!("flops", flops, whole, "a whole number"),
    field!("bytes", bytes, whole, "a whole number"),
];

pub(super) const COLLECTIVE: &[Field<Collective>] = &[
    Field {
        name: "group",
        show: |collective| Some(collective.group.to_string()),
        read: |collective, text| numbered("g")(text).map(|group| collective.group = GroupId(group)),
        allowed: "a group such as g0",
    },
    field!("step", step, whole, "a whole number"),
    Field {
        name: "bytes",
        show: |collective| Some(collective.bytes.0.to_string()),
        read: |collective, text| whole(text).map(|bytes| collective.bytes = Bytes(bytes)),
        allowed: "a whole number",
    },
    Field {
        name: "dtype",
        show: |collective| (collective.dtype != Dtype::default()).then(|| collective.dtype.to_string()),
        read: |collective, text| Dtype::find(text).map(|dtype| collective.dtype = dtype),
        allowed: "a type such as f32",
    },
    Field {
        name: "padding",
        show: |collective| (collective.padding > Bytes::ZERO).then(|| collective.padding.0.to_string()),
        read: |collective, text| whole(text).map(|bytes| collective.padding = Bytes(bytes)),
        allowed: "a whole number",
    },
    Field {
        name: "shards",
        show: |collective| (collective.shards > 1).then(|| collective.shards.to_string()),
        read: |collective, text| {
            whole(text).filter(|shards| (1..=1 << 16).contains(shards)).map(|shards| collective.shards = shards)
        },
        allowed: "a whole number from 1 to 65536",
    },
];

/// The model that a text starts from: its fields are all read.
pub(super) const NO_MODEL: Model = Model {
    layers: 0,
    hidden: 0,
    heads: 0,
    kv_heads: 0,
    sequence: 0,
    vocab: 0,
    ffn: 0,
    activation: Activation::Gelu,
    norm: Norm::Layer,
    positions: Positions::Learned,
    bias: Bias::All,
    fused_qkv: true,
    tied: false,
    dropout: 0.0,
    experts: None,
};

/// The experts of a model that a text starts from: their fields are all read.
pub(super) const NO_MIXTURE: Mixture = Mixture {
    count: 0,
    top_k: 0,
    capacity_factor: 0.0,
    auxiliary: 0.0,
    groups: Groups { slices: 0, placement: Placement::Contiguous, stretches: 0 },
    popularity: Vec::new(),
};

/// The attention layer that a text starts from: its fields are all read.
pub(super) const NO_ATTENTION: Attention = Attention {
    batch: 0,
    sequence: 0,
    heads: 0,
    kv_heads: 0,
    head_size: 0,
    causal: false,
    slices: 0,
    placement: Placement::Contiguous,
    sharpness: 0.0,
    bug: None,
};

/// The mixture of experts that a text starts from: its fields are all read.
pub(super) const NO_EXPERTS: Experts = Experts {
    tokens: 0,
    groups: 0,
    ranks: 0,
    count: 0,
    top_k: 0,
    capacity_factor: 0.0,
    lost: None,
    auxiliary: 0.0,
    hidden: 0,
    ffn: 0,
    activation: Activation::Gelu,
    loads: Vec::new(),
    seed: 0,
};

/// Prints the fields of `record`, each with its name.
pub(super) fn print<T>(f: &mut fmt::Formatter<'_>, record: &T, fields: &[Field<T>]) -> fmt::Result {
    let shown = fields.iter().filter_map(|field| (field.show)(record).map(|text| (field.name, text)));
    for (name, text) in shown {
        write!(f, "  {name} {text}")?;
    }
    Ok(())
}

/// Reads fields up to the end of the line. Where `all`, none may be missing.
pub(super) fn read<T>(words: &mut Words, record: &mut T, fields: &[Field<T>], all: bool) -> Read<()> {
    let names: Vec<&'static str> = fields.iter().map(|field| field.name).collect();
    let mut seen = vec![false; fields.len()];
    while !words.is_empty() {
        let name = words.one_of("field", &names)?;
        let place = names.iter().position(|known| *known == name).expect("one of the names");
        let field = &fields[place];
        if std::mem::replace(&mut seen[place], true) {
            return Err(Problem::new(field.name, "is given twice"));
        }
        let hint = |problem: Problem| problem.hint(format!("{} takes {}", field.name, field.allowed));
        words.expect(&format!("value of {}", field.name), |text| (field.read)(record, text)).map_err(hint)?;
    }
    let missing: Vec<&str> = names.iter().zip(&seen).filter(|(_, seen)| all && !**seen).map(|(name, _)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(Problem::new(missing.join(", "), "is missing")) }
}

fn size(text: &str) -> Option<usize> {
    whole(text).filter(|size| (1..=1 << 20).contains(size))
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

pub(super) fn some_ranks(text: &str) -> Option<usize> {
    whole(text).filter(|ranks| (1..=MOST_RANKS).contains(ranks))
}

/// The most ranks of a program, those that are folded each for itself.
pub(super) const MOST_RANKS: usize = 1 << 16;
