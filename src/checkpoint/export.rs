//! Exports: the parameters of a whole model in one safetensors file, under the model's own names; and the check of such a file.
//!
//! A state that is sharded has to be gathered first. What rank 0 can save by itself are its own shards, and under the model's names there
//! is nothing: every parameter has the shape `[0]`. The file is written without a complaint, and is worth nothing.
//!
//! Source: DeepSpeed's `stage3_gather_16bit_weights_on_model_save`, which is off unless asked for; transformers issue 20082.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use super::broken::Broken;
use super::folder::read_file;
use super::save::{dtype_of, serialize};
use super::{Checkpoint, Manifest};
use crate::base::model::{Model, Parameter};
use crate::base::settings::{Dtype, Kept};
use crate::base::words::{grouped, shortened};
use crate::base::{Bytes, ParameterId};
use crate::engine::state::{Piece, Whole};
use crate::scenario::problem::{Problem, Problems};

/// The entry of a file's metadata that says what it is.
const ABOUT: &str = "ranklab";
/// The name of the form.
const FORMAT: &str = "ranklab.model/1";

/// What an exported file says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The form, `ranklab.model/1`.
    pub format: String,
    /// Training steps that are done.
    pub step: u32,
    /// Type of the parameters.
    pub dtype: Dtype,
    /// The model.
    pub model: Model,
}

/// The file of the whole model.
///
/// # Errors
/// If a tensor has not the size that its shape says.
pub fn gathered(manifest: &Manifest, whole: &Whole) -> std::io::Result<Vec<u8>> {
    file(manifest, |place, parameter| {
        let (dtype, bytes) = whole.tensor(Kept::Parameter, ParameterId::new(place))?;
        Some((dtype, parameter.dims.clone(), bytes))
    })
}

/// The file that rank 0 writes where nobody gathers: what it has whole, and `[0]` for what it shares with others. Stages of a pipeline that
/// stand on other ranks are not in it.
///
/// # Errors
/// If a tensor has not the size that its shape says.
pub fn ungathered(checkpoint: &Checkpoint) -> std::io::Result<Vec<u8>> {
    let Checkpoint { manifest, ranks } = checkpoint;
    let parameters = manifest.model.parameters();
    let pieces = |rank: usize| ranks.get(rank).into_iter().flatten().filter(|piece| piece.kept == Kept::Parameter);
    let shards = (0..ranks.len()).flat_map(pieces).any(|piece| !piece.is_whole(&parameters));
    // Rank 0 is one of the first stage.
    let own: BTreeMap<usize, &Piece> =
        manifest.first_stage().flat_map(pieces).map(|piece| (piece.parameter.index(), piece)).collect();
    file(manifest, |place, parameter| {
        let piece = own.get(&place)?;
        Some(if shards { (manifest.dtype, vec![0], &[]) } else { (piece.dtype, parameter.dims.clone(), piece.bytes.as_slice()) })
    })
}

fn file<'a>(
    manifest: &Manifest,
    tensor: impl Fn(usize, &Parameter) -> Option<(Dtype, Vec<usize>, &'a [u8])>,
) -> std::io::Result<Vec<u8>> {
    let Manifest { step, dtype, ref model, .. } = *manifest;
    let about = serde_json::to_string(&About { format: FORMAT.to_owned(), step, dtype, model: model.clone() })?;
    let parameters = model.parameters();
    let tensors = parameters.iter().enumerate().filter_map(|(place, parameter)| {
        let (dtype, shape, bytes) = tensor(place, parameter)?;
        Some((parameter.name.clone(), dtype, shape, bytes))
    });
    serialize(tensors, Some((ABOUT.to_owned(), about)))
}

/// The bytes of the file at `path`, if it is a plain one.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Broken> {
    read_file(path, u64::MAX - 1).map_err(|error| {
        let problem = Problem::new(format!("cannot read it: {error}")).hint("a checkpoint is a folder, an export a file");
        Broken::Unreadable(Problems::of_file(&path.display().to_string(), problem))
    })
}

