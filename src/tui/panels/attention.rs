//! Attention over several ranks: the grid of blocks, lit as they are computed, and the running softmax of one query on every rank.

use super::parts::{more_below, paragraph};
use crate::base::units::short_number;
use crate::observe::blocks::{Block, Blocks, Stage, visitors};
use crate::observe::state::At;
use crate::tui::data::{PanelView, QueryState};
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// Columns of a block: its pairs and a mark.
const CELL: u16 = 6;
/// Columns before the first block: the rank.
const RANK: u16 = 5;

/// The title of the grid.
#[must_use]
pub fn title(blocks: &Blocks, at: &At) -> String {
    let attention = at.run.program.setting.attention;
    let placement = attention.map_or("", |attention| attention.placement.name());
    let mask = if attention.is_some_and(|attention| attention.causal) { "causal" } else { "full" };
    format!("Attention  {0} x {0} blocks, {mask}, {placement}", blocks.slices)
}

/// Rows are ranks with their queries, columns the slices of keys; numbers are pairs that the mask leaves.
pub fn grid(blocks: &Blocks, at: &At, pen: &mut Pen<'_>) {
    let n = blocks.slices;
    let room = |pen: &Pen<'_>| usize::from(pen.width().saturating_sub(RANK) / CELL);
    let columns = n.min(room(pen).saturating_sub(usize::from(n < room(pen))));
    for keys in 0..columns {
        pen.say(column(keys), 0, &format!("{:>5}", format!("kv{keys}")), Role::Quiet);
    }
    let has_work = columns == n && room(pen) > n;
    if has_work {
        pen.say(column(n), 0, &format!("{:>5}", "all"), Role::Quiet);
    }
    let height = usize::from(pen.height());
    let is_cut = columns < n || n >= height;
    let rows = n.min(height.saturating_sub(1 + usize::from(is_cut)).max(1));
    for queries in 0..rows {
        let y = 1 + u16::try_from(queries).unwrap_or(0);
        pen.say(1, y, &format!("r{queries}"), Role::Text);
        for keys in 0..columns {
            let block = blocks.get(queries, keys);
            let (text, role) = cell(block, block.stage(at));
            pen.say(column(keys), y, &text, role);
        }
        if has_work {
            pen.say(column(n), y, &format!("{:>5}", blocks.work(queries)), Role::Quiet);
        }
    }
    let mut y = 1 + u16::try_from(rows).unwrap_or(0);
    if is_cut {
        y = paragraph(pen, y, &format!("{rows} of {n} ranks, {columns} of {n} slices shown"), Role::Quiet);
    }
    // What marks mean goes before a rank does.
    let lines = 1 + LEGEND.len() / usize::from(pen.width().max(1));
    if height > usize::from(y) + lines {
        paragraph(pen, y + 1, LEGEND, Role::Quiet);
    }
}

const LEGEND: &str = "pairs of a query and a key; > forward now, f has its output, < backward now, b has its gradients, . masked";

fn column(keys: usize) -> u16 {
    RANK + CELL * u16::try_from(keys).unwrap_or(0)
}

/// The text of a block: never told by colour alone.
fn cell(block: Block, stage: Stage) -> (String, Role) {
    let pairs = if block.pairs < 10_000 { block.pairs.to_string() } else { format!("{}k", block.pairs / 1000) };
    let (mark, role) = match stage {
        Stage::Masked => return (format!("{:>5}", "."), Role::Quiet),
        Stage::Waiting => (' ', Role::Quiet),
        Stage::Forward => ('>', Role::Mark),
        Stage::HasOutput => ('f', Role::Text),
        Stage::Backward => ('<', Role::Mark),
        Stage::HasGradients => ('b', Role::Strong),
    };
    (format!("{pairs:>4}{mark}"), role)
}

/// m, l and O of one query on every rank, and whose keys the ranks have beside their own.
pub fn side(at: &At, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let Some(attention) = at.run.program.setting.attention else { return };
    let row = view.chosen % attention.tokens().max(1);
    let known = view.values.filter(|values| values.event == at.event).map_or(&[][..], |values| values.queries.as_slice());
    let (long, short) =
        (format!("row {row} of every rank, head 0: m, l, O so far"), format!("row {row}, head 0: m, l, O so far"));
    pen.say(1, 0, if long.len() < usize::from(pen.width()) { &long } else { &short }, Role::Quiet);
    let mut y = 1;
    for rank in 0..attention.slices {
        if y >= pen.height() {
            return more_below(pen);
        }
        let token = attention.positions(rank).get(row).copied().unwrap_or(0);
        let (word, place) = if pen.width() < 50 { ("t", 3) } else { ("token ", 4) };
        let x = pen.say(1, y, &format!("{:<4}{word}{token:<place$}", format!("r{rank}")), Role::Text);
        match known.iter().find(|query| query.rank.index() == rank && query.row == row) {
            Some(query) => pen.say(x + 1, y, &softmax(query, pen.width().saturating_sub(x + 1), pen.tier.dots()), Role::Strong),
            None => pen.say(x + 1, y, "no softmax", Role::Quiet),
        };
        y += 1;
        let here = visitors(at.run, at, rank);
        if !here.is_empty() && y < pen.height() {
            let names: Vec<String> = here.iter().map(|slice| format!("kv{slice}")).collect();
            pen.say(5, y, &format!("has {} beside its own", names.join(", ")), Role::Quiet);
            y += 1;
        }
    }
}

/// `m 0.42  l 3.1  O 0.12 -0.4`, with as many elements as fit, and dots for the others.
fn softmax(query: &QueryState, room: u16, dots: &str) -> String {
    let statistics = format!("m {}  l {}  O", number(query.most), number(query.total));
    let with = |shown: usize| {
        let elements = query.output[..shown].iter().map(|&element| number(element));
        let more = (shown < query.output.len()).then(|| dots.to_owned());
        std::iter::once(statistics.clone()).chain(elements).chain(more).collect::<Vec<_>>().join(" ")
    };
    (0..=query.output.len()).rev().map(with).find(|text| width_of(text) <= room).unwrap_or_else(|| with(0))
}

/// A number in few columns.
fn number(value: f64) -> String {
    match value {
        _ if value == f64::NEG_INFINITY => "-inf".to_owned(),
        _ if !value.is_finite() => value.to_string(),
        _ if value == 0.0 || (0.01..1e4).contains(&value.abs()) => short_number(value),
        _ => format!("{value:.1e}"),
    }
}
