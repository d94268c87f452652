//! Metrics: where the ranks' time goes in the first step, the numbers by run and by formula, and the longest gaps with their reasons.

use super::facts;
use super::gaps;
use super::links::show_unit;
use super::parts::{Cut, Head, Line, cells, first_row, left, mark, pane, paragraph, percent, ratio, right, table, wrapped};
use crate::base::units::short_number;
use crate::base::{Bytes, Rank, Ticks};
use crate::observe::VerdictKind;
use crate::observe::formula::{Quantity, find};
use crate::observe::kind::Kind;
use crate::observe::metrics::RankMetrics;
use crate::program::trace::Outcome;
use crate::tui::data::{PanelView, RunData};
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;

/// Draws it; of `view` only the focus and the scrolled lines matter.
pub fn draw(data: &RunData, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let ranks = u16::try_from(data.ranks()).unwrap_or(u16::MAX);
    if ranks == 0 {
        return;
    }
    let mut rest = Cut::of(pen);
    let (width, height) = (rest.0.width, rest.0.height);
    let wide = width >= 100;
    let numbers = numbers(data);
    let wanted = if wide {
        // The gaps, the way and the verdict below need a dozen lines.
        let table = u16::try_from(numbers.len()).unwrap_or(u16::MAX).saturating_add(3);
        ranks.saturating_mul(2).saturating_add(6).max(14).min(height / 2).max(table.min(height.saturating_sub(12)))
    } else {
        ranks.saturating_add(4).min(height / 2)
    };
    let mut above = Cut(rest.top(if height < 10 { height } else { wanted }));
    let bars = if wide { above.left(width * 60 / 100) } else { above.left(width) };
    let time = data.clock().show(data.metrics.makespan);
    let title = if bars.width < 64 {
        format!("The first step  modelled, {time}")
    } else {
        format!("Where each rank spends the first step  modelled, {time}")
    };
    pane(pen, bars, &title, view.focused, |inside| shares(data, view, inside));
    if wide {
        pane(pen, above.0, "Headline numbers", false, |inside| {
            // Run and formula, side by side.
            table(inside, 0, &HEADS, &numbers);
        });
    }
    pane(pen, rest.0, "Longest gaps  of the first step", false, |inside| {
        let others = if wide { String::new() } else { brief(&numbers) };
        let below = if wide { 7 } else { 6 + wrapped(&others, inside.width().saturating_sub(12), 2).len() };
        let room = inside.height().saturating_sub(u16::try_from(below).unwrap_or(u16::MAX)).max(2);
        let y = gaps::draw(data, view, room, inside);
        closing(data, y, &others, wide, inside);
    });
}

/// A bar for each rank, its percentages beside it.
fn shares(data: &RunData, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let all = data.ranks();
    let lines = pen.height().saturating_sub(2);
    let apart = if u16::try_from(all).is_ok_and(|all| all.saturating_mul(2) <= lines + 1) { 2 } else { 1 };
    let room = usize::from(lines.div_ceil(apart));
    let first = first_row(view.focus.index(), all, room);
    let bar = (7, pen.width().saturating_sub(7 + 32));
    scale(bar, pen);
    for (y, rank) in (1..=lines).step_by(usize::from(apart)).zip((first..all).map(Rank::new)) {
        let role = if rank == view.focus { Role::Strong } else { Role::Text };
        pen.say(1, y, &format!("{}{}", mark(rank == view.focus), data.program().whole(rank)), role);
        share(data, rank, y, bar, pen);
        let metrics = &data.metrics.ranks[rank.index()];
        let part = |ticks: Ticks| percent(ratio(ticks.0, data.metrics.makespan.0));
        let numbers = [metrics.busy, metrics.exposed_comm, metrics.bubble, metrics.ramp].map(part);
        let [busy, exposed, bubble, ramp] = &numbers;
        pen.say(bar.0 + bar.1 + 1, y, &format!("{busy:>5} {exposed:>8} {bubble:>7} {ramp:>5}"), role);
    }
    legend(data, pen.height().saturating_sub(1), pen);
}

