//! Names: of the ranks' files, and of the tensors in them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::digest::is_digest;
use crate::base::ParameterId;
use crate::base::model::Parameter;
use crate::base::settings::Kept;
use crate::engine::state::Piece;

/// The file of `rank` with this digest.
pub(super) fn of_file(rank: usize, digest: &str) -> String {
    format!("rank{rank}-{digest}.safetensors")
}

/// Whether `name` is one that saving gives: such files, and no others, are replaced and cleared away.
pub(super) fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(super::save::NEW).unwrap_or(name);
    let parts = name.strip_prefix("rank").and_then(|rest| rest.strip_suffix(".safetensors")?.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name == super::MANIFEST || parts.is_some_and(|(rank, digest)| is_number(rank) && is_digest(digest))
}

/// The name of a piece: a whole tensor goes without its range, and so do all rows of some columns.
pub(super) fn of_piece(piece: &Piece, parameters: &[Parameter]) -> String {
    let parameter = &parameters[piece.parameter.index()];
    let columns = piece.columns.as_ref().map_or(String::new(), |columns| format!("[:,{}..{}]", columns.start, columns.end));
    let Range { start, end } = piece.range;
    let is_all = shape(piece, parameters).is_some();
    let range = if is_all { String::new() } else { format!("[{start}..{end}]") };
    format!("{}.{}{columns}{range}", piece.kept, parameter.name)
}

/// The shape of a piece that is a whole tensor, or all rows of some columns; others are flat.
pub(super) fn shape(piece: &Piece, parameters: &[Parameter]) -> Option<Vec<usize>> {
    let shape = shape_of(&parameters[piece.parameter.index()], piece.columns.as_ref());
    (piece.range == (0..shape.iter().product())).then_some(shape)
}

/// The shape of a parameter, or of some of its columns.
fn shape_of(parameter: &Parameter, columns: Option<&Range<usize>>) -> Vec<usize> {
    let mut shape = parameter.dims.clone();
    if let (Some(columns), Some(last)) = (columns, shape.last_mut()) {
        *last = columns.len();
    }
    shape
}

/// The parameters of a model by their names.
pub(super) struct Known<'a> {
    parameters: &'a [Parameter],
    by_name: BTreeMap<&'a str, usize>,
}

impl<'a> Known<'a> {
    pub fn new(parameters: &'a [Parameter]) -> Self {
        Self { parameters, by_name: parameters.iter().enumerate().map(|(place, one)| (one.name.as_str(), place)).collect() }
    }

    /// What the tensor called `name` with this shape holds; `None` if the model has no such tensor.
    pub fn place(&self, name: &str, shape: &[usize]) -> Option<Place> {
        let (kept, rest) = name.split_once('.')?;
        let (name, brackets) = rest.split_once('[').unwrap_or((rest, ""));
        let parameter = *self.by_name.get(name)?;
        let (columns, range) = match brackets.strip_prefix(":,") {
            Some(brackets) => brackets.split_once(']').map(|(columns, range)| (Some(columns), range.strip_prefix('[')))?,
            None => (None, Some(brackets).filter(|brackets| !brackets.is_empty())),
        };
        let columns = match columns {
            Some(columns) => Some(self.columns(parameter, columns)?),
            None => None,
        };
        let all = shape_of(&self.parameters[parameter], columns.as_ref());
        let elements = all.iter().product();
        let range = match range {
            None if shape == all => 0..elements,
            None => return None,
            Some(range) => {
                let range = numbers(range.strip_suffix(']')?)?;
                (range.end <= elements && shape == [range.len()]).then_some(range)?
            }
        };
        Some(Place { kept: Kept::find(kept)?, parameter: ParameterId::new(parameter), columns, range })
    }

    /// Some columns of a matrix.
    fn columns(&self, parameter: usize, text: &str) -> Option<Range<usize>> {
        let dims = &self.parameters[parameter].dims;
        let fits = |columns: &Range<usize>| dims.len() == 2 && !columns.is_empty() && columns.end <= dims[1];
        numbers(text).filter(fits)
    }
}

/// What a tensor of a file holds, as [`Piece`] says it.
pub(super) struct Place {
    pub kept: Kept,
    pub parameter: ParameterId,
    pub columns: Option<Range<usize>>,
    pub range: Range<usize>,
}

/// A range `3..8` that does not run backwards.
fn numbers(text: &str) -> Option<Range<usize>> {
    let (start, end) = text.split_once("..")?;
    let range = start.parse().ok()?..end.parse().ok()?;
    (range.start <= range.end).then_some(range)
}
