//! Homes: which ranks of the pipeline hold a stage, and which of them takes a micro-batch. Read off the plan.

use crate::program::plan::Plan;

/// Where the stages of a plan stand.
pub(super) struct Homes {
    /// Per stage, the rows that compute it, in order: one, or two where the pipeline runs both ways.
    pub of_stage: Vec<Vec<usize>>,
    /// Per row, its stages in order.
    pub of_row: Vec<Vec<usize>>,
    /// Whether some forwards and backwards run as one.
    pub overlaps: bool,
    /// Per stage and micro-batch, the row that takes it.
    rows: Vec<usize>,
    /// Micro-batches of the plan.
    pub micro_batches: usize,
}

/// A row, and its place among the homes of a stage.
#[derive(Clone, Copy)]
pub(super) struct Home {
    pub row: usize,
    pub copy: usize,
}

impl Homes {
    /// The homes of the stages of `plan`, which has `stages` stages.
    pub fn new(plan: &Plan, stages: usize) -> Self {
        let micro_batches = plan.micro_batches();
        let mut of_stage: Vec<Vec<usize>> = vec![Vec::new(); stages];
        let mut rows = vec![0; stages * micro_batches];
        for (row, cells) in plan.rows.iter().enumerate() {
            cells.iter().flat_map(|cell| cell.slots()).for_each(|slot| {
                let homes = &mut of_stage[slot.stage as usize];
                if !homes.contains(&row) {
                    homes.push(row);
                }
                rows[slot.stage as usize * micro_batches + slot.micro_batch as usize] = row;
            });
        }
        let mut of_row = vec![Vec::new(); plan.rows.len()];
        for (stage, homes) in of_stage.iter().enumerate() {
            homes.iter().for_each(|&row| of_row[row].push(stage));
        }
        Self { of_stage, of_row, overlaps: plan.overlaps(), rows, micro_batches }
    }

    /// The home of `stage` that takes `micro_batch`.
    pub fn of(&self, stage: usize, micro_batch: usize) -> Home {
        let row = self.rows[stage * self.micro_batches + micro_batch];
        let copy = self.of_stage[stage].iter().position(|&home| home == row).unwrap_or(0);
        Home { row, copy }
    }

    /// The rows that hold the same stages as `row`, it among them.
    pub fn alike(&self, row: usize) -> Vec<usize> {
        self.of_row[row].first().map_or_else(Vec::new, |&stage| self.of_stage[stage].clone())
    }
}
