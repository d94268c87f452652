//! Homes: which ranks of the pipeline hold a stage, and which of them takes a micro-batch. Read off the plan.

use std::collections::BTreeSet;

use crate::base::Rank;
use crate::base::mesh::Axis;
use crate::program::plan::{Cell, Plan};
use crate::scenario::Training;

/// Where the stages of a plan stand.
pub(super) struct Homes {
    /// Per stage, the rows that compute it, in order: one, or two where the pipeline runs both ways.
    pub of_stage: Vec<Vec<usize>>,
    /// Whether some forwards and backwards run as one.
    pub overlaps: bool,
    /// Per stage and micro-batch, the row that takes it.
    rows: Vec<usize>,
    micro_batches: usize,
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
            for slot in cells.iter().flat_map(|cell| cell.slots()) {
                let homes = &mut of_stage[slot.stage as usize];
                if homes.last() != Some(&row) {
                    homes.push(row);
                }
                rows[slot.stage as usize * micro_batches + slot.micro_batch as usize] = row;
            }
        }
        let overlaps = plan.rows.iter().flatten().any(|cell| matches!(cell, Cell::Overlap(..)));
        Self { of_stage, overlaps, rows, micro_batches }
    }

    /// The home of `stage` that takes `micro_batch`.
    pub fn of(&self, stage: usize, micro_batch: usize) -> Home {
        let row = self.rows[stage * self.micro_batches + micro_batch];
        let copy = self.of_stage[stage].iter().position(|&home| home == row).unwrap_or(0);
        Home { row, copy }
    }

    /// The ranks that hold the same parameters and must average their gradients: replicas, and both homes of a stage.
    pub fn alike(&self, training: &Training) -> Vec<Vec<Rank>> {
        let rows: BTreeSet<&Vec<usize>> = self.of_stage.iter().collect();
        let mesh = &training.mesh;
        let group = |rows: &Vec<usize>| {
            let replicas = rows.iter().map(|&row| mesh.group(mesh.with(Rank(0), Axis::Pipeline, row), Axis::Data));
            replicas.flatten().collect()
        };
        rows.into_iter().map(group).collect()
    }
}
