//! Pipeline schedules: pure functions to a [`Plan`], and the one table that names them.
//!
//! A schedule says, for each rank, which slot it computes after which. It knows no time and no messages: how long a bubble is follows from
//! running it. In the formulas p is the number of ranks, v of chunks (stages of a rank), m of micro-batches; F, I and W are the times of a
//! chunk's passes, and B = I + W.

mod block;
mod chimera;
mod dualpipe;
mod dualpipev;
mod gpipe;
mod improve;
mod interleaved;
pub mod list;
mod looped_bfs;
mod naive;
mod one_f_one_b;
mod pipedream;
mod pipedream_2bw;
mod row;
mod seq1f1b;
mod size;
mod theory;
mod v_half;
mod v_min;
mod zb1p;
mod zb_h1;
mod zb_h2;
mod zbv;

use crate::base::settings::Updates;
use crate::program::plan::Plan;

pub use size::{Illegal, Measure, Placement, Size};
pub use theory::{Theory, Times};

/// A row of the table: one named schedule.
#[derive(Debug)]
pub struct Schedule {
    /// Name in scenarios.
    pub name: &'static str,
    /// Name in prose.
    pub title: &'static str,
    /// What it does, in a sentence.
    pub meaning: &'static str,
    /// How long a step takes, and how much of it is idle.
    pub theory: Theory,
    /// Where it was published.
    pub source: &'static str,
    /// Which stages a rank holds.
    pub placement: Placement,
    /// When a stage updates its weights.
    pub updates: Updates,
    /// Whether it can take a sequence through the pipeline in segments; its plan then numbers the segments of all micro-batches through.
    pub segmented: bool,
    /// Whether it takes a size that suits its placement.
    pub takes: fn(Size) -> Result<(), Illegal>,
    /// The plan for a size that it takes: of a step, or of all steps where the pipeline is never drained.
    pub plan: fn(Size) -> Plan,
}

/// Every schedule that ranklab knows, from the plainest to the newest.
pub static SCHEDULES: &[Schedule] = &[
    naive::SCHEDULE,
    gpipe::SCHEDULE,
    one_f_one_b::SCHEDULE,
    looped_bfs::SCHEDULE,
    interleaved::SCHEDULE,
    zb_h1::SCHEDULE,
    zb_h2::SCHEDULE,
    zb1p::SCHEDULE,
    zbv::SCHEDULE,
    v_half::SCHEDULE,
    v_min::SCHEDULE,
    chimera::SCHEDULE,
    dualpipe::SCHEDULE,
    dualpipev::SCHEDULE,
    seq1f1b::SCHEDULE,
    pipedream::SCHEDULE,
    pipedream_2bw::SCHEDULE,
];

impl Schedule {
    /// What most schedules are: a row of the table says where it differs.
    const PLAIN: Self = Self {
        name: "",
        title: "",
        meaning: "",
        theory: Theory::UNKNOWN,
        source: "",
        placement: Placement::Line,
        updates: Updates::EachStep,
        segmented: false,
        takes: any,
        plan: |size| Plan { rows: vec![Vec::new(); size.ranks as usize] },
    };

    /// The schedule called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SCHEDULES.iter().find(|schedule| schedule.name == name)
    }

    /// The schedule whose plan `plan` is.
    #[must_use]
    pub fn recognise(plan: &Plan) -> Option<&'static Self> {
        let count = |number: usize| u32::try_from(number).ok();
        let (ranks, stages, micro_batches) = (count(plan.rows.len())?, count(plan.stages())?, count(plan.micro_batches())?);
        let size = Size { ranks, chunks: stages.checked_div(ranks)?, segments: 1, micro_batches };
        let is_it = |schedule: &&Self| size.stages() == stages && schedule.check(size).is_ok() && (schedule.plan)(size) == *plan;
        SCHEDULES.iter().find(is_it)
    }

    /// Whether the schedule takes `size`.
    ///
    /// # Errors
    /// Why not, with the nearest size that it takes.
    pub fn check(&self, size: Size) -> Result<(), Illegal> {
        self.placement.check(size)?;
        if size.segments > 1 && !self.segmented {
            let reason = format!("takes whole sequences, not {} segments of each", size.segments);
            return Err(Illegal::new(Measure::Segments, 1, reason));
        }
        (self.takes)(size)
    }

    /// Segments of a sequence where the scenario does not say.
    #[must_use]
    pub fn usual_segments(&self) -> u32 {
        if self.segmented { 2 } else { 1 }
    }
}

