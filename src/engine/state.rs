//! State at rest: what the ranks own between steps as pieces of whole tensors, and whole tensors cut again for any other ranks.
//!
//! A piece is a stretch of a tensor's elements in row-major order. A rank that keeps a tensor whole has one piece of it; a shard of a unit
//! is cut where its parameters meet, so that nobody has to know the unit to put tensors together. Padding is no part of the state: it is
//! made anew where a shard needs it.

use std::collections::BTreeMap;
use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::kernels::{dtype, pack};
use super::value::{Value, Values};
use crate::base::model::Parameter;
use crate::base::settings::{Dtype, Kept};
use crate::base::{ParameterId, Rank};
use crate::program::{Buffer, Name, Program, Role};

/// A stretch of one tensor, as one rank keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// What is kept of the parameter.
    pub kept: Kept,
    /// The parameter.
    pub parameter: ParameterId,
    /// Which of its elements, in row-major order.
    pub range: Range<usize>,
    /// Their type.
    pub dtype: Dtype,
    /// The elements, little-endian.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Where it stands among others: by kind, parameter and first element.
    #[must_use]
    pub fn place(&self) -> (Kept, ParameterId, usize) {
        (self.kept, self.parameter, self.range.start)
    }

    /// Whether it is all of its parameter, one of `parameters`.
    #[must_use]
    pub fn is_whole(&self, parameters: &[Parameter]) -> bool {
        self.range == (0..parameters[self.parameter.index()].elements())
    }
}

/// The state of a whole model: every tensor in one piece.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whole {
    tensors: BTreeMap<(Kept, ParameterId), Flat>,
}

/// The elements of a tensor, little-endian.
#[derive(Clone, Debug, PartialEq)]
struct Flat {
    dtype: Dtype,
    bytes: Vec<u8>,
}

/// Why pieces are no whole model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Nobody has these elements.
    Gap(Kept, ParameterId, Range<usize>),
    /// Two ranks have different bits, or types, for the same element.
    Differ(Kept, ParameterId, Rank, Rank),
}

/// What a buffer keeps between steps: a parameter's tensor, or a shard of a unit.
#[derive(Clone, Copy)]
enum Content {
    Whole(ParameterId),
    Shard { unit: u32, place: u32 },
}

/// What of the state a buffer holds; `None` for what is made anew in every step.
fn content(buffer: &Buffer) -> Option<(Kept, Content)> {
    if !matches!(buffer.role, Role::Parameter | Role::Optimizer) {
        return None;
    }
    let shard = |unit, place| Content::Shard { unit, place };
    Some(match buffer.name {
        Name::Parameter(parameter) => (Kept::Parameter, Content::Whole(parameter)),
        Name::FirstMoment(parameter) => (Kept::FirstMoment, Content::Whole(parameter)),
        Name::SecondMoment(parameter) => (Kept::SecondMoment, Content::Whole(parameter)),
        Name::Master(parameter) => (Kept::Master, Content::Whole(parameter)),
        Name::Shard(unit, place) => (Kept::Parameter, shard(unit, place)),
        Name::FirstMomentShard(unit, place) => (Kept::FirstMoment, shard(unit, place)),
        Name::SecondMomentShard(unit, place) => (Kept::SecondMoment, shard(unit, place)),
        Name::MasterShard(unit, place) => (Kept::Master, shard(unit, place)),
        _ => return None,
    })
}

/// Which elements of which parameters `content` has, in the order in which they lie.
fn stretches(program: &Program, content: Content) -> Vec<(ParameterId, Range<usize>)> {
    let elements = |parameter: ParameterId| program.parameters[parameter.index()].elements();
    match content {
        Content::Whole(parameter) => vec![(parameter, 0..elements(parameter))],
        Content::Shard { unit, place } => {
            let unit = &program.units[unit as usize];
            let size = unit.shard_elements(program);
            let (first, end) = (place as usize * size, (place as usize + 1) * size);
            let mut before = 0;
            let mut of_parameter = |&parameter: &ParameterId| {
                let start = before;
                before += elements(parameter);
                let range = first.clamp(start, before) - start..end.clamp(start, before) - start;
                (parameter, range)
            };
            unit.parameters.iter().map(&mut of_parameter).filter(|(_, range)| !range.is_empty()).collect()
        }
    }
}

/// The state of `rank`, in the order of [`Piece::place`]; nothing in a run of shapes.
///
/// # Errors
/// If a tensor cannot be read.
pub fn pieces(program: &Program, values: &Values, rank: Rank) -> Result<Vec<Piece>> {
    let Values::Real { buffers, .. } = values else { return Ok(Vec::new()) };
    let mut pieces = Vec::new();
    for (buffer, value) in program.buffers.iter().zip(buffers).filter(|(buffer, _)| buffer.rank == rank) {
        let Some((kept, content)) = content(buffer) else { continue };
        let layout = &program.layouts[buffer.layout.index()];
        let tensors = super::kernels::tensors(layout, value)?;
        let (flat, dtype) = (bytes(&pack(&tensors, 0)?)?, layout.parts[0].dtype);
        let size = element_size(dtype);
        let mut start = 0;
        for (parameter, range) in stretches(program, content) {
            let end = start + range.len() * size;
            pieces.push(Piece { kept, parameter, range, dtype, bytes: flat[start..end].to_vec() });
            start = end;
        }
    }
    pieces.sort_by_key(Piece::place);
    Ok(pieces)
}

