//! A plan: per rank, the slots that it computes, in order. No messages and no time.
//!
//! The text form is PyTorch's pipelining CSV: a row per rank, cells such as `2F0` (stage 2, forward, micro-batch 0). The parser is strict:
//! it never guesses, and it reports every bad cell.

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

/// Why a cell is no slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row}, column {column}: `{cell}` {problem}")]
pub struct PlanError {
    /// Row, from 1.
    pub row: usize,
    /// Column, from 1.
    pub column: usize,
    /// The cell as written.
    pub cell: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Slot {
    /// A slot.
    #[must_use]
    pub fn new(stage: u32, pass: Pass, micro_batch: u32) -> Self {
        Self { stage, pass, micro_batch }
    }

    fn parse(cell: &str) -> Result<Self, &'static str> {
        let letter =
            cell.find(|c: char| !c.is_ascii_digit()).ok_or("has no letter: write stage, letter, micro-batch, as in 2F0")?;
        let (stage, rest) = cell.split_at(letter);
        let mut rest = rest.chars();
        let letter = rest.next();
        let pass = Pass::ALL.into_iter().find(|pass| Some(pass.letter()) == letter);
        let pass = pass.ok_or("has an unknown letter: F, I, W and B are known")?;
        let stage = number(stage).ok_or("needs a stage before its letter, as in 2F0")?;
        let micro_batch = number(rest.as_str()).ok_or("needs a micro-batch and nothing else after its letter, as in 2F0")?;
        Ok(Self { stage, pass, micro_batch })
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

    /// Reads `2F0` or `(2F4;5B0)OVERLAP_F_B`.
    fn parse(cell: &str) -> Result<Self, &'static str> {
        let Some(pair) = cell.strip_prefix('(') else { return Slot::parse(cell).map(Self::One) };
        let pair = pair.strip_suffix(")OVERLAP_F_B").ok_or("opens a pair: write it as in (2F4;5B0)OVERLAP_F_B")?;
        let (forward, backward) = pair.split_once(';').ok_or("needs two slots with `;` between them, as in (2F4;5B0)OVERLAP_F_B")?;
        let (forward, backward) = (Slot::parse(forward.trim())?, Slot::parse(backward.trim())?);
        let is_pair = forward.pass == Pass::F && backward.pass == Pass::B;
        if is_pair { Ok(Self::Overlap(forward, backward)) } else { Err("overlaps a forward with a full backward, in this order") }
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

    /// All slots, row by row.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.rows.iter().flatten().flat_map(|cell| cell.slots())
    }

    /// Reads the CSV form. Empty cells (bubbles that an author drew) mean nothing.
    ///
    /// # Errors
    /// Every cell that is no slot.
    pub fn parse(text: &str) -> Result<Self, Vec<PlanError>> {
        let mut errors = Vec::new();
        let text = text.strip_suffix('\n').unwrap_or(text);
        let rows = text.split('\n').enumerate().map(|(row, line)| parse_row(row, line, &mut errors)).collect();
        if errors.is_empty() { Ok(Self { rows }) } else { Err(errors) }
    }
}

fn parse_row(row: usize, line: &str, errors: &mut Vec<PlanError>) -> Vec<Cell> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let mut cells = Vec::new();
    for (column, cell) in line.split(',').map(str::trim).enumerate() {
        if cell.is_empty() {
            continue;
        }
        match Cell::parse(cell) {
            Ok(parsed) => cells.push(parsed),
            Err(problem) => errors.push(PlanError { row: row + 1, column: column + 1, cell: cell.to_owned(), problem }),
        }
    }
    cells
}

/// Digits alone, without a sign.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell() -> impl Strategy<Value = Cell> {
        (any::<u32>(), 0..5_usize, any::<u32>(), any::<u32>()).prop_map(|(stage, kind, micro_batch, other)| {
            match Pass::ALL.get(kind) {
                Some(&pass) => Cell::One(Slot::new(stage, pass, micro_batch)),
                None => Cell::Overlap(Slot::new(stage, Pass::F, micro_batch), Slot::new(other, Pass::B, stage)),
            }
        })
    }

    proptest! {
        #[test]
        fn a_plan_prints_and_parses(rows in prop::collection::vec(prop::collection::vec(cell(), 0..9), 1..6)) {
            let plan = Plan { rows };
            prop_assert_eq!(Plan::parse(&plan.to_string()), Ok(plan));
        }

        #[test]
        fn any_text_parses_or_is_refused(text in ".{0,80}") {
            let _ = Plan::parse(&text);
        }
    }

    #[test]
    fn bad_cells_are_all_reported() {
        let check = |text: &str, expected: &[(usize, usize, &str)]| {
            let errors = Plan::parse(text).expect_err(text);
            let found: Vec<_> = errors.iter().map(|error| (error.row, error.column, error.cell.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("0F0,1F0xyz\n2f0,0F,F0,-1F0\n", &[(1, 2, "1F0xyz"), (2, 1, "2f0"), (2, 2, "0F"), (2, 3, "F0"), (2, 4, "-1F0")]);
        check("0F99999999999", &[(1, 1, "0F99999999999")]);
        check("0BW0", &[(1, 1, "0BW0")]);
        let overlap = "(0F7;7B3)OVERLAP_F_B";
        assert_eq!(Plan::parse(overlap).map(|plan| plan.to_string()), Ok(format!("{overlap}\n")));
        check("(0F7;7B3),(0F7)OVERLAP_F_B", &[(1, 1, "(0F7;7B3)"), (1, 2, "(0F7)OVERLAP_F_B")]);
        check("(0B7;7F3)OVERLAP_F_B", &[(1, 1, "(0B7;7F3)OVERLAP_F_B")]);
    }

    #[test]
    fn blanks_and_line_ends_of_other_tools_are_accepted() {
        let one = |stage, pass| Cell::One(Slot::new(stage, pass, 0));
        let expected = vec![vec![one(0, Pass::F), one(0, Pass::B)], vec![one(1, Pass::F)]];
        assert_eq!(Plan::parse("0F0, ,0B0\r\n1F0\r\n").map(|plan| plan.rows), Ok(expected));
    }
}
