//! `[layer] kind = "experts"`: a bare mixture of experts. `[model]` has its sizes, `[parallel] expert` its ranks, `[experts]` the rest.

use super::keys::{
    Key, experts, layer as layer_keys, model as model_keys, numerics as numerics_keys, parallel, trouble as trouble_keys,
};
use super::limits::{float, message_ns};
use super::problem::Problem;
use super::value::Value;
use super::written::Written;
use super::{Numerics, Task, Values, layer, model, training};
use crate::base::hardware::Costs;
use crate::base::model::{Activation, Model};
use crate::base::routing::apportion;
use crate::base::units::Bytes;
use crate::base::words::{counted, grouped};
use crate::base::{LayerKind, experts::Experts};
use crate::program::trouble::{Trouble, TroubleKind};

/// The keys of a training step that a mixture of experts has, too.
static SHARED: [&Key; 12] = [
    &model_keys::PRESET,
    &model_keys::HIDDEN,
    &model_keys::FFN,
    &model_keys::ACTIVATION,
    &model_keys::SEQUENCE,
    &parallel::EXPERT,
    &experts::COUNT,
    &experts::TOP_K,
    &experts::CAPACITY_FACTOR,
    &experts::SKEW,
    &experts::LOADS,
    &experts::AUXILIARY,
];

/// Lots that are drawn before a run: tokens times choices times experts.
const MOST_LOTS: u64 = 1 << 31;

/// Whether a key of a training step concerns a mixture of experts.
pub(super) fn concerns(key: &Key) -> bool {
    SHARED.iter().any(|shared| std::ptr::eq(*shared, key))
}

/// Whether the layer that stands alone is a mixture of experts.
pub(super) fn is_asked(written: &Written) -> bool {
    written.choice(&layer_keys::KIND, LayerKind::find) == Some(LayerKind::Experts)
}

/// The layer.
pub(super) fn read(written: &mut Written, numerics: Option<Numerics>) -> Option<Experts> {
    let allowed = "title, seed, [layer] kind, [model] preset, hidden, ffn, activation, sequence, [parallel] expert, [experts], \
                   [numerics], [hardware], [[trouble]]";
    layer::refuse_foreign(written, allowed, concerns);
    for key in [&layer_keys::CAUSAL, &layer_keys::SHARPNESS] {
        if written.has(key, 0) {
            let problem = Problem::new(format!("`{}` means nothing to a mixture of experts", key.name));
            written.refuse(&[key], problem.hint("leave it out; kind = \"attention\" has it"));
        }
    }
    let model = model::read_sizes(written);
    let ranks = written.size(&parallel::EXPERT);
    if let Some(ranks) = ranks {
        training::refuse_real_ranks(written, &parallel::EXPERT, ranks, numerics);
    }
    let (count, top_k) = (written.size(&experts::COUNT), written.size(&experts::TOP_K));
    let (capacity_factor, auxiliary) = (written.number(&experts::CAPACITY_FACTOR), written.number(&experts::AUXILIARY));
    let seed = written.count(&super::keys::top::SEED).map(u64::from);
    let (model, ranks, count, top_k) = (model?, ranks?, count?, top_k?);
    refuse_uneven(written, count, ranks)?;
    refuse_choices(written, count, top_k)?;
    refuse_narrow(written, &model, count, numerics)?;
    refuse_lots(written, model.sequence as u64 * ranks as u64, (top_k * count) as u64)?;
    let all = (model.sequence * ranks) as u64;
    let loads = read_loads(written, count, (all, all * top_k as u64))?;
    Some(Experts {
        tokens: model.sequence,
        groups: ranks,
        ranks,
        count,
        top_k,
        capacity_factor: capacity_factor?,
        lost: None,
        auxiliary: auxiliary?,
        hidden: model.hidden,
        ffn: model.ffn,
        activation: model.activation,
        loads,
        seed: seed?,
    })
}

/// Every rank has equally many experts: the nearest numbers that would do.
pub(super) fn refuse_uneven(written: &mut Written, count: usize, ranks: usize) -> Option<()> {
    if count.is_multiple_of(ranks) {
        return Some(());
    }
    let message =
        format!("{} cannot be shared out evenly among {}", counted(count as u64, "expert"), counted(ranks as u64, "rank"));
    let (below, above) = (count / ranks * ranks, count.next_multiple_of(ranks));
    let near = if below == 0 { format!("count = {above}") } else { format!("count = {below} or {above}") };
    let fits: Vec<String> = (1..=count).filter(|ranks| count.is_multiple_of(*ranks)).map(|ranks| ranks.to_string()).collect();
    let problem = Problem::new(message).allowed(format!("a multiple of {ranks}"));
    let problem = problem.hint(format!("{near} would do; {} take {}", counted(count as u64, "expert"), among(&fits)));
    written.refuse(&[&experts::COUNT, &parallel::EXPERT], problem);
    None
}

