//! Collectives as one op: what they do to the values of all members at once. Sums run over the members in their order.

use candle_core::{Result, Tensor};

use super::kernels;
use super::value::{Value, Values};
use super::world::World;
use crate::base::{BufferId, CollectiveId, OpId};
use crate::program::{CollectiveKind, Program};

/// Does the collective's work for all its members.
pub(super) fn deliver(world: &mut World, collective: CollectiveId) -> Result<()> {
    let machine = world.machine.clone();
    let program = &machine.program;
    let Values::Real { buffers, .. } = &mut world.values else { return Ok(()) };
    let mut delivery = Delivery { program, members: machine.links.members(collective), buffers };
    match program.collectives[collective.index()].kind {
        CollectiveKind::AllReduce => delivery.all_reduce(),
        CollectiveKind::ReduceScatter => delivery.reduce_scatter(),
        CollectiveKind::AllGather => delivery.all_gather(),
        CollectiveKind::AllToAll => delivery.all_to_all(),
        CollectiveKind::Barrier => Ok(()),
    }
}

/// The members of a collective, and everybody's values.
struct Delivery<'a> {
    program: &'a Program,
    members: &'a [OpId],
    buffers: &'a mut [Value],
}

impl Delivery<'_> {
    fn all_reduce(&mut self) -> Result<()> {
        for operand in 0..self.operands() {
            let sum = self.sum(operand)?;
            for &member in self.members {
                self.buffers[self.program.writes(member)[operand].index()] = sum.clone();
            }
        }
        Ok(())
    }

    fn reduce_scatter(&mut self) -> Result<()> {
        let mut sums = Vec::new();
        for operand in 0..self.operands() {
            sums.extend(kernels::tensors(self.layout(self.program.reads(self.members[0])[operand]), &self.sum(operand)?)?);
        }
        let Some(&result) = self.members.first().and_then(|&member| self.program.writes(member).first()) else { return Ok(()) };
        let size = self.layout(result).parts.iter().map(crate::program::TensorPart::elements).sum::<usize>();
        let sum = kernels::pack(&sums, size * self.members.len())?;
        for (place, &member) in self.members.iter().enumerate() {
            self.put(member, &sum, place * size)?;
        }
        Ok(())
    }

    fn all_gather(&mut self) -> Result<()> {
        let mut shards: Vec<Tensor> = Vec::new();
        for &member in self.members {
            for &shard in self.program.reads(member) {
                shards.extend(kernels::tensors(self.layout(shard), &self.buffers[shard.index()])?);
            }
        }
        let whole = kernels::pack(&shards, 0)?;
        self.members.iter().try_for_each(|&member| self.put(member, &whole, 0))
    }

    /// Who reads a piece for each member writes one from each, in one buffer or several. Otherwise who reads one buffer cuts it along its heads, which are the last dimension but one, and sends a piece to each member; who reads one
    /// for each member has such pieces, and sends them back to be put together.
    fn all_to_all(&mut self) -> Result<()> {
        let (program, members) = (self.program, self.members);
        let all = members.len();
        if members.iter().all(|&member| [program.reads(member).len(), program.writes(member).len()] == [all; 2]) {
            self.exchange();
            return Ok(());
        }
        if members.iter().all(|&member| [program.reads(member).len(), program.writes(member).len()] == [1; 2]) {
            return self.exchange_parts();
        }
        for (place, &member) in members.iter().enumerate() {
            let is_whole = program.writes(member).len() == 1;
            for (from, written) in program.writes(member).iter().enumerate() {
                let value = if is_whole { self.put_together(place)? } else { self.piece(from, place)? };
                self.buffers[written.index()] = value;
            }
        }
        Ok(())
    }

    /// Everybody gets the piece that each member has for him, and keeps his own.
    fn exchange(&mut self) {
        let (program, members) = (self.program, self.members);
        for (place, &receiver) in members.iter().enumerate() {
            for (from, written) in program.writes(receiver).iter().enumerate() {
                let read = program.reads(members[from])[place];
                self.buffers[written.index()] = self.buffers[read.index()].clone();
            }
        }
    }

    /// The same where each has one buffer, with as many tensors for each member.
    fn exchange_parts(&mut self) -> Result<()> {
        let (program, members) = (self.program, self.members);
        let read = |member: OpId| {
            let buffer = program.reads(member)[0];
            kernels::tensors(self.layout(buffer), &self.buffers[buffer.index()])
        };
        let all = members.iter().map(|&member| read(member)).collect::<Result<Vec<_>>>()?;
        for (place, &receiver) in members.iter().enumerate() {
            let piece = |tensors: &Vec<Tensor>| {
                let each = tensors.len() / members.len();
                tensors[place * each..(place + 1) * each].to_vec()
            };
            let parts: Vec<Tensor> = all.iter().flat_map(piece).collect();
            self.buffers[program.writes(receiver)[0].index()] = Value::Cpu(parts.into());
        }
        Ok(())
    }

    /// The `place`-th piece of what the member `from` reads.
    fn piece(&self, from: usize, place: usize) -> Result<Value> {
        let Some(&read) = self.program.reads(self.members[from]).first() else { return Ok(Value::Zeros) };
        let cut = |tensor: &Tensor| {
            let heads = tensor.rank() - 2;
            let width = tensor.dim(heads)? / self.members.len();
            tensor.narrow(heads, place * width, width)?.contiguous()
        };
        let tensors = kernels::tensors(self.layout(read), &self.buffers[read.index()])?;
        Ok(Value::Cpu(tensors.iter().map(cut).collect::<Result<Vec<_>>>()?.into()))
    }

    /// The pieces that all members have for the one at `place`.
    fn put_together(&self, place: usize) -> Result<Value> {
        let mut parts: Vec<Vec<Tensor>> = Vec::new();
        for &member in self.members {
            let Some(&read) = self.program.reads(member).get(place) else { return Ok(Value::Zeros) };
            let pieces = kernels::tensors(self.layout(read), &self.buffers[read.index()])?;
            parts.resize_with(pieces.len(), Vec::new);
            parts.iter_mut().zip(pieces).for_each(|(part, piece)| part.push(piece));
        }
        let whole = parts.iter().map(|pieces| Tensor::cat(pieces, pieces[0].rank() - 2)).collect::<Result<Vec<_>>>()?;
        Ok(Value::Cpu(whole.into()))
    }

    /// How many buffers each member reads.
    fn operands(&self) -> usize {
        self.members.first().map_or(0, |&member| self.program.reads(member).len())
    }

    /// The sum of the members' operands of this number.
    fn sum(&self, operand: usize) -> Result<Value> {
        let operands = self.members.iter().map(|&member| self.program.reads(member)[operand]);
        let mut sum: Option<Value> = None;
        for buffer in operands {
            let value = &self.buffers[buffer.index()];
            sum = Some(match sum {
                None => value.clone(),
                Some(sum) => kernels::add(self.layout(buffer), &sum, value)?,
            });
        }
        Ok(sum.unwrap_or_default())
    }

    /// Writes the results of `member`: a piece of `flat` from `start` on.
    fn put(&mut self, member: OpId, flat: &Tensor, start: usize) -> Result<()> {
        let writes = self.program.writes(member);
        for (buffer, value) in writes.iter().zip(kernels::unpack(self.program, flat, start, writes)?) {
            self.buffers[buffer.index()] = value;
        }
        Ok(())
    }

    fn layout(&self, buffer: BufferId) -> &crate::program::Layout {
        &self.program.layouts[self.program.buffers[buffer.index()].layout.index()]
    }
}
