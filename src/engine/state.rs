//! State at rest: what the ranks own between steps as pieces of whole tensors, and whole tensors cut again for any other ranks.
//!
//! A piece is a stretch of a tensor's elements in row-major order. A rank that keeps a tensor whole has one piece of it; a shard of a unit
//! is cut where its parameters meet, so that nobody has to know the unit to put tensors together. A rank that holds some rows of a tensor has
//! a stretch of it, too; one that holds some columns has a stretch of those. Padding is no part of the state: it is made anew where a shard
//! or the last slice of a vocabulary needs it.

use std::collections::BTreeMap;
use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::kernels::{dtype, pack};
use super::value::{Value, Values};
use crate::base::model::Parameter;
use crate::base::settings::{Dtype, Kept};
use crate::base::split::Slice;
use crate::base::{ParameterId, Rank};
use crate::program::{Buffer, Name, Program, Role};

/// A stretch of one tensor, as one rank keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// What is kept of the parameter.
    pub kept: Kept,
    /// The parameter, among those of the model.
    pub parameter: ParameterId,
    /// Of some of its columns alone, which.
    pub columns: Option<Range<usize>>,
    /// Which of its elements, or of those columns', in row-major order.
    pub range: Range<usize>,
    /// Their type.
    pub dtype: Dtype,
    /// The elements, little-endian.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Where it stands among others: by kind, parameter, first column and first element.
    #[must_use]
    pub fn place(&self) -> (Kept, ParameterId, usize, usize) {
        (self.kept, self.parameter, self.columns.as_ref().map_or(0, |columns| columns.start), self.range.start)
    }

    /// Whether it is all of its parameter, one of `parameters`.
    #[must_use]
    pub fn is_whole(&self, parameters: &[Parameter]) -> bool {
        self.columns.is_none() && self.range == (0..parameters[self.parameter.index()].elements())
    }

    /// The stretches of the whole tensor, which has rows of `width` elements, that its elements are, in their order.
    fn runs(&self, width: usize) -> Vec<Range<usize>> {
        runs(self.columns.as_ref(), &self.range, width)
    }
}

/// The stretches of a tensor with rows of `width` elements that make up a range of some of its columns, or of all.
fn runs(columns: Option<&Range<usize>>, range: &Range<usize>, width: usize) -> Vec<Range<usize>> {
    let Some(columns) = columns.filter(|columns| !columns.is_empty()) else { return vec![range.clone()] };
    let rows = range.start / columns.len()..range.end.div_ceil(columns.len());
    let run = |row: usize| {
        let first = row * columns.len();
        let inside = range.start.max(first) - first..range.end.min(first + columns.len()) - first;
        let start = row * width + columns.start;
        start + inside.start..start + inside.end
    };
    rows.map(run).collect()
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

/// Some elements of the program's parameter: which of the whole tensor that the parameter is, or is a slice of.
struct Stretch {
    /// The tensor, among those of the model.
    tensor: ParameterId,
    /// Columns of it, where the slice has some of them alone.
    columns: Option<Range<usize>>,
    /// Which of its elements, or of those columns'.
    range: Range<usize>,
    /// Elements of a row of the tensor.
    width: usize,
    /// Elements behind them that lie beyond the tensor's end.
    padding: usize,
}

impl Stretch {
    /// The elements `range` of `parameter`, which belongs to `tensor`.
    fn of(parameter: &Parameter, tensor: ParameterId, range: &Range<usize>) -> Self {
        let whole = parameter.whole_dims();
        let width = whole.get(1).copied().unwrap_or(1);
        let real = range.start.max(range.end.min(parameter.elements() - parameter.padding()));
        let (padding, range) = (range.end - real, range.start..real);
        match parameter.slice {
            None => Self { tensor, columns: None, range, width, padding },
            // Rows lie behind each other.
            Some(Slice { dim: 0, start, .. }) => {
                let before = start * width;
                Self { tensor, columns: None, range: before + range.start..before + range.end, width, padding }
            }
            Some(Slice { dim, start, .. }) => {
                Self { tensor, columns: Some(start..start + parameter.dims[dim]), range, width, padding }
            }
        }
    }
}

/// The number of each of the program's parameters among those of the model: slices of a tensor follow each other.
fn tensors_of(program: &Program) -> Vec<ParameterId> {
    let mut number = 0;
    let names = program.parameters.iter().map(|parameter| &parameter.name);
    let mut tensors = Vec::with_capacity(program.parameters.len());
    for (place, name) in names.enumerate() {
        number += usize::from(place > 0 && program.parameters[place - 1].name != *name);
        tensors.push(ParameterId::new(number));
    }
    tensors
}

/// Which elements of which tensors `content` has, in the order in which they lie; `tensors` are those that the parameters belong to.
fn stretches(program: &Program, tensors: &[ParameterId], content: Content) -> Vec<Stretch> {
    let elements = |parameter: ParameterId| program.parameters[parameter.index()].elements();
    let stretch = |(parameter, range): (ParameterId, Range<usize>)| {
        Stretch::of(&program.parameters[parameter.index()], tensors[parameter.index()], &range)
    };
    match content {
        Content::Whole(parameter) => vec![stretch((parameter, 0..elements(parameter)))],
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
            let ranges = unit.parameters.iter().map(&mut of_parameter);
            ranges.filter(|(_, range)| !range.is_empty()).map(stretch).collect()
        }
    }
}

