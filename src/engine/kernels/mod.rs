//! The kernel table: what each computation of a program does to values.

mod attention;
pub mod cpu;
mod experts;
mod initial;
mod mixture;
mod module;
mod precision;
mod random;
mod shards;

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{Device, Result, Tensor, bail};

use super::value::Value;
use crate::base::model::{Model, Part, Segment};
use crate::base::saved::{block_saved, embedding_saved};
use crate::base::settings::{Dtype, OptimizerKind};
use crate::base::{BufferId, ParameterId};
use crate::program::{Kernel, Layout, Name, Op, Program, Setting, TensorPart, Unit};
use cpu::Dims;
use cpu::optimizer::{AdamState, AdamW};
pub use initial::initial;
pub use module::join_slices;
pub(super) use precision::dtype;
use precision::{stored, widened};
use random::random_value;

/// Computes `op`: the values of the buffers that it writes, in their order.
///
/// # Errors
/// If operands do not fit the kernel.
pub fn run(program: &Program, op: Op, kernel: Kernel, buffers: &[Value]) -> Result<Vec<Value>> {
    let operands = Operands::new(program, op, buffers);
    let results = operands.compute(kernel)?;
    let layouts = op.writes.iter().map(|&buffer| operands.layout(buffer));
    results.into_iter().zip(layouts).map(|(value, layout)| stored(layout, value)).collect()
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
        let cut = |part: &TensorPart| {
            let piece = flat.narrow(0, start, part.elements())?.reshape(part.dims.as_slice())?;
            start += part.elements();
            Ok(piece)
        };
        let parts = &program.layouts[program.buffers[buffer.index()].layout.index()].parts;
        Ok(Value::Cpu(parts.iter().map(cut).collect::<Result<Vec<_>>>()?.into()))
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
    let sum = |(a, b): (&Tensor, &Tensor)| cpu::elementwise::add(&widened(a)?, &widened(b)?)?.to_dtype(a.dtype());
    let sums = a.iter().zip(&b).map(sum).collect::<Result<Vec<_>>>()?;
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

/// The operands of one op.
struct Operands<'a> {
    program: &'a Program,
    /// Its reads but for the two below, which stand behind all others.
    op: Op<'a>,
    /// What was not saved but computed again.
    recomputed: Option<BufferId>,
    /// Where the random numbers stood in forward.
    random_state: Option<BufferId>,
    buffers: &'a [Value],
}

/// A piece of data: a segment of a micro-batch's sequences, their number, and what a token's loss weighs in it beside the
/// tokens of others.
struct Piece {
    micro_batch: u32,
    segment: Segment,
    size: usize,
    weight: f64,
}

/// What other segments of a block's sequences left: q, k and v of earlier ones, and from later ones the gradient of keys and values.
#[derive(Default)]
struct Others {
    earlier: Vec<Tensor>,
    later: Option<Tensor>,
}

impl<'a> Operands<'a> {
    fn new(program: &'a Program, op: Op<'a>, buffers: &'a [Value]) -> Self {
        let mut operands = Self { program, op, recomputed: None, random_state: None, buffers };
        if let Some((&last, reads)) = op.reads.split_last() {
            let place = match program.buffers[last.index()].name {
                Name::Recomputed(..) => &mut operands.recomputed,
                Name::RandomState(..) => &mut operands.random_state,
                _ => return operands,
            };
            *place = Some(last);
            operands.op.reads = reads;
        }
        operands
    }

