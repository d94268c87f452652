//! Values: what a rank's buffers hold where the session stands, in a few numbers each.

use super::super::data::{BufferValue, FIRST, Values};
use super::super::model::Look;
use crate::base::Dtype;
use crate::engine::session::Session;
use crate::engine::{self, value::Value};

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
    Ok(Values { event: look.event, rank: look.rank, buffers })
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
