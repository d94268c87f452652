//! The verdict of a bare collective: every rank must have what the collective promises, element by element, exactly.

use super::verdict::{Difference, Verdict};
use crate::base::{BufferId, Rank};
use crate::engine::session::Session;
use crate::engine::value::Value;
use crate::program::{CollectiveKind, Name, Program};

/// Compares the payloads at the end with those at the start.
pub(super) fn judge(session: &Session) -> crate::engine::Result<Verdict> {
    let program = session.program();
    let promise = Promise::new(program)?;
    let mut max_abs_diff: f64 = 0.0;
    let mut first_difference = None;
    for (index, buffer) in program.buffers.iter().enumerate() {
        let Name::Chunk(chunk) = buffer.name else { continue };
        let (Some(expected), Some(value @ Value::Cpu(_))) =
            (promise.of(buffer.rank, chunk as usize), session.value(BufferId::new(index)))
        else {
            continue;
        };
        let value = value.elements()?.unwrap_or_default();
        let difference = value.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        max_abs_diff = max_abs_diff.max(difference);
        if difference > 0.0 && first_difference.is_none() {
            let writes = |op: &&crate::base::OpId| program.op(**op).writes.iter().any(|written| written.index() == index);
            let op = program.order[buffer.rank.index()].iter().rfind(writes).copied().unwrap_or_default();
            first_difference = Some(Difference { step: 0, op, tensor: buffer.name.to_string(), rank: buffer.rank });
        }
    }
    Ok(match first_difference {
        None => Verdict::Equal,
        Some(first_difference) => Verdict::Wrong { max_abs_diff, first_difference },
    })
}

/// What the collective promises, chunk by chunk.
struct Promise {
    kind: CollectiveKind,
    chunks: Vec<Vec<f64>>,
}

impl Promise {
    fn new(program: &Program) -> crate::engine::Result<Self> {
        let kind = program.collectives.first().map_or(CollectiveKind::AllReduce, |collective| collective.kind);
        let mut chunks: Vec<Vec<f64>> = Vec::new();
        for (buffer, start) in program.buffers.iter().zip(crate::engine::kernels::initial(program, None)?) {
            let Name::Chunk(chunk) = buffer.name else { continue };
            let start = start.elements()?.unwrap_or_default();
            let is_own = buffer.rank.0 == chunk;
            match chunks.get_mut(chunk as usize) {
                None => chunks.push(start),
                Some(known) if kind == CollectiveKind::AllGather => {
                    if is_own {
                        *known = start;
                    }
                }
                Some(sum) => sum.iter_mut().zip(start).for_each(|(sum, x)| *sum += x),
            }
        }
        Ok(Self { kind, chunks })
    }

    /// What `rank` must have in `chunk`; `None` where it may have anything.
    fn of(&self, rank: Rank, chunk: usize) -> Option<&[f64]> {
        let is_result = self.kind != CollectiveKind::ReduceScatter || rank.index() == chunk;
        self.chunks.get(chunk).filter(|_| is_result).map(Vec::as_slice)
    }
}
