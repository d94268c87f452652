//! `[layer]`: a bare layer in place of a training step. `[model]` has its sizes, `[parallel] context` its ranks.

use super::keys::{KEYS, Key, Section, context_parallel, layer, model as model_keys, parallel, trouble as trouble_keys};
use super::problem::Problem;
use super::trouble::attention_bugs;
use super::written::Written;
use super::{ContextMethod, Layer, Numerics, Task, model, training};
use crate::base::AttentionBug;
use crate::base::context::Attention;
use crate::base::settings::Placement;
use crate::base::words::{counted, grouped};
use crate::program::trouble::Trouble;

/// The keys of a training step that a layer has, too.
static SHARED: [&Key; 8] = [
    &model_keys::PRESET,
    &model_keys::HIDDEN,
    &model_keys::HEADS,
    &model_keys::KV_HEADS,
    &model_keys::SEQUENCE,
    &parallel::CONTEXT,
    &context_parallel::METHOD,
    &context_parallel::PLACEMENT,
];

/// Whether a key of a training step concerns a layer.
pub(super) fn concerns(key: &Key) -> bool {
    SHARED.iter().any(|shared| std::ptr::eq(*shared, key))
}

/// The layer.
pub(super) fn read(written: &mut Written, numerics: Option<Numerics>) -> Option<Layer> {
    refuse_others(written);
    let model = model::read(written);
    let ranks = written.size(&parallel::CONTEXT);
    let method = written.choice(&context_parallel::METHOD, ContextMethod::find);
    let placement = written.choice(&context_parallel::PLACEMENT, Placement::find);
    let (causal, sharpness) = (written.flag(&layer::CAUSAL), written.number(&layer::SHARPNESS));
    if let Some(ranks) = ranks {
        training::refuse_real_ranks(written, &parallel::CONTEXT, ranks, numerics);
    }
    let (model, slices, placement) = (model?, ranks?, placement?);
    refuse_uneven(written, model.sequence, slices, placement)?;
    if method? == ContextMethod::Ulysses {
        refuse_heads(written, [model.heads, model.kv_heads], slices)?;
    }
    let attention = Attention {
        batch: 1,
        sequence: model.sequence,
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_size: model.head_size(),
        causal: causal?,
        slices,
        placement,
        sharpness: sharpness?,
        bug: None,
    };
    Some(Layer { method: method?, attention })
}

/// Refuses sections and keys that say something about a whole training step.
fn refuse_others(written: &mut Written) {
    let allowed = "title, seed, [layer], [model], [parallel] context, [context_parallel], [numerics], [hardware], [[trouble]]";
    refuse_foreign(written, allowed, concerns);
}

/// Refuses sections and keys that say something about a whole training step, or about another layer.
pub(super) fn refuse_foreign(written: &mut Written, allowed: &str, concerns: fn(&Key) -> bool) {
    if let Some(place) = written.section(Section::Collective).cloned() {
        let problem =
            Problem::new("a scenario is a bare [collective] or a bare [layer], not both").hint("leave one of the two out");
        written.refuse_place(place, problem);
    }
    for &key in KEYS.iter().filter(|key| key.section.is_training() && !concerns(key)) {
        if written.has(key, 0) {
            let problem = Problem::new(format!("a bare [layer] has no `{}`", key.path())).allowed(allowed);
            written.refuse(&[key], problem.hint("leave it out"));
        }
    }
}

/// With Ulysses every rank takes equally many of the heads that there are to share, of queries and of keys: the nearest numbers of ranks
/// that would do.
pub(super) fn refuse_heads(written: &mut Written, [heads, kv_heads]: [usize; 2], ranks: usize) -> Option<()> {
    if heads.is_multiple_of(ranks) && kv_heads.is_multiple_of(ranks) {
        return Some(());
    }
    let fewest = heads.min(kv_heads);
    let fits: Vec<usize> = (1..=fewest).filter(|n| heads.is_multiple_of(*n) && kv_heads.is_multiple_of(*n)).collect();
    let message = if ranks > fewest {
        format!("Ulysses shares out heads, and {} are more than {fewest}", counted(ranks as u64, "rank"))
    } else {
        format!("Ulysses shares out heads, and {ranks} ranks do not divide {heads} of queries and {kv_heads} of keys")
    };
    let nearest = fits.iter().copied().filter(|n| *n <= ranks).max().unwrap_or(1);
    let list = fits.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let problem = Problem::new(message).allowed(list).hint(format!("context = {nearest} would do; a ring takes any number"));
    written.refuse(&[&parallel::CONTEXT, &context_parallel::METHOD, &model_keys::HEADS, &model_keys::KV_HEADS], problem);
    None
}

