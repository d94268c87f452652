//! The cube as a picture: ranks in blocks of rows and columns, those that the chosen one meets marked with the axis along which they lie.

use super::Cube;
use crate::base::Rank;
use crate::base::mesh::Axis;

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Where it begins.
    pub x: usize,
    /// What it says.
    pub text: String,
    /// What it is.
    pub mark: Mark,
}

/// What a piece of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The name of a row, a column, a block.
    Label,
    /// The chosen rank.
    Chosen,
    /// A rank that differs from it along one axis alone.
    Along(Axis),
    /// Another rank.
    Other,
}

/// Blank columns between blocks.
const GAP: usize = 2;

/// How the blocks stand.
struct Plan {
    /// The axes, fastest first: columns, rows, then blocks.
    axes: Vec<Axis>,
    /// Width of a cell, and of what stands before the first one in a line.
    cell: usize,
    label: usize,
    /// Columns and rows of a block that have room, around the chosen rank.
    columns: std::ops::Range<usize>,
    rows: std::ops::Range<usize>,
}

impl Plan {
    /// Lines above the rows of a block: its name, where there are several, and its columns.
    fn head(&self) -> usize {
        1 + usize::from(self.axes.len() > 2)
    }
}

impl Cube {
    /// The lines of the picture, in `width` columns and `height` lines: as many columns, rows and blocks around `chosen` as have room.
    #[must_use]
    pub fn picture(&self, chosen: Rank, (width, height): (usize, usize)) -> Vec<Vec<Cell>> {
        let plan = self.plan(chosen, (width, height));
        let block = plan.label + plan.cell * plan.columns.len() + " node 00".len();
        let beside = ((width + GAP) / (block + GAP)).max(1);
        let tall = plan.head() + plan.rows.len() + 1;
        let below = ((height + 1) / tall).max(1);
        let blocks = self.blocks(&plan);
        let at = blocks.iter().position(|block| self.is_of(chosen, block)).unwrap_or(0);
        let shown = around(at, blocks.len(), (beside * below).max(1));
        let mut lines: Vec<Vec<Cell>> = Vec::new();
        for row in blocks[shown].chunks(beside) {
            let first = lines.len();
            lines.resize_with(first + tall, Vec::new);
            for (place, coordinates) in row.iter().enumerate() {
                self.draw(&plan, coordinates, chosen, (place * (block + GAP), &mut lines[first..]));
            }
        }
        while lines.last().is_some_and(Vec::is_empty) {
            lines.pop();
        }
        lines
    }

    fn plan(&self, chosen: Rank, (width, height): (usize, usize)) -> Plan {
        let axes = self.axes();
        let cell = format!("[r{}]", self.mesh.ranks() - 1).len();
        let label = "dp 000 ".len();
        let side = |place: usize, room: usize| {
            let Some(&along) = axes.get(place) else { return 0..1 };
            around(self.mesh.coordinate(chosen, along), self.mesh.size(along), room.max(1))
        };
        let columns = side(0, width.saturating_sub(label + " node 00".len()) / cell);
        let rows = side(1, height.saturating_sub(2));
        Plan { axes, cell, label, columns, rows }
    }

    /// The coordinates along the axes beyond the second, the fastest changing first.
    fn blocks(&self, plan: &Plan) -> Vec<Vec<(Axis, usize)>> {
        let mut blocks = vec![Vec::new()];
        for &axis in plan.axes.iter().skip(2) {
            let with = |place: usize| {
                blocks.iter().map(move |block: &Vec<(Axis, usize)>| block.iter().copied().chain([(axis, place)]).collect())
            };
            blocks = (0..self.mesh.size(axis)).flat_map(with).collect();
        }
        blocks
    }

    fn is_of(&self, rank: Rank, block: &[(Axis, usize)]) -> bool {
        block.iter().all(|&(axis, place)| self.mesh.coordinate(rank, axis) == place)
    }

    /// One block from column `x` on: its name, its columns' numbers, its rows.
    fn draw(&self, plan: &Plan, block: &[(Axis, usize)], chosen: Rank, (x, lines): (usize, &mut [Vec<Cell>])) {
        let label = |x: usize, text: String| Cell { x, text, mark: Mark::Label };
        let name: Vec<String> = block.iter().rev().map(|(axis, place)| format!("{} {place}", axis.short())).collect();
        let (head, Some(&across)) = (plan.head(), plan.axes.first()) else { return };
        if !name.is_empty() {
            lines[0].push(label(x, name.join(", ")));
        }
        let columns = &mut lines[head - 1];
        columns.push(label(x, across.short().to_owned()));
        let inner = x + plan.label;
        for (place, column) in plan.columns.clone().enumerate() {
            columns.push(label(inner + place * plan.cell, format!("{column:>width$}", width = plan.cell - 1)));
        }
        for (place, row) in plan.rows.clone().enumerate() {
            let line = &mut lines[head + place];
            let down = plan.axes.get(1);
            line.extend(down.map(|axis| label(x, format!("{} {row}", axis.short()))));
            let rank = |column: usize| {
                let of_row = down.map(|&axis| (axis, row)).into_iter().chain([(across, column)]);
                self.mesh.at(&block.iter().copied().chain(of_row).collect::<Vec<_>>())
            };
            let ranks: Vec<Rank> = plan.columns.clone().map(rank).collect();
            for (column, &rank) in ranks.iter().enumerate() {
                let mark = self.mark(rank, chosen);
                let text = match mark {
                    Mark::Chosen => format!("[{rank}]"),
                    Mark::Along(axis) => format!("{rank}{}", &axis.short()[..1]),
                    Mark::Label | Mark::Other => format!("{rank} "),
                };
                let text = format!("{text:>width$}", width = plan.cell);
                line.push(Cell { x: inner + column * plan.cell, text, mark });
            }
            let nodes = [ranks.first(), ranks.last()].map(|rank| rank.map_or(0, |&rank| self.node(rank)));
            let text = if nodes[0] == nodes[1] { format!(" node {}", nodes[0]) } else { String::new() };
            line.push(label(inner + ranks.len() * plan.cell, text));
        }
    }

    /// What `rank` is to the chosen one.
    fn mark(&self, rank: Rank, chosen: Rank) -> Mark {
        match self.apart(&[rank, chosen])[..] {
            [] => Mark::Chosen,
            [axis] => Mark::Along(axis),
            _ => Mark::Other,
        }
    }
}

/// So many of `all`, `at` among them.
fn around(at: usize, all: usize, room: usize) -> std::ops::Range<usize> {
    let room = room.min(all);
    let start = at.saturating_sub(room / 2).min(all - room);
    start..start + room
}