/// Whether the file of `bytes` holds a whole model, each tensor in its shape. All that is wrong comes at once.
///
/// # Errors
/// If it does not.
pub fn check(name: &str, bytes: &[u8]) -> Result<About, Broken> {
    let unreadable = |problem: Problem| Broken::Unreadable(Problems::of_file(name, problem));
    let damaged = |list: Vec<Problem>| Broken::Damaged(Problems::of_whole_file(name, list));
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| {
        unreadable(Problem::new(format!("this is no whole safetensors file: {error}")).hint("it may be cut off"))
    })?;
    let about = about(bytes).map_err(|problem| unreadable(*problem))?;
    let parameters = about.model.parameters();
    let find = |parameter: &Parameter| tensors.tensor(&parameter.name).ok();
    let is_empty = |parameter: &&Parameter| find(parameter).is_some_and(|view| view.shape() == [0]);
    let mut problems = Vec::new();
    let empty = parameters.iter().filter(is_empty).count();
    if empty > 0 {
        problems.push(not_gathered(&parameters, empty, &tensors, about.dtype));
    }
    for parameter in parameters.iter().filter(|parameter| !is_empty(parameter)) {
        problems.extend(flaw(parameter, find(parameter).as_ref(), about.dtype));
    }
    let is_known = |name: &str| parameters.iter().any(|parameter| parameter.name == name);
    let mut strange: Vec<&str> = tensors.iter().map(|(name, _)| name).filter(|name| !is_known(name)).collect();
    strange.sort_unstable();
    problems.extend(strange.into_iter().map(|name| Problem::new(format!("the model has no tensor `{}`", shortened(name)))));
    if problems.is_empty() { Ok(about) } else { Err(damaged(problems)) }
}

/// What the file says of itself.
fn about(bytes: &[u8]) -> Result<About, Box<Problem>> {
    let foreign = "another program may have written it: only exports of `ranklab checkpoint export` say which model they hold";
    let metadata = SafeTensors::read_metadata(bytes).ok().and_then(|(_, metadata)| metadata.metadata().clone());
    let Some(text) = metadata.and_then(|metadata| metadata.get(ABOUT).cloned()) else {
        return Err(Problem::new("the file does not say which model it holds").hint(foreign).into());
    };
    let about: About = serde_json::from_str(&text)
        .map_err(|error| Problem::new(format!("the file does not say which model it holds: {error}")).hint(foreign))?;
    if about.format != FORMAT {
        return Err(Problem::new(format!("the form `{}` is not known", shortened(&about.format))).allowed(FORMAT).into());
    }
    match about.model.flaw() {
        Some(flaw) => Err(Problem::new(format!("there is no such model: {flaw}")).into()),
        None => Ok(about),
    }
}

fn not_gathered(parameters: &[Parameter], empty: usize, tensors: &SafeTensors, dtype: Dtype) -> Problem {
    let there: usize = tensors.iter().map(|(_, view)| view.data().len()).sum();
    let elements: usize = parameters.iter().map(Parameter::elements).sum();
    let meant = Bytes(elements as u64 * dtype.size());
    let message = format!(
        "{empty} of {} tensors have the shape [0], and the file holds {} of the model's {meant}: it was saved without gathering the shards",
        grouped(parameters.len() as i128),
        Bytes(there as u64)
    );
    Problem::new(message)
        .hint("`ranklab checkpoint export DIR --out FILE` gathers; or go on from the sharded checkpoint: `run --resume DIR`")
}

fn flaw(parameter: &Parameter, view: Option<&safetensors::tensor::TensorView>, dtype: Dtype) -> Option<Problem> {
    let name = &parameter.name;
    let Some(view) = view else { return Some(Problem::new(format!("`{name}` is missing"))) };
    if view.shape() != parameter.dims {
        return Some(Problem::new(format!("`{name}` has the shape {:?}, and the model says {:?}", view.shape(), parameter.dims)));
    }
    (dtype_of(view.dtype()) != Some(dtype))
        .then(|| Problem::new(format!("`{name}` is of type {:?}, and the file says {dtype}", view.dtype())))
}
