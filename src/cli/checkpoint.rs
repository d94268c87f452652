//! `ranklab checkpoint export|check`: what `run --save` wrote, as one model, and whether it is whole. And the two ends of `run` that touch
//! checkpoints.

use std::path::{Path, PathBuf};

use super::export::write_new;
use super::failure::{note, print};
use super::{Exit, Failure, Outcome};
use crate::base::Bytes;
use crate::base::words::counted;
use crate::checkpoint::{self, Broken, Checkpoint, Disk, Start, export};
use crate::lab::Run;
use crate::program::trouble::TroubleKind;
use crate::scenario::Scenario;

/// What to do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write the parameters of the whole model to one safetensors file, under the model's own names
    Export(Export),
    /// Say whether a checkpoint, or an exported file, is whole
    Check(Check),
}

#[derive(Debug, clap::Args)]
struct Export {
    /// The checkpoint's folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The file to make, which must not exist
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Write what rank 0 can write by itself: of what is sharded, nothing. The trap of lesson 6
    #[arg(long)]
    no_gather: bool,
}

#[derive(Debug, clap::Args)]
struct Check {
    /// The checkpoint's folder, or an exported file
    #[arg(value_name = "DIR|FILE")]
    path: PathBuf,
}

/// Exports or checks; the exit code of a check says whether anything was found.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Command::Export(arguments) => run_export(arguments),
        Command::Check(arguments) => check(&arguments.path),
    }
}

fn run_export(arguments: &Export) -> Outcome {
    let (name, checkpoint) = load(&arguments.folder)?;
    write_export(&arguments.out, &name, &checkpoint, !arguments.no_gather)?;
    Ok(Exit::Done)
}

/// Writes the whole model, or what rank 0 has of it, to a new file.
fn write_export(out: &Path, name: &str, checkpoint: &Checkpoint, gathers: bool) -> Result<(), Failure> {
    let bytes =
        if gathers { export::gathered(&checkpoint.manifest, &*checkpoint.whole(name)?) } else { export::ungathered(checkpoint) };
    let bytes = bytes.map_err(|error| Failure::Io(format!("cannot export `{name}`: {error}")))?;
    write_new(out, &bytes)?;
    note(format_args!("wrote {}, {}", out.display(), Bytes(bytes.len() as u64)));
    Ok(())
}

fn check(path: &Path) -> Outcome {
    let name = path.display().to_string();
    let checked = if path.is_dir() {
        checkpoint::load(&name, &Disk(path.to_owned())).and_then(|checkpoint| {
            checkpoint.whole(&name).map_err(Broken::Damaged)?;
            Ok(told(&checkpoint))
        })
    } else {
        export::read(path).and_then(|bytes| {
            let about = export::check(&name, &bytes)?;
            let (tensors, step) = (about.model.parameters().len() as u64, about.step);
            Ok(format!(
                "ok: the whole model in {}, {}, behind step {step}",
                counted(tensors, "tensor"),
                Bytes(bytes.len() as u64)
            ))
        })
    };
    match checked {
        Ok(text) => print(&text).map(|()| Exit::Done),
        Err(Broken::Damaged(problems)) => print(&problems.to_string()).map(|()| Exit::CheckFailed),
        Err(Broken::Unreadable(problems)) => Err(problems.into()),
    }
}

/// What a whole checkpoint holds, in words.
fn told(checkpoint: &Checkpoint) -> String {
    let manifest = &checkpoint.manifest;
    let bytes = Bytes(manifest.ranks.iter().map(|file| file.bytes).sum());
    let kinds: Vec<&str> = manifest.kept.iter().map(|kept| kept.name()).collect();
    format!(
        "ok: behind step {}, saved by {}: {} of {} in {}, {bytes}",
        manifest.step,
        manifest.written_by(),
        kinds.join(", "),
        counted(manifest.model.parameters().len() as u64, "parameter"),
        counted(manifest.ranks.len() as u64, "file"),
    )
}

fn load(folder: &Path) -> Result<(String, Checkpoint), Failure> {
    let name = folder.display().to_string();
    let checkpoint = checkpoint::load(&name, &Disk(folder.to_owned())).map_err(Broken::into_problems)?;
    Ok((name, checkpoint))
}

/// Refuses to run `scenario` if its state could not be saved in `folder`.
///
/// # Errors
/// If the folder holds something else, or the scenario has no state.
pub fn place(folder: &Path, scenario: &Scenario) -> Result<(), Failure> {
    Ok(checkpoint::place(&folder.display().to_string(), &Disk(folder.to_owned()), scenario)?)
}

/// How `scenario` goes on from the checkpoint in `folder`.
///
/// # Errors
/// If there is none, or it is of another training.
pub fn start(folder: &Path, scenario: &Scenario) -> Result<Start, Failure> {
    let (name, checkpoint) = load(folder)?;
    let start = checkpoint::start(&name, &checkpoint, scenario)?;
    note(format_args!(
        "goes on behind step {} of {name}, saved by {}",
        checkpoint.manifest.step,
        checkpoint.manifest.written_by()
    ));
    Ok(start)
}

/// Refuses to run `scenario` if its parameters could not be written to the new file `path`.
///
/// # Errors
/// If the file exists, or the scenario has no parameters.
pub fn new_file(path: &Path, scenario: &Scenario) -> Result<(), Failure> {
    let name = path.display().to_string();
    checkpoint::training(&name, scenario)?;
    if path.exists() {
        return Err(Failure::Input(format!("`{name}` exists, and is left as it is: choose another name")));
    }
    Ok(())
}

/// Writes the parameters at the end of a completed `run` to the new file `path`: gathered, unless a fault forgets it. What was written is
/// checked.
///
/// # Errors
/// If it cannot be written.
pub fn export_end(path: &Path, run: &Run) -> Outcome {
    let name = path.display().to_string();
    let state = state(&name, run)?;
    write_export(path, &name, &state, !run.scenario.has_trouble(TroubleKind::SaveAlone))?;
    check(path)
}

fn state(name: &str, run: &Run) -> Result<Checkpoint, Failure> {
    let training = checkpoint::training(name, &run.scenario)?;
    Checkpoint::of(run, training).map_err(|error| Failure::Io(format!("cannot read the state: {error}")))
}

/// Saves the state at the end of a completed `run` in `folder`.
///
/// # Errors
/// If it cannot be written; an earlier checkpoint is whole then.
pub fn save(folder: &Path, run: &Run) -> Result<(), Failure> {
    let name = folder.display().to_string();
    let state = state(&name, run)?;
    let unwritten = |error: std::io::Error| {
        Failure::Io(format!("cannot save a checkpoint in `{name}`: {error}; what was there before is as it was"))
    };
    let saved = checkpoint::save(&mut Disk(folder.to_owned()), &state).map_err(unwritten)?;
    note(format_args!(
        "saved {name}, behind step {}: {} of {}",
        saved.step,
        counted(saved.ranks.len() as u64, "file"),
        saved.written_by()
    ));
    Ok(())
}
