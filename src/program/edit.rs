//! Editing a plan: cells are moved, taken out, put back, split and joined. An edit after which no order of the rest could be right is
//! refused, with the op that it would break; every other one can be undone.

mod order;

use std::collections::BTreeMap;
use std::fmt;

use super::plan::{Cell, Pass, Plan, Slot};
pub use order::{Circle, Link, circle};

/// A plan that is being edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Editor {
    plan: Plan,
    /// Cells that were taken out and not put back, the latest last.
    shelf: Vec<Cell>,
    /// Per stage and micro-batch, its row.
    homes: BTreeMap<(u32, u32), usize>,
    done: Vec<Change>,
    undone: Vec<Change>,
}

/// What an edit changed: of one row and of the shelf, what was and what is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    row: usize,
    before: (Vec<Cell>, Vec<Cell>),
    after: (Vec<Cell>, Vec<Cell>),
}

/// A place in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The row.
    pub row: usize,
    /// The cell; behind the last one a cell can be put.
    pub column: usize,
}

/// An edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The cell moves within its row, to this column.
    Move(Place, usize),
    /// The cell is taken out, and kept beside the plan.
    Take(Place),
    /// A cell that was taken out, by its number, is put before this place.
    Put(usize, Place),
    /// A whole backward becomes one for the input and, behind it, one for the weights; a pair that runs as one, two slots.
    Split(Place),
    /// The reverse: the cell and the one behind it become one.
    Join(Place),
}

/// Why an edit is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The plan has no such cell.
    Nothing,
    /// It would change nothing.
    Same,
    /// The slot is another rank's.
    Home {
        /// The slot.
        slot: Slot,
        /// The rank that takes its micro-batch through its stage.
        home: usize,
        /// Here stands a copy of the stage, for other micro-batches.
        is_copied: bool,
    },
    /// A slot would run before one of its own row whose result it needs.
    Early {
        /// The slot.
        slot: Slot,
        /// What it needs.
        needs: Slot,
    },
    /// Ranks would wait for each other in a circle.
    Circle(Circle),
    /// The cell is no whole backward, and no pair.
    Whole(Cell),
    /// The two cells cannot be one.
    Apart(Cell, Option<Cell>),
}

impl Editor {
    /// Starts with `plan`, which is whole.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut homes = BTreeMap::new();
        for (row, cells) in plan.rows.iter().enumerate() {
            homes.extend(cells.iter().flat_map(|cell| cell.slots()).map(|slot| ((slot.stage, slot.micro_batch), row)));
        }
        Self { plan, shelf: Vec::new(), homes, done: Vec::new(), undone: Vec::new() }
    }

    /// The plan as it is now. It can run if it is whole.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The cells that were taken out and not put back, the latest last.
    #[must_use]
    pub fn shelf(&self) -> &[Cell] {
        &self.shelf
    }

    /// Whether nothing is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.shelf.is_empty()
    }

    /// How many edits can be undone, and how many done again.
    #[must_use]
    pub fn depth(&self) -> (usize, usize) {
        (self.done.len(), self.undone.len())
    }

    /// The cells beside the plan that belong to `row`: their numbers.
    pub fn shelf_of(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let belongs = move |cell: &Cell| cell.slots().all(|slot| self.home(slot) == Some(row));
        self.shelf.iter().enumerate().filter(move |(_, cell)| belongs(cell)).map(|(number, _)| number)
    }

    /// The row that `slot` belongs to: where its stage stands, or that copy of it which takes its micro-batch.
    fn home(&self, slot: Slot) -> Option<usize> {
        self.homes.get(&(slot.stage, slot.micro_batch)).copied()
    }

    /// Does `edit`.
    ///
    /// # Errors
    /// If it would break the order; nothing has changed then.
    pub fn apply(&mut self, edit: Edit) -> Result<(), Refusal> {
        let (row, cells, beside) = self.edited(edit)?;
        let before = (std::mem::replace(&mut self.plan.rows[row], cells), std::mem::replace(&mut self.shelf, beside));
        let found = early(&self.plan.rows[row]).map_or_else(|| circle(&self.plan, &self.shelf).map(Refusal::Circle), Some);
        if let Some(refusal) = found {
            (self.plan.rows[row], self.shelf) = before;
            return Err(refusal);
        }
        let after = (self.plan.rows[row].clone(), self.shelf.clone());
        self.done.push(Change { row, before, after });
        self.undone.clear();
        Ok(())
    }

    /// Takes the last edit back; whether there was one.
    pub fn undo(&mut self) -> bool {
        let Some(change) = self.done.pop() else { return false };
        (self.plan.rows[change.row], self.shelf) = change.before.clone();
        self.undone.push(change);
        true
    }

    /// Does the last edit that was taken back again; whether there was one.
    pub fn redo(&mut self) -> bool {
        let Some(change) = self.undone.pop() else { return false };
        (self.plan.rows[change.row], self.shelf) = change.after.clone();
        self.done.push(change);
        true
    }

    /// The row that `edit` changes, as it would be, and the shelf.
    fn edited(&self, edit: Edit) -> Result<(usize, Vec<Cell>, Vec<Cell>), Refusal> {
        let mut beside = self.shelf.clone();
        let (Edit::Move(place, _) | Edit::Take(place) | Edit::Put(_, place) | Edit::Split(place) | Edit::Join(place)) = edit;
        let mut cells = self.plan.rows.get(place.row).ok_or(Refusal::Nothing)?.clone();
        let here = || self.plan.rows[place.row].get(place.column).copied().ok_or(Refusal::Nothing);
        match edit {
            Edit::Move(_, to) => {
                let cell = here()?;
                let to = to.min(cells.len() - 1);
                if to == place.column {
                    return Err(Refusal::Same);
                }
                cells.remove(place.column);
                cells.insert(to, cell);
            }
            Edit::Take(_) => {
                beside.push(here()?);
                cells.remove(place.column);
            }
            Edit::Put(number, _) => {
                let cell = beside.get(number).copied().ok_or(Refusal::Nothing)?;
                for slot in cell.slots() {
                    let home = self.home(slot).unwrap_or(place.row);
                    if home != place.row {
                        let is_copied = self.homes.iter().any(|(&(stage, _), &row)| (stage, row) == (slot.stage, place.row));
                        return Err(Refusal::Home { slot, home, is_copied });
                    }
                }
                beside.remove(number);
                cells.insert(place.column.min(cells.len()), cell);
            }
            Edit::Split(_) => {
                let parts = parts(here()?)?;
                cells.splice(place.column..=place.column, parts);
            }
            Edit::Join(_) => {
                let whole = whole(here()?, cells.get(place.column + 1).copied())?;
                cells.splice(place.column..=place.column + 1, [whole]);
            }
        }
        Ok((place.row, cells, beside))
    }
}

