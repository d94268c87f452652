//! A mixture of experts: how many tokens of which rank go to which expert, who has most to do, and where the tokens of one rank go.

use super::facts::percent;
use super::parts::{Head, Line, cells, choice, first_row, left, mark, more_below, paragraph, ratio, right, table, wrapped};
use crate::base::words::counted;
use crate::base::{Bytes, CollectiveId, OpId};
use crate::observe::blocks::Stage;
use crate::observe::routes::{Choice, Routes, Way};
use crate::observe::state::At;
use crate::observe::state::State;
use crate::program::exchange::Exchange;
use crate::program::plan::Pass;
use crate::program::{PassName, Program};
use crate::tui::data::{PanelView, RunData};
use crate::tui::glyphs::Tier;
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// Columns of a number of tokens and its mark.
const CELL: u16 = 6;
/// Columns before the first number.
const NAME: u16 = 9;
/// Columns of a bar.
const BAR: u16 = 20;

/// The title of the grid, in short words if `room` is small.
#[must_use]
pub fn title(routes: &Routes, room: u16) -> String {
    let layer = &routes.layer;
    let capacity = layer.capacity().map_or_else(String::new, |capacity| format!(", room for {capacity}"));
    let of_layer = routes.site.as_ref().map_or_else(String::new, |(layer, _)| format!(" of layer {layer}"));
    let short = format!("Experts{of_layer}  {} on {}", layer.count, counted(layer.ranks as u64, "rank"));
    let long = format!("{short}, {} for each token{capacity}", layer.top_k);
    if width_of(&long) <= room { long } else { short }
}

/// A column: experts that stand together.
struct Column {
    name: String,
    home: usize,
    experts: std::ops::Range<usize>,
}

/// Rows are ranks with their tokens, columns experts with their ranks; below, what the ranks have to do. Where there is little room, the
/// rank with most to do is the last one to go.
pub fn grid(routes: &Routes, at: &At, pen: &mut Pen<'_>) {
    let layer = &routes.layer;
    let room = usize::from(pen.width().saturating_sub(NAME) / CELL);
    let all = columns(routes, room);
    let shown = &all[..all.len().min(room)];
    heads(routes, shown, pen);
    let totals = 1 + usize::from(routes.all_dropped() > 0);
    let lines = usize::from(pen.height()).saturating_sub(2 + totals);
    let rows = layer.ranks.min(lines.saturating_sub(1)).max(1);
    for from in 0..rows {
        let y = 2 + u16::try_from(from).unwrap_or(0);
        pen.say(1, y, &name(routes, from), Role::Text);
        for (place, column) in shown.iter().enumerate() {
            let sent: usize = column.experts.clone().map(|expert| routes.sent(from, expert)).sum();
            let (text, role) = cell(sent, routes.way(at, column.home));
            pen.say(x(place), y, &text, role);
        }
    }
    let y = sums(routes, shown, 2 + u16::try_from(rows).unwrap_or(0), pen);
    // The legend comes first, then the bars: a letter that nobody explains says nothing.
    let legend = if lines > rows + 1 { wrapped(LEGEND, pen.width().saturating_sub(2), 2).len() } else { 0 };
    let left = lines.saturating_sub(rows);
    let bars = layer.ranks.min(left.saturating_sub(legend).max(1));
    let y = burdens(routes, (y, bars), pen);
    if left >= bars + legend && legend > 0 {
        paragraph(pen, y, LEGEND, Role::Quiet);
    }
    if rows < layer.ranks || shown.len() < all.len() || bars < layer.ranks {
        more_below(pen);
    }
}

const LEGEND: &str = "tokens: > on their way, . there, = forward, f results, < backward, b gradients";

/// The experts over their columns, and over them the ranks that have them.
fn heads(routes: &Routes, shown: &[Column], pen: &mut Pen<'_>) {
    for (place, column) in shown.iter().enumerate() {
        let is_first = place == 0 || shown[place - 1].home != column.home;
        if is_first && column.experts.len() == 1 {
            pen.say(x(place), 0, &format!("{:>5}", routes.ranks[column.home].to_string()), Role::Quiet);
        }
        pen.say(x(place), 1, &format!("{:>5}", column.name), role_of(routes, column));
    }
}

/// The rank with most to do is in view.
fn role_of(routes: &Routes, column: &Column) -> Role {
    if Some(column.home) == routes.slowest() { Role::Alert } else { Role::Quiet }
}

