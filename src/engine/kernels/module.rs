//! Modules of a layer: the operands of their ops, and the slices of parameters that they work with.

use std::ops::Range;

use candle_core::{D, DType, Result, Tensor, bail};

use super::cpu::module::Cut;
use super::{Operands, attention, cpu, one, tensors};
use crate::base::model::Parameter;
use crate::base::module::Module;
use crate::base::split::Slice;
use crate::base::{AttentionTensor, BufferId};
use crate::engine::value::Value;
use crate::program::{Inside, Layout, Name, Program};

impl Operands<'_> {
    /// Output, and what it saves as far as the op has a place for it.
    pub(super) fn module_forward(&self, module: Module) -> Result<Vec<Value>> {
        if module.is_of_experts() {
            return self.experts_forward(module);
        }
        let dims = self.dims()?;
        let results = self.cut(&dims, module).forward(&self.flowing(&dims, 0..self.op.reads.len())?)?;
        let (output, saved) = if module == Module::Loss { self.weighed(results)? } else { results };
        if let Some(AttentionTensor::Query) = self.attention_tensor(self.op.writes[0]) {
            let [q, kv] = attention::cut_heads(attention::layer(self.program)?, &output)?;
            return Ok(vec![one(q), one(kv)]);
        }
        Ok(vec![one(output), Value::Cpu(saved.into())])
    }

    /// The tensor of attention that a buffer is, where ranks have slices of every sequence.
    fn attention_tensor(&self, buffer: BufferId) -> Option<AttentionTensor> {
        Some(self.program.buffers[buffer.index()].name.attention(1)?.0)
    }

    /// Whether the `place`-th read is columns of all ranks, which modules know as one matrix.
    fn has_columns(&self, place: usize) -> bool {
        let buffer = self.op.reads[place];
        let is_met = matches!(self.program.buffers[buffer.index()].name, Name::Inside(Inside { flow, .. }, ..) if flow.is_met());
        is_met && self.layout(buffer).parts.len() > 1
    }

    /// A matrix as its buffer has it: whole, or as columns of all ranks.
    fn as_laid_out(&self, matrix: Tensor, buffer: BufferId) -> Result<Value> {
        let parts = &self.layout(buffer).parts;
        if parts.len() < 2 {
            return Ok(one(matrix));
        }
        let pieces = matrix.chunk(parts.len(), D::Minus1)?;
        Ok(Value::Cpu(pieces.iter().map(Tensor::contiguous).collect::<Result<_>>()?))
    }

    /// The tensors of these reads, as modules know them: attention's in rows of tokens.
    fn flowing(&self, dims: &cpu::Dims, reads: Range<usize>) -> Result<Vec<Tensor>> {
        let mut values = Vec::with_capacity(reads.len());
        for place in reads {
            match self.attention_tensor(self.op.reads[place]) {
                None if self.has_columns(place) => values.push(Tensor::cat(&self.bundle(place)?, D::Minus1)?),
                None => values.extend(self.bundle(place)?),
                Some(AttentionTensor::QueryGradient) => {
                    let joined =
                        attention::join_heads(attention::layer(self.program)?, &self.tensor(place)?, &self.tensor(place + 1)?)?;
                    values.push(self.cut(dims, Module::Qkv).turned_back(&joined)?);
                }
                // It stands beside the gradient of the queries.
                Some(AttentionTensor::KeyValueGradient) => {}
                Some(_) => values.push(self.bundle(place)?[0].flatten(2, 3)?),
            }
        }
        Ok(values)
    }

    /// The same once more; an op that writes one value makes a norm's output from what it saved, or saves what attention or a sum
    /// forgot.
    pub(super) fn module_again(&self, module: Module) -> Result<Vec<Value>> {
        let dims = self.dims()?;
        let cut = self.cut(&dims, module);
        match (module, self.op.writes) {
            (module, [_]) if module.is_norm() => cut.norm_again(&self.bundle(0)?, &self.rest(1)?).map(|y| vec![one(y)]),
            (Module::Add2, [_]) => cut.mask_again(&self.tensor(0)?).map(|mask| vec![Value::Cpu(mask.into())]),
            (Module::Attention, [_]) => cut.forward(&self.rest(0)?).map(|(_, saved)| vec![Value::Cpu(saved.into())]),
            _ => self.module_forward(module),
        }
    }

    /// The gradient of the input, and what W needs of it. What forward saved stands behind the values, before the parameters.
    pub(super) fn module_backward_input(&self, module: Module) -> Result<Vec<Value>> {
        if module.is_of_experts() {
            return self.experts_backward_input(module);
        }
        let dims = self.dims()?;
        let place = match module {
            Module::Norm1 | Module::Norm2 => Some(2),
            // Sums and positions have masks of dropout.
            Module::FinalNorm | Module::Add1 | Module::Add2 | Module::Positions => Some(1),
            Module::Attention => Some(3),
            _ => None,
        };
        let saved = place.map_or(Ok(Vec::new()), |place| self.bundle(place))?;
        let reads = self.op.reads.len();
        let behind = place.map_or(reads, |place| place + 1);
        let before = self.flowing(&dims, 0..place.unwrap_or(reads))?;
        let operands = [before, self.flowing(&dims, behind..reads)?].concat();
        let (gradient, deferred) = self.cut(&dims, module).backward_input(&operands, &saved)?;
        let gradient = match self.attention_tensor(self.op.writes[0]) {
            Some(_) => gradient.reshape(self.layout(self.op.writes[0]).parts[0].dims.as_slice())?,
            None => gradient,
        };
        Ok(vec![self.as_laid_out(gradient, self.op.writes[0])?, Value::Cpu(deferred.into())])
    }

    /// The gradients of the parameters, added to those so far, which stand behind the values.
    pub(super) fn module_backward_weight(&self, module: Module) -> Result<Vec<Value>> {
        if module.is_of_experts() {
            return self.experts_backward_weight(module);
        }
        let dims = self.dims()?;
        let values = self.op.reads.len().saturating_sub(self.op.writes.len());
        let operands = self.flowing(&dims, 0..values)?;
        let gradients = self.cut(&dims, module).backward_weight(&operands, self.earlier(values)?.as_deref())?;
        Ok(gradients.into_iter().map(one).collect())
    }

    fn cut<'d>(&self, dims: &'d cpu::Dims, module: Module) -> Cut<'d> {
        let setting = self.setting();
        let (split, bias_before_sum) = (setting.split(self.op.rank), setting.bias_before_sum);
        let slice = setting.attention.map(|attention| (attention, setting.context.place(self.op.rank)));
        Cut { dims, split, module, bias_before_sum, draw: self.draw_of(module), slice }
    }
}

