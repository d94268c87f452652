//! Wires as pictures: a ring, a tree, the line of a pipeline, or a list.

use super::parts::{percent, ratio};
use crate::base::{Bytes, OpId, Rank, Ticks};
use crate::observe::flow::{Carried, Flow};
use crate::observe::kind::{label, message};
use crate::observe::state::{At, State};
use crate::observe::traffic::collective_of;
use crate::program::{OpKind, Program};
use crate::tui::data::RunData;
use crate::tui::glyphs::Tier;
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// The wires between the ranks that are shown.
pub struct Wires {
    /// By sender and receiver.
    pub all: Vec<Wire>,
}

/// One wire.
pub struct Wire {
    /// Who sends.
    pub from: Rank,
    /// Who receives.
    pub to: Rank,
    /// What it has carried.
    pub carried: Carried,
    /// What it carries in the whole run, and for how long.
    pub total: (Bytes, Ticks),
    /// What moves on it now; in brackets what is posted and waits.
    pub now: String,
    /// Whether these are the messages of collectives.
    pub collective: bool,
    /// Whether something moves.
    pub moves: bool,
    /// Whether it is busy much longer than the other wires: it paces them.
    pub slow: bool,
    share: f64,
}

/// With more wires than this, posted sends are not looked for.
const MOST_POSTED: usize = 128;

/// Columns of a node: `( r0 ) `.
const NODE: u16 = 7;

/// Whether `op` is an end of a message that has posted and whose other end has not.
#[must_use]
pub fn is_posted_message(at: &At, op: OpId) -> bool {
    at.run.program.kind(op).channel().is_some() && at.state(op) == State::Posted && at.wait(op).is_some()
}

/// Whether a ring of `n` has room for its nodes.
#[must_use]
pub fn ring_fits(n: usize, pen: &Pen<'_>) -> bool {
    let across = u16::try_from(n.div_ceil(2).max(2)).unwrap_or(u16::MAX / 16);
    n > 1 && n <= 16 && pen.height() >= 5 && across.saturating_mul(NODE + 3) <= pen.width()
}

impl Wires {
    /// The wires among `ranks`; of a collective, those over which its kind of messages go.
    #[must_use]
    pub fn new(data: &RunData, at: &At, ranks: &[Rank], collective: bool) -> Self {
        let mut shown = vec![false; data.ranks()];
        ranks.iter().for_each(|rank| shown[rank.index()] = true);
        let among = |flow: &&Flow| flow.collective == collective && shown[flow.from.index()] && shown[flow.to.index()];
        let flows: Vec<&Flow> = data.prepared.flows.iter().filter(among).collect();
        let all_look = flows.len() <= MOST_POSTED;
        let mut all: Vec<Wire> = flows.into_iter().map(|flow| Wire::new(at, flow, all_look)).collect();
        let mut busy: Vec<u64> = all.iter().map(|wire| wire.total.1.0).collect();
        busy.sort_unstable();
        let median = busy.get(busy.len() / 2).copied().unwrap_or(0);
        let most = busy.last().copied().unwrap_or(0);
        for wire in &mut all {
            wire.slow = wire.total.1.0 == most && most > median + median / 2;
        }
        Self { all }
    }