/// What every expert takes, and what it leaves out. Returns the line below.
fn sums(routes: &Routes, shown: &[Column], mut y: u16, pen: &mut Pen<'_>) -> u16 {
    let names: &[&str] = if routes.all_dropped() == 0 { &["all"] } else { &["all", "dropped"] };
    for &name in names {
        pen.say(1, y, name, Role::Quiet);
        for (place, column) in shown.iter().enumerate() {
            let of = |expert: usize| if name == "all" { routes.load(expert) } else { routes.dropped(expert) };
            let sum: usize = column.experts.clone().map(of).sum();
            pen.say(x(place), y, &format!("{sum:>5}"), if name == "all" { role_of(routes, column) } else { Role::Text });
        }
        y += 1;
    }
    y
}

/// A column for each expert if there is room for them, otherwise for each rank.
fn columns(routes: &Routes, room: usize) -> Vec<Column> {
    let (layer, own) = (&routes.layer, routes.layer.experts_per_rank());
    if layer.count <= room {
        let column = |expert: usize| Column { name: format!("e{expert}"), home: layer.home(expert), experts: expert..expert + 1 };
        return (0..layer.count).map(column).collect();
    }
    (0..layer.ranks)
        .map(|home| Column { name: routes.ranks[home].to_string(), home, experts: home * own..(home + 1) * own })
        .collect()
}

/// A row's name: the rank, and of a training step its micro-batch, if it fits.
fn name(routes: &Routes, place: usize) -> String {
    let rank = routes.ranks[place];
    let of_step = routes.site.as_ref().and_then(|(_, micro_batches)| micro_batches.get(place));
    let long = of_step.map(|micro_batch| format!("{rank} mb{micro_batch}")).filter(|name| width_of(name) < NAME);
    long.unwrap_or_else(|| rank.to_string())
}

fn x(place: usize) -> u16 {
    NAME + CELL * u16::try_from(place).unwrap_or(0)
}

/// The text of a piece: never told by colour alone.
fn cell(tokens: usize, way: Way) -> (String, Role) {
    let number = if tokens < 10_000 { tokens.to_string() } else { format!("{}k", tokens / 1000) };
    let (mark, role) = match way {
        Way::Waiting => (' ', Role::Quiet),
        Way::Moving => ('>', Role::Mark),
        Way::There => ('.', Role::Text),
        Way::Computed(Stage::Forward) => ('=', Role::Mark),
        Way::Computed(Stage::HasOutput) => ('f', Role::Text),
        Way::Computed(Stage::Backward) => ('<', Role::Mark),
        Way::Computed(_) => ('b', Role::Strong),
    };
    (format!("{number:>5}{mark}"), role)
}

/// What the experts of each rank have to do, beside an even share, in so many lines; the one with most is the slowest. Returns the line
/// below.
fn burdens(routes: &Routes, (first, room): (u16, usize), pen: &mut Pen<'_>) -> u16 {
    let (layer, slowest) = (&routes.layer, routes.slowest());
    let most = (0..layer.ranks).map(|rank| routes.rows(rank)).max().unwrap_or(0);
    let start = first_row(slowest.unwrap_or(0), layer.ranks, room);
    let filled = if pen.tier == Tier::Ascii { "#" } else { "\u{2588}" };
    let mut y = first;
    for rank in (start..layer.ranks).take(room) {
        let (rows, is_slowest) = (routes.rows(rank), Some(rank) == slowest);
        let role = if is_slowest { Role::Alert } else { Role::Text };
        let bar = filled.repeat(usize::from(cells(rows as u64, most as u64, BAR)));
        let note = if is_slowest { "  slowest" } else { "" };
        pen.say(
            1,
            y,
            &format!("{:<6}{rows:>6} {bar:<20} {:.2}x an even share{note}", routes.ranks[rank].to_string(), routes.burden(rank)),
            role,
        );
        y += 1;
    }
    y
}

/// Where the tokens of the focus rank go: their experts, and what their results are weighted by. A rank that does not share out these experts
/// has the first one's in its place.
pub fn tokens(routes: &Routes, at: &At, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let (own, k) = (routes.layer.tokens_per_rank(), routes.layer.top_k);
    let place = routes.ranks.binary_search(&view.focus).unwrap_or(0);
    let Some(choices) = routes.choices(at.run.program, place) else {
        _ = paragraph(pen, 0, &format!("{own} tokens, {k} experts each: too many to list."), Role::Text);
        return;
    };
    let rank = routes.ranks[place];
    let gates = view.values.filter(|values| values.event == at.event && values.rank == rank);
    let gates = gates.map_or(&[][..], |values| values.gates.as_slice());
    let room = usize::from(pen.height().saturating_sub(1)).max(1);
    let chosen = view.chosen.min(own.saturating_sub(1));
    let first = first_row(chosen, own, room);
    pen.say(1, 0, &format!("{rank}: token, its experts{}", if gates.is_empty() { "" } else { ", weights" }), Role::Quiet);
    for (y, (token, choices)) in (1..).zip(choices.chunks(k).enumerate().skip(first).take(room)) {
        let word = |(choice, Choice { expert, kept }): (usize, &Choice)| {
            let weight = gates.get(token * k + choice).map_or_else(String::new, |weight| format!(" {weight:.2}"));
            format!("  e{expert}{weight}{}", if *kept { "" } else { " dropped" })
        };
        let text = format!("{}{token:<4}{}", mark(token == chosen), choices.iter().enumerate().map(word).collect::<String>());
        let is_lost = choices.iter().any(|choice| !choice.kept);
        let role = choice(token == chosen, view.focused);
        pen.say(0, y, &text, if is_lost && role == Role::Text { Role::Alert } else { role });
    }
    if own > first + room {
        more_below(pen);
    }
}

