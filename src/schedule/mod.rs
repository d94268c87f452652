//! Pipeline schedules: pure functions to a [`Plan`], and the one table that names them.
//!
//! A schedule says, for each rank, which slot it computes after which. It knows no time and no messages: how long a bubble is follows from
//! running it. In the formulas p is the number of ranks, v of chunks (stages of a rank), m of micro-batches; F, I and W are the times of a
//! chunk's passes, and B = I + W.

mod chimera;
mod dualpipe;
mod dualpipev;
mod gpipe;
mod interleaved;
mod looped_bfs;
mod naive;
mod one_f_one_b;
mod row;
mod size;
mod theory;
mod zb1p;
mod zb_h1;
mod zb_h2;
mod zbv;

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
    /// Whether it takes a size that suits its placement.
    pub takes: fn(Size) -> Result<(), Illegal>,
    /// The plan of a step, for a size that it takes.
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
    chimera::SCHEDULE,
    dualpipe::SCHEDULE,
    dualpipev::SCHEDULE,
];

impl Schedule {
    /// The schedule called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SCHEDULES.iter().find(|schedule| schedule.name == name)
    }

    /// Whether the schedule takes `size`.
    ///
    /// # Errors
    /// Why not, with the nearest size that it takes.
    pub fn check(&self, size: Size) -> Result<(), Illegal> {
        self.placement.check(size)?;
        (self.takes)(size)
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