/// Every rank must hold equally many tokens: the nearest lengths that would do.
pub(super) fn refuse_uneven(written: &mut Written, sequence: usize, ranks: usize, placement: Placement) -> Option<()> {
    let divisor = placement.divisor(ranks);
    if sequence.is_multiple_of(divisor) {
        return Some(());
    }
    let pieces = if placement == Placement::Zigzag { "twice as many pieces as ranks" } else { "as many pieces as ranks" };
    let message = format!("{} tokens cannot be cut into {pieces}, {}", grouped(sequence as i128), grouped(divisor as i128));
    let (below, above) = (sequence / divisor * divisor, sequence.next_multiple_of(divisor));
    let near = if below == 0 { format!("sequence = {above}") } else { format!("sequence = {below} or {above}") };
    let problem = Problem::new(message).allowed(format!("a multiple of {divisor}")).hint(format!("{near} would do"));
    written.refuse(&[&model_keys::SEQUENCE, &parallel::CONTEXT, &context_parallel::PLACEMENT], problem);
    None
}

/// Puts the bug that the trouble asks for into the layer, or refuses it where it could do nothing.
pub(super) fn settle(written: &mut Written, task: Option<&mut Task>, trouble: &[Trouble]) {
    let bugs: Vec<(usize, AttentionBug)> = attention_bugs(trouble).collect();
    let Some(task) = task else { return };
    for (place, &(index, bug)) in bugs.iter().enumerate() {
        let refusal = match &*task {
            Task::Layer(_) if place > 0 => Some(("an implementation has one bug at a time here", "leave the others out")),
            Task::Layer(layer) => idle(layer, bug),
            _ => Some(("it is a mistake of attention over several ranks", "a bare [layer] has that: kind = \"attention\"")),
        };
        if let Some((why, hint)) = refusal {
            let problem = Problem::new(format!("{bug} does nothing here: {why}")).hint(hint);
            written.refuse_at(&[&trouble_keys::KIND], index, problem);
        }
    }
    if let (Task::Layer(layer), Some(&(_, bug))) = (task, bugs.first()) {
        layer.attention.bug = Some(bug);
    }
}

/// Why a bug could do nothing to the layer, and what helps.
fn idle(layer: &Layer, bug: AttentionBug) -> Option<(&'static str, &'static str)> {
    let attention = &layer.attention;
    let is_ring = layer.method == ContextMethod::Ring;
    match bug {
        _ if layer.method == ContextMethod::Ulysses => {
            Some(("with Ulysses ranks have whole sequences, and merge nothing", "method = \"ring\" in [context_parallel]"))
        }
        AttentionBug::NoDelta => None,
        _ if attention.slices == 1 => Some(("one rank has one block", "context = 4 in [parallel]")),
        AttentionBug::WrongNeighbour | AttentionBug::ShortHop if !is_ring => {
            Some(("only a ring has neighbours and hops", "method = \"ring\" in [context_parallel]"))
        }
        AttentionBug::WrongNeighbour if attention.slices == 2 => {
            Some(("of two ranks, both neighbours are the same", "context = 4 in [parallel]"))
        }
        AttentionBug::LocalMask | AttentionBug::SwappedStripes | AttentionBug::WrongNeighbour if !attention.causal => {
            Some(("without a causal mask every rank sees every block, wherever it stands", "causal = true in [layer]"))
        }
        AttentionBug::SwappedStripes if attention.placement != Placement::Striped => {
            Some(("only stripes have strict and inclusive masks", "placement = \"striped\" in [context_parallel]"))
        }
        _ => None,
    }
}