    /// The links over which they go, each once.
    #[must_use]
    pub fn sources<'a>(&self, data: &'a RunData) -> Vec<&'a str> {
        let ends = self.all.iter().map(|wire| wire.ends(data.program()));
        let links = ends.filter_map(|[from, to]| data.prepared.asked.link(from, to));
        let mut sources: Vec<&str> = Vec::new();
        for (_, link) in links {
            if !sources.contains(&link.source.as_str()) {
                sources.push(&link.source);
            }
        }
        sources
    }

    fn find(&self, from: Rank, to: Rank) -> Option<&Wire> {
        self.all.iter().find(|wire| wire.from == from && wire.to == to)
    }

    /// Nodes round a rectangle, clockwise from the top left.
    pub fn draw_ring(&self, at: &At, ranks: &[Rank], pen: &mut Pen<'_>) {
        let n = ranks.len();
        let above = if n == 2 { 2 } else { n.div_ceil(2) };
        let cell = (pen.width().saturating_sub(NODE + 2) / u16::try_from(above - 1).unwrap_or(1).max(1)).min(30);
        let x = |place: usize| 1 + cell * u16::try_from(place).unwrap_or(0);
        let (top, bottom) = (u16::from(pen.height() > 8), pen.height().saturating_sub(1 + u16::from(pen.height() > 8)));
        for place in 0..above {
            node(at, ranks[place], (x(place), top), pen);
            if place + 1 < above {
                let wire = self.find(ranks[place], ranks[place + 1]);
                horizontal(wire, (x(place) + NODE, top), cell - NODE, true, pen);
            }
        }
        let wire_to = |place: usize| self.find(ranks[place], ranks[(place + 1) % n]);
        let (left_x, right_x) = (x(0) + 2, x(above - 1) + 2);
        vertical(wire_to(above - 1), right_x, (top + 1, bottom), (true, n > above), pen);
        for (place, &rank) in ranks.iter().enumerate().skip(above) {
            let column = 2 * above - 1 - place;
            node(at, rank, (x(column), bottom), pen);
            let is_last = place + 1 == n;
            let end = if is_last { left_x + 1 } else { x(column - 1) + NODE };
            if column > 0 {
                horizontal(wire_to(place), (end, bottom), x(column).saturating_sub(end), false, pen);
            }
        }
        let whole = n == 2 * above;
        if n == above {
            horizontal(wire_to(n - 1), (left_x + 1, bottom), right_x.saturating_sub(left_x), false, pen);
        }
        vertical(wire_to(n - 1), left_x, (top + 1, bottom), (false, whole), pen);
        // Where no node stands in a corner, the wire goes round it.
        let corners = [(!whole, left_x, 3), (n == above, right_x, 2)];
        for (_, x, corner) in corners.into_iter().filter(|corner| corner.0) {
            let style = pen.theme.style(role(wire_to(n - 1)));
            pen.put(x, bottom, pen.tier.frame(false).corners[corner], style);
            if corner == 3 {
                pen.put(x + 1, bottom, glyphs(pen.tier, wire_to(n - 1).is_some_and(|wire| wire.moves)).0, style);
            }
        }
    }

    /// A line for each member below its parent, indented by its depth: the wire up and the wire down.
    pub fn draw_tree(&self, at: &At, ranks: &[Rank], parents: &[Option<usize>], pen: &mut Pen<'_>) {
        let mut y = 0;
        let mut open: Vec<(usize, u16)> =
            (0..ranks.len()).filter(|&member| parents[member].is_none()).map(|root| (root, 0)).collect();
        while let Some((member, depth)) = open.pop() {
            if y + 1 == pen.height() && !open.is_empty() {
                let left = ranks.len() - usize::from(y);
                pen.say(1, y, &format!("{} {left} more", pen.tier.dots()), Role::Quiet);
                return;
            }
            let x = 1 + depth.min(12) * 6;
            node(at, ranks[member], (x, y), pen);
            if let Some(parent) = parents[member] {
                let up = self.find(ranks[member], ranks[parent]);
                let down = self.find(ranks[parent], ranks[member]);
                let x = pen.say(x + NODE, y, &tree_text(at, up, "up"), role(up));
                pen.say(x + 2, y, &tree_text(at, down, "down"), role(down));
            }
            open.extend((0..ranks.len()).rev().filter(|&child| parents[child] == Some(member)).map(|child| (child, depth + 1)));
            y += 1;
        }
    }

    /// Stages from left to right, as many in a row as fit: above the wire forward, below the wire back.
    pub fn draw_line(&self, at: &At, pen: &mut Pen<'_>) {
        let mut ranks: Vec<Rank> = self.all.iter().flat_map(|wire| [wire.from, wire.to]).collect();
        ranks.sort_unstable();
        ranks.dedup();
        // Stages of one replica stand behind each other: follow the wires to higher ranks.
        let mut y = u16::from(pen.height() > 6);
        let mut placed: Vec<Rank> = Vec::new();
        for &first in &ranks {
            if placed.contains(&first) {
                continue;
            }
            let mut line = vec![first];
            while let Some(wire) = self.all.iter().find(|wire| wire.from == line[line.len() - 1] && wire.to > wire.from) {
                line.push(wire.to);
            }
            placed.extend(&line);
            y = self.stages(at, &line, y, pen);
        }
    }

    fn stages(&self, at: &At, line: &[Rank], y: u16, pen: &mut Pen<'_>) -> u16 {
        let room = usize::from((pen.width().saturating_sub(NODE + 1) / (NODE + 12)).max(1));
        let cell = (pen.width().saturating_sub(NODE + 2) / u16::try_from(room.min(line.len() - 1).max(1)).unwrap_or(1)).min(36);
        let mut y = y;
        for part in (0..line.len().saturating_sub(1)).step_by(room) {
            let shown = &line[part..line.len().min(part + room + 1)];
            for (place, &rank) in (0_u16..).zip(shown) {
                node(at, rank, (1 + place * cell, y), pen);
                if let Some(&next) = shown.get(usize::from(place) + 1) {
                    let x = 1 + place * cell + NODE;
                    horizontal(self.find(rank, next), (x, y), cell.saturating_sub(NODE), true, pen);
                    horizontal(self.find(next, rank), (x, y + 1), cell.saturating_sub(NODE), false, pen);
                }
            }
            y += 3;
        }
        y
    }

    /// One wire a line.
    pub fn draw_list(&self, at: &At, pen: &mut Pen<'_>) {
        let moving = self.all.iter().filter(|wire| wire.moves).count();
        let time = at.run.trace.clock.show(at.time());
        pen.say(1, 0, &format!("{} wires, {moving} of them busy at {time}", self.all.len()), Role::Text);
        let busy = self.all.iter().filter(|wire| wire.moves);
        for (y, wire) in (1..pen.height()).zip(busy) {
            let [from, to] = wire.ends(at.run.program);
            pen.say(1, y, &format!("{from} -> {to}  {}", wire.now), Role::Text);
        }
    }
}