/// `0%  25%  50%  75%  100%` above the bars, and the columns' names.
fn scale((x, width): (u16, u16), pen: &mut Pen<'_>) {
    pen.say(x + width + 1, 0, " busy  exposed  bubble  ramp", Role::Quiet);
    for quarter in 0..4_u16 {
        if width >= 24 {
            pen.say(x + width * quarter / 4, 0, &format!("{}%", quarter * 25), Role::Quiet);
        }
    }
}

/// What a rank computes by kind, then what it waits for; ramps stay blank.
fn share(data: &RunData, rank: Rank, y: u16, (x, width): (u16, u16), pen: &mut Pen<'_>) {
    let metrics = &data.metrics.ranks[rank.index()];
    let busy = &data.prepared.busy[rank.index()];
    let idle = [(Kind::ExposedCommunication, metrics.exposed_comm), (Kind::Bubble, metrics.bubble)];
    let frame = pen.theme.style(Role::Frame);
    pen.put(x - 1, y, pen.tier.bar(), frame);
    pen.put(x + width, y, pen.tier.bar(), frame);
    let (mut sum, mut start) = (0, 0);
    for (kind, length) in busy.iter().copied().chain(idle) {
        sum += length.0;
        let end = cells(sum, data.metrics.makespan.0, width);
        let glyph = if kind.is_idle() { pen.tier.fill(kind) } else { kind.letter().chars().next().unwrap_or('?') };
        let style = if kind.is_idle() { pen.theme.stroke(kind) } else { pen.theme.fill(kind) };
        for column in start..end {
            pen.put(x + column, y, glyph, style);
        }
        start = start.max(end);
    }
}