/// The two cells that a cell consists of.
fn parts(cell: Cell) -> Result<[Cell; 2], Refusal> {
    match cell {
        Cell::One(slot) if slot.pass == Pass::B => Ok([Pass::I, Pass::W].map(|pass| Cell::One(Slot { pass, ..slot }))),
        Cell::One(_) => Err(Refusal::Whole(cell)),
        Cell::Overlap(forward, backward) => Ok([Cell::One(forward), Cell::One(backward)]),
    }
}

/// The cell that two consist of.
fn whole(first: Cell, second: Option<Cell>) -> Result<Cell, Refusal> {
    let apart = Err(Refusal::Apart(first, second));
    let (Cell::One(one), Some(Cell::One(other))) = (first, second) else { return apart };
    let same = (one.stage, one.micro_batch) == (other.stage, other.micro_batch);
    match (one.pass, other.pass) {
        (Pass::I, Pass::W) if same => Ok(Cell::One(Slot { pass: Pass::B, ..one })),
        (Pass::F, Pass::B) if !same => Ok(Cell::Overlap(one, other)),
        (Pass::B, Pass::F) if !same => Ok(Cell::Overlap(other, one)),
        _ => apart,
    }
}

/// The first slot of a row that stands before one whose result it needs on the same rank.
fn early(cells: &[Cell]) -> Option<Refusal> {
    let mut waiting: BTreeMap<Slot, Slot> = BTreeMap::new();
    for slot in cells.iter().flat_map(|cell| cell.slots()) {
        if let Some(&early) = waiting.get(&slot) {
            return Some(Refusal::Early { slot: early, needs: slot });
        }
        let needs: &[Pass] = match slot.pass {
            Pass::F => &[],
            Pass::B | Pass::I => &[Pass::F],
            Pass::W => &[Pass::I],
        };
        for &pass in needs {
            waiting.insert(Slot { pass, ..slot }, slot);
        }
    }
    None
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "no cell stands there"),
            Self::Same => write!(f, "it stands there already"),
            Self::Home { slot, home, is_copied: true } => {
                write!(f, "{slot} runs on r{home}: micro-batch {} goes the other way through the pipeline", slot.micro_batch)
            }
            Self::Home { slot, home, .. } => {
                write!(f, "{slot} runs on r{home}, which holds the parameters of stage {}", slot.stage)
            }
            Self::Early { slot, needs } => write!(f, "{slot} would run before {needs}, whose result it needs"),
            Self::Circle(circle) => write!(f, "ranks would wait in a circle: {circle}"),
            Self::Whole(cell) => write!(f, "{cell} has no parts: a whole backward (B) does, and a pair that runs as one"),
            Self::Apart(cell, Some(next)) => {
                write!(f, "{cell} and {next} are no whole: I and its own W are, and an F and a B of different micro-batches")
            }
            Self::Apart(cell, None) => write!(f, "{cell} is the last of its row: nothing stands behind it to join"),
        }
    }
}
