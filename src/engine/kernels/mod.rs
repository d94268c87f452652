//! The kernel table: what each computation of a program does to values.

pub mod cpu;
mod module;

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::state::Whole;
use super::value::Value;
use crate::base::model::{Model, Part};
use crate::base::saved::block_saved;
use crate::base::settings::{Dtype, OptimizerKind};
use crate::base::{BufferId, ParameterId, Rank};
use crate::program::{Buffer, Kernel, Layout, Name, Op, Program, Setting, TensorPart, Unit};
use cpu::Dims;
use cpu::optimizer::{AdamState, AdamW};
pub use module::join_slices;

/// Computes `op`: the values of the buffers that it writes, in their order.
///
/// # Errors
/// If operands do not fit the kernel.
pub fn run(program: &Program, op: Op, kernel: Kernel, buffers: &[Value]) -> Result<Vec<Value>> {
    let operands = Operands::new(program, op, buffers);
    match kernel {
        Kernel::LoadTokens | Kernel::LoadTargets => operands.load(kernel),
        Kernel::Forward(part) => operands.forward(part),
        Kernel::BackwardInput(part) => operands.backward_input(part),
        Kernel::BackwardWeight(part) => operands.backward_weight(part),
        Kernel::Recompute(part) => operands.recompute(part),
        Kernel::RecomputeAttention(_) => operands.recompute_attention(),
        Kernel::ZeroGradients => Ok(vec![Value::Zeros; op.writes.len()]),
        Kernel::Accumulate => operands.accumulate(),
        Kernel::Average(_) | Kernel::AverageShard => operands.average(),
        Kernel::Optimizer(_) | Kernel::OptimizerShard => operands.optimizer(),
        Kernel::TakeShard => operands.take_shard(),
        Kernel::Flatten => operands.flatten(),
        Kernel::Unflatten => operands.unflatten(),
    }
}

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
        Name::Parameter(parameter) => initial_parameter(program, parameter, buffer.rank).map(one),
        Name::Shard(unit, place) => {
            let Some(unit) = program.units.get(unit as usize) else { bail!("a shard of a unit that is not declared") };
            let whole = unit
                .parameters
                .iter()
                .map(|&parameter| initial_parameter(program, parameter, buffer.rank))
                .collect::<Result<Vec<_>>>()?;
            let size = unit.shard_elements(program);
            Ok(one(pack(&whole, size * unit.shards)?.narrow(0, place as usize * size, size)?.copy()?))
        }
        Name::Chunk(_) => payload(program, buffer, first).map(one),
        _ => Ok(Value::Zeros),
    }
}

fn initial_parameter(program: &Program, parameter: ParameterId, rank: Rank) -> Result<Tensor> {
    let setting = &program.setting;
    let copied = if setting.same_seed { setting.tensor.split(rank).place } else { 0 };
    let start = module::initial(&program.parameters[parameter.index()], copied, setting.seed, dtype(setting.initial)?)?;
    start.to_dtype(dtype(setting.dtype)?)
}

/// The tensors flat behind each other, with zeros at the end up to so many elements.
///
/// # Errors
/// If their types differ.
pub fn pack(tensors: &[Tensor], elements: usize) -> Result<Tensor> {
    let mut flat = tensors.iter().map(Tensor::flatten_all).collect::<Result<Vec<_>>>()?;
    let there: usize = flat.iter().map(Tensor::elem_count).sum();
    if let Some(first) = flat.first().filter(|_| there < elements) {
        flat.push(Tensor::zeros(elements - there, first.dtype(), &Device::Cpu)?);
    }
    match flat.as_slice() {
        [only] => Ok(only.clone()),
        several => Tensor::cat(several, 0),
    }
}

/// A unit's parameters, or what has their shapes, from all of its shards in order.
///
/// # Errors
/// If a shard has another size.
pub fn join(program: &Program, unit: &Unit, shards: &[&Value]) -> Result<Vec<Value>> {
    let dtype = program.setting.dtype;
    let layout = Layout::tensor(dtype, &[unit.shard_elements(program)]);
    let shards = shards.iter().map(|shard| tensors(&layout, shard)).collect::<Result<Vec<_>>>()?.concat();
    let flat = pack(&shards, 0)?;
    let mut start = 0;
    let mut cut = |parameter: &ParameterId| {
        let parameter = &program.parameters[parameter.index()];
        let piece = flat.narrow(0, start, parameter.elements())?.reshape(parameter.dims.as_slice())?;
        start += parameter.elements();
        Ok(one(piece))
    };
    unit.parameters.iter().map(&mut cut).collect()
}

