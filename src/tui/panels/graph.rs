//! The wait-for graph as parts to be drawn: circles first, then chains, each as boxes and arrows or as one row.

use super::parts::message_head;
use crate::base::{OpId, Rank};
use crate::observe::state::{At, Doing};
use crate::program::trace::{WaitEdge, WaitGraph};
use crate::tui::glyphs::Tier;
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// The graph of the blocked ranks.
pub struct Graph {
    /// The wait of every blocked rank, by rank.
    pub blocked: Vec<WaitEdge>,
    /// Circles, then chains, the longest first.
    pub parts: Vec<Part>,
    /// Blocked ops whose other end is never issued.
    pub unmatched: Vec<OpId>,
}

/// A circle, or a chain that ends at a rank that is not blocked or stands in another part.
pub struct Part {
    /// Each waits for the next; the last of a circle for the first.
    pub edges: Vec<WaitEdge>,
    /// Whether it is a circle.
    pub cycle: bool,
    /// The rank at the end of a chain, and what it does.
    root: Option<(Rank, String)>,
}

/// A box's width: its frame and eleven columns.
const BOX: u16 = 13;

impl Graph {
    /// The graph at an event.
    #[must_use]
    pub fn new(at: &At) -> Self {
        let ranks = (0..at.run.program.ranks()).map(Rank::new);
        let stands = ranks.filter_map(|rank| at.stand(rank)).filter(|stand| matches!(stand.doing, Doing::Blocked(_)));
        let blocked: Vec<WaitEdge> = stands.filter_map(|stand| at.edge(stand.op)).collect();
        let WaitGraph { edges, cycles } = if blocked.is_empty() { WaitGraph::default() } else { at.wait_graph() };
        let edge_of = |op: OpId| edges.iter().find(|edge| edge.op == op).copied();
        let circle = |cycle: &Vec<(Rank, OpId)>| {
            let edges: Vec<WaitEdge> = cycle.iter().filter_map(|&(_, op)| edge_of(op)).collect();
            Part { edges, cycle: true, root: None }
        };
        let mut parts: Vec<Part> = cycles.iter().map(circle).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.edges.len()));
        chains(at, &blocked, &mut parts);
        let unmatched = edges.iter().filter(|edge| edge.on_op.is_none()).map(|edge| edge.op).collect();
        Self { blocked, parts, unmatched }
    }

    /// The circles.
    pub fn cycles(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.cycle)
    }

    /// What a blocked rank has to do with a circle.
    #[must_use]
    pub fn note(&self, rank: Rank) -> &'static str {
        let stands_in = |part: &&Part| part.edges.iter().any(|edge| edge.rank == rank);
        match self.parts.iter().find(stands_in) {
            Some(part) if part.cycle => "cycle",
            Some(part) if part.root.as_ref().is_some_and(|root| self.note_of_root(root.0)) => "behind",
            _ => "",
        }
    }

    fn note_of_root(&self, root: Rank) -> bool {
        self.cycles().any(|part| part.edges.iter().any(|edge| edge.rank == root))
    }
}

/// Every blocked rank that stands in no circle stands in one chain. Those that nobody waits for begin one.
fn chains(at: &At, blocked: &[WaitEdge], parts: &mut Vec<Part>) {
    let ranks = at.run.program.ranks();
    let mut placed = vec![false; ranks];
    parts.iter().flat_map(|part| &part.edges).for_each(|edge| placed[edge.rank.index()] = true);
    let mut edge_of: Vec<Option<WaitEdge>> = vec![None; ranks];
    let mut waited_for = vec![false; ranks];
    for edge in blocked {
        edge_of[edge.rank.index()] = Some(*edge);
        waited_for[edge.on_rank.index()] = true;
    }
    let mut found: Vec<Part> = Vec::new();
    let (first, rest): (Vec<&WaitEdge>, Vec<&WaitEdge>) = blocked.iter().partition(|edge| !waited_for[edge.rank.index()]);
    for start in first.into_iter().chain(rest) {
        let mut edges = Vec::new();
        let mut next = Some(*start);
        while let Some(edge) = next.filter(|edge| !placed[edge.rank.index()]) {
            placed[edge.rank.index()] = true;
            edges.push(edge);
            next = edge_of[edge.on_rank.index()];
        }
        if let Some(last) = edges.last() {
            let root = Some((last.on_rank, doing(at, last)));
            found.push(Part { edges, cycle: false, root });
        }
    }
    found.sort_by_key(|part| std::cmp::Reverse(part.edges.len()));
    parts.extend(found);
}

/// What the rank at a chain's end does.
fn doing(at: &At, edge: &WaitEdge) -> String {
    if edge.on_op.is_none() {
        return "never comes".to_owned();
    }
    let Some(stand) = at.stand(edge.on_rank) else { return "done".to_owned() };
    match stand.doing {
        Doing::Computing => format!("runs {}", crate::observe::kind::label(at.run, stand.op)),
        Doing::Moving => format!("moves {}", crate::observe::kind::label(at.run, stand.op)),
        Doing::Ready => "starts now".to_owned(),
        Doing::Blocked(_) => "blocked, too".to_owned(),
    }
}

impl Part {
    /// Whether all its boxes fit side by side.
    #[must_use]
    pub fn boxes_fit(&self, at: &At, width: u16) -> bool {
        let boxes = self.boxes();
        boxes * BOX + boxes.saturating_sub(1) * self.gap(at) + 2 <= width
    }