/// How `parameter` starts; a slice as that slice of the whole tensor starts, with zeros beyond its end. As a fault, as a slice starts that
/// lies `copied` slices before it.
pub(super) fn initial(parameter: &Parameter, copied: usize, seed: u64, dtype: DType) -> Result<Tensor> {
    let Some(Slice { dim, start, of }) = parameter.slice else { return cpu::init::parameter(parameter, seed, dtype) };
    let whole = Parameter { dims: parameter.whole_dims(), slice: None, ..parameter.clone() };
    let Some(&length) = parameter.dims.get(dim) else { bail!("{} has no dim {dim}", parameter.name) };
    let start = start.saturating_sub(copied * length);
    let there = length.min(of.saturating_sub(start));
    let values = cpu::init::parameter(&whole, seed, dtype)?.narrow(dim, start.min(of), there)?;
    if there < length { values.pad_with_zeros(dim, 0, length - there)?.contiguous() } else { values.contiguous()?.copy() }
}

/// A whole tensor from its slices in order, each with what it is. What reaches beyond its end is padding.
///
/// # Errors
/// If they do not make it up.
pub fn join_slices<'v>(program: &Program, values: impl Iterator<Item = (&'v Parameter, &'v Value)>) -> Result<Value> {
    let (mut all, mut end) = (Vec::new(), None);
    for (parameter, value) in values {
        let Some(Slice { dim, of, .. }) = parameter.slice else { bail!("{} is no slice", parameter.name) };
        all.extend(tensors(&Layout::tensor(program.setting.dtype, &parameter.dims), value)?);
        end = Some((dim, of));
    }
    let Some((dim, of)) = end else { bail!("there are no slices to join") };
    Ok(one(Tensor::cat(&all, dim)?.narrow(dim, 0, of)?.contiguous()?))
}
