//! Loading: every file of every rank, looked at before anything is believed. All that is wrong comes at once.

use std::io::ErrorKind;

use safetensors::SafeTensors;

use super::broken::Broken;
use super::digest::digest;
use super::folder::Folder;
use super::manifest::Manifest;
use super::name::Known;
use super::save::dtype_of;
use super::{Checkpoint, name};
use crate::base::settings::Kept;
use crate::base::words::{counted, grouped, shortened};
use crate::engine::state::Piece;
use crate::scenario::problem::{Problem, Problems};

/// Reads the checkpoint in `folder`, which is called `name` in problems.
///
/// # Errors
/// If there is none, or it is damaged.
pub fn load(name: &str, folder: &dyn Folder) -> Result<Checkpoint, Broken> {
    let manifest = Manifest::read(name, folder)?;
    let parameters = manifest.model.parameters();
    let known = Known::new(&parameters);
    let (mut ranks, mut problems) = (Vec::new(), Vec::new());
    for rank in 0..manifest.ranks.len() {
        match read(folder, &manifest, rank).and_then(|bytes| pieces(&bytes, &manifest, rank, &known)) {
            Ok(pieces) => ranks.push(pieces),
            Err(problem) => problems.push(*problem),
        }
    }
    if problems.is_empty() {
        Ok(Checkpoint { manifest, ranks })
    } else {
        Err(Broken::Damaged(Problems::of_whole_file(name, problems)))
    }
}

/// The file of `rank`, if it is the one that the manifest means.
fn read(folder: &dyn Folder, manifest: &Manifest, rank: usize) -> Result<Vec<u8>, Box<Problem>> {
    let file = &manifest.ranks[rank];
    let name = name::of_file(rank, &file.digest);
    // As much as any of them has: a file in another's place is told as such.
    let most = manifest.ranks.iter().map(|file| file.bytes).max().unwrap_or(0);
    let bytes = folder.read(&name, most).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let ranks = counted(manifest.ranks.len() as u64, "rank");
            let problem = Problem::new(format!("the file of rank {rank}, `{name}`, is missing"));
            problem.hint(format!("{ranks} saved, and none can be left out: each has another part of the state"))
        }
        _ => Problem::new(format!("cannot read the file of rank {rank}, `{name}`: {error}")),
    });
    let bytes = bytes.map_err(Box::new)?;
    let (there, meant) = (bytes.len() as u64, file.bytes);
    let found = digest(&bytes);
    if there == meant && found == file.digest {
        return Ok(bytes);
    }
    let other = manifest.ranks.iter().position(|other| (other.bytes, &other.digest) == (there, &found));
    Err(Box::new(match other {
        Some(other) => {
            let problem = Problem::new(format!("`{name}` holds what rank {other} saved, not rank {rank}"));
            problem.hint("files of ranks have changed places: give them their own names again")
        }
        None if there < meant => {
            let sizes = format!("it has {} of {} bytes", grouped(there.into()), grouped(meant.into()));
            Problem::new(format!("`{name}` is cut off: {sizes}")).hint("copy it again")
        }
        None if there > meant => {
            let problem =
                Problem::new(format!("`{name}` is longer than the {} bytes that rank {rank} saved", grouped(meant.into())));
            problem.hint("another file stands in its place")
        }
        None => {
            let problem = Problem::new(format!("`{name}` is not what rank {rank} saved: its digest is {found}"));
            problem.hint("it was changed or damaged, or another file stands in its place")
        }
    }))
}

/// The pieces in the file of `rank`.
fn pieces(bytes: &[u8], manifest: &Manifest, rank: usize, known: &Known) -> Result<Vec<Piece>, Box<Problem>> {
    let file = name::of_file(rank, &manifest.ranks[rank].digest);
    let tensors =
        SafeTensors::deserialize(bytes).map_err(|error| Problem::new(format!("`{file}` is no safetensors file: {error}")))?;
    let mut pieces = Vec::new();
    let mut all: Vec<_> = tensors.iter().collect();
    all.sort_by_key(|(name, _)| *name);
    for (name, view) in all {
        let found = known.place(name, view.shape()).filter(|place| manifest.kept.contains(&place.kept));
        let (Some(name::Place { kept, parameter, columns, range }), Some(dtype)) = (found, dtype_of(view.dtype())) else {
            let message = format!("`{file}` has a tensor `{}` {:?} of {:?}", shortened(name), view.shape(), view.dtype());
            return Err(Problem::new(message).hint("the manifest's model has no such tensor").into());
        };
        if kept == Kept::Parameter && dtype != manifest.dtype {
            let message = format!("`{file}` has `{}` in {dtype}, and the manifest says {}", shortened(name), manifest.dtype);
            return Err(Problem::new(message).into());
        }
        pieces.push(Piece { kept, parameter, columns, range, dtype, bytes: view.data().to_vec() });
    }
    pieces.sort_by_key(Piece::place);
    Ok(pieces)
}