/// `1, 2 or 4 ranks`.
fn among(numbers: &[String]) -> String {
    match numbers {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last} ranks", rest.join(", ")),
        _ => "1 rank".to_owned(),
    }
}

pub(super) fn refuse_choices(written: &mut Written, count: usize, top_k: usize) -> Option<()> {
    if top_k <= count {
        return Some(());
    }
    let message = format!("a token cannot go to {top_k} of {}", counted(count as u64, "expert"));
    written.refuse(&[&experts::TOP_K, &experts::COUNT], Problem::new(message).allowed(format!("1 to {count}")));
    None
}

/// A router that is given looks at one element for each expert.
fn refuse_narrow(written: &mut Written, model: &Model, count: usize, numerics: Option<Numerics>) -> Option<()> {
    if model.hidden >= count || numerics.is_some_and(|numerics| numerics.values == Values::Shape) {
        return Some(());
    }
    let message =
        format!("tokens of {} cannot tell {} apart", counted(model.hidden as u64, "element"), counted(count as u64, "expert"));
    let problem = Problem::new(message).allowed(format!("hidden of at least {count}, with real values"));
    let hint = format!("hidden = {count}, or count = {}", model.hidden);
    written.refuse(&[&model_keys::HIDDEN, &experts::COUNT, &model_keys::PRESET, &numerics_keys::VALUES], problem.hint(hint));
    None
}

pub(super) fn refuse_lots(written: &mut Written, tokens: u64, each: u64) -> Option<()> {
    if tokens.saturating_mul(each) <= MOST_LOTS {
        return Some(());
    }
    let message = format!("the choices of {} would take too long to draw", counted(tokens, "token"));
    let problem =
        Problem::new(message).allowed(format!("up to {} tokens times choices times experts", grouped(MOST_LOTS.into())));
    let keys: [&'static Key; 4] = [&model_keys::SEQUENCE, &parallel::EXPERT, &experts::COUNT, &experts::TOP_K];
    written.refuse(&keys, problem.hint("fewer tokens on each rank show the same"));
    None
}

/// How often each expert is chosen, of so many tokens and choices: as the loads say in proportion, or as the skew says.
fn read_loads(written: &mut Written, count: usize, (tokens, choices): (u64, u64)) -> Option<Vec<u64>> {
    let popularity = read_popularity(written, count, (tokens, choices))?;
    #[expect(clippy::cast_precision_loss, reason = "at most a billion")]
    let weights: Vec<f64> = popularity.iter().map(|&share| share as f64).collect();
    Some(apportion(&weights, choices, tokens))
}

/// The same in proportion.
pub(super) fn read_popularity(written: &mut Written, count: usize, (tokens, choices): (u64, u64)) -> Option<Vec<u64>> {
    let (key, skew) = (&experts::LOADS, written.number(&experts::SKEW)?);
    if !written.has(key, 0) {
        return Some(popularity(count, skew));
    }
    let loads = written.value(key, 0).and_then(Value::sizes)?;
    let problem = if written.has(&experts::SKEW, 0) {
        Some(
            Problem::new("`loads` says how often each expert is chosen, and `skew` says it, too")
                .hint("leave one of the two out"),
        )
    } else if loads.len() != count {
        let message = format!("`loads` has {} for {}", entries(loads.len()), counted(count as u64, "expert"));
        Some(Problem::new(message).allowed("one entry per expert"))
    } else {
        too_often(&loads, tokens, choices)
    };
    if let Some(problem) = problem {
        written.refuse(&[key, &experts::COUNT], problem);
        return None;
    }
    Some(loads.iter().map(|&load| load as u64).collect())
}

fn entries(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

/// No token chooses an expert twice, and every choice needs one.
fn too_often(loads: &[usize], tokens: u64, choices: u64) -> Option<Problem> {
    let all: u64 = loads.iter().map(|&load| load as u64).sum();
    let most = loads.iter().copied().max().unwrap_or(0) as u64;
    if all == 0 {
        return Some(Problem::new("no expert is ever chosen").allowed("at least one load above 0"));
    }
    let share = u128::from(most) * u128::from(choices);
    (share > u128::from(all) * u128::from(tokens)).then(|| {
        let of = share / u128::from(all);
        let message = format!(
            "an expert would be chosen {} times by {}",
            grouped(of.try_into().unwrap_or(i128::MAX)),
            counted(tokens, "token")
        );
        Problem::new(message)
            .allowed("no load above its share of one choice per token")
            .hint("a smaller top_k, or more even loads")
    })
}

/// The i-th expert is chosen as often as 1 / i^skew, in millionths.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of experts, and positive shares"
)]
fn popularity(count: usize, skew: f64) -> Vec<u64> {
    (1..=count).map(|place| (1e6 * (place as f64).powf(-skew)).round() as u64).collect()
}

