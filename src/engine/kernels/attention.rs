//! Attention by blocks: what an op of it does to values, and what a layer that stands alone is given.
//!
//! Which tokens a block has, and so what its mask is, follows from the slices in the names of its operands.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::super::value::Value;
use super::cpu::dropout;
use super::cpu::flash::{self, Block, Drops, Mask, MergeRule, Outcome, State};
use super::{Operands, dtype, one};
use crate::base::context::{Attention, Given, HeadShare};
use crate::base::model::Part;
use crate::base::{AttentionBug, AttentionTensor};
use crate::program::{Name, Program};

/// Reads q, k and v, and the state so far; writes the state.
pub(super) fn attend(operands: &Operands) -> Result<Vec<Value>> {
    let visible = Visible::of(operands)?;
    let (q, [k, v]) = (operands.tensor(0)?, pair(&operands.tensor(1)?)?);
    let dropped = Dropped::of(operands, &visible)?;
    let mut block = flash::attend(&q, dropped.block(&k, &v), &visible.mask())?;
    let bug = layer(operands.program)?.bug;
    if bug == Some(AttentionBug::Bf16Blocks) {
        block.output = block.output.to_dtype(DType::BF16)?.to_dtype(q.dtype())?;
    }
    let state = match operands.so_far(AttentionTensor::State)? {
        Some(tensors) => flash::merge(&state(&tensors)?, &block, rule(bug))?,
        None => block,
    };
    Ok(vec![Value::Cpu([state.most, state.total, state.output].into())])
}

/// Reads the state; writes the output and the log-sum-exp.
pub(super) fn finish(operands: &Operands) -> Result<Vec<Value>> {
    Ok(vec![Value::Cpu(flash::finish(&state(&operands.bundle(0)?)?)?.into())])
}

/// Reads q, k and v, output and log-sum-exp, the output's gradient, and the gradients so far, dkv where there is dq; writes those.
pub(super) fn backward(operands: &Operands) -> Result<Vec<Value>> {
    let visible = Visible::of(operands)?;
    let (q, [k, v]) = (operands.tensor(0)?, pair(&operands.tensor(1)?)?);
    let outputs = operands.bundle(2)?;
    let [output, lse] = outputs.as_slice() else { bail!("an output has two parts") };
    let gradient = operands.tensor(3)?;
    let dropped = Dropped::of(operands, &visible)?;
    let block = dropped.block(&k, &v);
    // D is taken from the output: without it, it is 0.
    let (output, lse) = match layer(operands.program)?.bug {
        Some(AttentionBug::NoDelta) => (output.zeros_like()?, lse.clone()),
        Some(AttentionBug::BlockLse) => (output.clone(), flash::finish(&flash::attend(&q, block, &visible.mask())?)?[1].clone()),
        _ => (output.clone(), lse.clone()),
    };
    let outcome = Outcome { output: &output, lse: &lse, gradient: &gradient };
    let (dq, dkv) = (operands.so_far(AttentionTensor::QueryGradient)?, operands.so_far(AttentionTensor::KeyValueGradient)?);
    let dkv = dkv.as_deref().and_then(<[Tensor]>::first).map(pair).transpose()?;
    let [dk, dv] = dkv.as_ref().map_or([None; 2], |[dk, dv]| [Some(dk), Some(dv)]);
    let earlier = [dq.as_deref().and_then(<[Tensor]>::first), dk, dv];
    let [dq, dk, dv] = flash::backward(&q, block, outcome, &visible.mask(), earlier)?;
    Ok(vec![one(dq), one(Tensor::stack(&[dk, dv], 0)?)])
}

/// How two states are merged under a bug.
fn rule(bug: Option<AttentionBug>) -> MergeRule {
    match bug {
        Some(AttentionBug::NoRescale) => MergeRule::NoRescale,
        Some(AttentionBug::AverageMerge) => MergeRule::Average,
        Some(AttentionBug::MaxLse) => MergeRule::MaxLse,
        Some(AttentionBug::NaiveLse) => MergeRule::NaiveLse,
        _ => MergeRule::Exact,
    }
}

impl Operands<'_> {
    /// What `tensor` is so far; `None` if the op does not read it, or it was not written yet.
    fn so_far(&self, tensor: AttentionTensor) -> Result<Option<Vec<Tensor>>> {
        let is_it = |name: Name| name.attention(1).is_some_and(|(of, _)| of == tensor);
        let read = self.op.reads.iter().find(|buffer| is_it(self.program.buffers[buffer.index()].name));
        match read {
            Some(&buffer) if !matches!(self.value(buffer), Value::Zeros) => self.tensors(buffer).map(Some),
            _ => Ok(None),
        }
    }

    /// The slice that the `place`-th read belongs to.
    fn slice(&self, place: usize, tensor: AttentionTensor, attention: &Attention) -> Result<usize> {
        let name = self.op.reads.get(place).map(|buffer| self.program.buffers[buffer.index()].name);
        match name.and_then(|name| name.attention(attention.slices)) {
            Some((of, slice)) if of == tensor && slice < attention.slices => Ok(slice),
            _ => bail!("read {place} is no {tensor} of one of {} slices", attention.slices),
        }
    }
}

/// The positions of a block's queries and keys.
struct Visible {
    queries: Vec<u32>,
    keys: Vec<u32>,
    causal: bool,
}

impl Visible {
    fn of(operands: &Operands) -> Result<Self> {
        let attention = layer(operands.program)?;
        let queries = operands.slice(0, AttentionTensor::Query, attention)?;
        let keys = operands.slice(1, AttentionTensor::KeyValue, attention)?;
        let [queries, keys] = attention.compared(queries, keys);
        Ok(Self { queries, keys, causal: attention.causal })
    }

