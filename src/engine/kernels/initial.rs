//! The values of all buffers before the first op: parameters as they start, a bare collective's payload, and zeros.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::precision::dtype;
use super::{attention, experts, module, one, pack};
use crate::base::ParameterId;
use crate::base::settings::Dtype;
use crate::engine::state::Whole;
use crate::engine::value::Value;
use crate::program::{Buffer, Layout, Name, Program, Role, TensorPart};

/// The values of all buffers before the first op: state as it was left, where the run goes on from one.
///
/// # Errors
/// If a tensor cannot be made, or the state lacks one.
pub fn initial(program: &Program, state: Option<&Whole>) -> Result<Vec<Value>> {
    let mut payload = 0;
    let mut values = Vec::with_capacity(program.buffers.len());
    for buffer in &program.buffers {
        // A rank's chunks follow each other, and are numbered through.
        payload = if buffer.name == Name::Chunk(0) { 0 } else { payload };
        let left = state.map_or(Ok(None), |state| state.value(program, buffer))?;
        values.push(left.map_or_else(|| initial_value(program, buffer, payload), Ok)?);
        if let Name::Chunk(_) = buffer.name {
            payload += program.layouts[buffer.layout.index()].parts.iter().map(TensorPart::elements).sum::<usize>();
        }
    }
    Ok(values)
}

/// The value of `buffer`; of a chunk, `first` elements of its rank's payload stand before it.
fn initial_value(program: &Program, buffer: &Buffer, first: usize) -> Result<Value> {
    match buffer.name {
        // What is gathered is not there yet.
        _ if !buffer.lives_from_start() => Ok(Value::Zeros),
        Name::Parameter(parameter) | Name::Master(parameter) => start(program, buffer, parameter).map(one),
        Name::Shard(unit, place) | Name::MasterShard(unit, place) => {
            let Some(unit) = program.units.get(unit as usize) else { bail!("a shard of a unit that is not declared") };
            let whole = unit.parameters.iter().map(|&parameter| start(program, buffer, parameter)).collect::<Result<Vec<_>>>()?;
            let size = unit.shard_elements(program);
            Ok(one(pack(&whole, size * unit.shards)?.narrow(0, place as usize * size, size)?.copy()?))
        }
        Name::Chunk(_) => payload(program, buffer, first).map(one),
        Name::Attention(tensor, slice) => attention::given(program, tensor, slice).map(one),
        Name::Expert(tensor, _) if buffer.role != Role::Gradient => experts::given(program, tensor, buffer.rank.index()),
        _ => Ok(Value::Zeros),
    }
}

/// A parameter as it starts, in the type of `buffer`. A copy in full precision has the digits that the parameter loses.
fn start(program: &Program, buffer: &Buffer, parameter: ParameterId) -> Result<Tensor> {
    let setting = &program.setting;
    let wide = if setting.initial == Dtype::F64 { DType::F64 } else { DType::F32 };
    let copied = if setting.same_seed { setting.tensor.place(buffer.rank) } else { 0 };
    let start = module::initial(&program.parameters[parameter.index()], copied, setting.seed, wide)?;
    let is_copy = matches!(buffer.name, Name::Master(_) | Name::MasterShard(..));
    let start = if is_copy { start } else { start.to_dtype(dtype(setting.initial)?)? };
    let layout = &program.layouts[buffer.layout.index()];
    start.to_dtype(dtype(layout.parts.first().map_or(setting.dtype, |part| part.dtype))?)
}

/// A bare collective's payload: small integers, different in every element of every rank, whose sums over up to 4,096 ranks are exact.
fn payload(program: &Program, buffer: &Buffer, first: usize) -> Result<Tensor> {
    let elements = |layout: &Layout| layout.parts.iter().map(TensorPart::elements).sum::<usize>();
    let layout = &program.layouts[buffer.layout.index()];
    #[expect(clippy::cast_precision_loss, reason = "integers below 2^12")]
    let value = |element: usize| ((buffer.rank.index() * 7 + (first + element) * 13) % 4093) as f64;
    let values: Vec<f64> = (0..elements(layout)).map(value).collect();
    Tensor::new(values, &Device::Cpu)?.to_dtype(dtype(program.setting.dtype)?)
}