/// Puts what the trouble asks for into the layer, or refuses it where there are no experts.
pub(super) fn settle(written: &mut Written, task: Option<&mut Task>, trouble: &[Trouble]) {
    let Some(task) = task else { return };
    for (index, rule) in trouble.iter().enumerate().filter(|(_, rule)| rule.kind.is_of_experts()) {
        let why = match task {
            Task::Experts(layer) if layer.ranks > 1 || rule.kind == TroubleKind::CapacityDrop => {
                overload(layer, rule);
                continue;
            }
            Task::Experts(_) => ("one rank has all experts", "expert = 4 in [parallel]"),
            Task::Train(training) if training.model.has_experts() => {
                ("it meets a bare [layer] alone", "kind = \"experts\" in [layer]")
            }
            _ => ("there are no experts", "a bare [layer] has them: kind = \"experts\""),
        };
        let problem = Problem::new(format!("{} does nothing here: {}", rule.kind.name(), why.0)).hint(why.1);
        written.refuse_at(&[&trouble_keys::KIND], index, problem);
    }
}

/// What a rule changes about the layer.
fn overload(layer: &mut Experts, rule: &Trouble) {
    match (rule.kind, rule.rank) {
        (TroubleKind::CapacityDrop, _) => layer.lost = Some(rule.factor),
        (TroubleKind::ExpertOverload, Some(rank)) => {
            let factor = |expert: usize| if layer.home(expert) == rank.index() { rule.factor } else { 1.0 };
            #[expect(clippy::cast_precision_loss, reason = "numbers of tokens")]
            let weights: Vec<f64> = layer.loads.iter().enumerate().map(|(expert, &load)| load as f64 * factor(expert)).collect();
            let (all, choices) = (layer.all_tokens() as u64, layer.loads.iter().sum());
            layer.loads = apportion(&weights, choices, all);
        }
        _ => {}
    }
}

/// Memory that real values take: what a rank routes, what travels and what experts keep, on all ranks, on one device, and there in f64.
pub(super) fn real_bytes(layer: &Experts, element: f64) -> f64 {
    let [tokens, hidden, count, k, inner] =
        [layer.all_tokens(), layer.hidden, layer.count, layer.top_k, layer.inner()].map(float);
    let rows = tokens * (8.0 * hidden + 3.0 * count + k * (10.0 * hidden + 3.0 * inner));
    let matrices = 2.0 * count * hidden * (inner + float(layer.ffn)) + 4.0 * count * hidden * float(layer.ranks);
    (rows + matrices) * (2.0 * element + 8.0)
}

/// All work one after another, in ticks.
pub(super) fn longest_ticks(layer: &Experts, costs: &Costs) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let ticks = |slots: crate::base::Ticks| slots.0 as f64;
    match costs {
        Costs::Unit(unit) => ticks(unit.forward + unit.backward_input + unit.backward_weight) * float(layer.ranks),
        Costs::Table(table) => {
            let rows = float(layer.all_tokens()) * float(layer.top_k);
            let inside = if layer.activation == Activation::Swiglu { 3.0 } else { 2.0 } * float(layer.ffn);
            let flops = 6.0 * rows * float(layer.hidden) * inside + 6.0 * rows * float(layer.hidden) * float(layer.count);
            let moved = 8.0
                * (rows * (20.0 * float(layer.hidden) + 8.0 * inside) + 6.0 * float(layer.count) * float(layer.hidden) * inside);
            let compute = flops / table.device.flops_per_second + moved / table.device.memory_bytes_per_second;
            let all = Bytes((layer.all_tokens() * layer.top_k * layer.hidden) as u64 * 8);
            1e9 * compute + 6.0 * float(layer.ranks) * message_ns(table, all)
        }
    }
}