/// A flat tensor cut into the shapes of `buffers`, from element `start` on. The pieces are views of it: nothing is copied.
///
/// # Errors
/// If it is too short.
pub fn unpack(program: &Program, flat: &Tensor, mut start: usize, buffers: &[BufferId]) -> Result<Vec<Value>> {
    let mut cut = |buffer: &BufferId| {
        let part = &program.layouts[program.buffers[buffer.index()].layout.index()].parts[0];
        let piece = flat.narrow(0, start, part.elements())?.reshape(part.dims.as_slice())?;
        start += part.elements();
        Ok(one(piece))
    };
    buffers.iter().map(&mut cut).collect()
}

/// `sum` of two values, tensor by tensor. What was never written adds nothing, not even the sign of a zero.
///
/// # Errors
/// If their shapes differ.
pub fn add(layout: &Layout, a: &Value, b: &Value) -> Result<Value> {
    if let (Value::Zeros, sum) | (sum, Value::Zeros) = (a, b) {
        return Ok(sum.clone());
    }
    let (a, b) = (tensors(layout, a)?, tensors(layout, b)?);
    let sums = a.iter().zip(&b).map(|(a, b)| cpu::elementwise::add(a, b)).collect::<Result<Vec<_>>>()?;
    Ok(Value::Cpu(sums.into()))
}

/// The tensors of a value; zeros are laid out.
///
/// # Errors
/// If a tensor cannot be made.
pub fn tensors(layout: &Layout, value: &Value) -> Result<Vec<Tensor>> {
    match value {
        Value::Cpu(tensors) => Ok(tensors.to_vec()),
        Value::Zeros => layout.parts.iter().map(zeros).collect(),
    }
}

fn zeros(part: &TensorPart) -> Result<Tensor> {
    Tensor::zeros(part.dims.as_slice(), dtype(part.dtype)?, &Device::Cpu)
}

fn one(tensor: Tensor) -> Value {
    Value::Cpu(Arc::new([tensor]))
}

/// candle's name for a type that the CPU kernels know.
pub(super) fn dtype(dtype: Dtype) -> Result<DType> {
    match dtype {
        Dtype::F32 => Ok(DType::F32),
        Dtype::F64 => Ok(DType::F64),
        Dtype::U32 => Ok(DType::U32),
        Dtype::Bf16 | Dtype::F16 | Dtype::U8 => bail!("the CPU kernels compute in f32 and f64, not in {dtype}"),
    }
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

/// The operands of one op.
struct Operands<'a> {
    program: &'a Program,
    /// Its reads but for what was computed again.
    op: Op<'a>,
    /// What was not saved but computed again.
    recomputed: Option<BufferId>,
    buffers: &'a [Value],
}

impl<'a> Operands<'a> {
    fn new(program: &'a Program, op: Op<'a>, buffers: &'a [Value]) -> Self {
        let is_recomputed = |buffer: &BufferId| matches!(program.buffers[buffer.index()].name, Name::Recomputed(..));
        match op.reads.split_last() {
            Some((&last, reads)) if is_recomputed(&last) => {
                Self { program, op: Op { reads, ..op }, recomputed: Some(last), buffers }
            }
            _ => Self { program, op, recomputed: None, buffers },
        }
    }

    fn setting(&self) -> &Setting {
        &self.program.setting
    }

    fn model(&self) -> Result<&Model> {
        match &self.setting().model {
            Some(model) => Ok(model),
            None => bail!("a kernel of the model in a program without a model"),
        }
    }

    fn dims(&self) -> Result<Dims> {
        let setting = self.setting();
        Ok(Dims { model: self.model()?.clone(), micro_batch_size: setting.micro_batch_size, grid: setting.grid })
    }

    fn layout(&self, buffer: BufferId) -> &Layout {
        &self.program.layouts[self.program.buffers[buffer.index()].layout.index()]
    }

    fn value(&self, buffer: BufferId) -> &Value {
        &self.buffers[buffer.index()]
    }

    /// All tensors of the `place`-th read.
    fn bundle(&self, place: usize) -> Result<Vec<Tensor>> {
        match self.op.reads.get(place) {
            Some(&buffer) => tensors(self.layout(buffer), self.value(buffer)),
            None => bail!("read {place} is missing"),
        }
    }

    /// The tensor of the `place`-th read.
    fn tensor(&self, place: usize) -> Result<Tensor> {
        match self.bundle(place)?.as_slice() {
            [tensor] => Ok(tensor.clone()),
            several => bail!("read {place} holds {} tensors, not one", several.len()),
        }
    }