    fn boxes(&self) -> u16 {
        u16::try_from(self.edges.len() + usize::from(self.root.is_some())).unwrap_or(u16::MAX / 64).min(u16::MAX / 64)
    }

    /// The columns between two boxes: the longest label, with its arrow.
    fn gap(&self, at: &At) -> u16 {
        let label = |edge: &WaitEdge| width_of(&message_head(at.run.program, edge.op));
        self.edges.iter().map(label).max().unwrap_or(0) + 8
    }

    /// Boxes in a row, with arrows between them; a circle closes below. Returns the line below.
    pub fn draw_boxes(&self, at: &At, y: u16, pen: &mut Pen<'_>) -> u16 {
        let gap = self.gap(at);
        let place = |index: usize| 1 + u16::try_from(index).unwrap_or(0) * (BOX + gap);
        for (index, edge) in self.edges.iter().enumerate() {
            let lines = [name(at, edge.rank), format!("op {}", at.place(edge.op)), "BLOCKED".to_owned()];
            draw_box((place(index), y), &lines, self.cycle, pen);
        }
        if let Some((rank, doing)) = &self.root {
            draw_box((place(self.edges.len()), y), &[name(at, *rank), doing.clone(), String::new()], false, pen);
        }
        let closing = usize::from(self.cycle);
        for (index, edge) in self.edges.iter().enumerate().take(self.edges.len() - closing) {
            arrow((place(index) + BOX, y + 1), gap, &message_head(at.run.program, edge.op), self.cycle, true, pen);
        }
        let Some(last) = self.edges.last().filter(|_| self.cycle) else { return y + 5 };
        let label = message_head(at.run.program, last.op);
        if self.edges.len() == 2 {
            arrow((place(0) + BOX, y + 3), gap, &label, true, false, pen);
            return y + 5;
        }
        let (from, to) = (place(self.edges.len() - 1) + BOX / 2, place(0) + BOX / 2);
        let style = pen.theme.style(Role::Strong);
        pen.put(to, y + 5, if pen.tier == Tier::Ascii { '^' } else { '▲' }, style);
        pen.put(from, y + 5, line_glyphs(pen.tier, true).1, style);
        arrow((to, y + 6), from - to + 1, &label, true, false, pen);
        y + 7
    }

    /// One row: `r0 --recv dx2.0--> r1 --recv dx4.0--> r2: runs F3`. Returns the line below.
    ///
    /// What does not fit goes on in the next line.
    pub fn draw_row(&self, at: &At, y: u16, pen: &mut Pen<'_>) -> u16 {
        let line = if self.cycle { "==" } else { "--" };
        let (mut x, mut y) = (1, y);
        let mut place = |width: u16, x: u16, pen: &Pen<'_>| {
            let fits = x + width < pen.width();
            y += u16::from(!fits);
            (if fits { x } else { 3 }, y)
        };
        for edge in &self.edges {
            let (rank, what) = (name(at, edge.rank), message_head(at.run.program, edge.op));
            let (start, y) = place(width_of(&rank) + width_of(&what) + 9, x, pen);
            x = pen.say(start, y, &rank, if self.cycle { Role::Strong } else { Role::Text });
            x = pen.say(x, y, &format!(" {line}"), Role::Quiet);
            x = pen.say(x + 1, y, &what, Role::Text);
            x = pen.say(x + 1, y, &format!("{line}> "), Role::Quiet);
        }
        let end = match &self.root {
            Some((rank, doing)) => format!("{}: {doing}", name(at, *rank)),
            None => format!("{}: a circle", name(at, self.edges.first().map_or(Rank(0), |edge| edge.rank))),
        };
        let (x, y) = place(width_of(&end), x, pen);
        pen.say(x, y, &end, Role::Text);
        y + 1
    }
}

/// A followed rank by its number among all.
fn name(at: &At, rank: Rank) -> String {
    at.run.program.whole(rank).to_string()
}

/// Horizontal and upright line, single or double.
fn line_glyphs(tier: Tier, double: bool) -> (char, char) {
    match (tier, double) {
        (Tier::Ascii, false) => ('-', '|'),
        (Tier::Ascii, true) => ('=', '|'),
        (Tier::Blocks, false) => ('─', '│'),
        (Tier::Blocks, true) => ('═', '║'),
    }
}

fn draw_box((x, y): (u16, u16), lines: &[String; 3], strong: bool, pen: &mut Pen<'_>) {
    let mut part = pen.part(ratatui::layout::Rect::new(x, y, BOX, 5));
    let mut inside = part.framed("", strong);
    for (y, line) in (0..).zip(lines) {
        let x = (BOX - 2).saturating_sub(width_of(line)) / 2;
        inside.say(x, y, line, if y == 0 { Role::Strong } else { Role::Text });
    }
}

/// `== send x4.1 ==>` over `width` columns, or the other way round.
fn arrow((x, y): (u16, u16), width: u16, label: &str, double: bool, right: bool, pen: &mut Pen<'_>) {
    let style = pen.theme.style(if double { Role::Strong } else { Role::Text });
    let horizontal = line_glyphs(pen.tier, double).0;
    for column in 0..width {
        pen.put(x + column, y, horizontal, style);
    }
    let (right_head, left_head) = if pen.tier == Tier::Ascii { ('>', '<') } else { ('►', '◄') };
    if right {
        pen.put(x + width.saturating_sub(1), y, right_head, style);
    } else {
        pen.put(x, y, left_head, style);
    }
    let start = x + width.saturating_sub(width_of(label) + 2) / 2;
    pen.say(start, y, &format!(" {label} "), Role::Text);
}
