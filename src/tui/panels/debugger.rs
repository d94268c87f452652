//! The debugger: the ranks' programs with the op at which each stands, and why the focus rank waits.

use ratatui::layout::Rect;

use super::parts::{Cut, Line, choice, first_row, left, mark, more_ranks, op_text, ops, pane, paragraph, right, table};
use super::values;
use crate::base::{OpId, Rank};
use crate::observe::state::{At, Doing, State};
use crate::program::head::head;
use crate::program::{OpKind, Wait};
use crate::tui::data::{PanelView, RunData};
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// The least width of a program's column.
const COLUMN: u16 = 30;

/// Draws it at the position of `view`.
pub fn draw(data: &RunData, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    if data.lanes.ranks.is_empty() {
        return;
    }
    let run = data.run();
    let at = data.progress.at(&run, view.position.event);
    let mut rest = Cut::of(pen);
    let lower = if rest.0.height < 14 { 0 } else { (rest.0.height * 2).div_ceil(5) };
    let below = Cut(rest.bottom(lower));
    programs(&at, view, rest, pen);
    if lower > 0 {
        facts(data, &at, view, below, pen);
    }
}

fn programs(at: &At, view: &PanelView<'_>, area: Cut, pen: &mut Pen<'_>) {
    let room = (area.0.width / COLUMN).max(1);
    let ranks = shown(at, view.focus, usize::from(room));
    let count = u16::try_from(ranks.len()).unwrap_or(room);
    for (area, rank) in area.columns(count).into_iter().zip(ranks) {
        let focus = rank == view.focus;
        let title = format!("{}{}  {}", at.run.program.whole(rank), stage(at, rank), if focus { "focus" } else { "" });
        pane(pen, area, title.trim_end(), focus, |inside| program(at, view, rank, inside));
    }
}

/// ` stage 2` for a rank that computes slots of one stage.
fn stage(at: &At, rank: Rank) -> String {
    let order = &at.run.program.order[rank.index()];
    let slot = order.iter().find_map(|&op| at.run.program.op(op).origin.slot);
    slot.map_or_else(String::new, |slot| format!(" stage {}", slot.stage))
}

/// The focus rank, those that it waits for, those that wait for it, then its neighbours: as many as there is room for, by number.
#[must_use]
pub fn shown(at: &At, focus: Rank, room: usize) -> Vec<Rank> {
    let program = at.run.program;
    let mut ranks = vec![focus];
    let mut add = |rank: Rank| {
        if ranks.len() < room && !ranks.contains(&rank) {
            ranks.push(rank);
        }
    };
    if let Some(stand) = at.stand(focus) {
        let chain = at.chain(stand.op);
        chain.steps.iter().filter_map(|step| step.wait.on()).for_each(|on| add(program.rank_of(on)));
    }
    let all = program.ranks();
    for rank in (0..all).map(Rank::new) {
        let waits_for = |stand: crate::observe::state::Stand| at.edge(stand.op).map(|edge| edge.on_rank);
        if at.stand(rank).and_then(waits_for) == Some(focus) {
            add(rank);
        }
    }
    for distance in 1..all {
        let near = [focus.index().checked_sub(distance), Some(focus.index() + distance).filter(|&rank| rank < all)];
        near.into_iter().flatten().for_each(|rank| add(Rank::new(rank)));
        if distance > room {
            break;
        }
    }
    ranks.sort_unstable();
    ranks
}

/// The ops of one rank around the one at which it stands.
pub fn program(at: &At, view: &PanelView<'_>, rank: Rank, pen: &mut Pen<'_>) {
    let order = &at.run.program.order[rank.index()];
    let (heads, stand) = (at.heads(rank), at.stand(rank));
    let counter = stand.map_or(order.len(), |stand| at.place(stand.op));
    let rows = usize::from(pen.height());
    let scrolled = if rank == view.focus { view.scroll } else { 0 };
    let mut first = (counter + scrolled).saturating_sub(rows / 2).min(order.len().saturating_sub(rows));
    if let Some(cursor) = cursor(at, view, rank).filter(|_| scrolled == 0).map(|op| at.place(op)) {
        // The op under the cursor is seen, too: what `t` runs to and `b` stops at.
        first = first.clamp((cursor + 1).saturating_sub(rows.max(1)), cursor);
    }
    for (y, (place, &op)) in (0..pen.height()).zip(order.iter().enumerate().skip(first)) {
        let is_head = heads.contains(&op);
        line(at, view, (place, op), is_head.then_some(stand.is_some_and(|stand| stand.op == op)), y, pen);
        if cursor(at, view, rank) == Some(op) {
            pen.restyle(2, y, pen.width().saturating_sub(2), pen.theme.style(Role::Selected));
        }
    }
}

