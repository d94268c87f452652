//! What a kernel asks of its operands before it computes: programs may be written by hand, and none may make it panic.

use candle_core::{Result, Tensor, bail};

use super::Dims;
use crate::base::model::{Model, Part, Positions};
use crate::base::saved::SavedTensor;

/// An error where the tensors aren't of the expected shapes, one by one.
pub(super) fn shapes<D: AsRef<[usize]>>(what: &str, tensors: &[Tensor], expected: impl IntoIterator<Item = D>) -> Result<()> {
    let mut tensors = tensors.iter().enumerate();
    for dims in expected {
        match tensors.next() {
            Some((_, tensor)) if tensor.dims() == dims.as_ref() => {}
            Some((i, tensor)) => bail!("{what}: tensor {i} has shape {:?}, not {:?}", tensor.dims(), dims.as_ref()),
            None => bail!("{what}: one of shape {:?} is missing", dims.as_ref()),
        }
    }
    match tensors.next() {
        Some((i, _)) => bail!("{what}: {i} tensors are expected, not more"),
        None => Ok(()),
    }
}

/// An error where the tensor isn't of the expected shape.
pub(super) fn shape(what: &str, tensor: &Tensor, expected: &[usize]) -> Result<()> {
    shapes(what, std::slice::from_ref(tensor), [expected])
}

impl Dims {
    /// An error where the kernels can't compute such a model.
    pub(super) fn check_model(&self) -> Result<()> {
        let Model { layers: _, hidden, heads, kv_heads, sequence, vocab, ffn, positions, .. } = self.model;
        if [hidden, heads, kv_heads, sequence, vocab, ffn, self.micro_batch_size].contains(&0) {
            bail!("a size of the model or of the micro-batch is 0");
        }
        if hidden % heads > 0 || heads % kv_heads > 0 {
            bail!("{hidden} hidden, {heads} heads and {kv_heads} key and value heads do not divide one another");
        }
        if positions == Positions::Rotary && !self.model.head_size().is_multiple_of(2) {
            bail!("rotary positions turn pairs: a head can't have {} elements", self.model.head_size());
        }
        if !(0.0..1.0).contains(&self.model.dropout) {
            bail!("dropout is a probability below 1, not {}", self.model.dropout);
        }
        Ok(())
    }

    /// An error where these aren't the parameters of the part.
    pub(super) fn check_parameters(&self, part: Part, parameters: &[Tensor]) -> Result<()> {
        self.check_model()?;
        shapes("parameters", parameters, self.parameters_of(part).iter().map(|parameter| &parameter.dims))
    }

    /// An error where `tensor` isn't `[b,t,h]`.
    pub(super) fn check_stream(&self, what: &str, tensor: &Tensor) -> Result<()> {
        shape(what, tensor, &self.stream())
    }

    /// An error where these aren't the tensors of the layout.
    pub(super) fn check_saved(
        &self,
        what: &str,
        tensors: &[Tensor],
        layout: fn(&Model, usize) -> Vec<SavedTensor>,
    ) -> Result<()> {
        self.check_model()?;
        shapes(what, tensors, layout(&self.model, self.micro_batch_size).iter().map(|saved| &saved.dims))
    }
}