impl PartialEq for Schedule {
    /// A name belongs to one schedule.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// For schedules that take every size.
#[expect(clippy::unnecessary_wraps, reason = "one of the functions of the table")]
fn any(_: Size) -> Result<(), Illegal> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, ranks: u32, micro_batches: u32) -> String {
        let schedule = Schedule::find(name).expect("a schedule of the table");
        let segments = schedule.usual_segments();
        let size = Size { ranks, chunks: schedule.placement.usual_chunks(), segments, micro_batches };
        assert_eq!(schedule.check(size), Ok(()), "{name}");
        (schedule.plan)(size).to_string()
    }

    #[test]
    fn plans_are_the_published_ones() {
        insta::assert_snapshot!(plan("naive", 2, 2), @r"
        0F0,0B0,0F1,0B1
        1F0,1B0,1F1,1B1
        ");
        insta::assert_snapshot!(plan("gpipe", 2, 3), @r"
        0F0,0F1,0F2,0B0,0B1,0B2
        1F0,1F1,1F2,1B0,1B1,1B2
        ");
        insta::assert_snapshot!(plan("1f1b", 3, 4), @r"
        0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3
        1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3
        2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3
        ");
        insta::assert_snapshot!(plan("1f1b", 4, 2), @r"
        0F0,0F1,0B0,0B1
        1F0,1F1,1B0,1B1
        2F0,2F1,2B0,2B1
        3F0,3B0,3F1,3B1
        ");
        insta::assert_snapshot!(plan("looped-bfs", 2, 2), @r"
        0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0
        1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0
        ");
        insta::assert_snapshot!(plan("interleaved", 2, 4), @r"
        0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3
        1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3
        ");
        insta::assert_snapshot!(plan("interleaved", 3, 4), @r"
        0F0,0F1,0F2,0F3,3F0,3F1,3F2,3F3,3B0,3B1,3B2,3B3,0B0,0B1,0B2,0B3
        1F0,1F1,1F2,1F3,4F0,4F1,4F2,4B0,4F3,4B1,4B2,4B3,1B0,1B1,1B2,1B3
        2F0,2F1,2F2,2F3,5F0,5B0,5F1,5B1,5F2,5B2,5F3,5B3,2B0,2B1,2B2,2B3
        ");
        insta::assert_snapshot!(plan("zb-h1", 3, 4), @r"
        0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3
        1F0,1F1,1I0,1F2,1I1,1W0,1F3,1I2,1W1,1I3,1W2,1W3
        2F0,2I0,2F1,2I1,2F2,2I2,2W0,2F3,2I3,2W1,2W2,2W3
        ");
        insta::assert_snapshot!(plan("zb-h2", 3, 5), @r"
        0F0,0F1,0F2,0F3,0F4,0I0,0W0,0I1,0W1,0I2,0W2,0I3,0W3,0I4,0W4
        1F0,1F1,1F2,1I0,1F3,1I1,1F4,1I2,1W0,1I3,1W1,1I4,1W2,1W3,1W4
        2F0,2I0,2F1,2I1,2F2,2I2,2F3,2I3,2F4,2I4,2W0,2W1,2W2,2W3,2W4
        ");
        insta::assert_snapshot!(plan("zb1p", 2, 2), @r"
        0F0,0F1,2F0,2F1,2I0,2W0,2I1,2W1,0I0,0W0,0I1,0W1
        1F0,1F1,3F0,3I0,3F1,3I1,3W0,1I0,3W1,1I1,1W0,1W1
        ");
        insta::assert_snapshot!(plan("zbv", 2, 3), @r"
        0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2
        1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2
        ");
        insta::assert_snapshot!(plan("zbv", 2, 2), @r"
        0F0,0F1,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,0I1,0W1
        1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,2W1,1I1,1W1
        ");
        insta::assert_snapshot!(plan("chimera", 4, 4), @r"
        0F0,0F1,3F2,3B2,3F3,3B3,0B0,0B1
        1F0,2F2,1F1,2F3,2B2,1B0,2B3,1B1
        1F2,2F0,1F3,2F1,2B0,1B2,2B1,1B3
        0F2,0F3,3F0,3B0,3F1,3B1,0B2,0B3
        ");
        insta::assert_snapshot!(plan("dualpipe", 2, 4), @r"
        0F0,1F2,0F1,1B2,(1F3;0B0)OVERLAP_F_B,1B3,0I1,0W1
        0F2,1F0,0F3,1B0,(1F1;0B2)OVERLAP_F_B,1B1,0I3,0W3
        ");
        insta::assert_snapshot!(plan("dualpipev", 2, 4), @r"
        0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3
        1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3
        ");
    }

    #[test]
    fn segments_come_back_in_reverse() {
        insta::assert_snapshot!(plan("seq1f1b", 2, 2), @r"
        0F0,0F1,0F2,0B1,0F3,0B0,0B3,0B2
        1F0,1F1,1B1,1F2,1B0,1F3,1B3,1B2
        ");
    }
}
