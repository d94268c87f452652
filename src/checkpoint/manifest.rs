//! The manifest: what a checkpoint is the state of, and which files it has.

use serde::{Deserialize, Serialize};

use super::broken::Broken;
use super::digest::is_digest;
use super::folder::Folder;
use crate::base::mesh::Axis;
use crate::base::model::Model;
use crate::base::settings::{Dtype, Kept, OptimizerKind, Strategy};
use crate::base::words::{counted, shortened};
use crate::scenario::problem::{Problem, Problems};
use crate::scenario::{Scenario, Training};

/// The manifest's file.
pub const MANIFEST: &str = "checkpoint.json";

/// The name of the form.
pub const FORMAT: &str = "ranklab.checkpoint/1";

/// No manifest is larger: room for the files of a hundred thousand ranks.
const MOST_BYTES: u64 = 8 << 20;
/// No training is longer, nor its data.
const MOST_STEPS: u32 = 1_000_000;
const MOST_SAMPLES: u64 = 1 << 52;
/// No more ranks save.
const MOST_RANKS: usize = 65_536;

/// What a checkpoint is the state of, and which files it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The form, `ranklab.checkpoint/1`.
    pub format: String,
    /// What the ranks that wrote it shared out.
    pub strategy: Strategy,
    /// How many they were along each axis.
    pub data: usize,
    /// The same, of the pipeline.
    pub pipeline: usize,
    /// The same, of those that share tensors; not written where each has them all.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub tensor: usize,
    /// The same, of those that share sequences.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub context: usize,
    /// How far apart the ranks of two stages are, where there are other ranks of a stage between them and behind them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Training steps that are done.
    pub step: u32,
    /// Sequences that were seen.
    pub samples: u64,
    /// Seed of parameters and data.
    pub seed: u64,
    /// Type of the parameters.
    pub dtype: Dtype,
    /// The update rule.
    pub optimizer: OptimizerKind,
    /// What is kept of every parameter.
    pub kept: Vec<Kept>,
    /// The model.
    pub model: Model,
    /// The files of the ranks, in the ranks' order.
    pub ranks: Vec<RankFile>,
}

/// The file of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankFile {
    /// Its length.
    pub bytes: u64,
    /// Its digest, 16 hexadecimal digits; its name has it, too.
    pub digest: String,
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_one(size: &usize) -> bool {
    *size == 1
}

impl Manifest {
    /// What a finished run is the state of.
    pub(super) fn of(scenario: &Scenario, training: &Training, kept: Vec<Kept>) -> Self {
        let batch = &training.batch;
        let [data, pipeline, tensor, context] =
            [Axis::Data, Axis::Pipeline, Axis::Tensor, Axis::Context].map(|axis| training.mesh.size(axis));
        let stride = Some(training.mesh.stride(Axis::Pipeline)).filter(|stride| stride * pipeline != training.mesh.ranks());
        let step = batch.before.steps + batch.steps;
        let micro_batches = u64::from(batch.steps) * u64::from(batch.micro_batches) * data as u64;
        Self {
            format: FORMAT.to_owned(),
            strategy: training.data_parallel.strategy,
            data,
            pipeline,
            tensor,
            context,
            stride,
            step,
            samples: (u64::from(batch.before.micro_batches) + micro_batches) * batch.micro_batch_size as u64,
            seed: scenario.seed,
            dtype: training.precision.parameter,
            optimizer: training.optimizer.kind,
            kept,
            model: training.model.on_any_mesh(),
            ranks: Vec::new(),
        }
    }

    /// The ranks of the first stage, in order.
    pub(super) fn first_stage(&self) -> impl Iterator<Item = usize> {
        let (ranks, pipeline) = (self.ranks_that_saved(), self.pipeline.max(1));
        let stride = self.stride.unwrap_or(ranks / pipeline).max(1);
        (0..ranks).filter(move |rank| (rank / stride).is_multiple_of(pipeline))
    }

