//! A plan: per rank, the slots that it computes, in order. No messages and no time.
//!
//! The text form is PyTorch's pipelining CSV: a row per rank, cells such as `2F0` (stage 2, forward, micro-batch 0). A
//! [`super::sheet::Sheet`] reads it.

use std::collections::BTreeSet;
use std::fmt;

/// What a slot computes, in PyTorch's letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Forward.
    F,
    /// Full backward: input, then weights, in one slot.
    B,
    /// Backward for the input.
    I,
    /// Backward for the weights.
    W,
}

impl Pass {
    /// All passes.
    pub const ALL: [Self; 4] = [Self::F, Self::B, Self::I, Self::W];

    /// PyTorch's letter.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::F => 'F',
            Self::B => 'B',
            Self::I => 'I',
            Self::W => 'W',
        }
    }
}

/// One cell: a pass of one micro-batch through one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Stage, from 0.
    pub stage: u32,
    /// What is computed.
    pub pass: Pass,
    /// Micro-batch of the step, from 0.
    pub micro_batch: u32,
}

/// One cell of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// A slot.
    One(Slot),
    /// A forward and a backward that run as one: they start when both can, and their results leave when both have ended.
    Overlap(Slot, Slot),
}

/// A schedule's result: a row of cells per pipeline rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Row r is what pipeline rank r computes, in order.
    pub rows: Vec<Vec<Cell>>,
}

impl Slot {
    /// A slot.
    #[must_use]
    pub fn new(stage: u32, pass: Pass, micro_batch: u32) -> Self {
        Self { stage, pass, micro_batch }
    }
}

impl Cell {
    /// Its slots, in the order in which they are computed.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        let (first, second) = match self {
            Self::One(slot) => (slot, None),
            Self::Overlap(forward, backward) => (forward, Some(backward)),
        };
        std::iter::once(first).chain(second)
    }
}

impl Plan {
    /// The plan of `ranks` ranks, each with the row that `row` makes for it.
    #[must_use]
    pub fn of_rows(ranks: u32, row: impl Fn(u32) -> Vec<Cell>) -> Self {
        Self { rows: (0..ranks).map(row).collect() }
    }

    /// The number of micro-batches that the plan runs forward.
    #[must_use]
    pub fn micro_batches(&self) -> usize {
        self.slots().filter(|slot| slot.pass == Pass::F).map(|slot| slot.micro_batch as usize + 1).max().unwrap_or(0)
    }

    /// The number of stages that the plan computes.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.slots().map(|slot| slot.stage as usize + 1).max().unwrap_or(0)
    }

    /// Whether a stage stands on two ranks, which take micro-batches of their own through it.
    #[must_use]
    pub fn is_two_way(&self) -> bool {
        let homes: BTreeSet<(u32, usize)> = self.rows.iter().enumerate().flat_map(|(row, cells)| stages(cells, row)).collect();
        homes.iter().zip(homes.iter().skip(1)).any(|(one, next)| one.0 == next.0)
    }

    /// Whether some forwards and backwards run as one.
    #[must_use]
    pub fn overlaps(&self) -> bool {
        self.rows.iter().any(|row| row.iter().any(|cell| matches!(cell, Cell::Overlap(..))))
    }

    /// The slots that run as one with the slot before them.
    pub fn joined(&self) -> impl Iterator<Item = Slot> + '_ {
        self.rows.iter().flatten().filter_map(|cell| match cell {
            Cell::One(_) => None,
            Cell::Overlap(_, backward) => Some(*backward),
        })
    }

    /// All slots, row by row.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.rows.iter().flatten().flat_map(|cell| cell.slots())
    }
}

/// The stages of a row's cells, each with the row.
fn stages(cells: &[Cell], row: usize) -> impl Iterator<Item = (u32, usize)> + '_ {
    cells.iter().flat_map(|cell| cell.slots()).map(move |slot| (slot.stage, row))
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.stage, self.pass.letter(), self.micro_batch)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(slot) => write!(f, "{slot}"),
            Self::Overlap(forward, backward) => write!(f, "({forward};{backward})OVERLAP_F_B"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let separator = if column == 0 { "" } else { "," };
                write!(f, "{separator}{cell}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