    /// The tensors of all reads from `place` on.
    fn rest(&self, place: usize) -> Result<Vec<Tensor>> {
        (place..self.op.reads.len()).map(|place| self.tensor(place)).collect()
    }

    fn load(&self, kernel: Kernel) -> Result<Vec<Value>> {
        let written = self.program.buffers[self.op.writes[0].index()].name;
        let (Name::Tokens(micro_batch) | Name::Targets(micro_batch)) = written else { bail!("{kernel} writes {written}") };
        let dims = self.dims()?;
        let sample = u64::from(micro_batch) * dims.micro_batch_size as u64;
        let (tokens, targets) = cpu::data::batch(sample, &dims, self.setting().seed)?;
        Ok(vec![one(if kernel == Kernel::LoadTokens { tokens } else { targets })])
    }

    fn forward(&self, part: Part) -> Result<Vec<Value>> {
        let dims = self.dims()?;
        let (output, saved) = match part {
            Part::Module(_, module) => return self.module_forward(module),
            Part::Embedding => return cpu::embedding::forward(&dims, &self.tensor(0)?, &self.rest(1)?).map(|y| vec![one(y)]),
            Part::Block(_) => cpu::block::forward(&dims, &self.tensor(0)?, &self.rest(1)?)?,
            Part::Head => cpu::head::forward(&dims, &self.tensor(0)?, &self.tensor(1)?, &self.rest(2)?)?,
        };
        let saved = self.kept(part, saved, 1)?;
        Ok(vec![one(output), saved])
    }

    /// What a part saves, as far as the buffer that the op writes at `place` has room for it.
    fn kept(&self, part: Part, saved: Vec<Tensor>, place: usize) -> Result<Value> {
        let (Part::Block(_), Some(&buffer)) = (part, self.op.writes.get(place)) else { return Ok(Value::Cpu(saved.into())) };
        let parts = &self.layout(buffer).parts;
        let dims = self.dims()?;
        let named = block_saved(&dims.model, dims.micro_batch_size).into_iter().zip(saved);
        let kept = named.filter(|(saved, _)| parts.iter().any(|part| part.name == saved.name)).map(|(_, tensor)| tensor);
        Ok(Value::Cpu(kept.collect()))
    }

    /// All that a part saved: what the `place`-th read holds, and what was computed again.
    fn saved(&self, part: Part, place: usize) -> Result<Vec<Tensor>> {
        let saved = self.bundle(place)?;
        let (Part::Block(_), Some(again)) = (part, self.recomputed) else { return Ok(saved) };
        let named = |buffer: BufferId, tensors: Vec<Tensor>| {
            let names = self.layout(buffer).parts.iter().map(|part| part.name.clone()).collect::<Vec<_>>();
            names.into_iter().zip(tensors)
        };
        let again_tensors = tensors(self.layout(again), self.value(again))?;
        let all: BTreeMap<String, Tensor> = named(self.op.reads[place], saved).chain(named(again, again_tensors)).collect();
        let dims = self.dims()?;
        let wanted = block_saved(&dims.model, dims.micro_batch_size);
        wanted.iter().filter_map(|saved| all.get(saved.name).cloned()).map(Ok).collect()
    }

    fn recompute(&self, part: Part) -> Result<Vec<Value>> {
        let (_, saved) = match part {
            Part::Block(_) => cpu::block::forward(&self.dims()?, &self.tensor(0)?, &self.rest(1)?)?,
            Part::Module(_, module) => return self.module_again(module),
            Part::Embedding | Part::Head => bail!("{part} is not computed again"),
        };
        Ok(vec![self.kept(part, saved, 0)?])
    }

    fn recompute_attention(&self) -> Result<Vec<Value>> {
        let Some(&saved) = self.op.reads.first() else { bail!("q, k and v are missing") };
        let Some(qkv) = self.layout(saved).parts.iter().position(|part| part.name == "q k v") else {
            bail!("q, k and v were not saved")
        };
        cpu::block::probabilities(&self.dims()?, &self.bundle(0)?[qkv]).map(|probabilities| vec![one(probabilities)])
    }

    fn backward_input(&self, part: Part) -> Result<Vec<Value>> {
        let dims = self.dims()?;
        let (gradient, deferred) = match part {
            Part::Module(_, module) => return self.module_backward_input(module),
            Part::Embedding => bail!("nothing stands before the embedding"),
            Part::Block(_) => cpu::block::backward_input(&dims, &self.tensor(0)?, &self.rest(2)?, &self.saved(part, 1)?)?,
            Part::Head => cpu::head::backward_input(&dims, &self.rest(1)?, &self.bundle(0)?)?,
        };
        Ok(vec![one(gradient), Value::Cpu(deferred.into())])
    }

