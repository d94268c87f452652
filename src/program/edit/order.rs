//! Can the rows of a plan all run? Every slot stands behind the one before it and needs results of others; if that goes round in a circle,
//! no rank of the circle ever goes on.

use std::collections::BTreeMap;
use std::fmt;

use crate::program::plan::{Cell, Pass, Plan, Slot};

/// Cells that wait for each other: each for the next one, the last for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle(pub Vec<Link>);

/// A cell that waits, and why it waits for the next one of its circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It stands behind it in its row.
    Behind(Cell, usize),
    /// It needs its result.
    Needs(Cell),
}

/// A circle in `plan`, if there is one; `beside` are cells that stand nowhere yet, and need what they need all the same. Linear in the cells
/// but for a search for each slot.
#[must_use]
pub fn circle(plan: &Plan, beside: &[Cell]) -> Option<Circle> {
    let graph = Graph::new(plan, beside);
    let stuck = graph.stuck();
    let start = stuck.iter().position(|&stuck| stuck)?;
    // Whoever is stuck waits for someone who is: following that ends in the circle.
    let mut seen = vec![None; graph.nodes.len()];
    let (mut path, mut node): (Vec<(usize, Link)>, usize) = (Vec::new(), start);
    while seen[node].is_none() {
        seen[node] = Some(path.len());
        let &(next, link) = graph.waits[node].iter().find(|(on, _)| stuck[*on])?;
        path.push((node, link));
        node = next;
    }
    let links: Vec<Link> = path[seen[node]?..].iter().map(|(_, link)| *link).collect();
    Some(Circle(shortened(&links)))
}

/// Of cells that stand behind each other in a row, the first and the last say it all.
fn shortened(links: &[Link]) -> Vec<Link> {
    let is_behind = |link: &Link| matches!(link, Link::Behind(..));
    let first = links.iter().position(|link| !is_behind(link)).map_or(0, |place| place + 1);
    let turned: Vec<Link> = links[first % links.len()..].iter().chain(&links[..first % links.len()]).copied().collect();
    let mut kept: Vec<Link> = Vec::new();
    for link in turned {
        if !(is_behind(&link) && kept.last().is_some_and(is_behind)) {
            kept.push(link);
        }
    }
    kept
}

/// Who waits for whom among the cells.
struct Graph {
    nodes: Vec<Cell>,
    waits: Vec<Vec<(usize, Link)>>,
}

impl Graph {
    fn new(plan: &Plan, beside: &[Cell]) -> Self {
        let nodes: Vec<Cell> = plan.rows.iter().flatten().chain(beside).copied().collect();
        let mut waits = vec![Vec::new(); nodes.len()];
        let mut place = 0;
        for (row, cells) in plan.rows.iter().enumerate() {
            for (column, &cell) in cells.iter().enumerate() {
                if column > 0 {
                    waits[place].push((place - 1, Link::Behind(cell, row)));
                }
                place += 1;
            }
        }
        let of_slot: BTreeMap<Slot, usize> =
            nodes.iter().enumerate().flat_map(|(node, cell)| cell.slots().map(move |slot| (slot, node))).collect();
        let last = of_slot.keys().map(|slot| slot.stage).max().unwrap_or(0);
        for (node, cell) in nodes.iter().enumerate() {
            let needs = cell.slots().flat_map(|slot| needs(slot, last));
            let on = needs.filter_map(|slot| of_slot.get(&slot)).filter(|&&on| on != node);
            waits[node].extend(on.map(|&on| (on, Link::Needs(*cell))));
        }
        Self { nodes, waits }
    }

    /// Which cells can never run.
    fn stuck(&self) -> Vec<bool> {
        let mut behind = vec![Vec::new(); self.nodes.len()];
        let mut open: Vec<usize> = self.waits.iter().map(Vec::len).collect();
        for (node, waits) in self.waits.iter().enumerate() {
            waits.iter().for_each(|(on, _)| behind[*on].push(node));
        }
        let mut ready: Vec<usize> = (0..self.nodes.len()).filter(|&node| open[node] == 0).collect();
        let mut stuck = vec![true; self.nodes.len()];
        while let Some(node) = ready.pop() {
            stuck[node] = false;
            for &next in &behind[node] {
                open[next] -= 1;
                if open[next] == 0 {
                    ready.push(next);
                }
            }
        }
        stuck
    }
}

/// The slots whose results `slot` needs; a gradient comes from a backward for the input, or from a whole one.
fn needs(slot: Slot, last: u32) -> impl Iterator<Item = Slot> {
    let of = move |stage: Option<u32>, pass| stage.map(|stage| Slot { stage, pass, ..slot });
    let (here, below) = (Some(slot.stage), slot.stage.checked_sub(1));
    let above = Some(slot.stage + 1).filter(|&stage| stage <= last);
    let needs = match slot.pass {
        Pass::F => [of(below, Pass::F), None, None],
        Pass::B | Pass::I => [of(here, Pass::F), of(above, Pass::B), of(above, Pass::I)],
        Pass::W => [of(here, Pass::I), None, None],
    };
    needs.into_iter().flatten()
}

impl Link {
    fn cell(self) -> Cell {
        match self {
            Self::Behind(cell, _) | Self::Needs(cell) => cell,
        }
    }
}

impl fmt::Display for Circle {
    /// `0F1 stands behind 0B0 on r0, which needs 1B0, which stands behind 1F1 on r1, which needs 0F1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = &self.0;
        for (place, link) in links.iter().enumerate() {
            let next = links[(place + 1) % links.len()].cell();
            if place == 0 {
                write!(f, "{}", link.cell())?;
            } else {
                f.write_str(", which")?;
            }
            match link {
                Link::Behind(_, row) => write!(f, " stands behind {next} on r{row}")?,
                Link::Needs(_) => write!(f, " needs {next}")?,
            }
        }
        Ok(())
    }
}