/// The op of `rank` under the timeline's cursor.
fn cursor(at: &At, view: &PanelView<'_>, rank: Rank) -> Option<OpId> {
    view.op.filter(|&op| rank == view.focus && at.run.program.rank_of(op) == rank)
}

/// One op: breakpoint, counter, number, head, and what it does now. `stands`: of a stream's head, whether the rank stands at it.
fn line(at: &At, view: &PanelView<'_>, (place, op): (usize, OpId), stands: Option<bool>, y: u16, pen: &mut Pen<'_>) {
    let stops = at.run.trace.event_of(op).is_some_and(|event| view.breaks.contains(event));
    if stops {
        pen.say(0, y, "*", Role::Mark);
    }
    let role = match (stands, at.state(op)) {
        (Some(true), _) => Role::Strong,
        (_, State::Done) | (Some(false), State::Waiting) => Role::Quiet,
        _ => Role::Text,
    };
    if stands.is_some() {
        pen.say(1, y, ">", role);
    }
    let x = pen.say(2, y, &format!("{place:>3}"), Role::Quiet) + 1;
    let is_left_out = matches!(at.run.program.kind(op), OpKind::Skipped(_));
    let doing = if is_left_out { LEFT_OUT } else { stands.map_or("", |stands| word(at, op, stands)) };
    // A state is never cut, and rather shortened than an op.
    let whole = pen.width().saturating_sub(x);
    let long = width_of(&op_text(at.run.program, op, whole, pen.tier)) + width_of(doing) >= whole;
    let doing = if long { short(doing) } else { doing };
    let word_width = if doing.is_empty() { 0 } else { width_of(doing) + 1 };
    let x = pen.say(x, y, &op_text(at.run.program, op, whole.saturating_sub(word_width), pen.tier), role);
    let role = if is_left_out || doing.starts_with(short(BLOCKED)) { Role::Mark } else { role };
    pen.say(x + 1, y, doing, role);
}

/// A state in few letters.
fn short(word: &'static str) -> &'static str {
    match word {
        BLOCKED => "BLOCK",
        "waits" => "wait",
        other => other,
    }
}

/// The word for a rank or an op that waits for another rank.
pub const BLOCKED: &str = "BLOCKED";

/// The words for an op that a trouble rule took out of the program.
const LEFT_OUT: &str = "left out";

/// What an op does now, in a word. A rank is blocked only at the op at which it stands: what another stream waits for holds nobody up yet.
fn word(at: &At, op: OpId, stands: bool) -> &'static str {
    match (at.state(op), at.wait(op)) {
        (State::Running, _) => "run",
        (State::Done, _) => "done",
        (_, Some(Wait::Stream(_) | Wait::Event(_))) => "waits",
        (_, Some(_)) if stands => BLOCKED,
        (_, Some(_)) => "waits",
        (_, None) => "next",
    }
}

fn facts(data: &RunData, at: &At, view: &PanelView<'_>, mut area: Cut, pen: &mut Pen<'_>) {
    let width = area.0.width;
    if width < 100 {
        let ranks = area.left(width / 2);
        pane(pen, ranks, "Ranks", false, |inside| rank_table(at, view, inside));
        pane(pen, area.0, "Where", false, |inside| {
            let y = place_lines(data, at, view, inside);
            values::draw(data, at, view, y + 1, inside);
        });
        return;
    }
    let ranks = area.left(width * 19 / 60);
    pane(pen, ranks, "Ranks", false, |inside| rank_table(at, view, inside));
    if width >= 180 {
        let flights = Rect { x: area.0.x + area.0.width - 40, width: 40, ..area.0 };
        area.0.width -= 40;
        pane(pen, flights, "Messages in flight", false, |inside| flight_table(at, inside));
    }
    let values = area.left(area.0.width / 2);
    pane(pen, values, &format!("{} values  v", data.program().whole(view.focus)), false, |inside| {
        values::draw(data, at, view, 0, inside);
    });
    pane(pen, area.0, "Where  w", false, |inside| {
        place_lines(data, at, view, inside);
    });
}

