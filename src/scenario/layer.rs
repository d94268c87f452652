//! `[layer]`: a bare layer in place of a training step. `[model]` has its sizes, `[parallel] context` its ranks.

use super::keys::{KEYS, Key, Section, context_parallel, layer, model as model_keys, parallel};
use super::problem::Problem;
use super::written::Written;
use super::{ContextMethod, Layer, Numerics, model, training};
use crate::base::context::Attention;
use crate::base::settings::Placement;
use crate::base::words::grouped;

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
    let attention = Attention {
        sequence: model.sequence,
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_size: model.head_size(),
        causal: causal?,
        slices,
        placement,
        sharpness: sharpness?,
    };
    Some(Layer { method: method?, attention })
}

/// Refuses sections and keys that say something about a whole training step.
fn refuse_others(written: &mut Written) {
    let allowed = "title, seed, [layer], [model], [parallel] context, [context_parallel], [numerics], [hardware], [[trouble]]";
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