/// The state of `rank`, in the order of [`Piece::place`]; nothing in a run of shapes.
///
/// # Errors
/// If a tensor cannot be read.
pub fn pieces(program: &Program, values: &Values, rank: Rank) -> Result<Vec<Piece>> {
    let Values::Real { buffers, .. } = values else { return Ok(Vec::new()) };
    let tensors = tensors_of(program);
    let mut pieces = Vec::new();
    for (buffer, value) in program.buffers.iter().zip(buffers).filter(|(buffer, _)| buffer.rank == rank) {
        let Some((kept, content)) = content(buffer) else { continue };
        let layout = &program.layouts[buffer.layout.index()];
        let values = super::kernels::tensors(layout, value)?;
        let (flat, dtype) = (bytes(&pack(&values, 0)?)?, layout.parts[0].dtype);
        let size = element_size(dtype);
        let mut start = 0;
        for Stretch { tensor: parameter, columns, range, padding, .. } in stretches(program, &tensors, content) {
            let end = start + range.len() * size;
            if !range.is_empty() {
                pieces.push(Piece { kept, parameter, columns, range, dtype, bytes: flat[start..end].to_vec() });
            }
            start = end + padding * size;
        }
    }
    pieces.sort_by_key(Piece::place);
    Ok(pieces)
}

impl Whole {
    /// Puts the pieces of all ranks together; `parameters` are the model's. Several ranks may have the same piece: then it must be the same
    /// in all of them. All misfits of different tensors come at once.
    ///
    /// # Errors
    /// If something is missing or differs.
    pub fn new<'a>(
        parameters: &[Parameter],
        kinds: &[Kept],
        pieces: impl Iterator<Item = (Rank, &'a Piece)>,
    ) -> std::result::Result<Self, Vec<Misfit>> {
        let mut by_tensor: BTreeMap<(Kept, ParameterId), Vec<Run>> = BTreeMap::new();
        let all = kinds.iter().flat_map(|&kept| (0..parameters.len()).map(move |parameter| (kept, ParameterId::new(parameter))));
        by_tensor.extend(all.map(|key| (key, Vec::new())));
        for (rank, piece) in pieces {
            let width = parameters[piece.parameter.index()].dims.get(1).copied().unwrap_or(1);
            by_tensor.entry((piece.kept, piece.parameter)).or_default().extend(Run::all(rank, piece, width));
        }
        let (mut whole, mut misfits) = (Self::default(), Vec::new());
        for (key, mut runs) in by_tensor {
            runs.sort_by_key(|run| (run.range.start, run.rank));
            match joined(key, parameters[key.1.index()].elements(), &runs) {
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
        let (mut lacking, tensors) = (Vec::new(), tensors_of(program));
        for (kept, content, wanted) in program.buffers.iter().filter_map(|buffer| {
            let (kept, content) = content(buffer)?;
            Some((kept, content, program.layouts[buffer.layout.index()].parts[0].dtype))
        }) {
            for Stretch { tensor, .. } in stretches(program, &tensors, content) {
                if self.tensor(kept, tensor).is_none_or(|(dtype, _)| dtype != wanted) {
                    lacking.push((kept, tensor, wanted));
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
        for Stretch { tensor, columns, range, width, padding } in stretches(program, &tensors_of(program), content) {
            let Some(flat) = self.tensors.get(&(kept, tensor)) else { bail!("the state lacks {kept} of {tensor}") };
            for run in runs(columns.as_ref(), &range, width) {
                pieces.push(flat.cut(run, dtype(part.dtype)?)?);
            }
            if padding > 0 {
                pieces.push(Tensor::zeros(padding, dtype(part.dtype)?, &Device::Cpu)?);
            }
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

/// A stretch of a whole tensor that a piece has.
struct Run<'a> {
    range: Range<usize>,
    rank: Rank,
    dtype: Dtype,
    bytes: &'a [u8],
}

impl<'a> Run<'a> {
    /// Those of a piece of a tensor with rows of `width` elements.
    fn all(rank: Rank, piece: &'a Piece, width: usize) -> impl Iterator<Item = Self> {
        let (dtype, mut rest) = (piece.dtype, piece.bytes.as_slice());
        piece.runs(width).into_iter().map(move |range| {
            let (bytes, behind) = rest.split_at((range.len() * element_size(dtype)).min(rest.len()));
            rest = behind;
            Self { range, rank, dtype, bytes }
        })
    }
}

/// The runs of one tensor, sorted by their starts, behind each other.
fn joined((kept, parameter): (Kept, ParameterId), elements: usize, runs: &[Run]) -> std::result::Result<Flat, Misfit> {
    let Some(one) = runs.first() else { return Err(Misfit::Gap(kept, parameter, 0..elements)) };
    let (dtype, size) = (one.dtype, element_size(one.dtype));
    let mut flat = Flat { dtype, bytes: Vec::new() };
    // Whose the last elements are.
    let mut owner = one.rank;
    for run in runs {
        let there = flat.bytes.len() / size;
        if run.range.start > there {
            return Err(Misfit::Gap(kept, parameter, there..run.range.start));
        }
        let common = (there.min(run.range.end) - run.range.start) * size;
        let start = run.range.start * size;
        if run.dtype != dtype || run.bytes[..common] != flat.bytes[start..start + common] {
            return Err(Misfit::Differ(kept, parameter, owner, run.rank));
        }
        if run.bytes.len() > common {
            flat.bytes.extend_from_slice(&run.bytes[common..]);
            owner = run.rank;
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
