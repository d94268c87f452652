//! What a schedule depends on, which stages a rank holds, and which sizes a schedule takes.

use std::fmt;

/// What a schedule depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Ranks of the pipeline, p.
    pub ranks: u32,
    /// Stages of each rank, v.
    pub chunks: u32,
    /// Segments of each sequence, k.
    pub segments: u32,
    /// Micro-batches of a step, m.
    pub micro_batches: u32,
}

/// Which stages a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Rank r holds stage r.
    Line,
    /// Rank r holds stages r, r+p, r+2p, and so on: an activation goes around the ranks v times.
    Loop,
    /// Rank r holds stages r and 2p-1-r: an activation goes down the ranks and up again.
    Vee,
    /// Rank r holds stages r and p-1-r, so each stage stands twice: half of the micro-batches enter at either end.
    TwoWay,
}

/// Why a schedule does not take a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// Which of the sizes is to blame.
    pub what: Measure,
    /// What is wrong, in a sentence.
    pub reason: String,
    /// A value near the present one that the schedule takes.
    pub nearest: u32,
}

/// One of the sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Ranks of the pipeline.
    Ranks,
    /// Stages of each rank.
    Chunks,
    /// Segments of each sequence.
    Segments,
    /// Micro-batches of a step.
    MicroBatches,
}

impl Size {
    /// The number of stages.
    #[must_use]
    pub fn stages(self) -> u32 {
        self.ranks * self.chunks
    }

    /// Slots of one kind that a rank computes in a step.
    pub(super) fn passes(self) -> u32 {
        self.micro_batches * self.chunks
    }
}

impl Placement {
    /// Stages of each rank where the scenario does not say; a copy of a stage does not count.
    #[must_use]
    pub fn usual_chunks(self) -> u32 {
        match self {
            Self::Line | Self::TwoWay => 1,
            Self::Loop | Self::Vee => 2,
        }
    }

    /// The stages of `rank`, in the order in which a micro-batch enters them; a two-way rank's own direction comes first.
    #[must_use]
    pub fn stages(self, size: Size, rank: u32) -> Vec<u32> {
        let last = size.stages() - 1;
        match self {
            Self::Line => vec![rank],
            Self::Loop => (0..size.chunks).map(|chunk| rank + chunk * size.ranks).collect(),
            Self::Vee => vec![rank, last - rank],
            Self::TwoWay => vec![rank.min(last - rank), rank.max(last - rank)],
        }
    }

    pub(super) fn check(self, size: Size) -> Result<(), Illegal> {
        let Size { ranks, chunks, .. } = size;
        match self {
            Self::Line | Self::TwoWay if chunks != 1 => {
                Err(Illegal::new(Measure::Chunks, 1, format!("cuts the model into one stage for each rank, not into {chunks}")))
            }
            Self::Vee if chunks != 2 => Err(Illegal::new(
                Measure::Chunks,
                2,
                format!("gives each rank 2 stages, one on the way down and one on the way up, not {chunks}"),
            )),
            Self::TwoWay if !ranks.is_multiple_of(2) => {
                let reason = format!("pairs ranks from the two ends of the pipeline, and {ranks} is odd");
                Err(Illegal::new(Measure::Ranks, ranks + 1, reason))
            }
            _ => Ok(()),
        }
    }
}

impl Illegal {
    pub(super) fn new(what: Measure, nearest: u32, reason: impl Into<String>) -> Self {
        Self { what, nearest, reason: reason.into() }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ranks => "pipeline",
            Self::Chunks => "chunks",
            Self::Segments => "segments",
            Self::MicroBatches => "micro_batches",
        })
    }
}