    fn ranks_that_saved(&self) -> usize {
        self.data * self.pipeline * self.tensor * self.context
    }

    /// Who saved, in words.
    #[must_use]
    pub fn written_by(&self) -> String {
        let ranks = counted(self.ranks.len() as u64, "rank");
        let several = |size: usize, what: &str| if size > 1 { format!(", {size} {what}") } else { String::new() };
        let [pipeline, tensor, context] =
            [(self.pipeline, "stages"), (self.tensor, "slices of tensors"), (self.context, "slices of sequences")]
                .map(|(size, what)| several(size, what));
        format!("{} on {ranks}{pipeline}{tensor}{context}", self.strategy)
    }

    /// Reads the manifest of `folder`, which is called `name`.
    ///
    /// # Errors
    /// If there is none, or none that anybody could use.
    pub(super) fn read(name: &str, folder: &dyn Folder) -> Result<Self, Broken> {
        let name = format!("{name}/{MANIFEST}");
        let refuse = |problem: Problem| Broken::Unreadable(Problems::of_file(&name, problem));
        let bytes = folder.read(MANIFEST, MOST_BYTES).map_err(|error| {
            let problem = Problem::new(format!("cannot read the checkpoint's manifest: {error}"));
            refuse(problem.hint("`ranklab run FILE --save DIR` writes a checkpoint into the folder DIR"))
        })?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(refuse(Problem::new("the manifest is too large").allowed(format!("at most {MOST_BYTES} bytes"))));
        }
        let manifest: Self = serde_json::from_slice(&bytes).map_err(|error| {
            let problem = Problem::new(format!("this is no manifest of a checkpoint: {error}"));
            refuse(problem.hint("it may be cut off, or another program's"))
        })?;
        manifest.flaw().map_or(Ok(manifest), |problem| Err(refuse(problem)))
    }

    /// What no checkpoint that was ever saved says.
    fn flaw(&self) -> Option<Problem> {
        if self.format != FORMAT {
            let problem = Problem::new(format!("the form `{}` is not known", shortened(&self.format))).allowed(FORMAT);
            return Some(problem.hint("another version of ranklab may have written it"));
        }
        if let Some(flaw) = self.model.flaw() {
            return Some(Problem::new(format!("there is no such model: {flaw}")));
        }
        if self.step == 0 || self.step > MOST_STEPS || self.samples > MOST_SAMPLES {
            let problem = Problem::new(format!("step {} with {} sequences seen", self.step, self.samples));
            return Some(problem.allowed(format!("step 1 to {MOST_STEPS}, at most {MOST_SAMPLES} sequences")));
        }
        let files = self.ranks.len();
        let sizes = [self.data, self.pipeline, self.tensor, self.context];
        let saved = sizes.iter().try_fold(1_usize, |ranks, &size| ranks.checked_mul(size));
        if files == 0 || files > MOST_RANKS || saved != Some(files) {
            // The last two are there only where they count.
            let sizes: Vec<String> =
                sizes[..2].iter().chain(sizes[2..].iter().filter(|size| **size != 1)).map(usize::to_string).collect();
            let message = format!("files of {files} ranks, where {} ranks saved", sizes.join(" x "));
            return Some(
                Problem::new(message).allowed("one file for each rank").hint("every rank has another part of the state"),
            );
        }
        if self.kept.first() != Some(&Kept::Parameter) || !self.kept.is_sorted_by(|a, b| a < b) {
            return Some(Problem::new("`kept` must name `model`, and each kind once").allowed(Kept::NAMES.join(", ")));
        }
        let strange = self.ranks.iter().position(|file| !is_digest(&file.digest))?;
        let message = format!("the digest of rank {strange}'s file is `{}`", shortened(&self.ranks[strange].digest));
        Some(Problem::new(message).allowed("16 hexadecimal digits"))
    }
}
