//! Saving: new files beside the old ones, and one rename that makes them the checkpoint.

use std::io;

use safetensors::tensor::TensorView;

use super::digest::digest;
use super::folder::Folder;
use super::manifest::{MANIFEST, Manifest, RankFile};
use super::{Checkpoint, name};
use crate::base::model::Parameter;
use crate::base::settings::Dtype;
use crate::engine::state::Piece;
use crate::scenario::Scenario;
use crate::scenario::problem::{Problem, Problems};

/// What stands behind the name of a file until it is whole.
pub(super) const NEW: &str = ".new";

/// Whether a checkpoint of `scenario` may be saved in `folder`, which is called `name`: in a new or an empty one, or in place of an earlier
/// checkpoint of the same training.
///
/// # Errors
/// If it holds something else.
pub fn place(name: &str, folder: &dyn Folder, scenario: &Scenario) -> Result<(), Problems> {
    let training = super::training(name, scenario)?;
    let refuse = |problem: Problem| Err(Problems::of_file(name, problem.hint("choose a new folder")));
    let names = match folder.names() {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return refuse(Problem::new(format!("cannot save a checkpoint here: {error}"))),
    };
    if let Some(foreign) = names.iter().find(|name| !name::is_own(name)) {
        return refuse(Problem::new(format!("the folder holds `{foreign}`, which is no part of a checkpoint")));
    }
    if !names.iter().any(|name| name == MANIFEST) {
        return Ok(());
    }
    let old = Manifest::read(name, folder).map_err(super::Broken::into_problems)?;
    if old.model != training.model.on_any_mesh() || old.seed != scenario.seed {
        return refuse(Problem::new("the folder holds a checkpoint of another model or seed, which would be lost"));
    }
    Ok(())
}

/// Saves `checkpoint` in `folder`. Until the manifest is renamed the old checkpoint is the valid one, and behind it the new one: whatever
/// breaks off, one of them is whole. Files of neither are cleared away.
///
/// # Errors
/// If something cannot be written: then the old checkpoint, if there was one, is as it was.
pub fn save(folder: &mut dyn Folder, checkpoint: &Checkpoint) -> io::Result<Manifest> {
    let old = Manifest::read("", folder).ok();
    let mut manifest = checkpoint.manifest.clone();
    manifest.ranks.clear();
    let written = write(folder, checkpoint, &mut manifest);
    let kept = if written.is_ok() { Some(&manifest) } else { old.as_ref() };
    clear(folder, kept);
    written.map(|()| manifest)
}

fn write(folder: &mut dyn Folder, checkpoint: &Checkpoint, manifest: &mut Manifest) -> io::Result<()> {
    let parameters = checkpoint.manifest.model.parameters();
    for (rank, pieces) in checkpoint.ranks.iter().enumerate() {
        let bytes = file(pieces, &parameters)?;
        let digest = digest(&bytes);
        put(folder, &name::of_file(rank, &digest), &bytes)?;
        manifest.ranks.push(RankFile { bytes: bytes.len() as u64, digest });
    }
    put(folder, MANIFEST, &serde_json::to_vec_pretty(manifest)?)
}

/// Writes a file under another name, and gives it its own when it is whole.
fn put(folder: &mut dyn Folder, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = format!("{name}{NEW}");
    folder.write(&new, bytes)?;
    folder.rename(&new, name)
}

/// Removes what is of no use to the checkpoint that `kept` describes. What cannot be removed does no harm.
fn clear(folder: &mut dyn Folder, kept: Option<&Manifest>) {
    let ranks = kept.iter().flat_map(|manifest| manifest.ranks.iter().enumerate());
    let mut needed: Vec<String> = ranks.map(|(rank, file)| name::of_file(rank, &file.digest)).collect();
    needed.extend(kept.map(|_| MANIFEST.to_owned()));
    for name in folder.names().unwrap_or_default() {
        if name::is_own(&name) && !needed.contains(&name) {
            let _ = folder.remove(&name);
        }
    }
}

/// A tensor of a file: name, type, shape, elements.
pub(super) type Tensor<'a> = (String, Dtype, Vec<usize>, &'a [u8]);

/// The file of a rank.
fn file(pieces: &[Piece], parameters: &[Parameter]) -> io::Result<Vec<u8>> {
    serialize(pieces.iter().map(|piece| tensor(piece, parameters)), None)
}

fn tensor<'a>(piece: &'a Piece, parameters: &[Parameter]) -> Tensor<'a> {
    let shape = name::shape(piece, parameters).unwrap_or_else(|| vec![piece.range.len()]);
    (name::of_piece(piece, parameters), piece.dtype, shape, &piece.bytes)
}

/// A safetensors file of tensors, each with name, type, shape and elements; `about` is its one entry of metadata.
pub(super) fn serialize<'a>(tensors: impl Iterator<Item = Tensor<'a>>, about: Option<(String, String)>) -> io::Result<Vec<u8>> {
    let views =
        tensors.map(|(name, dtype, shape, bytes)| Ok((name, TensorView::new(tensor_type(dtype)?, shape, bytes).map_err(odd)?)));
    let views = views.collect::<io::Result<Vec<_>>>()?;
    safetensors::serialize(views, about.map(|entry| [entry].into_iter().collect())).map_err(odd)
}

fn odd(error: safetensors::SafeTensorError) -> io::Error {
    io::Error::other(error)
}

fn tensor_type(dtype: Dtype) -> io::Result<safetensors::Dtype> {
    Ok(match dtype {
        Dtype::F32 => safetensors::Dtype::F32,
        Dtype::F64 => safetensors::Dtype::F64,
        Dtype::Bf16 => safetensors::Dtype::BF16,
        Dtype::F16 => safetensors::Dtype::F16,
        Dtype::U32 | Dtype::U8 => return Err(io::Error::other("no state is kept in integers")),
    })
}

/// The type of a file's tensor, if state is kept in it.
pub(super) fn dtype_of(dtype: safetensors::Dtype) -> Option<Dtype> {
    let all = [Dtype::F32, Dtype::F64, Dtype::Bf16, Dtype::F16];
    all.into_iter().find(|&known| tensor_type(known).is_ok_and(|known| known == dtype))
}
