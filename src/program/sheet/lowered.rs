//! A plan with its messages, as PyTorch lowers a schedule: the rows are walked in turn, and where one places a slot whose result another
//! rank needs, it places the send behind it and the receive at the end of what stands in the other row so far. So the two ends of an edge
//! stand in one order on both sides, and a rank never waits for what is sent later. Sends of activations are waited for behind their
//! backward, all others at the end of the row.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Dialect, End, Message, Sheet, SheetError};
use crate::program::plan::{Cell, Pass, Plan, Slot};

impl Sheet {
    /// `plan` with all its sends, receives and waits, as PyTorch 2.15 loads it.
    ///
    /// # Errors
    /// If PyTorch does not take the plan: a stage on two ranks, say.
    pub fn with_messages(plan: &Plan) -> Result<Self, Vec<SheetError>> {
        let alone = Self::parse(&plan.to_string())?;
        let mut lowering = Lowering::new(plan);
        lowering.walk(plan).map_err(|place| vec![never_ready(&alone, place)])?;
        let rows = lowering.rows.iter().map(|row| with_waits(row)).collect();
        let dialect = if lowering.received.is_empty() { Dialect::Letters } else { Dialect::MessagesAndWaits };
        Ok(Self { rows, dialect })
    }
}

fn never_ready(sheet: &Sheet, (row, column): (usize, usize)) -> SheetError {
    let cell = sheet.rows[row][column].map_or_else(String::new, |action| action.to_string());
    let problem = "never gets its input: the rows wait for each other".to_owned();
    SheetError { row: row + 1, column: column + 1, cell, problem, expected: "an order in which some row can go on".to_owned() }
}

/// The walk over all rows.
struct Lowering {
    /// Per stage, its row.
    homes: BTreeMap<u32, usize>,
    rows: Vec<Vec<Action>>,
    /// Slots that are placed.
    placed: BTreeSet<Slot>,
    /// Receives that are placed.
    received: BTreeSet<Message>,
}

impl Lowering {
    fn new(plan: &Plan) -> Self {
        let rows = plan.rows.iter().enumerate();
        let stages = rows.flat_map(|(row, cells)| cells.iter().flat_map(|cell| cell.slots()).map(move |slot| (slot.stage, row)));
        Self {
            homes: stages.collect(),
            rows: vec![Vec::new(); plan.rows.len()],
            placed: BTreeSet::new(),
            received: BTreeSet::new(),
        }
    }

    /// Places every cell, a cell of each row in turn; if none can go on, the place of one that cannot.
    fn walk(&mut self, plan: &Plan) -> Result<(), (usize, usize)> {
        let mut next = vec![0; plan.rows.len()];
        loop {
            let mut stuck = None;
            let mut moved = false;
            for (row, cells) in plan.rows.iter().enumerate() {
                let Some(&cell) = cells.get(next[row]) else { continue };
                if cell.slots().all(|slot| self.is_ready(row, slot)) {
                    self.place(row, cell);
                    next[row] += 1;
                    moved = true;
                } else {
                    stuck = Some((row, next[row]));
                }
            }
            match stuck {
                _ if moved => {}
                None => return Ok(()),
                Some(place) => return Err(place),
            }
        }
    }

    fn is_ready(&self, row: usize, slot: Slot) -> bool {
        let Some(message) = message(slot) else { return true };
        let Some(from) = message.turned(End::Recv).filter(|from| self.homes.contains_key(&from.stage)) else { return true };
        if self.homes[&from.stage] != row {
            return self.received.contains(&message);
        }
        let passes: &[Pass] = if from.is_forward { &[Pass::F] } else { &[Pass::B, Pass::I] };
        passes.iter().any(|&pass| self.placed.contains(&Slot { stage: from.stage, pass, ..slot }))
    }

    fn place(&mut self, row: usize, cell: Cell) {
        self.rows[row].push(Action::Compute(cell));
        self.placed.extend(cell.slots());
        for message in cell.slots().filter_map(message) {
            let Some(there) = message.turned(End::Send) else { continue };
            let Some(&peer) = self.homes.get(&there.stage).filter(|&&peer| peer != row) else { continue };
            self.rows[row].push(Action::Message(End::Send, message));
            self.rows[peer].push(Action::Message(End::Recv, there));
            self.received.insert(there);
        }
    }
}

/// The message of a slot: what it needs, as its receiver names it, and what it makes, as its sender does.
fn message(slot: Slot) -> Option<Message> {
    let Slot { stage, micro_batch, pass } = slot;
    match pass {
        Pass::F => Some(Message { is_forward: true, stage, micro_batch }),
        Pass::B | Pass::I => Some(Message { is_forward: false, stage, micro_batch }),
        Pass::W => None,
    }
}

/// A row with a wait for every send.
fn with_waits(row: &[Action]) -> Vec<Option<Action>> {
    let mut sent: BTreeSet<Message> = BTreeSet::new();
    let mut last: Vec<Message> = Vec::new();
    let mut all: Vec<Option<Action>> = Vec::with_capacity(row.len() * 2);
    for &action in row {
        all.push(Some(action));
        match action {
            Action::Message(End::Send, message) if message.is_forward => {
                sent.insert(message);
            }
            Action::Message(End::Send, message) => last.push(message),
            Action::Compute(cell) => {
                let back = cell.slots().filter(|slot| matches!(slot.pass, Pass::B | Pass::I));
                let forward = back.map(|Slot { stage, micro_batch, .. }| Message { is_forward: true, stage, micro_batch });
                let done: Vec<Message> = forward.filter(|message| sent.remove(message)).collect();
                all.extend(done.into_iter().map(|message| Some(Action::Message(End::WaitSend, message))));
            }
            _ => {}
        }
    }
    let left = sent.into_iter().chain(last);
    all.extend(left.map(|message| Some(Action::Message(End::WaitSend, message))));
    all
}
