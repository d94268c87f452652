//! Links: the collective or the pipeline that moves data now, whose contributions each chunk holds, and what every wire has carried.

use std::borrow::Cow;

use super::debugger::message_text;
use super::parts::{
    Cut, Head, Line, choice, first_row, left, mark, more_below, op_text, pane, paragraph, percent, ratio, right, share_of, table,
};
use super::whole::Sent;
use super::wires::{self, Wires};
use super::{attention, experts, whole};
use crate::base::units::{Clock, short_number};
use crate::base::{Bytes, OpId, Rank, Ticks};
use crate::observe::blocks::Blocks;
use crate::observe::formula::{Quantity, find};
use crate::observe::kind::number;
use crate::observe::routes::Routes;
use crate::observe::spread::{Chunks, MOST_RANKS, Shape};
use crate::observe::state::At;
use crate::observe::traffic::CollectiveStats;
use crate::tui::data::{PanelView, RunData};
use crate::tui::glyphs::Tier;
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// The rank in focus, and the op under the timeline's cursor.
pub type Chosen = (Rank, Option<OpId>);

/// What is shown.
#[expect(clippy::large_enum_variant, reason = "there is one for a frame")]
enum Subject<'a> {
    Attention(&'a Blocks),
    Experts(Cow<'a, Routes>),
    Collective(&'a Chunks),
    Pipeline,
    Nothing,
}

/// Draws it at the position of `view`.
pub fn draw(data: &RunData, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    if data.lanes.ranks.is_empty() {
        return;
    }
    let run = data.run();
    let at = data.progress.at(&run, view.position.event);
    let subject = subject(data, &at, (view.focus, view.op));
    let whole = whole::of_rank(&at, view.focus);
    if matches!(subject, Subject::Nothing) && whole.is_some() {
        return whole::draw(&at, view, pen);
    }
    let wires = wires_of(&subject, data, &at);
    let mut rest = Cut::of(pen);
    let (width, height) = (rest.0.width, rest.0.height);
    let wide = width >= 100;
    let mut above = Cut(rest.top(if height < 12 { height } else { height / 2 }));
    let picture = if wide { above.left(width * 61 / 100) } else { above.left(width) };
    let title = title(&subject, &at, picture.width.saturating_sub(6));
    pane(pen, picture, &title, view.focused, |inside| draw_subject(&subject, &wires, &at, inside));
    if wide {
        side(&subject, &at, view, above.0, pen);
        let links = rest.left(width * 61 / 100);
        lower(&subject, data, &at, (view, &wires), (pen, links));
        pane(pen, rest.0, "Numbers", false, |inside| {
            numbers(data, &at, &subject, (&wires, whole.map(|whole| (view.focus, whole))), inside);
        });
    } else if rest.0.height > 0 {
        let matrix = rest.left(width * 45 / 100);
        side(&subject, &at, view, matrix, pen);
        lower(&subject, data, &at, (view, &wires), (pen, rest.0));
    }
}

/// Below the picture: the wires; of a mixture of experts, its collectives.
fn lower(
    subject: &Subject<'_>,
    data: &RunData,
    at: &At,
    (view, wires): (&PanelView<'_>, &Wires),
    (pen, area): (&mut Pen<'_>, ratatui::layout::Rect),
) {
    if let Subject::Experts(routes) = subject {
        pane(pen, area, "Collectives  what the ranks send", false, |inside| experts::collectives(routes, data, at, inside));
    } else {
        pane(pen, area, "Links", false, |inside| link_table(data, at, view, wires, inside));
    }
}

/// The wires that the table lists, one a row.
#[must_use]
pub fn wires(data: &RunData, at: &At, chosen: Chosen) -> Wires {
    wires_of(&subject(data, at, chosen), data, at)
}

/// How many rows there are to choose from: wires, or the queries of a layer of attention.
#[must_use]
pub fn rows(data: &RunData, at: &At, chosen: Chosen) -> usize {
    let is_layer = data.prepared.blocks.is_some();
    let queries = data.program().setting.attention.filter(|_| is_layer).map_or(0, |attention| attention.tokens());
    let tokens = if let Subject::Experts(routes) = subject(data, at, chosen) { experts::rows(&routes) } else { 0 };
    wires(data, at, chosen).all.len().max(queries).max(tokens)
}

fn wires_of(subject: &Subject<'_>, data: &RunData, at: &At) -> Wires {
    let ranks: Vec<Rank> = match subject {
        Subject::Collective(chunks) => chunks.ranks.clone(),
        _ => (0..data.lanes.ranks.len()).map(Rank::new).collect(),
    };
    Wires::new(data, at, &ranks, matches!(subject, Subject::Collective(_)))
}

/// The collective of the focus rank that moves data now; between collectives the layer of experts or the pipeline, if there is one. An op
/// under the cursor that works at a layer of experts shows that.
fn subject<'a>(data: &'a RunData, at: &At, (focus, op): Chosen) -> Subject<'a> {
    if let Some(blocks) = &data.prepared.blocks {
        return Subject::Attention(blocks);
    }
    if let Some(routes) = &data.prepared.routes {
        return Subject::Experts(Cow::Borrowed(routes));
    }
    let (step, program) = (data.prepared.experts.as_ref(), at.run.program);
    if let Some(routes) = op.zip(step).and_then(|(op, step)| step.routes_of(program, op)) {
        return Subject::Experts(Cow::Owned(routes));
    }
    let layer = step.and_then(|step| step.routes_at(program, (focus, at.event)));
    let all = &data.prepared.chunks;
    let begun = all.partition_point(|chunks| chunks.first <= at.event.max(1));
    let of_focus = |chunks: &&Chunks| chunks.ranks.contains(&focus);
    let last = all[..begun].iter().rev().find(of_focus).or_else(|| all.iter().find(of_focus));
    let pipeline = data.prepared.flows.iter().any(|flow| !flow.collective);
    match last {
        Some(chunks) if (!pipeline && layer.is_none()) || (chunks.first..=chunks.last).contains(&at.event) => {
            Subject::Collective(chunks)
        }
        _ if layer.is_some() => layer.map_or(Subject::Nothing, |routes| Subject::Experts(Cow::Owned(routes))),
        _ if pipeline => Subject::Pipeline,
        Some(chunks) => Subject::Collective(chunks),
        None => Subject::Nothing,
    }
}

/// The title, with the phase of a collective; in short words if `room` is small.
fn title(subject: &Subject<'_>, at: &At, room: u16) -> String {
    match subject {
        Subject::Nothing => "Links".to_owned(),
        Subject::Attention(blocks) => attention::title(blocks, at),
        Subject::Experts(routes) => experts::title(routes, room),
        Subject::Pipeline => "Pipeline  messages between stages".to_owned(),
        Subject::Collective(chunks) => {
            let collective = &at.run.program.collectives[chunks.collective.index()];
            let phase = chunks.phase(at);
            let (shape, first, second) = match &chunks.shape {
                Shape::Ring(_) => ("Ring", "reduce-scatter", "all-gather"),
                Shape::Tree(parents) if is_star(parents) => ("Star", "reduce", "broadcast"),
                Shape::Tree(_) => ("Tree", "reduce", "broadcast"),
                Shape::Other => ("Messages", "reduce", "broadcast"),
            };
            let name = format!("{shape}  {} {}", collective.kind.name(), collective.label);
            let ([done, of], [then, of_then]) = ([phase.reduce.0, phase.reduce.1], [phase.gather.0, phase.gather.1]);
            let step = if matches!(chunks.shape, Shape::Ring(_)) { "step" } else { "message" };
            let long = format!("{name}: {first} {step} {done} of {of}, {second} {then} of {of_then}");
            let short = format!("{shape}  {first} {done}/{of}, {second} {then}/{of_then}");
            if width_of(&long) <= room { long } else { short }
        }
    }
}

/// A tree in which everybody hangs at the root. Of two or three members every tree is one.
fn is_star(parents: &[Option<usize>]) -> bool {
    let root = parents.iter().position(Option::is_none);
    parents.len() > 3 && parents.iter().flatten().all(|parent| Some(*parent) == root)
}

fn draw_subject(subject: &Subject<'_>, wires: &Wires, at: &At, pen: &mut Pen<'_>) {
    match subject {
        Subject::Nothing => _ = pen.say(1, 0, "This run moves no data between ranks.", Role::Text),
        Subject::Attention(blocks) => attention::grid(blocks, at, pen),
        Subject::Experts(routes) => experts::grid(routes, at, pen),
        Subject::Pipeline => wires.draw_line(at, pen),
        Subject::Collective(chunks) => match &chunks.shape {
            Shape::Ring(order) if wires::ring_fits(order.len(), pen) => {
                let ranks: Vec<Rank> = order.iter().map(|&place| chunks.ranks[place]).collect();
                wires.draw_ring(at, &ranks, pen);
            }
            Shape::Tree(parents) => wires.draw_tree(at, &chunks.ranks, parents, pen),
            _ => wires.draw_list(at, pen),
        },
    }
}

/// Beside the picture: the running softmax of a layer of attention, the chunks of a collective, or the messages of a pipeline.
fn side(subject: &Subject<'_>, at: &At, view: &PanelView<'_>, area: ratatui::layout::Rect, pen: &mut Pen<'_>) {
    match subject {
        Subject::Attention(_) => {
            let title = if area.width < 37 { "Softmax  on every rank" } else { "Softmax  running on every rank" };
            pane(pen, area, title, false, |inside| attention::side(at, view, inside));
        }
        Subject::Experts(routes) => {
            pane(pen, area, "Tokens  of the rank in focus", false, |inside| experts::tokens(routes, at, view, inside));
        }
        Subject::Collective(chunks) => {
            let title = match area.width {
                42.. => "Chunks  how many ranks are summed in",
                30.. => "Chunks  ranks summed in",
                _ => "Chunks",
            };
            pane(pen, area, title, false, |inside| matrix(chunks, at, inside));
        }
        _ => pane(pen, area, "Messages", false, |inside| messages(at, inside)),
    }
}

fn messages(at: &At, pen: &mut Pen<'_>) {
    pen.say(1, 0, "in flight", Role::Quiet);
    let mut y = 1;
    let flights = at.in_flight();
    for flight in &flights {
        pen.say(2, y, &message_text(at, flight.send), Role::Text);
        y += 1;
        if y >= pen.height() {
            return more_below(pen);
        }
    }
    if flights.is_empty() {
        pen.say(2, y, "none", Role::Text);
        y += 1;
    }
    pen.say(1, y, "posted, their peers are not there", Role::Quiet);
    let heads = (0..at.run.program.ranks()).flat_map(|rank| at.heads(Rank::new(rank)));
    let sends = heads.filter(|&op| wires::is_posted_message(at, op));
    for op in sends.take(usize::from(pen.height())) {
        y += 1;
        let text = op_text(at.run.program, op, pen.width().saturating_sub(3), pen.tier);
        pen.say(2, y, &text, Role::Text);
    }
}

/// Rows are members, columns chunks; below, what the numbers mean.
fn matrix(chunks: &Chunks, at: &At, pen: &mut Pen<'_>) {
    let n = chunks.ranks.len();
    if n > MOST_RANKS {
        paragraph(pen, 0, &format!("contributions are followed for up to {MOST_RANKS} ranks"), Role::Quiet);
        return;
    }
    let room = usize::from(pen.width().saturating_sub(6) / 4);
    let columns = chunks.chunks.min(room);
    for chunk in 0..columns {
        pen.say(column(chunk), 0, &format!("{:>3}", format!("c{chunk}")), Role::Quiet);
    }
    let rows = n.min(usize::from(pen.height().saturating_sub(3)).max(1));
    for (place, rank) in chunks.ranks.iter().enumerate().take(rows) {
        let y = 1 + u16::try_from(place).unwrap_or(0);
        pen.say(1, y, &at.run.program.whole(*rank).to_string(), Role::Text);
        let arriving = chunks.moving(place, at).and_then(|op| number(at.run, op));
        for chunk in 0..columns {
            let Some(held) = chunks.held(place, chunk, at.event) else { continue };
            let arrives = arriving.is_some_and(|number| number as usize == chunk);
            let (mark, role) = match () {
                () if held.twice => ("!", Role::Alert),
                () if arrives => ("<", Role::Text),
                () => (" ", if held.count() == n { Role::Strong } else { Role::Text }),
            };
            pen.say(column(chunk), y, &format!("{:>3}{mark}", held.count()), role);
        }
    }
    let y = 2 + u16::try_from(rows).unwrap_or(0);
    let partial = if n > 2 { format!("  2..{} partial", n - 1) } else { String::new() };
    let y = paragraph(pen, y, &format!("1 own{partial}  {n} complete  < arriving"), Role::Quiet);
    if columns < chunks.chunks || rows < n {
        paragraph(pen, y, &format!("{rows} of {n} ranks, {columns} of {} chunks shown", chunks.chunks), Role::Quiet);
    }
}

fn column(chunk: usize) -> u16 {
    6 + 4 * u16::try_from(chunk).unwrap_or(0)
}

const LINKS: [Head; 8] =
    [left("link"), left("now"), left("busy so far"), right("bytes"), right("of"), right("alpha"), right("GB/s"), left("note")];

/// Below this width the table of links says how busy they are in numbers alone.
const NARROW: u16 = 48;

fn link_table(data: &RunData, at: &At, view: &PanelView<'_>, wires: &Wires, pen: &mut Pen<'_>) {
    let room = usize::from(pen.height().saturating_sub(2)).max(1);
    let chosen = view.chosen.min(wires.all.len().saturating_sub(1));
    let first = first_row(chosen, wires.all.len(), room);
    let elapsed = at.time();
    let lines = wires.all.iter().enumerate().skip(first).take(room).map(|(place, wire)| {
        let role = choice(place == chosen, view.focused);
        let share = ratio(wire.carried.busy.0, elapsed.0);
        let [from, to] = wire.ends(at.run.program);
        let link = data.prepared.asked.link(from, to).map(|(_, link)| link);
        let cells = vec![
            format!("{}{from}->{to}", mark(place == chosen)),
            wire.now.clone(),
            if pen.width() < NARROW { percent(share) } else { format!("{} {:>4}", bar(pen, share), percent(share)) },
            wire.carried.bytes.to_string(),
            wire.total.0.to_string(),
            link.map_or_else(|| "free".to_owned(), |link| at.run.trace.clock.show(link.alpha)),
            link.map_or_else(String::new, |link| short_number(link.bytes_per_second / 1e9)),
            if wire.slow { "slowest".to_owned() } else { String::new() },
        ];
        Line { role: if wire.slow && role == Role::Text { Role::Strong } else { role }, cells }
    });
    let lines: Vec<Line> = lines.collect();
    let y = table(pen, 0, &LINKS, &lines);
    let more = wires.all.len().saturating_sub(first + lines.len());
    if more > 0 {
        pen.say(1, y, &format!("... {more} more"), Role::Quiet);
    }
}

/// Ten cells: `####......`.
fn bar(pen: &Pen<'_>, share: f64) -> String {
    let filled = usize::from(share_of(share, 10));
    let (full, empty) = if pen.tier == Tier::Ascii { ("#", ".") } else { ("█", "·") };
    format!("{}{}", full.repeat(filled), empty.repeat(10 - filled))
}

/// What the collective takes, by run and by formula; of a pipeline, what its wires carry in all.
fn numbers(data: &RunData, at: &At, subject: &Subject<'_>, (wires, whole): (&Wires, Option<(Rank, Sent)>), pen: &mut Pen<'_>) {
    let mut y = 0;
    let mut say = |text: &str, role: Role| y = paragraph(pen, y, text, role);
    let so_far: Bytes = wires.all.iter().map(|wire| wire.carried.bytes).sum();
    let all: Bytes = wires.all.iter().map(|wire| wire.total.0).sum();
    let messages: usize = wires.all.iter().map(|wire| wire.carried.messages).sum();
    if let Subject::Experts(routes) = subject {
        experts::numbers(routes, data).into_iter().for_each(|line| say(&line, Role::Text));
        return;
    }
    say(&format!("{messages} messages so far, {so_far} of {all}"), Role::Text);
    if let Some((rank, sent)) = whole {
        let (so_far, all, rank) = (sent.so_far, sent.all, at.run.program.whole(rank));
        say(&format!("and in a step's collectives that are one op each {rank} sent {so_far} of {all}"), Role::Text);
    }
    if let Subject::Collective(chunks) = subject {
        for line in collective_numbers(data, at, chunks) {
            say(&line, Role::Text);
        }
    }
    if wires.all.iter().any(|wire| wire.slow) {
        say("A step of a ring ends when its slowest link does.", Role::Text);
    }
    for source in wires.sources(data) {
        say(&format!("link: {source}"), Role::Quiet);
    }
}

fn collective_numbers(data: &RunData, at: &At, chunks: &Chunks) -> Vec<String> {
    let clock = at.run.trace.clock;
    let n = chunks.ranks.len();
    let collective = &at.run.program.collectives[chunks.collective.index()];
    let (bytes, rounds) = (collective.bytes, collective.kind.rounds());
    // An all-reduce goes around twice, an all-gather and a reduce-scatter once.
    let times = if rounds == 1 { String::new() } else { rounds.to_string() };
    let mut lines = vec![format!("payload S = {bytes} on each of n = {n} ranks")];
    if let Shape::Ring(_) = chunks.shape {
        let (chunk, steps) = (Bytes(bytes.0.div_ceil(n as u64)), rounds * (n as u64 - 1));
        let formula = if rounds == 1 { "n-1".to_owned() } else { format!("{times}(n-1)") };
        lines.push(format!("{formula} = {steps} steps of S/n = {chunk}"));
    }
    let of = |stats: &&CollectiveStats| stats.collective == chunks.collective;
    let Some(stats) = data.metrics.collectives.iter().find(of) else { return lines };
    lines.push(format!(
        "run      {} to {}: {}",
        clock.show(stats.start),
        clock.show(stats.end),
        clock.show(stats.end - stats.start)
    ));
    if let Some(formula) =
        find(&data.prepared.asked.formulas, Quantity::Makespan).filter(|_| at.run.program.setting.model.is_none())
    {
        lines.push(format!("formula  {} = {}", formula.text, show_unit(clock, formula.value)));
    }
    if let (Some(algorithm), Some(bus)) = (stats.algorithm_bandwidth(clock), stats.bus_bandwidth(at.run)) {
        lines.push(format!("algorithm bandwidth S/t = {} GB/s", short_number(algorithm)));
        lines.push(format!("bus bandwidth {times}(n-1)/n S/t = {} GB/s", short_number(bus)));
    }
    lines
}

/// A value in the clock's unit with its unit.
#[must_use]
pub fn show_unit(clock: Clock, value: f64) -> String {
    match clock {
        Clock::Slots { .. } => format!("{}u", short_number(value)),
        Clock::Nanoseconds => clock.show(Ticks(whole(value))),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time, positive and far below 2^64 ns")]
fn whole(value: f64) -> u64 {
    value.round().max(0.0) as u64
}
