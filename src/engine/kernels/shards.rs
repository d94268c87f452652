//! Shards and buckets: tensors flat behind each other, pieces of that, and gradients that are added up.

use candle_core::{Result, Tensor, bail};

use super::{Operands, Value, add, pack, unpack};
use crate::program::Name;

impl Operands<'_> {
    pub(super) fn flatten(&self) -> Result<Vec<Value>> {
        let elements = self.op.writes.iter().map(|&buffer| self.layout(buffer).parts[0].elements()).sum();
        unpack(self.program, &pack(&self.all()?, elements)?, 0, self.op.writes)
    }

    pub(super) fn unflatten(&self) -> Result<Vec<Value>> {
        unpack(self.program, &pack(&self.all()?, 0)?, 0, self.op.writes)
    }

    /// The tensors of all reads.
    fn all(&self) -> Result<Vec<Tensor>> {
        Ok(self.op.reads.iter().map(|&buffer| self.tensors(buffer)).collect::<Result<Vec<_>>>()?.concat())
    }

    /// Writes the shard that the result's name tells.
    pub(super) fn take_shard(&self) -> Result<Vec<Value>> {
        let Some(&result) = self.op.writes.first() else { bail!("a shard needs a place to be written to") };
        let name = self.program.buffers[result.index()].name;
        let (Name::Shard(_, place) | Name::GradientShard(_, place) | Name::Near(_, place)) = name else {
            bail!("{name} is no shard")
        };
        let start = place as usize * self.layout(result).parts[0].elements();
        let whole = pack(&self.rest(0)?, start + self.layout(result).parts[0].elements())?;
        unpack(self.program, &whole, start, self.op.writes)
    }

    /// Adds the second half of what it reads to the first.
    pub(super) fn accumulate(&self) -> Result<Vec<Value>> {
        let (kept, fresh) = self.op.reads.split_at(self.op.reads.len() / 2);
        kept.iter().zip(fresh).map(|(&kept, &fresh)| add(self.layout(kept), self.value(kept), self.value(fresh))).collect()
    }
}
