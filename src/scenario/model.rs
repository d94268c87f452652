//! `[model]`: a preset, `tiny` where none is written, with the written sizes in place of its own.

use super::keys::{Key, model, numerics};
use super::presets;
use super::problem::Problem;
use super::reader::is_computed;
use super::written::Written;
use super::{Numerics, Values};
use crate::base::Dtype;
use crate::base::model::{Activation, Bias, Model, Norm, Positions};
use crate::base::precision::{Convention, Precision};

/// The model of `[model]`.
pub(super) fn read(written: &mut Written) -> Option<Model> {
    let preset = written.text(&model::PRESET).and_then(|name| presets::model(&name))?;
    let model = sizes(written, &preset);
    if let Some(model) = &model {
        check(written, model);
    }
    model
}

/// The sizes alone, for a piece that does not need them all to fit together.
pub(super) fn read_sizes(written: &Written) -> Option<Model> {
    let preset = written.text(&model::PRESET).and_then(|name| presets::model(&name))?;
    sizes(written, &preset)
}

/// The types of parameters and of what belongs to them.
pub(super) fn read_precision(written: &mut Written, numerics: Option<Numerics>) -> Option<Precision> {
    let dtype = read_dtype(written, numerics);
    let key = &model::BYTES_PER_PARAMETER;
    if !written.has(key, 0) {
        let is_real = numerics?.values == Values::Real;
        return dtype.map(if is_real { Precision::computed } else { Precision::plain });
    }
    let convention = written.choice(key, Convention::find)?;
    let (precision, numerics) = (convention.precision, numerics?);
    if written.has(&model::PARAMETER_DTYPE, 0) && dtype? != precision.parameter {
        let message = format!("{} has parameters in {}, not in {}", convention.name, precision.parameter, dtype?);
        written.refuse(&[key, &model::PARAMETER_DTYPE], Problem::new(message).hint("leave one of the two out"));
    } else if numerics.values == Values::Real && precision.parameter != numerics.dtype && is_computed(numerics.dtype) {
        let message =
            format!("{} has parameters in {}, and the run computes in {}", convention.name, precision.parameter, numerics.dtype);
        written.refuse(&[key, &numerics::DTYPE, &numerics::VALUES], Problem::new(message).hint("leave `dtype` out: it follows"));
    } else if numerics.values == Values::Real && precision.accumulator.is_some() {
        let problem = Problem::new(format!("{} keeps gradients twice, which is followed in shapes alone", convention.name));
        written
            .refuse(&[key, &numerics::VALUES], problem.hint("mixed-adam-18 computes the same numbers: gradients add up in f32"));
    }
    refuse_inexact(written, numerics, precision);
    Some(precision)
}

/// Exact mode's grid has more digits than half precision.
fn refuse_inexact(written: &mut Written, numerics: Numerics, precision: Precision) {
    if numerics.exact && precision.gradient != precision.gradient.widened() {
        let problem = Problem::new(format!("sums of gradients in {} are not exact", precision.gradient));
        written.refuse(&[&numerics::EXACT, &model::BYTES_PER_PARAMETER], problem.hint("mixed-adam-18 has gradients in f32"));
    }
}

/// The type of the parameters.
fn read_dtype(written: &mut Written, numerics: Option<Numerics>) -> Option<Dtype> {
    let key = &model::PARAMETER_DTYPE;
    let dtype = written.or(key, |written, key| written.choice(key, Dtype::find), numerics.map(|numerics| numerics.dtype))?;
    let numerics = numerics?;
    if numerics.values == Values::Real && dtype != numerics.dtype && is_computed(numerics.dtype) {
        let message = format!("with real values parameters have the type of the run: {dtype} is not {}", numerics.dtype);
        let problem = Problem::new(message).hint("numerics.values = \"shape\" follows any pair of types");
        written.refuse(&[key, &numerics::DTYPE], problem);
    }
    Some(dtype)
}

/// `preset` with the written keys in place of its own. Sizes that follow others in the preset go on following them.
fn sizes(written: &Written, preset: &Model) -> Option<Model> {
    let size = |key: &Key, fallback: usize| written.or(key, Written::size, Some(fallback));
    let flag = |key: &Key, fallback: bool| written.or(key, Written::flag, Some(fallback));
    let hidden = size(&model::HIDDEN, preset.hidden)?;
    let heads = size(&model::HEADS, preset.heads)?;
    Some(Model {
        layers: size(&model::LAYERS, preset.layers)?,
        hidden,
        heads,
        kv_heads: size(&model::KV_HEADS, if preset.kv_heads == preset.heads { heads } else { preset.kv_heads })?,
        sequence: size(&model::SEQUENCE, preset.sequence)?,
        vocab: size(&model::VOCAB, preset.vocab)?,
        ffn: size(&model::FFN, if preset.ffn == 4 * preset.hidden { 4 * hidden } else { preset.ffn })?,
        activation: written.or(&model::ACTIVATION, |w, key| w.choice(key, Activation::find), Some(preset.activation))?,
        norm: written.or(&model::NORM, |w, key| w.choice(key, Norm::find), Some(preset.norm))?,
        positions: written.or(&model::POSITIONS, |w, key| w.choice(key, Positions::find), Some(preset.positions))?,
        bias: written.or(&model::BIAS, |w, key| w.choice(key, Bias::find), Some(preset.bias))?,
        fused_qkv: flag(&model::FUSED_QKV, preset.fused_qkv)?,
        tied: flag(&model::TIED, preset.tied)?,
        dropout: written.or(&model::DROPOUT, Written::number, Some(preset.dropout))?,
        experts: None,
    })
}

fn check(written: &mut Written, model: &Model) {
    check_divides(written, [&model::HIDDEN, &model::HEADS], [model.hidden, model.heads]);
    check_divides(written, [&model::HEADS, &model::KV_HEADS], [model.heads, model.kv_heads]);
    if model.positions == Positions::Rotary && model.hidden.is_multiple_of(model.heads) && !model.head_size().is_multiple_of(2) {
        let message = format!("rotary positions turn pairs, and a head of {} elements is odd", model.head_size());
        let problem = Problem::new(message).hint("hidden / heads must be even");
        written.refuse(&[&model::POSITIONS, &model::HEADS, &model::HIDDEN], problem);
    }
}

fn check_divides(written: &mut Written, keys: [&'static Key; 2], [whole, part]: [usize; 2]) {
    if !whole.is_multiple_of(part) {
        let [of, by] = keys.map(|key| key.name);
        let problem = Problem::new(format!("{of} = {whole} is not a multiple of {by} = {part}"));
        let hint = format!("{by} = {} would do", nearest_divisor(whole, part));
        written.refuse(&[keys[1], keys[0], &model::PRESET], problem.hint(hint));
    }
}

/// The divisor of `whole` that is nearest to `part`.
fn nearest_divisor(whole: usize, part: usize) -> usize {
    let divisors = (1..=whole).filter(|divisor| whole.is_multiple_of(*divisor));
    divisors.min_by_key(|divisor| divisor.abs_diff(part)).unwrap_or(1)
}
