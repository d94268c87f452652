//! Random numbers of ops: where they stand, and the word that forward leaves of that for whoever computes a layer again.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor, bail};

use super::cpu::dropout::{Draw, RandomState};
use super::{Operands, tensors};
use crate::base::BufferId;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::engine::value::Value;
use crate::program::{Kernel, Name};

/// A state of the random numbers as a value: the seed, and the first sample of the micro-batch.
pub(super) fn random_value(state: RandomState) -> Result<Value> {
    let word = |number: u64| match u32::try_from(number) {
        Ok(number) => Tensor::new(&[number], &Device::Cpu),
        Err(_) => bail!("{number} is too large for a state of the random numbers"),
    };
    Ok(Value::Cpu(Arc::new([word(state.seed)?, word(state.sample)?])))
}

/// The state that a value holds.
fn random_state(words: &[Tensor]) -> Result<RandomState> {
    let word = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<u32>();
    let words = words.iter().map(word).collect::<Result<Vec<_>>>()?.concat();
    let [seed, sample] = words[..] else { bail!("a state of the random numbers is a seed and a sample") };
    Ok(RandomState { seed: u64::from(seed), sample: u64::from(sample) })
}

impl Operands<'_> {
    /// Which random numbers the op draws: those of its micro-batch; as forward left word of them, where it computes something again.
    pub(super) fn draw(&self, part: Part) -> Result<Draw> {
        let (setting, b) = (self.setting(), self.setting().micro_batch_size as u64);
        let micro_batch = |buffer: &BufferId| match self.program.buffers[buffer.index()].name {
            Name::Tokens(m) | Name::Activation(_, m) | Name::Saved(_, m) => Some(u64::from(m)),
            _ => None,
        };
        let micro_batch = self.op.reads.iter().find_map(micro_batch).unwrap_or(0);
        let is_again = matches!(self.program.kernel_of(self.op.id), Some(Kernel::Recompute(_) | Kernel::RecomputeAttention(_)));
        let random = match self.random_state {
            Some(buffer) => random_state(&tensors(self.layout(buffer), self.value(buffer))?)?,
            // Nobody kept word: they stand where forward left them, behind the micro-batch.
            None => RandomState { seed: setting.seed, sample: (micro_batch + u64::from(is_again)) * b },
        };
        Ok(Draw { part, random })
    }

    /// Which random numbers a module draws.
    pub(super) fn draw_of(&self, module: Module) -> Draw {
        let layer = match self.program.kernel_of(self.op.id).and_then(|kernel| kernel.words().1) {
            Some(Part::Module(layer, _)) => layer,
            _ => 0,
        };
        self.draw_in(module.part(layer))
    }

    /// Which random numbers an op inside a part draws: those of its micro-batch, which are the same whenever it is computed.
    pub(super) fn draw_in(&self, part: Part) -> Draw {
        let setting = self.setting();
        let micro_batch = |buffer: &BufferId| self.program.buffers[buffer.index()].name.micro_batch();
        let micro_batch = self.op.writes.iter().chain(self.op.reads).find_map(micro_batch).unwrap_or(0);
        let sample = u64::from(micro_batch) * setting.micro_batch_size as u64;
        Draw { part, random: RandomState { seed: setting.seed, sample } }
    }
}