    fn mask(&self) -> Mask<'_> {
        if self.causal { Mask::Causal { queries: &self.queries, keys: &self.keys } } else { Mask::Full }
    }
}

/// Which weights of a block are dropped: of a training step those that one device drops, wherever their query and their key stand.
struct Dropped {
    /// By sequence, head, query and key; empty where none are.
    keep: Vec<u8>,
    probability: f64,
}

impl Dropped {
    fn of(operands: &Operands, visible: &Visible) -> Result<Self> {
        let (setting, name) = (operands.setting(), operands.program.buffers[operands.op.reads[0].index()].name);
        let probability = setting.model.as_ref().map_or(0.0, |model| model.dropout);
        let (Name::Context(_, share, slice, _), Some(attention)) = (name, setting.attention) else {
            return Ok(Self { keep: Vec::new(), probability: 0.0 });
        };
        if probability == 0.0 {
            return Ok(Self { keep: Vec::new(), probability });
        }
        let dims = operands.dims()?;
        let slices = u32::try_from(attention.slices)?;
        let draw = operands.draw_in(Part::Block(slice / slices));
        let [tensor, context] = [setting.tensor, setting.context].map(|line| line.place(operands.op.rank));
        let (all, t) = (dims.model.heads, dims.model.sequence);
        let (first, heads) = match share {
            HeadShare::All => (0, attention.heads),
            HeadShare::One => (context * (attention.heads / attention.slices), attention.heads / attention.slices),
        };
        let first = tensor * attention.heads + first;
        let rows = (0..attention.batch).flat_map(|sequence| (first..first + heads).map(move |head| sequence * all + head));
        let rows = rows.flat_map(|head| visible.queries.iter().map(move |&query| (head * t + query as usize) * t));
        let elements = rows.flat_map(|row| visible.keys.iter().map(move |&key| row + key as usize));
        let keep = dropout::mask_of(&dims, draw, dropout::Place::Softmax, elements.map(|element| element..element + 1));
        Ok(Self { keep, probability })
    }

    fn block<'b>(&'b self, k: &'b Tensor, v: &'b Tensor) -> Block<'b> {
        let drops = Drops { keep: &self.keep, probability: self.probability };
        Block { k, v, drops: (!self.keep.is_empty()).then_some(drops) }
    }
}

pub(super) fn layer(program: &Program) -> Result<&Attention> {
    match &program.setting.attention {
        Some(attention) => Ok(attention),
        None => bail!("a kernel of attention in a program without an attention layer"),
    }
}

/// q `[b,t,n,d]`, and k and v as one `[2,b,t,kv,d]`, of what a layer made side by side `[b,t,(n + 2 kv) d]`.
pub(super) fn cut_heads(attention: &Attention, qkv: &Tensor) -> Result<[Tensor; 2]> {
    let Attention { batch, heads, kv_heads, head_size, .. } = *attention;
    let part = |first: usize, heads: usize| {
        let part = qkv.narrow(2, first * head_size, heads * head_size)?.contiguous()?;
        part.reshape((batch, attention.tokens(), heads, head_size))
    };
    let (k, v) = (part(heads, kv_heads)?, part(heads + kv_heads, kv_heads)?);
    Ok([part(0, heads)?, Tensor::stack(&[k, v], 0)?])
}

/// The same back.
pub(super) fn join_heads(attention: &Attention, q: &Tensor, kv: &Tensor) -> Result<Tensor> {
    let [k, v] = pair(kv)?;
    let rows = |tensor: &Tensor| tensor.reshape((attention.batch, attention.tokens(), ()));
    Tensor::cat(&[rows(q)?, rows(&k)?, rows(&v)?], 2)?.contiguous()
}

/// k and v of what travels as one.
fn pair(kv: &Tensor) -> Result<[Tensor; 2]> {
    if kv.dims().first() != Some(&2) {
        bail!("keys and values stand one behind the other, not as {:?}", kv.dims());
    }
    Ok([kv.get(0)?, kv.get(1)?])
}

fn state(tensors: &[Tensor]) -> Result<State> {
    let [most, total, output] = tensors else { bail!("a state has three parts, not {}", tensors.len()) };
    Ok(State { most: most.clone(), total: total.clone(), output: output.clone() })
}

/// What a layer that stands alone is given, of one slice.
pub(super) fn given(program: &Program, tensor: AttentionTensor, slice: u32) -> Result<Tensor> {
    let attention = layer(program)?;
    if slice as usize >= attention.slices {
        bail!("slice {slice} of a sequence in {} slices", attention.slices);
    }
    let positions = attention.positions(slice as usize);
    let of: (&[Given], usize) = match tensor {
        AttentionTensor::Query => (&[Given::Query], attention.heads),
        AttentionTensor::KeyValue => (&[Given::Key, Given::Value], attention.kv_heads),
        AttentionTensor::OutputGradient => (&[Given::OutputGradient], attention.heads),
        other => bail!("{other} is made, not given"),
    };
    let mut values = Vec::new();
    for &of_which in of.0 {
        for &position in &positions {
            for head in 0..of.1 {
                values.extend((0..attention.head_size).map(|column| attention.given(of_which, position, head, column)));
            }
        }
    }
    let (_, dims) = &attention.parts(tensor, HeadShare::All)[0];
    Tensor::from_vec(values, dims.as_slice(), &Device::Cpu)?
        .to_dtype(dtype(program.setting.initial)?)?
        .to_dtype(dtype(program.setting.dtype)?)
}