fn rank_table(at: &At, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let all = at.run.program.ranks();
    let sentences = if pen.height() > 7 { 3 } else { 2 };
    let fits = usize::from(pen.height().saturating_sub(sentences)).max(1);
    // In two lines a second rank says more than how many are left out.
    let is_told = all > fits && fits > 2;
    let room = fits - usize::from(is_told);
    let first = first_row(view.focus.index(), all, room);
    let lines: Vec<Line> = (first..all).take(room).map(|rank| rank_line(at, view, Rank::new(rank))).collect();
    let heads = [left("rank"), right("op"), left("state"), ops("on"), right("since")];
    let mut y = table(pen, 0, &heads, &lines);
    if is_told {
        more_ranks(pen, y, all - lines.len());
        y += 1;
    } else if all > room {
        pen.say_right(0, y.saturating_sub(1), 0, pen.tier.dots(), Role::Quiet);
    }
    let y = paragraph(pen, y, &blocked_sentence(at), Role::Text);
    if pen.height() > y {
        paragraph(pen, y, &flight_sentence(at), Role::Quiet);
    }
}

fn rank_line(at: &At, view: &PanelView<'_>, rank: Rank) -> Line {
    let chosen = rank == view.focus;
    let (name, role) = (format!("{}{}", mark(chosen), at.run.program.whole(rank)), choice(chosen, view.focused));
    let Some(stand) = at.stand(rank) else {
        return Line { role: if chosen { role } else { Role::Quiet }, cells: vec![name, String::new(), "done".to_owned()] };
    };
    let place = at.place(stand.op);
    let (state, since) = match stand.doing {
        Doing::Computing => ("runs", at.run.times(stand.op).map(|times| times.start)),
        Doing::Moving => ("moves", at.run.times(stand.op).map(|times| times.start)),
        Doing::Ready => ("next", None),
        Doing::Blocked(_) => (BLOCKED, Some(at.posted(stand.op))),
    };
    let since = since.map_or_else(String::new, |since| at.run.trace.clock.show(since));
    let on = head(at.run.program, stand.op).to_string();
    Line { role, cells: vec![name, place.to_string(), state.to_owned(), on, since] }
}

/// `3 of 4 ranks blocked, no cycle`.
#[must_use]
pub fn blocked_sentence(at: &At) -> String {
    let ranks = at.run.program.ranks();
    let is_blocked = |rank: &usize| matches!(at.stand(Rank::new(*rank)), Some(stand) if matches!(stand.doing, Doing::Blocked(_)));
    let blocked = (0..ranks).filter(is_blocked).count();
    if blocked == 0 {
        return "no rank is blocked".to_owned();
    }
    let cycles = at.wait_graph().cycles;
    let circle = match cycles.first() {
        None => "no cycle".to_owned(),
        Some(cycle) => format!(
            "cycle {}",
            cycle.iter().map(|(rank, _)| at.run.program.whole(*rank).to_string()).collect::<Vec<_>>().join(" ")
        ),
    };
    format!("{blocked} of {ranks} ranks blocked, {circle}")
}

fn flight_sentence(at: &At) -> String {
    let flights = at.in_flight();
    if flights.is_empty() {
        return "in flight: none".to_owned();
    }
    let most = 6;
    let mut shown: Vec<String> = flights.iter().take(most).map(|flight| message_text(at, flight.send)).collect();
    if flights.len() > most {
        shown.push(format!("and {} more", flights.len() - most));
    }
    format!("in flight: {}", shown.join(", "))
}