    fn compute(&self, kernel: Kernel) -> Result<Vec<Value>> {
        match kernel {
            Kernel::LoadTokens | Kernel::LoadTargets => self.load(kernel),
            Kernel::Forward(part) => self.forward(part),
            Kernel::BackwardInput(part) => self.backward_input(part),
            Kernel::BackwardWeight(part) => self.backward_weight(part),
            Kernel::Recompute(part) => self.recompute(part),
            Kernel::RecomputeAttention(part) => self.recompute_attention(part),
            Kernel::ZeroGradients => Ok(vec![Value::Zeros; self.op.writes.len()]),
            Kernel::Accumulate | Kernel::AddGradients => self.accumulate(),
            Kernel::Average(_) | Kernel::AverageShard => self.average(),
            Kernel::Optimizer(_) | Kernel::OptimizerShard => self.optimizer(),
            Kernel::Stash(_) => Ok(self.op.reads.iter().map(|&parameter| self.value(parameter).clone()).collect()),
            Kernel::TakeShard => self.take_shard(),
            Kernel::Flatten => self.flatten(),
            Kernel::Unflatten => self.unflatten(),
            Kernel::Release => Ok(Vec::new()),
            Kernel::Attend => attention::attend(self),
            Kernel::FinishAttention => attention::finish(self),
            Kernel::AttendBackward => attention::backward(self),
            of_experts => experts::compute(self, of_experts),
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
        let (setting, model) = (self.setting(), self.model()?.clone());
        let Piece { segment, size, .. } = self.piece();
        Ok(Dims { model, micro_batch_size: size, grid: setting.grid, segment, half: setting.dtype == Dtype::Bf16 })
    }

    /// The data that the op is about: named by what flows.
    fn piece(&self) -> Piece {
        let setting = self.setting();
        let name = |buffer: &BufferId| self.program.buffers[buffer.index()].name.micro_batch();
        let piece = self.op.writes.iter().chain(self.op.reads).find_map(name).unwrap_or(0);
        let of = setting.segments.max(1);
        let segment = if setting.context.ranks > 1 {
            // A slice of every sequence is as long as a segment; which tokens it has is told by their positions.
            Segment { place: 0, of: setting.context.ranks }
        } else {
            Segment { place: (piece % of) as usize, of: of as usize }
        };
        let (size, weight) = setting.size_and_weight(piece / of);
        Piece { micro_batch: piece / of, segment, size, weight }
    }

    fn layout(&self, buffer: BufferId) -> &Layout {
        &self.program.layouts[self.program.buffers[buffer.index()].layout.index()]
    }

    fn value(&self, buffer: BufferId) -> &Value {
        &self.buffers[buffer.index()]
    }

    /// All tensors of `buffer`, as kernels compute with them.
    fn tensors(&self, buffer: BufferId) -> Result<Vec<Tensor>> {
        tensors(self.layout(buffer), self.value(buffer))?.iter().map(widened).collect()
    }

    /// All tensors of the `place`-th read.
    fn bundle(&self, place: usize) -> Result<Vec<Tensor>> {
        match self.op.reads.get(place) {
            Some(&buffer) => self.tensors(buffer),
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
        let (Name::Tokens(_) | Name::Targets(_)) = written else { bail!("{kernel} writes {written}") };
        let (dims, setting, Piece { micro_batch, .. }) = (self.dims()?, self.setting(), self.piece());
        let (tokens, targets) = cpu::data::batch(setting.first_sample(micro_batch), &dims, setting.seed)?;
        let ids = if kernel == Kernel::LoadTokens { tokens } else { self.counted(&targets, micro_batch)? };
        if let Some(attention) = setting.attention {
            let positions = attention.positions(setting.context.place(self.op.rank));
            let positions = Tensor::new(positions.as_slice(), &Device::Cpu)?;
            return Ok(vec![one(ids.index_select(&positions, 1)?.contiguous()?)]);
        }
        let (first, own) = (dims.segment.before(&dims.model), dims.segment.tokens(&dims.model));
        Ok(vec![one(if dims.segment.of == 1 { ids } else { ids.narrow(1, first, own)?.contiguous()? })])
    }

    /// Targets of a micro-batch; those of padding do not count.
    fn counted(&self, targets: &Tensor, micro_batch: u32) -> Result<Tensor> {
        let Some(padded) = self.setting().padded.filter(|padded| padded.meets(micro_batch)) else { return Ok(targets.clone()) };
        let mut rows = targets.to_vec2::<u32>()?;
        rows.iter_mut().for_each(|row| row[padded.tokens..].fill(cpu::head::IGNORED));
        Tensor::new(rows, &Device::Cpu)
    }

    /// The loss of a piece and what the head saved (its last tensor is the gradient of the logits), by as much as it counts.
    fn weighed(&self, (loss, mut saved): (Tensor, Vec<Tensor>)) -> Result<(Tensor, Vec<Tensor>)> {
        let (setting, Piece { segment, micro_batch, weight, .. }) = (self.setting(), self.piece());
        let sequence = self.model()?.sequence;
        let padding = setting.padded.map(|padded| padded.weight(micro_batch, sequence, segment));
        let is_plain = padding.is_none() && setting.micro_batch_sizes.is_empty();
        if let (false, Some(gradient)) = (is_plain, saved.last_mut()) {
            // The gradient of the logits is where all others come from.
            *gradient = cpu::elementwise::scale(gradient, weight * padding.unwrap_or(1.0))?;
        }
        let loss = padding.map_or(Ok(loss.clone()), |padding| cpu::elementwise::scale(&loss, padding))?;
        Ok((loss, saved))
    }

    fn forward(&self, part: Part) -> Result<Vec<Value>> {
        let dims = self.dims()?;
        let (output, saved) = match part {
            Part::Module(_, module) => return self.module_forward(module),
            Part::Embedding => cpu::embedding::forward(&dims, self.draw(part)?.random, &self.tensor(0)?, &self.rest(1)?)?,
            Part::Block(_) => {
                let (parameters, others) = self.parameters(&dims, part, 1)?;
                cpu::block::forward_behind(&dims, self.draw(part)?, &self.tensor(0)?, &parameters, &others.earlier)?
            }
            Part::Head => self.weighed(cpu::head::forward(&dims, &self.tensor(0)?, &self.tensor(1)?, &self.rest(2)?)?)?,
        };
        let mut values = vec![one(output)];
        for &buffer in self.op.writes.iter().skip(1) {
            values.push(match self.program.buffers[buffer.index()].name {
                Name::RandomState(..) => random_value(self.draw(part)?.random)?,
                _ => self.kept(part, saved.clone(), buffer)?,
            });
        }
        Ok(values)
    }

    /// What a part saves, as far as `buffer` has room for it.
    fn kept(&self, part: Part, saved: Vec<Tensor>, buffer: BufferId) -> Result<Value> {
        let Part::Block(_) = part else { return Ok(Value::Cpu(saved.into())) };
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
        let again_tensors = self.tensors(again)?;
        let all: BTreeMap<String, Tensor> = named(self.op.reads[place], saved).chain(named(again, again_tensors)).collect();
        let dims = self.dims()?;
        let wanted = block_saved(&dims.model, dims.micro_batch_size);
        wanted.iter().filter_map(|saved| all.get(saved.name).cloned()).map(Ok).collect()
    }

    fn recompute(&self, part: Part) -> Result<Vec<Value>> {
        let (_, saved) = match part {
            Part::Block(_) => cpu::block::forward(&self.dims()?, self.draw(part)?, &self.tensor(0)?, &self.rest(1)?)?,
            Part::Module(_, module) => return self.module_again(module),
            Part::Embedding | Part::Head => bail!("{part} is not computed again"),
        };
        self.op.writes.iter().map(|&buffer| self.kept(part, saved.clone(), buffer)).collect()
    }

    fn recompute_attention(&self, part: Part) -> Result<Vec<Value>> {
        let qkv = self.queries_keys_values(0)?;
        let core = cpu::block::core(&self.dims()?, self.draw(part)?, &qkv)?;
        Ok(vec![Value::Cpu(core.into())])
    }

    fn backward_input(&self, part: Part) -> Result<Vec<Value>> {
        let dims = self.dims()?;
        let (gradient, deferred, left) = match part {
            Part::Module(_, module) => return self.module_backward_input(module),
            Part::Embedding => bail!("nothing stands before the embedding"),
            Part::Block(_) => {
                let (parameters, others) = self.parameters(&dims, part, 2)?;
                let others = (others.earlier.as_slice(), others.later.as_ref());
                cpu::block::backward_input_behind(&dims, &self.tensor(0)?, &parameters, &self.saved(part, 1)?, others)?
            }
            Part::Head => {
                let (gradient, deferred) = cpu::head::backward_input(&dims, &self.rest(1)?, &self.bundle(0)?)?;
                (gradient, deferred, None)
            }
        };
        Ok([one(gradient), Value::Cpu(deferred.into())].into_iter().chain(left.map(one)).collect())
    }

    /// The parameters of a block, from the `place`-th read on, and what other segments of its sequences left behind them.
    fn parameters(&self, dims: &Dims, part: Part, place: usize) -> Result<(Vec<Tensor>, Others)> {
        let first = self.op.reads.len().min(place + dims.parameters_of(part).len());
        let parameters = (place..first).map(|place| self.tensor(place)).collect::<Result<_>>()?;
        let mut others = Others::default();
        for (place, buffer) in self.op.reads.iter().enumerate().skip(first) {
            match self.program.buffers[buffer.index()].name {
                Name::KeyValueGradient(..) => others.later = Some(self.tensor(place)?),
                _ => others.earlier.push(self.queries_keys_values(place)?),
            }
        }
        Ok((parameters, others))
    }

    /// q, k and v among what a block saved.
    fn queries_keys_values(&self, place: usize) -> Result<Tensor> {
        let Some(&saved) = self.op.reads.get(place) else { bail!("q, k and v are missing") };
        let Some(qkv) = self.layout(saved).parts.iter().position(|part| part.name == "q k v") else {
            bail!("q, k and v were not saved")
        };
        Ok(self.bundle(place)?[qkv].clone())
    }

    fn backward_weight(&self, part: Part) -> Result<Vec<Value>> {
        if let Part::Module(_, module) = part {
            return self.module_backward_weight(module);
        }
        let dims = self.dims()?;
        // The gradients that it adds to stand behind all else.
        let earlier = self.earlier(self.op.reads.len().saturating_sub(self.op.writes.len()))?;
        let earlier = earlier.as_deref();
        let gradients = match part {
            Part::Embedding => {
                let is_dropped = !embedding_saved(&dims.model, dims.micro_batch_size).is_empty();
                let saved = if is_dropped { self.bundle(2)? } else { Vec::new() };
                cpu::embedding::backward_weight(&dims, &self.tensor(0)?, &self.tensor(1)?, &saved, earlier)?
            }
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

    /// Reads gradients, parameters, moments and copies in full precision, parameter by parameter in each; writes all but the gradients.
    /// Where there is a copy, it is updated, and the parameter follows it.
    fn optimizer(&self) -> Result<Vec<Value>> {
        let optimizer = self.setting().optimizer;
        let (reads, writes, moments) = (self.op.reads.len(), self.op.writes.len(), optimizer.kind.moments());
        let n = reads.saturating_sub(writes);
        if n == 0 || !writes.is_multiple_of(n) || writes / n < 1 + moments {
            bail!("an optimizer of {moments} moments reads {reads} buffers and writes {writes}");
        }
        let has_master = writes / n > 1 + moments;
        let weights = if has_master { (2 + moments) * n } else { n };
        let updated: Vec<AdamState> = (0..n).map(|i| self.updated(self.tensor(weights + i)?, i, n)).collect::<Result<_>>()?;
        let all = |of: fn(&AdamState) -> &Tensor| updated.iter().map(move |state| one(of(state).clone()));
        let parameters = all(|state| &state.parameter);
        let moments = [all(|state| &state.m), all(|state| &state.v)].into_iter().take(moments).flatten();
        let masters = all(|state| &state.parameter).filter(|_| has_master);
        Ok(parameters.chain(moments).chain(masters).collect())
    }

    /// The weight of parameter `i` of `n` behind the step, and its moments.
    fn updated(&self, weight: Tensor, i: usize, n: usize) -> Result<AdamState> {
        let (optimizer, gradient) = (self.setting().optimizer, self.tensor(i)?);
        if optimizer.kind == OptimizerKind::Sgd {
            let parameter = cpu::optimizer::sgd(optimizer.lr, &weight, &gradient)?;
            return Ok(AdamState { m: parameter.clone(), v: parameter.clone(), parameter });
        }
        let settings = AdamW {
            lr: optimizer.lr,
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
            eps: optimizer.epsilon,
            weight_decay: optimizer.weight_decay,
        };
        let step = self.setting().first_step + self.op.origin.update() + 1;
        let state = AdamState { parameter: weight, m: self.tensor(2 * n + i)?, v: self.tensor(3 * n + i)? };
        cpu::optimizer::adamw(settings, step, &state, &gradient)
    }
}
