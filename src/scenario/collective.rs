//! `[collective]`: a bare collective in place of a training step.

use super::keys::{collective, numerics as numerics_keys};
use super::problem::Problem;
use super::written::Written;
use super::{AllReduce, Collective, CollectiveKind, Numerics, Values, training};
use crate::base::words::counted;
use crate::base::{Bytes, Dtype};

/// The collective.
pub(super) fn read(written: &mut Written, numerics: Option<Numerics>) -> Option<Collective> {
    let kind = written.choice(&collective::KIND, CollectiveKind::find);
    let bytes = written.size(&collective::BYTES).map(|bytes| bytes as u64);
    let ranks = written.size(&collective::RANKS);
    let algorithm = written.choice(&collective::ALGORITHM, AllReduce::find);
    if let (Some(kind), Some(algorithm)) = (kind, algorithm)
        && kind != CollectiveKind::AllReduce
        && algorithm != AllReduce::Ring
    {
        let problem = Problem::new(format!("{kind} goes around a ring, not by {algorithm}")).allowed("ring");
        written.refuse(&[&collective::ALGORITHM, &collective::KIND], problem);
    }
    if numerics.is_some_and(|numerics| numerics.values == Values::Real && numerics.dtype == Dtype::Bf16) {
        let problem = Problem::new("a payload of whole numbers has no exact sum in bf16").allowed("f32, f64");
        written.refuse(&[&numerics_keys::DTYPE], problem.hint("numerics.values = \"shape\" follows any type"));
    }
    if let Some(ranks) = ranks {
        training::refuse_real_ranks(written, &collective::RANKS, ranks, numerics);
    }
    let elements = bytes.zip(numerics).and_then(|(bytes, numerics)| elements(written, bytes, numerics));
    let chunks = algorithm.zip(ranks).and_then(|(algorithm, ranks)| chunks(written, algorithm, ranks));
    if let (Some(elements), Some(chunks)) = (elements, chunks)
        && elements < chunks as u64
    {
        let message = format!("{} cannot fill {}", counted(elements, "element"), counted(chunks as u64, "chunk"));
        let problem = Problem::new(message).allowed("at least one element per chunk");
        written.refuse(&[&collective::BYTES, &collective::CHUNKS, &collective::RANKS], problem);
    }
    Some(Collective { kind: kind?, bytes: Bytes(bytes?), ranks: ranks?, algorithm: algorithm?, chunks: chunks? })
}

fn elements(written: &mut Written, bytes: u64, numerics: Numerics) -> Option<u64> {
    let size = numerics.dtype.size();
    if !bytes.is_multiple_of(size) {
        let verb = if bytes == 1 { "is" } else { "are" };
        let message = format!("{} {verb} no whole number of {} elements", counted(bytes, "byte"), numerics.dtype);
        let problem = Problem::new(message).allowed(format!("a multiple of {size}"));
        let near = bytes.next_multiple_of(size);
        written.refuse(&[&collective::BYTES, &numerics_keys::DTYPE], problem.hint(format!("bytes = {near} would do")));
        return None;
    }
    Some(bytes / size)
}

fn chunks(written: &mut Written, algorithm: AllReduce, ranks: usize) -> Option<usize> {
    let key = &collective::CHUNKS;
    let fixed = algorithm.chunks(ranks);
    let chunks = written.or(key, Written::size, Some(fixed.unwrap_or(1)))?;
    if let Some(fixed) = fixed
        && chunks != fixed
    {
        let who = if algorithm == AllReduce::Ring { "a ring".to_owned() } else { algorithm.to_string() };
        let message = format!("{who} of {} cannot work with {}", counted(ranks as u64, "rank"), counted(chunks as u64, "chunk"));
        let why = if fixed == ranks { "one per rank" } else { "the largest power of two that is at most the ranks" };
        let problem = Problem::new(message).allowed(format!("{fixed}, {why}")).hint("leave `chunks` out");
        written.refuse(&[key], problem);
        return None;
    }
    Some(chunks)
}