/// `x2.1 r0->r1`.
#[must_use]
pub fn message_text(at: &At, send: OpId) -> String {
    let program = at.run.program;
    let name = crate::observe::kind::message(at.run, send).map_or_else(String::new, |name| name.to_string());
    let channel = program.kind(send).channel().map(|channel| program.channels[channel.index()]);
    channel.map_or(name.clone(), |channel| format!("{name} {}->{}", program.whole(channel.from), program.whole(channel.to)))
}

fn flight_table(at: &At, pen: &mut Pen<'_>) {
    let clock = at.run.trace.clock;
    let line = |flight: &crate::observe::state::Flight| {
        let times = at.run.times(flight.send).unwrap_or_default();
        let there = if times.end > at.time() { clock.show(times.end) } else { "waits".to_owned() };
        Line {
            role: Role::Text,
            cells: vec![message_text(at, flight.send), at.run.message_bytes(flight.send).to_string(), there],
        }
    };
    let lines: Vec<Line> = at.in_flight().iter().take(usize::from(pen.height())).map(line).collect();
    if lines.is_empty() {
        pen.say(1, 0, "none", Role::Quiet);
        return;
    }
    table(pen, 0, &[left("message"), right("bytes"), right("there at")], &lines);
}

/// Where the focus rank stands: op, slot, step, phase, and the chain to the cause. Returns the line below.
fn place_lines(data: &RunData, at: &At, view: &PanelView<'_>, pen: &mut Pen<'_>) -> u16 {
    let Some(stand) = at.stand(view.focus) else {
        pen.say(1, 0, &format!("{} has nothing left to do", data.program().whole(view.focus)), Role::Text);
        return 1;
    };
    let wide = pen.height() > 9;
    let fact = |pen: &mut Pen<'_>, y: u16, name: &str, value: &str, role: Role| {
        pen.say(1, y, name, Role::Quiet);
        pen.say(10, y, value, role);
        y + 1
    };
    let room = pen.width().saturating_sub(11);
    let mut y = fact(pen, 0, "#0 op", &op_text(at.run.program, stand.op, room, pen.tier), Role::Strong);
    let needs = at.heads(view.focus).into_iter().find(|&op| at.run.computes(op)).filter(|&op| op != stand.op);
    if let Some(op) = needs.filter(|_| wide) {
        y = fact(pen, y, "   for", &op_text(at.run.program, op, room, pen.tier), Role::Text);
    }
    let op = needs.unwrap_or(stand.op);
    if wide {
        y = fact(pen, y, "#1 slot", &slot_text(at, op), Role::Text);
        y = fact(pen, y, "#2 phase", phase(data, at, op), Role::Text);
        y = fact(pen, y, "#3 step", &at.run.program.op(op).origin.step.to_string(), Role::Text);
    } else {
        // Its name alone: what it means stands on larger screens.
        let phase = phase(data, at, op).split(':').next().unwrap_or_default();
        y = fact(pen, y, "#1 in", &format!("{phase}, step {}", at.run.program.op(op).origin.step), Role::Text);
    }
    if stand.doing == Doing::Ready {
        return paragraph(pen, y, "nothing is missing: it starts now, with one of the next events", Role::Text);
    }
    for sentence in at.chain(stand.op).sentences(at.run).to_string().lines() {
        y = paragraph(pen, y, sentence, Role::Text);
    }
    y
}

fn slot_text(at: &At, op: OpId) -> String {
    let origin = at.run.program.op(op).origin;
    match origin.slot {
        Some(slot) => format!("{slot}: micro-batch {}", slot.micro_batch),
        None => format!("none: {} made it", origin.pass.name()),
    }
}

fn phase(data: &RunData, at: &At, op: OpId) -> &'static str {
    let view = at.run.program.op(op);
    let turns = &data.prepared.phases[view.rank.index()];
    let turn = turns.get(view.origin.step as usize).copied().unwrap_or_default();
    let place = at.place(op);
    match (view.origin.slot, turn.first_backward, turn.last_forward) {
        (None, ..) => "no slot",
        (_, Some(first), _) if place < first => "warm-up: no backward yet",
        (_, _, Some(last)) if place > last => "drain: no forward left",
        _ => "steady: forwards and backwards",
    }
}
