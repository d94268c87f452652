//! Values: what buffers hold. Shape-only runs hold none; their programs, costs and memory are the same.

use std::collections::VecDeque;
use std::sync::Arc;

use candle_core::Tensor;

use super::state::Whole;
use crate::base::BufferId;
use crate::program::Program;

/// The value of one buffer.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// All zeros, not laid out: memory that was never written reads as zeros.
    #[default]
    Zeros,
    /// The tensors of the buffer's layout, on the CPU.
    Cpu(Arc<[Tensor]>),
}

/// The values of a run.
#[derive(Clone, Debug)]
pub enum Values {
    /// Shapes alone.
    Shape,
    /// Real numbers.
    Real {
        /// Per buffer, its value.
        buffers: Vec<Value>,
        /// Per channel, values that were sent and not received yet.
        mailboxes: Vec<VecDeque<Value>>,
        /// Losses of micro-batches, in the order in which they were computed.
        losses: Vec<Loss>,
        /// Auxiliary losses of routers, in the same order.
        auxiliary: Vec<Auxiliary>,
    },
}

/// The auxiliary loss of a layer's router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Auxiliary {
    /// The layer.
    pub layer: u32,
    /// The place of the rank among those that share out the micro-batch's tokens.
    pub place: usize,
    /// What it is for these tokens of a micro-batch.
    pub loss: Loss,
}

/// The loss of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Training step, from 0.
    pub step: u32,
    /// Micro-batch of the whole run.
    pub micro_batch: u32,
    /// Which slice of its sequences, where ranks have slices.
    pub slice: usize,
    /// Mean over its tokens.
    pub value: f64,
}

impl Values {
    /// Real values for `program`: state as it starts, or as it was left, all else zeros.
    ///
    /// # Errors
    /// If a tensor cannot be made, or the state lacks one.
    pub fn real(program: &Program, state: Option<&Whole>) -> candle_core::Result<Self> {
        let buffers = super::kernels::initial(program, state)?;
        Ok(Self::Real {
            buffers,
            mailboxes: vec![VecDeque::new(); program.channels.len()],
            losses: Vec::new(),
            auxiliary: Vec::new(),
        })
    }

    /// The value of `buffer`; `None` in a shape-only run.
    #[must_use]
    pub fn get(&self, buffer: BufferId) -> Option<&Value> {
        match self {
            Self::Shape => None,
            Self::Real { buffers, .. } => Some(&buffers[buffer.index()]),
        }
    }

    /// The losses so far.
    #[must_use]
    pub fn losses(&self) -> &[Loss] {
        match self {
            Self::Shape => &[],
            Self::Real { losses, .. } => losses,
        }
    }

    /// The auxiliary losses so far.
    #[must_use]
    pub fn auxiliary(&self) -> &[Auxiliary] {
        match self {
            Self::Shape => &[],
            Self::Real { auxiliary, .. } => auxiliary,
        }
    }
}
