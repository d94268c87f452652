//! Checkpoints: the state of a run on disk, saved by every rank, and put together for any others.
//!
//! # The format, `ranklab.checkpoint/1`
//!
//! A checkpoint is a folder with one file for each rank, and one manifest that names them:
//!
//! - `rank3-9f86d081884c7d65.safetensors` is what rank 3 owns between steps. A tensor that the rank has whole is called by what it is and
//!   by its parameter's name, `exp_avg.blocks.0.norm1.weight`, and has its own shape. A piece of one, as shards are cut, is flat, and also
//!   says which elements it is, in row-major order: `model.blocks.0.attn.qkv.weight[384..1152]`. Of a tensor of which the rank has some
//!   columns, as tensor-parallel ranks cut them, it says those first: `model.blocks.0.attn.proj.weight[:,8..16]` is a matrix, and a piece
//!   of it `model.blocks.0.attn.proj.weight[:,8..16][20..60]`. What there is: `model` (parameters), `exp_avg` and `exp_avg_sq` (the
//!   optimizer's moments), `master_param` (its copy in full precision). Nothing says how state was cut into units, and there is no
//!   padding, so whoever reads needs no knowledge of who wrote. The number behind the rank is the file's digest: FNV-1a with 64 bits.
//! - `checkpoint.json` is the manifest (see [`Manifest`]): steps done, data seen, seed, model, types, and each file's length and digest.
//!
//! Files of ranks have new names whenever their contents change, so saving never touches the files of the checkpoint before. The manifest
//! is written beside the old one and renamed: that moment alone makes the new checkpoint, and whatever breaks off leaves the old one whole.

mod broken;
mod digest;
pub mod export;
mod folder;
mod load;
mod manifest;
mod name;
mod resume;
mod save;

use std::sync::Arc;

pub use broken::Broken;
pub use folder::{Disk, Folder};
pub use load::load;
pub use manifest::{MANIFEST, Manifest, RankFile};
pub use resume::{Start, mismatches, start};
pub use save::{place, save};

use crate::base::Rank;
use crate::engine::state::{self, Misfit, Piece, Whole};
use crate::lab::Run;
use crate::scenario::problem::{Problem, Problems};
use crate::scenario::{Scenario, Task, Training, Values};

/// The state of all ranks, and what it is the state of.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// What is said of it; its list of files is empty until it is saved.
    pub manifest: Manifest,
    /// Per rank, what it keeps.
    pub ranks: Vec<Vec<Piece>>,
}

impl Checkpoint {
    /// The state at the end of `run`, a completed training with real values.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn of(run: &Run, training: &Training) -> crate::engine::Result<Self> {
        let program = run.session.program();
        let ranks = (0..program.ranks()).map(Rank::new);
        let ranks = ranks.map(|rank| state::pieces(program, run.session.values(), rank)).collect::<Result<Vec<_>, _>>()?;
        let mut kept: Vec<_> = ranks.iter().flatten().map(|piece| piece.kept).collect();
        kept.sort_unstable();
        kept.dedup();
        Ok(Self { manifest: Manifest::of(&run.scenario, training, kept), ranks })
    }

    /// The model's tensors, each in one piece. `name` names the checkpoint in problems.
    ///
    /// # Errors
    /// If ranks do not have all of it, or do not agree.
    pub fn whole(&self, name: &str) -> Result<Arc<Whole>, Problems> {
        let parameters = self.manifest.model.parameters();
        let pieces = self.ranks.iter().enumerate().flat_map(|(rank, pieces)| pieces.iter().map(move |p| (Rank::new(rank), p)));
        Whole::new(&parameters, &self.manifest.kept, pieces).map(Arc::new).map_err(|misfits| {
            let list = misfits.iter().map(|misfit| problem(misfit, &parameters, self.ranks.len())).collect();
            Problems::of_whole_file(name, list)
        })
    }
}

/// The training of `scenario`, if its state can be kept.
///
/// # Errors
/// If it has none.
pub fn training<'a>(name: &str, scenario: &'a Scenario) -> Result<&'a Training, Problems> {
    let refuse = |message: &str, hint: &str| Err(Problems::of_file(name, Problem::new(message).hint(hint)));
    match (&scenario.task, scenario.numerics.values) {
        (Task::Collective(_), _) => refuse("a bare [collective] has no state to keep", "checkpoints are of trainings"),
        (Task::Layer(_) | Task::Experts(_), _) => refuse("a bare [layer] has no state to keep", "checkpoints are of trainings"),
        (_, Values::Shape) => {
            refuse("numerics.values = \"shape\" has no numbers to keep", "numerics.values = \"real\" computes them")
        }
        (Task::Train(training), Values::Real) if training.pipeline.updates.is_asynchronous() => {
            let name = training.pipeline.order.name();
            let message =
                format!("{name} is never drained: behind its last step stages still hold older versions of their weights");
            refuse(&message, "save a schedule that is drained once a step, such as 1f1b")
        }
        (Task::Train(training), Values::Real) => Ok(training),
    }
}

fn problem(misfit: &Misfit, parameters: &[crate::base::model::Parameter], ranks: usize) -> Problem {
    match misfit {
        Misfit::Gap(kept, parameter, range) => {
            let name = &parameters[parameter.index()].name;
            let message = format!("no file has elements {}..{} of {kept}.{name}", range.start, range.end);
            Problem::new(message).hint(format!("the manifest lists {ranks} ranks: were there more?"))
        }
        Misfit::Differ(kept, parameter, one, other) => {
            let name = &parameters[parameter.index()].name;
            let message = format!("{one} and {other} both have {kept}.{name}, and not the same bits");
            Problem::new(message)
                .hint("replicas that have drifted apart are no one model: find the step that did not synchronise them")
        }
    }
}
