//! Values: what a rank's buffers hold where the session stands, in a few numbers each.

use super::super::data::{BufferValue, FIRST, QueryState, Values};
use super::super::model::Look;
use crate::base::{AttentionTensor, BufferId, Dtype, ExpertTensor, Rank};
use crate::engine::session::Session;
use crate::engine::{self, value::Value};
use crate::program::Name;

/// The values of the rank of `look`; `session` stands there.
///
/// # Errors
/// If a tensor cannot be read.
pub fn values(session: &Session, look: Look) -> engine::Result<Values> {
    let program = session.program();
    let mut buffers = Vec::new();
    for id in session.held(look.rank) {
        let parts = &program.layouts[program.buffers[id.index()].layout.index()].parts;
        let shape = match parts.as_slice() {
            [part] => format!("{:?}", part.dims),
            parts => format!("{} tensors", parts.len()),
        };
        let count = parts.iter().map(crate::program::TensorPart::elements).sum();
        let dtype = parts.first().map_or(Dtype::F32, |part| part.dtype);
        let empty = BufferValue {
            buffer: id,
            elements: count,
            dtype,
            shape,
            first: Vec::new(),
            norm: 0.0,
            abs_max: 0.0,
            nans: 0,
            checksum: 0,
        };
        let elements = session.value(id).map(Value::elements).transpose()?.flatten();
        buffers.push(summary(empty, elements.as_deref()));
    }
    Ok(Values { event: look.event, rank: look.rank, buffers, queries: queries(session)?, gates: gates(session, look.rank)? })
}

/// The running softmax of every rank's queries in the first head, where the program is a layer of attention.
fn queries(session: &Session) -> engine::Result<Vec<QueryState>> {
    /// More ranks or rows than any screen has.
    const MOST: usize = 64;
    let program = session.program();
    let Some(attention) = program.setting.attention.filter(|_| program.setting.model.is_none()) else { return Ok(Vec::new()) };
    let (tokens, width) = (attention.tokens(), attention.heads * attention.head_size);
    let mut queries = Vec::new();
    for rank in (0..program.ranks().min(MOST)).map(Rank::new) {
        let is_state = |id: &BufferId| matches!(program.buffers[id.index()].name, Name::Attention(AttentionTensor::State, _));
        let Some(id) = session.held(rank).into_iter().find(is_state) else { continue };
        let Some(elements) = session.value(id).map(Value::elements).transpose()?.flatten() else { continue };
        // m and l of all heads, a row for each, then O token by token.
        let (statistics, output) = elements.split_at(elements.len().min(2 * attention.heads * tokens));
        let (most, total) = statistics.split_at(statistics.len() / 2);
        let rows = most.iter().zip(total).zip(output.chunks(width)).take(tokens.min(MOST)).enumerate();
        queries.extend(rows.map(|(row, ((&most, &total), output))| {
            let output = output[..attention.head_size.min(FIRST)].to_vec();
            QueryState { rank, row, most, total, output }
        }));
    }
    Ok(queries)
}

/// What the results for the tokens of `rank` are weighted by, while the rank holds it, where the program is a mixture of experts.
fn gates(session: &Session, rank: Rank) -> engine::Result<Vec<f64>> {
    let program = session.program();
    let Some(experts) = &program.setting.experts else { return Ok(Vec::new()) };
    let is_gates = |id: &BufferId| matches!(program.buffers[id.index()].name, Name::Expert(ExpertTensor::Gates, _));
    let Some(id) = session.held(rank).into_iter().find(is_gates) else { return Ok(Vec::new()) };
    let Some(elements) = session.value(id).map(Value::elements).transpose()?.flatten() else { return Ok(Vec::new()) };
    let (probabilities, chosen) = elements.split_at(elements.len().min(experts.tokens_per_rank() * experts.count));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number of an expert")]
    let weight = |(place, &expert): (usize, &f64)| {
        probabilities.get(place / experts.top_k * experts.count + expert as usize).copied().unwrap_or(0.0)
    };
    Ok(chosen.iter().enumerate().map(weight).collect())
}

/// Fills in the numbers; a buffer that was never written is all zeros.
fn summary(mut value: BufferValue, elements: Option<&[f64]>) -> BufferValue {
    let Some(elements) = elements else {
        value.first = vec![0.0; value.elements.min(FIRST)];
        return value;
    };
    let numbers = || elements.iter().copied().filter(|element| !element.is_nan());
    value.first = elements.iter().copied().take(FIRST).collect();
    value.norm = numbers().map(|element| element * element).sum::<f64>().sqrt();
    value.abs_max = numbers().fold(0.0, |max, element| max.max(element.abs()));
    value.nans = elements.len() - numbers().count();
    value.checksum = checksum(elements);
    value
}

/// FNV-1a over the bits of the elements, folded to 32 bits.
fn checksum(elements: &[f64]) -> u32 {
    let hash = elements
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, element| (hash ^ element.to_bits()).wrapping_mul(0x0100_0000_01b3));
    let (high, low) = (hash >> 32, hash & u64::from(u32::MAX));
    u32::try_from(high ^ low).unwrap_or(u32::MAX)
}
