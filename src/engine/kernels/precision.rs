//! Types of values: what is stored in half precision is widened on its way into a kernel, and rounded on its way out.
//!
//! So products and sums are taken in f32, as matrix units take them, and what leaves an op has the bits of its buffer's type.

use candle_core::{DType, Result, Tensor, bail};

use crate::base::settings::Dtype;
use crate::engine::value::Value;
use crate::program::Layout;

/// candle's name for a type that the CPU kernels know.
pub(in crate::engine) fn dtype(dtype: Dtype) -> Result<DType> {
    match dtype {
        Dtype::F32 => Ok(DType::F32),
        Dtype::F64 => Ok(DType::F64),
        Dtype::U32 => Ok(DType::U32),
        Dtype::U8 => Ok(DType::U8),
        Dtype::Bf16 => Ok(DType::BF16),
        Dtype::F16 => bail!("the CPU kernels compute in f32, f64 and bf16, not in {dtype}"),
    }
}

/// The tensor as kernels compute with it.
pub(super) fn widened(tensor: &Tensor) -> Result<Tensor> {
    if tensor.dtype() == DType::BF16 { tensor.to_dtype(DType::F32) } else { Ok(tensor.clone()) }
}

/// The value as a buffer of this layout stores it.
pub(super) fn stored(layout: &Layout, value: Value) -> Result<Value> {
    let Value::Cpu(tensors) = &value else { return Ok(value) };
    let is_half = |dtype: Dtype| dtype == Dtype::Bf16;
    if !layout.parts.iter().any(|part| is_half(part.dtype)) || tensors.len() != layout.parts.len() {
        return Ok(value);
    }
    let narrowed = |(tensor, part): (&Tensor, &crate::program::TensorPart)| {
        if is_half(part.dtype) { tensor.to_dtype(DType::BF16) } else { Ok(tensor.clone()) }
    };
    Ok(Value::Cpu(tensors.iter().zip(&layout.parts).map(narrowed).collect::<Result<_>>()?))
}
