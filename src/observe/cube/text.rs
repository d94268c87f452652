//! The cube as text: its picture, where a rank stands, and a line for each of its groups.

use std::fmt::Write;

use super::{Cube, Party};
use crate::base::Rank;
use crate::base::words::counted;
use crate::observe::run::Run;

/// Columns and lines of the picture.
const ROOM: (usize, usize) = (110, 36);
/// Members of a group that are named.
const MOST_NAMED: usize = 8;

impl Cube {
    /// All of it, with `rank` chosen; one of the mesh.
    #[must_use]
    pub fn text(&self, run: &Run, rank: Rank) -> String {
        let mut text = format!("{}\n\n", self.shape(usize::MAX));
        for line in self.picture(rank, ROOM) {
            let mut shown = String::new();
            for cell in line {
                let _ = write!(shown, "{:<width$}", "", width = cell.x.saturating_sub(shown.chars().count()));
                shown.push_str(&cell.text);
            }
            let _ = writeln!(text, "{}", shown.trim_end());
        }
        let _ = writeln!(text, "\n{}", self.place(rank));
        let rows = self.parties(run, rank).into_iter().map(|party| party.cells(MOST_NAMED));
        let rows: Vec<[String; 6]> = std::iter::once(Party::HEADS.map(str::to_owned)).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..6).map(width).collect();
        for row in &rows {
            let [name, ranks, over, sent, work, members] = row;
            let line = format!(
                "{name:<w0$}  {ranks:>w1$}  {over:<w2$}  {sent:>w3$}  {work:<w4$}  {members}",
                w0 = widths[0],
                w1 = widths[1],
                w2 = widths[2],
                w3 = widths[3],
                w4 = widths[4]
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// The mesh in words, as many as fit `room`: `64 ranks on 8 nodes of 8: tp 8 x dp 2 x pp 4, the first the fastest`.
    #[must_use]
    pub fn shape(&self, room: usize) -> String {
        let axes: Vec<String> =
            self.axes().into_iter().map(|axis| format!("{} {}", axis.short(), self.mesh.size(axis))).collect();
        let all = counted(self.mesh.ranks() as u64, "rank");
        let nodes = match self.nodes() {
            1 => "in one node".to_owned(),
            nodes => format!("on {nodes} nodes of {}", self.ranks_per_node),
        };
        let fastest = if axes.len() > 1 { ", the first the fastest" } else { "" };
        let experts = if self.experts > 1 { format!(", ep {} among replicas", self.experts) } else { String::new() };
        let words =
            [&format!("{fastest}{experts}"), &experts, ""].map(|more| format!("{all} {nodes}: {}{more}", axes.join(" x ")));
        let fits = |words: &&String| words.len() <= room;
        words.iter().find(fits).unwrap_or(&words[2]).clone()
    }

    /// Where `rank` stands: `r9 in node 1: tp 1, dp 1, pp 0`.
    #[must_use]
    pub fn place(&self, rank: Rank) -> String {
        let place = |axis| format!("{} {}", crate::base::mesh::Axis::short(axis), self.mesh.coordinate(rank, axis));
        let places: Vec<String> = self.axes().into_iter().map(place).collect();
        format!("{rank} in node {}: {}", self.node(rank), places.join(", "))
    }
}

impl Party {
    /// What stands above its cells.
    pub const HEADS: [&'static str; 6] = ["group", "ranks", "over", "sends a step", "in", "members"];

    /// Its row in a table, the first `most` members by name.
    #[must_use]
    pub fn cells(&self, most: usize) -> [String; 6] {
        let ranks = self.ranks.len().to_string();
        [self.name(), ranks, self.wires.text(), self.sent.to_string(), self.work(), self.members(most)]
    }

    fn members(&self, most: usize) -> String {
        let mut names: Vec<String> = self.ranks.iter().take(most).map(ToString::to_string).collect();
        if let Some(last) = self.ranks.get(most..).and_then(<[Rank]>::last) {
            names.extend(["...".to_owned(), last.to_string()]);
        }
        names.join(" ")
    }
}
