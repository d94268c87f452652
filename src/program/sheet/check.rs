//! Is the sheet whole? Every stage stands on one rank, runs every micro-batch once, forward before backward; and so on.
//!
//! Whether ranks can wait for each other in a circle is not looked at here: running it tells, with who waits for whom.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, MOST_ERRORS, Sheet, SheetError, messages};
use crate::program::plan::{Cell, Pass, Slot};

/// Everything that is wrong with the whole of `sheet`, whose cells are actions.
pub(super) fn check(sheet: &Sheet) -> Vec<SheetError> {
    let mut walk = Walk { sheet, errors: Vec::new(), homes: BTreeMap::new(), done: BTreeMap::new() };
    for (row, cells) in sheet.rows.iter().enumerate() {
        for (column, action) in cells.iter().enumerate() {
            if let Some(Action::Compute(cell)) = action {
                cell.slots().for_each(|slot| walk.slot((row, column), slot));
                walk.pair((row, column), *cell);
            }
        }
    }
    walk.all_there();
    if walk.errors.is_empty() {
        messages::check(&mut walk);
    }
    walk.errors
}

/// Row and column, from 0.
pub(super) type Place = (usize, usize);

/// The walk through all cells.
pub(super) struct Walk<'a> {
    pub sheet: &'a Sheet,
    pub errors: Vec<SheetError>,
    /// Per stage, where it runs first.
    pub homes: BTreeMap<u32, Place>,
    /// Per stage and micro-batch, where its passes run, in the order of [`Pass::ALL`].
    pub done: BTreeMap<(u32, u32), [Option<Place>; 4]>,
}

impl Walk<'_> {
    pub fn refuse(&mut self, (row, column): Place, problem: impl Into<String>, expected: impl Into<String>) {
        if self.errors.len() < MOST_ERRORS {
            let cell = self.sheet.rows[row].get(column).copied().flatten().map_or_else(String::new, |action| action.to_string());
            let (problem, expected) = (problem.into(), expected.into());
            self.errors.push(SheetError { row: row + 1, column: column + 1, cell, problem, expected });
        }
    }

    fn slot(&mut self, place: Place, slot: Slot) {
        let home = *self.homes.entry(slot.stage).or_insert(place);
        if home.0 != place.0 {
            let problem =
                format!("runs stage {} on a second rank; row {}, column {} has it, too", slot.stage, home.0 + 1, home.1 + 1);
            return self.refuse(place, problem, "each stage on one rank");
        }
        let done = self.done.entry((slot.stage, slot.micro_batch)).or_default();
        let at = |done: &[Option<Place>; 4], pass: Pass| done[pass as usize];
        let before = *done;
        done[slot.pass as usize].get_or_insert(place);
        if let Some((_, column)) = at(&before, slot.pass) {
            return self.refuse(place, format!("runs a second time; the first is in column {}", column + 1), "each pass once");
        }
        let needed = match slot.pass {
            Pass::F => None,
            Pass::B | Pass::I => Some(Pass::F),
            Pass::W => Some(Pass::I),
        };
        if let Some(needed) = needed.filter(|&needed| at(&before, needed).is_none()) {
            let needed = Slot { pass: needed, ..slot };
            self.refuse(place, format!("runs before {needed}"), format!("{needed} earlier in its row"));
        }
        let twice = match slot.pass {
            Pass::B => at(&before, Pass::I),
            Pass::I => at(&before, Pass::B),
            _ => None,
        };
        if let Some((_, column)) = twice {
            let problem = format!("goes backward a second time; column {} does already", column + 1);
            self.refuse(place, problem, "B, or I and later W");
        }
    }

    fn pair(&mut self, place: Place, cell: Cell) {
        if let Cell::Overlap(forward, backward) = cell
            && forward.stage == backward.stage
            && forward.micro_batch == backward.micro_batch
        {
            self.refuse(place, "overlaps a forward with its own backward", "a backward whose forward is done");
        }
    }

    /// Whether every stage runs every micro-batch forward and back, and none is left out.
    fn all_there(&mut self) {
        let (stages, micro_batches): (BTreeSet<u32>, BTreeSet<u32>) = self.done.keys().copied().unzip();
        if stages.is_empty() {
            return self.refuse((0, 0), "computes nothing", "slots such as 0F0 and 0B0");
        }
        if let Some((missing, next)) = hole(&stages) {
            let place = self.homes[&next];
            return self.refuse(
                place,
                format!("runs stage {next}, and stage {missing} runs nowhere"),
                "stages 0, 1, 2 and so on",
            );
        }
        if let Some((missing, next)) = hole(&micro_batches) {
            let place =
                self.done.iter().find(|((_, m), _)| *m == next).and_then(|(_, done)| done.iter().flatten().next().copied());
            let problem = format!("runs micro-batch {next}, and micro-batch {missing} runs nowhere");
            return self.refuse(place.unwrap_or_default(), problem, "micro-batches 0, 1, 2 and so on");
        }
        for &stage in &stages {
            for &micro_batch in &micro_batches {
                let done = self.done.get(&(stage, micro_batch)).copied().unwrap_or_default();
                let [forward, whole, input, weight] = done.map(|place| place.is_some());
                let lacks = match (forward, whole, input, weight) {
                    (false, ..) => "F",
                    (_, false, false, _) => "B, nor I and W",
                    (_, false, true, false) => "W",
                    _ => continue,
                };
                let place = done.into_iter().flatten().next().unwrap_or(self.homes[&stage]);
                let problem = format!("is of stage {stage}, which never runs micro-batch {micro_batch}'s {lacks}");
                self.refuse(place, problem, "every micro-batch forward and back on every stage");
            }
        }
    }
}

/// The first number that is missing from `numbers`, and the one behind it.
fn hole(numbers: &BTreeSet<u32>) -> Option<(u32, u32)> {
    (0..).zip(numbers).find(|(expected, number)| expected != *number).map(|(expected, &number)| (expected, number))
}