fn legend(data: &RunData, y: u16, pen: &mut Pen<'_>) {
    let mut kinds: Vec<Kind> = data.prepared.busy.iter().flatten().map(|&(kind, _)| kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let (exposed, bubble) = (pen.tier.fill(Kind::ExposedCommunication), pen.tier.fill(Kind::Bubble));
    let idle = [format!("{exposed} exposed"), format!("{bubble} bubble"), "blank ramp".to_owned()];
    let mut x = 1;
    for entry in kinds.into_iter().map(|kind| format!("{} {}", kind.letter(), kind.name())).chain(idle) {
        if x + width_of(&entry) <= pen.width() {
            x = pen.say(x, y, &entry, Role::Quiet) + 2;
        }
    }
}

const HEADS: [Head; 4] = [left("number"), right("run"), right("formula"), left("")];

/// A formula's bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a checked model")]
fn bytes(value: f64) -> String {
    Bytes(value.round() as u64).to_string()
}

/// A part of a rank's time.
type Part = fn(&RankMetrics) -> Ticks;

/// A count of each rank while there is room for all, else the largest; `None` if nothing is counted.
fn per_rank(ranks: &[RankMetrics], of: fn(&RankMetrics) -> u32) -> Option<String> {
    const MOST: usize = 8;
    let most = ranks.iter().map(of).max().filter(|&most| most > 0)?;
    let all = || ranks.iter().map(|rank| of(rank).to_string()).collect::<Vec<_>>().join(" ");
    Some(if ranks.len() > MOST || ranks.iter().all(|rank| of(rank) == most) { most.to_string() } else { all() })
}

/// The numbers that nothing else on a narrow screen shows: the run's, and the formula's behind it.
fn brief(numbers: &[Line]) -> String {
    let elsewhere = |name: &str| ["  ", "first step", "bubble, of"].iter().any(|begins| name.starts_with(begins));
    let shown = numbers.iter().filter(|line| !elsewhere(&line.cells[0])).map(|line| match &line.cells[..] {
        [name, run, formula, _] if !formula.is_empty() => format!("{name} {run} (formula {formula})"),
        cells => cells[..2].join(" "),
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn numbers(data: &RunData) -> Vec<Line> {
    let metrics = &data.metrics;
    let clock = data.clock();
    let formula = |quantity: Quantity, show: &dyn Fn(f64) -> String| {
        let found = find(&data.prepared.asked.formulas, quantity);
        found.map_or_else(|| (String::new(), String::new()), |formula| (show(formula.value), formula.text.clone()))
    };
    let mut lines = Vec::new();
    let mut add = |name: &str, run: String, (value, text): (String, String)| {
        lines.push(Line { role: Role::Text, cells: vec![name.to_owned(), run, value, text] });
    };
    let none = || (String::new(), String::new());
    let time = |value: f64| show_unit(clock, value);
    add("first step", clock.show(metrics.makespan), formula(Quantity::Makespan, &time));
    if let Some(period) = metrics.step_period {
        add("step period", clock.show(period), none());
    }
    if find(&data.prepared.asked.formulas, Quantity::Traffic).is_some() {
        let rank = &metrics.ranks[0];
        let state = rank.state.parameter + rank.state.gradient + rank.state.optimizer;
        add("state of r0", state.to_string(), formula(Quantity::State, &bytes));
        let (moved, text) = formula(Quantity::Traffic, &short_number);
        // Payloads, as the comparisons of strategies count them; what a ring sends is less.
        let formula = (moved, format!("{text}; a ring sends (N-1)/N of it"));
        add("payloads, in parameters", short_number(rank.traffic_psi), formula);
    }
    // Where nobody computes there is no bubble: all time is communication.
    if let Some(work) = metrics.bubble_ratio() {
        let of_time = formula(Quantity::BubbleFraction, &facts::percent);
        add("bubble, of all time", facts::percent(metrics.bubble_fraction()), of_time);
        add("bubble, of the work", facts::percent(work), formula(Quantity::BubbleRatio, &facts::percent));
    }
    let sum = |of: Part| metrics.ranks.iter().map(of).sum::<Ticks>().0;
    let whole = metrics.makespan.0 * metrics.ranks.len() as u64;
    let parts: [(&str, Part); 3] =
        [("  waiting inside", |rank| rank.bubble), ("  ramp", |rank| rank.ramp), ("  exposed comm", |rank| rank.exposed_comm)];
    for (name, of) in parts {
        add(name, facts::percent(ratio(sum(of), whole)), none());
    }
    if let Some(overlap) = metrics.overlap() {
        add("overlap, of comm time", facts::percent(overlap), none());
    }
    let fullest = metrics.ranks.iter().max_by_key(|rank| (rank.peak_bytes, std::cmp::Reverse(rank.rank)));
    if let Some(rank) = fullest {
        add(&format!("peak memory, {}", data.program().whole(rank.rank)), rank.peak_bytes.to_string(), none());
    }
    let to_input = per_rank(&metrics.ranks, |rank| rank.peak_in_flight);
    let is_longer = metrics.ranks.iter().any(|rank| rank.peak_in_flight_to_weight > rank.peak_in_flight);
    let to_weight = per_rank(&metrics.ranks, |rank| rank.peak_in_flight_to_weight).filter(|_| is_longer);
    for (name, peaks) in [("peak in flight", to_input), ("in flight to W", to_weight)] {
        peaks.into_iter().for_each(|peaks| add(name, peaks, none()));
    }
    let utilization = [
        ("MFU, modelled", data.report.mfu, "the model's FLOPs, of the devices' peak"),
        ("HFU, modelled", data.report.hfu, "those computed again, too"),
    ];
    for (name, share, meaning) in utilization {
        share.into_iter().for_each(|share| add(name, facts::percent(share), (String::new(), meaning.to_owned())));
    }
    if let Some(tokens) = data.report.tokens {
        let whole = |value: f64| short_number(value.ceil());
        let (wanted, text) = formula(Quantity::HidingTokens, &whole);
        add("tokens, a micro-batch", tokens.micro_batch.to_string(), (wanted, format!("{text} hide its traffic")));
    }
    lines
}

/// Below the gaps: losses, verdict, critical path; on narrow screens the headline numbers, the `others` last.
fn closing(data: &RunData, y: u16, others: &str, wide: bool, pen: &mut Pen<'_>) {
    let clock = data.clock();
    let mut y = y + u16::from(wide);
    if !wide {
        let fraction = facts::percent(data.metrics.bubble_fraction());
        let work = data.metrics.bubble_ratio().map_or_else(String::new, |work| format!(", {} of the work", facts::percent(work)));
        let formula = find(&data.prepared.asked.formulas, Quantity::BubbleFraction);
        let formula =
            formula.map_or_else(String::new, |formula| format!("; formula {} = {}", formula.text, facts::percent(formula.value)));
        y = fact(pen, y, "bubble", &format!("run {fraction} of all time{work}{formula}"));
    }
    if !data.report.loss.is_empty() {
        let losses: Vec<String> = data.report.loss.iter().take(12).map(|loss| format!("{loss:.4}")).collect();
        y = fact(pen, y, "loss", &losses.join(" "));
    }
    if let Some(experts) = data.report.experts.as_ref().filter(|_| data.program().setting.model.is_some()) {
        y = fact(pen, y, "experts", &experts.words());
    }
    y = fact(pen, y, "verdict", &verdict(data));
    for one in &data.report.diagnosis {
        y = fact(pen, y, "diagnosis", &format!("r{}: {}", one.rank, one.cause));
    }
    let critical = &data.critical;
    let lengths = format!(
        "{} ops, {} computing, {} communicating",
        critical.ops.len(),
        clock.show(critical.computing),
        clock.show(critical.communicating)
    );
    y = fact(pen, y, "critical", &lengths);
    if !wide {
        y = fact(pen, y, "numbers", others);
    }
    let room = usize::from(pen.width()) * if wide { 2 } else { 1 };
    if wide && !data.report.critical_path.is_empty() {
        fact(pen, y, "", &cut(&data.report.critical_path, room));
    }
}

fn fact(pen: &mut Pen<'_>, y: u16, name: &str, value: &str) -> u16 {
    if y >= pen.height() {
        return y;
    }
    pen.say(1, y, name, Role::Quiet);
    let (width, height) = (pen.width().saturating_sub(10), pen.height() - y);
    let mut part = pen.part(ratatui::layout::Rect::new(10, y, width, height));
    y + paragraph(&mut part, 0, value, Role::Text)
}

/// At most `room` characters; what is cut shows as dots.
fn cut(text: &str, room: usize) -> String {
    let mut short: String = text.chars().take(room).collect();
    if short.len() < text.len() {
        let end = short.rfind(' ').unwrap_or(short.len());
        short.truncate(end);
        short.push_str(" ...");
    }
    short
}

fn verdict(data: &RunData) -> String {
    let verdict = &data.report.verdict;
    let (difference, device) = (verdict.max_abs_diff.unwrap_or(0.0), verdict.device());
    match (verdict.kind, &data.record.trace.outcome) {
        (VerdictKind::None, Outcome::Deadlocked(_)) => "none: the run deadlocked".to_owned(),
        (VerdictKind::None, Outcome::OutOfMemory { .. }) => "none: the run went out of memory".to_owned(),
        (VerdictKind::None, Outcome::Completed) => "none: shapes only, nothing was computed".to_owned(),
        (VerdictKind::Equal, _) => format!("equal to {device}, bit for bit"),
        (VerdictKind::ExpectedDrift, _) => {
            format!("expected drift: as close to {device} as rounding allows (largest difference {difference:.1e})")
        }
        (VerdictKind::Wrong, _) => match &verdict.first_difference {
            Some(first) => {
                format!("WRONG: {} on r{} at `{}`, step {}, differs first", first.tensor, first.rank, first.op, first.step)
            }
            None => format!("WRONG: differs from {device} by {difference:.1e}"),
        },
    }
}