impl Wire {
    fn new(at: &At, flow: &Flow, look: bool) -> Self {
        let carried = flow.at(at);
        let names: Vec<String> = carried.moving.iter().map(|&send| short_name(at, send)).collect();
        let posted = if look { posted(at, flow) } else { None };
        let moves = !names.is_empty();
        let now = match posted {
            Some(op) if !moves => format!("({})", short_name(at, op)),
            _ => names.join(" "),
        };
        let share = ratio(carried.busy.0, at.time().0);
        let (total, collective) = (flow.total(), flow.collective);
        Self { from: flow.from, to: flow.to, carried, total, now, collective, moves, slow: false, share }
    }

    /// Who sends and who receives, by their numbers among all ranks.
    #[must_use]
    pub fn ends(&self, program: &Program) -> [Rank; 2] {
        [self.from, self.to].map(|rank| program.whole(rank))
    }

    /// The label on a wire of `room` columns.
    fn label(&self, room: u16) -> String {
        let alert = if self.slow { "!" } else { "" };
        let share = if self.total.1 > Ticks::ZERO { percent(self.share) } else { String::new() };
        let long = format!("{} {share}{alert}", self.now).trim().to_owned();
        let fits = |text: &String| width_of(text) + 3 <= room;
        [long, format!("{}{alert}", self.now), alert.to_owned()].into_iter().find(fits).unwrap_or_default()
    }
}