/// How many rows there are to choose from: the tokens of a rank.
#[must_use]
pub fn rows(routes: &Routes) -> usize {
    routes.layer.tokens_per_rank()
}

const COLLECTIVES: [Head; 5] = [left("collective"), left("now"), right("time"), right("most by one"), right("by all")];

/// The all-to-alls of the layer, or all collectives where it stands alone: how far each is, what it took, and what the busiest rank sends or receives in it.
pub fn collectives(routes: &Routes, data: &RunData, at: &At, pen: &mut Pen<'_>) {
    let program = at.run.program;
    let line = |&id: &CollectiveId| {
        let collective = &program.collectives[id.index()];
        let parts = at.run.links.members(id).iter();
        let most = parts.clone().filter_map(|&op| Exchange::of(program, op)).map(Exchange::most).max();
        let now = parts.clone().map(|&op| at.state(op)).max_by_key(|state| *state == State::Running).unwrap_or(State::Waiting);
        let stats = data.metrics.collectives.iter().find(|stats| stats.collective == id);
        let clock = at.run.trace.clock;
        Line {
            role: if now == State::Running { Role::Strong } else { Role::Text },
            cells: vec![
                format!("{} {}", collective.kind.name(), name_of(program, id, parts.clone().next().copied())),
                word(now).to_owned(),
                stats.map_or_else(String::new, |stats| clock.show(stats.end - stats.start)),
                most.map_or_else(String::new, |most| most.to_string()),
                stats.map_or_else(String::new, |stats| stats.sent.to_string()),
            ],
        }
    };
    let lines: Vec<Line> = routes.collectives.iter().map(line).collect();
    if lines.is_empty() {
        pen.say(1, 0, "One rank sends nothing.", Role::Text);
        return;
    }
    table(pen, 0, &COLLECTIVES, &lines);
}

/// What a collective is about: of a training step the module, and whether it is forward.
fn name_of(program: &Program, id: CollectiveId, member: Option<OpId>) -> String {
    let label = &program.collectives[id.index()].label;
    let Some((slot, module)) = member.and_then(|op| program.op(op).origin.slot).zip(label.rsplit('.').next()) else {
        return label.clone();
    };
    let again = member.is_some_and(|op| program.op(op).origin.pass == PassName::Recompute);
    match slot.pass {
        Pass::F => module.to_owned(),
        _ if again => format!("{module} again"),
        _ => format!("{module}-backward"),
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Done => "done",
        State::Running => "moving",
        _ => "",
    }
}

/// What the layer computes and moves, by run and by formula.
#[must_use]
pub fn numbers(routes: &Routes, data: &RunData) -> Vec<String> {
    let (layer, program) = (&routes.layer, data.program());
    let dtype = program.setting.dtype;
    let row = layer.row_bytes(dtype);
    let (k, n) = (layer.top_k, layer.ranks);
    let mut lines =
        vec![format!("{} tokens on each of {n} ranks, {} wide, {k} experts each", layer.tokens_per_rank(), layer.hidden)];
    if n > 1 {
        let even = Bytes(row.0 * layer.even_rows() * (n as u64 - 1) / n as u64);
        lines.push(format!("even: tokens x k x h x {} B x (N-1)/N = {even} for each of 4 all-to-alls", dtype.size()));
    }
    if let Some(slowest) = routes.slowest() {
        let (rank, burden) = (routes.ranks[slowest], routes.burden(slowest));
        lines.push(format!("{rank} computes {burden:.2} times an even share: a step takes as long as its experts"));
    }
    if routes.all_dropped() > 0 {
        let (all, dropped) = (routes.all_choices(), routes.all_dropped());
        lines.push(format!("{dropped} of {all} choices find no room: {}", percent(ratio(dropped as u64, all as u64))));
    }
    lines
}
