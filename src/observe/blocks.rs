//! Blocks: an attention layer as a grid of queries against keys, and how far each of its blocks is at any event.

use super::run::Run;
use super::state::{At, State};
use crate::base::OpId;
use crate::base::settings::AttentionTensor;
use crate::program::{Kernel, Name, OpKind, Program};

/// The blocks of a layer that stands alone. Where ranks have some heads of all tokens, they are those of the last rank.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// Slices of the sequence, which are its ranks.
    pub slices: usize,
    /// By queries, then keys.
    cells: Vec<Block>,
}

/// One block: the queries of one slice against the keys of another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// Pairs that the mask leaves; 0 where it hides all.
    pub pairs: u64,
    forward: Option<OpId>,
    backward: Option<OpId>,
}

/// How far a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The mask hides all of it.
    Masked,
    /// To come.
    Waiting,
    /// Its scores are computed now.
    Forward,
    /// Its part of the output is there.
    HasOutput,
    /// Its gradients are computed now.
    Backward,
    /// Its part of the gradients is there.
    HasGradients,
}

impl Blocks {
    /// The blocks of `program`, if it is a layer of attention that stands alone.
    #[must_use]
    pub fn of(program: &Program) -> Option<Self> {
        let attention = program.setting.attention.filter(|_| program.setting.model.is_none())?;
        let mut blocks = Self { slices: attention.slices, cells: vec![Block::default(); attention.slices * attention.slices] };
        for op in program.all() {
            let OpKind::Run(kernel) = program.kind(op).original() else { continue };
            let Some((place, of_heads)) = place(program, op, attention.slices) else { continue };
            let Some(cell) = blocks.cells.get_mut(place) else { continue };
            let kernel = program.kernels[kernel.index()];
            match kernel.kernel {
                Kernel::Attend => {
                    cell.forward = Some(op);
                    cell.pairs = kernel.flops * of_heads / attention.flops_per_pair().max(1);
                }
                Kernel::AttendBackward => cell.backward = Some(op),
                _ => {}
            }
        }
        Some(blocks)
    }

    /// The block of these slices.
    #[must_use]
    pub fn get(&self, queries: usize, keys: usize) -> Block {
        self.cells.get(queries * self.slices + keys).copied().unwrap_or_default()
    }

    /// Pairs of all blocks of a rank's queries.
    #[must_use]
    pub fn work(&self, queries: usize) -> u64 {
        (0..self.slices).map(|keys| self.get(queries, keys).pairs).sum()
    }
}

impl Block {
    /// How far it is.
    #[must_use]
    pub fn stage(&self, at: &At) -> Stage {
        let state = |op: Option<OpId>| op.map(|op| at.state(op));
        match (state(self.forward), state(self.backward)) {
            (None, None) => Stage::Masked,
            (_, Some(State::Done)) => Stage::HasGradients,
            (_, Some(State::Running)) => Stage::Backward,
            (Some(State::Done), _) => Stage::HasOutput,
            (Some(State::Running), _) => Stage::Forward,
            _ => Stage::Waiting,
        }
    }
}

/// The place of an op's block, by the slices in the names of its operands; and among how many ranks its heads are shared out.
fn place(program: &Program, op: OpId, slices: usize) -> Option<(usize, u64)> {
    let slice = |wanted: AttentionTensor| {
        let names = program.reads(op).iter().map(|buffer| program.buffers[buffer.index()].name);
        names.into_iter().find_map(|name| match name {
            Name::Attention(tensor, slice) if tensor == wanted => Some((slice as usize, 1)),
            Name::Heads(tensor, slice) if tensor == wanted => Some((slice as usize, slices as u64)),
            _ => None,
        })
    };
    let ((queries, of_heads), (keys, _)) = (slice(AttentionTensor::Query)?, slice(AttentionTensor::KeyValue)?);
    (queries < slices && keys < slices).then_some((queries * slices + keys, of_heads))
}

/// Whose keys a rank has now beside its own: what has arrived and is not given back.
#[must_use]
pub fn visitors(run: &Run, at: &At, rank: usize) -> Vec<u32> {
    let keys = |buffer: crate::base::BufferId| match run.program.buffers[buffer.index()].name {
        Name::Attention(AttentionTensor::KeyValue, slice) => Some(slice),
        _ => None,
    };
    let mut here: Vec<u32> = Vec::new();
    for &op in run.program.order[rank].iter().filter(|&&op| at.state(op) == State::Done) {
        if run.program.kind(op).receives() {
            here.extend(run.program.writes(op).first().and_then(|&buffer| keys(buffer)));
        }
        run.program.frees(op).filter_map(keys).for_each(|freed| here.retain(|&there| there != freed));
    }
    here
}