/// The send of a flow that has posted and whose peer is not there.
fn posted(at: &At, flow: &Flow) -> Option<OpId> {
    let program = at.run.program;
    let goes_there = |op: OpId| match program.kind(op) {
        OpKind::Send(channel) => program.channels[channel.index()].to == flow.to,
        _ => false,
    };
    let is_of_flow = |op: OpId| collective_of(at.run, op).is_some() == flow.collective;
    at.heads(flow.from).into_iter().find(|&op| goes_there(op) && is_of_flow(op) && is_posted_message(at, op))
}

/// `c3` for chunks and pieces, `x2.1` for what stages exchange.
fn short_name(at: &At, send: OpId) -> String {
    match collective_of(at.run, send) {
        Some(_) => label(at.run, send),
        None => message(at.run, send).map_or_else(String::new, |name| name.to_string()),
    }
}

/// `( r0 )`; a long name takes the blanks.
fn node(at: &At, rank: Rank, (x, y): (u16, u16), pen: &mut Pen<'_>) {
    let name = at.run.program.whole(rank).to_string();
    let name = if name.len() > 2 { format!("({name:^4})") } else { format!("( {name} )") };
    pen.say(x, y, &name, Role::Strong);
}

fn role(wire: Option<&Wire>) -> Role {
    if wire.is_some_and(|wire| wire.moves) { Role::Strong } else { Role::Quiet }
}

fn tree_text(at: &At, wire: Option<&Wire>, way: &str) -> String {
    let Some(wire) = wire else { return String::new() };
    let (line, what) = if wire.moves { ("==", wire.label(40)) } else { ("--", wire.label(40)) };
    let [from, to] = wire.ends(at.run.program);
    format!("{way} {from} {line}{what}{line}> {to}")
}

/// Line, arrow head to the right and to the left.
fn glyphs(tier: Tier, moves: bool) -> (char, char, char) {
    match (tier, moves) {
        (Tier::Ascii, false) => ('-', '>', '<'),
        (Tier::Ascii, true) => ('=', '>', '<'),
        (Tier::Blocks, false) => ('─', '►', '◄'),
        (Tier::Blocks, true) => ('═', '►', '◄'),
    }
}

/// A wire along a line, with its label in the middle; double while something moves.
fn horizontal(wire: Option<&Wire>, (x, y): (u16, u16), width: u16, right: bool, pen: &mut Pen<'_>) {
    let Some(wire) = wire.filter(|_| width >= 2) else { return };
    let style = pen.theme.style(role(Some(wire)));
    let (line, right_head, left_head) = glyphs(pen.tier, wire.moves);
    let width = width - 1;
    for column in 0..width {
        pen.put(x + column, y, line, style);
    }
    if right {
        pen.put(x + width - 1, y, right_head, style);
    } else {
        pen.put(x, y, left_head, style);
    }
    let text = wire.label(width);
    pen.say(x + width.saturating_sub(width_of(&text)) / 2, y, &text, role(Some(wire)));
}

/// A wire along a column, from line `from` to before line `to`, with its label beside it.
fn vertical(wire: Option<&Wire>, x: u16, (from, to): (u16, u16), (down, labelled): (bool, bool), pen: &mut Pen<'_>) {
    let Some(wire) = wire.filter(|_| from < to) else { return };
    let style = pen.theme.style(role(Some(wire)));
    let line = match (pen.tier, wire.moves) {
        (Tier::Ascii, _) => '|',
        (Tier::Blocks, false) => '│',
        (Tier::Blocks, true) => '║',
    };
    for y in from..to {
        pen.put(x, y, line, style);
    }
    if down && labelled {
        pen.put(x, to - 1, pen.tier.playhead(), style);
    } else if !down {
        pen.put(x, from, pen.tier.playfoot(), style);
    }
    if labelled {
        let text = wire.label(24);
        let start = if down { x.saturating_sub(width_of(&text) + 1) } else { x + 2 };
        pen.say(start, u16::midpoint(from, to), &text, role(Some(wire)));
    }
}