    fn backward_weight(&self, part: Part) -> Result<Vec<Value>> {
        if let Part::Module(_, module) = part {
            return self.module_backward_weight(module);
        }
        let dims = self.dims()?;
        let earlier = self.earlier(2)?;
        let earlier = earlier.as_deref();
        let gradients = match part {
            Part::Embedding => cpu::embedding::backward_weight(&dims, &self.tensor(0)?, &self.tensor(1)?, earlier)?,
            Part::Block(_) => cpu::block::backward_weight(&dims, &self.saved(part, 0)?, &self.bundle(1)?, earlier)?,
            Part::Head => cpu::head::backward_weight(&dims, &self.bundle(0)?, &self.bundle(1)?, earlier)?,
            Part::Module(..) => bail!("{part} is not a whole part"),
        };
        Ok(gradients.into_iter().map(one).collect())
    }

    /// The gradients so far, which the op reads from `place` on; `None` if there are none yet.
    fn earlier(&self, place: usize) -> Result<Option<Vec<Tensor>>> {
        let earlier = &self.op.reads[place.min(self.op.reads.len())..];
        let fresh = earlier.iter().all(|&gradient| matches!(self.value(gradient), Value::Zeros));
        if fresh { Ok(None) } else { self.rest(place).map(Some) }
    }

    fn average(&self) -> Result<Vec<Value>> {
        let factor = 1.0 / f64::from(self.setting().micro_batches_per_step);
        let gradients = self.rest(0)?.into_iter();
        gradients.map(|gradient| cpu::elementwise::scale(&gradient, factor).map(one)).collect()
    }

    /// Reads gradients, parameters and moments, parameter by parameter in each; writes the latter two.
    fn optimizer(&self) -> Result<Vec<Value>> {
        let optimizer = self.setting().optimizer;
        let tensors = self.rest(0)?;
        let kinds = 2 + optimizer.kind.moments();
        let n = tensors.len() / kinds;
        let operand = |kind: usize, i: usize| tensors[kind * n + i].clone();
        if optimizer.kind == OptimizerKind::Sgd {
            return (0..n).map(|i| cpu::optimizer::sgd(optimizer.lr, &operand(1, i), &operand(0, i)).map(one)).collect();
        }
        let settings = AdamW {
            lr: optimizer.lr,
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
            eps: optimizer.epsilon,
            weight_decay: optimizer.weight_decay,
        };
        let step = self.setting().first_step + self.op.origin.step + 1;
        let update = |i| {
            let state = AdamState { parameter: operand(1, i), m: operand(2, i), v: operand(3, i) };
            cpu::optimizer::adamw(settings, step, &state, &operand(0, i))
        };
        let updated = (0..n).map(update).collect::<Result<Vec<_>>>()?;
        let parameters = updated.iter().map(|state| one(state.parameter.clone()));
        let moments = updated.iter().map(|state| one(state.m.clone())).chain(updated.iter().map(|state| one(state.v.clone())));
        Ok(parameters.chain(moments).collect())
    }

    fn flatten(&self) -> Result<Vec<Value>> {
        let elements = self.op.writes.iter().map(|&buffer| self.layout(buffer).parts[0].elements()).sum();
        unpack(self.program, &pack(&self.rest(0)?, elements)?, 0, self.op.writes)
    }

    fn unflatten(&self) -> Result<Vec<Value>> {
        unpack(self.program, &pack(&self.rest(0)?, 0)?, 0, self.op.writes)
    }

    /// Writes the shard that the result's name tells.
    fn take_shard(&self) -> Result<Vec<Value>> {
        let Some(&result) = self.op.writes.first() else { bail!("a shard needs a place to be written to") };
        let name = self.program.buffers[result.index()].name;
        let (Name::Shard(_, place) | Name::GradientShard(_, place)) = name else { bail!("{name} is no shard") };
        let start = place as usize * self.layout(result).parts[0].elements();
        let whole = pack(&self.rest(0)?, start + self.layout(result).parts[0].elements())?;
        unpack(self.program, &whole, start, self.op.writes)
    }

    /// Adds the second half of what it reads to the first.
    fn accumulate(&self) -> Result<Vec<Value>> {
        let (kept, fresh) = self.op.reads.split_at(self.op.reads.len() / 2);
        kept.iter().zip(fresh).map(|(&kept, &fresh)| add(self.layout(kept), self.value(kept), self.value(fresh))).collect()
    }
}
