//! Pipeline schedules: pure functions to a [`Plan`], and the one table that names them.

mod gpipe;
mod naive;
mod one_f_one_b;

use crate::program::plan::Plan;

/// What a schedule depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pipeline stages, p.
    pub stages: u32,
    /// Micro-batches of a step, m.
    pub micro_batches: u32,
}

/// A row of the table: one named schedule.
#[derive(Debug)]
pub struct Schedule {
    /// Name in scenarios.
    pub name: &'static str,
    /// Name in prose.
    pub title: &'static str,
    /// What it does, in a sentence.
    pub meaning: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The plan of a step.
    pub plan: fn(Size) -> Plan,
}

/// Every schedule that ranklab knows.
pub static SCHEDULES: &[Schedule] = &[naive::SCHEDULE, gpipe::SCHEDULE, one_f_one_b::SCHEDULE];

impl Schedule {
    /// The schedule called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SCHEDULES.iter().find(|schedule| schedule.name == name)
    }
}

impl PartialEq for Schedule {
    /// A name belongs to one schedule.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, stages: u32, micro_batches: u32) -> String {
        let schedule = Schedule::find(name).expect("a schedule of the table");
        (schedule.plan)(Size { stages, micro_batches }).to_string()
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
    }
}