impl Whole {
    /// Puts the pieces of all ranks together; `elements` are those of every parameter. Several ranks may have the same piece: then it must
    /// be the same in all of them. All misfits of different tensors come at once.
    ///
    /// # Errors
    /// If something is missing or differs.
    pub fn new<'a>(
        elements: &[usize],
        kinds: &[Kept],
        pieces: impl Iterator<Item = (Rank, &'a Piece)>,
    ) -> std::result::Result<Self, Vec<Misfit>> {
        let mut by_tensor: BTreeMap<(Kept, ParameterId), Vec<(Rank, &Piece)>> = BTreeMap::new();
        let all = kinds.iter().flat_map(|&kept| (0..elements.len()).map(move |parameter| (kept, ParameterId::new(parameter))));
        by_tensor.extend(all.map(|key| (key, Vec::new())));
        for (rank, piece) in pieces {
            by_tensor.entry((piece.kept, piece.parameter)).or_default().push((rank, piece));
        }
        let (mut whole, mut misfits) = (Self::default(), Vec::new());
        for (key, mut pieces) in by_tensor {
            pieces.sort_by_key(|(rank, piece)| (piece.range.start, *rank));
            match joined(key, elements[key.1.index()], &pieces) {
                Ok(flat) => drop(whole.tensors.insert(key, flat)),
                Err(misfit) => misfits.push(misfit),
            }
        }
        if misfits.is_empty() { Ok(whole) } else { Err(misfits) }
    }

    /// The elements of a tensor with their type, little-endian.
    #[must_use]
    pub fn tensor(&self, kept: Kept, parameter: ParameterId) -> Option<(Dtype, &[u8])> {
        self.tensors.get(&(kept, parameter)).map(|flat| (flat.dtype, flat.bytes.as_slice()))
    }

    /// What `program` keeps and this state lacks, or has in another type.
    #[must_use]
    pub fn lacks(&self, program: &Program) -> Vec<(Kept, ParameterId, Dtype)> {
        let mut lacking = Vec::new();
        for (kept, content, wanted) in program.buffers.iter().filter_map(|buffer| {
            let (kept, content) = content(buffer)?;
            Some((kept, content, program.layouts[buffer.layout.index()].parts[0].dtype))
        }) {
            for (parameter, _) in stretches(program, content) {
                if self.tensor(kept, parameter).is_none_or(|(dtype, _)| dtype != wanted) {
                    lacking.push((kept, parameter, wanted));
                }
            }
        }
        lacking.sort_unstable();
        lacking.dedup();
        lacking
    }

    /// The value with which `buffer` begins; `None` if it keeps nothing of the state.
    ///
    /// # Errors
    /// If the state lacks a tensor.
    pub(super) fn value(&self, program: &Program, buffer: &Buffer) -> Result<Option<Value>> {
        let Some((kept, content)) = content(buffer) else { return Ok(None) };
        let part = &program.layouts[buffer.layout.index()].parts[0];
        let mut pieces = Vec::new();
        for (parameter, range) in stretches(program, content) {
            let Some(flat) = self.tensors.get(&(kept, parameter)) else { bail!("the state lacks {kept} of {parameter}") };
            pieces.push(flat.cut(range, dtype(part.dtype)?)?);
        }
        if pieces.is_empty() {
            return Ok(Some(Value::Zeros));
        }
        let tensor = pack(&pieces, part.elements())?.reshape(part.dims.as_slice())?;
        Ok(Some(Value::Cpu([tensor].into())))
    }
}

impl Flat {
    fn cut(&self, range: Range<usize>, wanted: DType) -> Result<Tensor> {
        let size = element_size(self.dtype);
        let Some(bytes) = self.bytes.get(range.start * size..range.end * size) else { bail!("a tensor is too short") };
        Tensor::from_raw_buffer(bytes, dtype(self.dtype)?, &[range.len()], &Device::Cpu)?.to_dtype(wanted)
    }
}

/// The pieces of one tensor, sorted by their starts, behind each other.
fn joined(
    (kept, parameter): (Kept, ParameterId),
    elements: usize,
    pieces: &[(Rank, &Piece)],
) -> std::result::Result<Flat, Misfit> {
    let Some(&(first, one)) = pieces.first() else { return Err(Misfit::Gap(kept, parameter, 0..elements)) };
    let (dtype, size) = (one.dtype, element_size(one.dtype));
    let mut flat = Flat { dtype, bytes: Vec::new() };
    // Whose the last elements are.
    let mut owner = first;
    for &(rank, piece) in pieces {
        let there = flat.bytes.len() / size;
        if piece.range.start > there {
            return Err(Misfit::Gap(kept, parameter, there..piece.range.start));
        }
        let common = (there.min(piece.range.end) - piece.range.start) * size;
        let start = piece.range.start * size;
        if piece.dtype != dtype || piece.bytes[..common] != flat.bytes[start..start + common] {
            return Err(Misfit::Differ(kept, parameter, owner, rank));
        }
        if piece.bytes.len() > common {
            flat.bytes.extend_from_slice(&piece.bytes[common..]);
            owner = rank;
        }
    }
    let there = flat.bytes.len() / size;
    if there < elements { Err(Misfit::Gap(kept, parameter, there..elements)) } else { Ok(flat) }
}

/// Bytes of one element.
fn element_size(dtype: Dtype) -> usize {
    usize::try_from(dtype.size()).unwrap_or(1)
}

/// The elements of a flat tensor, little-endian.
fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    Ok(match tensor.dtype() {
        DType::F32 => tensor.to_vec1::<f32>()?.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::F64 => tensor.to_vec1::<f64>()?.iter().flat_map(|x| x.to_le_bytes()).collect(),
        // The upper half of an f32 of the same value.
        DType::BF16 => {
            let wide = tensor.to_dtype(DType::F32)?.to_vec1::<f32>()?;
            wide.iter().flat_map(|x| [x.to_le_bytes()[2], x.to_le_bytes()[3]]).collect()
        }
        other => bail!("no state is kept in {other:?}"),
    })
}
