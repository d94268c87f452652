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

/// The name of a piece: a whole tensor goes without its range.
pub(super) fn of_piece(piece: &Piece, parameters: &[Parameter]) -> String {
    let parameter = &parameters[piece.parameter.index()];
    let Range { start, end } = piece.range;
    let range = if piece.is_whole(parameters) { String::new() } else { format!("[{start}..{end}]") };
    format!("{}.{}{range}", piece.kept, parameter.name)
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
    pub fn piece(&self, name: &str, shape: &[usize]) -> Option<(Kept, ParameterId, Range<usize>)> {
        let (kept, rest) = name.split_once('.')?;
        let (name, range) = match rest.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
            Some((name, range)) => (name, Some(range)),
            None => (rest, None),
        };
        let place = *self.by_name.get(name)?;
        let parameter = &self.parameters[place];
        let range = match range {
            None if shape == parameter.dims => 0..parameter.elements(),
            None => return None,
            Some(range) => {
                let (start, end) = range.split_once("..")?;
                let range = start.parse().ok()?..end.parse().ok()?;
                let fits = range.start <= range.end && range.end <= parameter.elements() && shape == [range.len()];
                fits.then_some(range)?
            }
        };
        Some((Kept::find(kept)?, ParameterId::new(place), range))
    }
}
