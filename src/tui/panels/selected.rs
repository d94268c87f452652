//! What is under the cursor, in words.

use crate::base::Ticks;
use crate::observe::explain::{IdleKind, idle};
use crate::observe::kind;
use crate::observe::lanes::in_compute_row;
use crate::observe::rows::Span;
use crate::observe::run::Run;
use crate::observe::state::State;
use crate::observe::why::Step;
use crate::program::head::head;
use crate::tui::data::{BufferValue, RowId, RunData};
use crate::tui::lesson::{plain_line, text_lines};
use crate::tui::model::Model;
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// The pane's title.
#[must_use]
pub fn title(model: &Model) -> String {
    let Some(row) = model.cursor_row() else { return "Selected".to_owned() };
    let time = model.run.data.clock().show(Ticks(model.timeline.cursor.time));
    format!("Selected  {}  t={time}", model.run.data.row_name(row))
}

/// One fact a line.
pub fn draw(model: &Model, pen: &mut Pen<'_>) {
    let mut y = 0;
    for (name, value) in facts(model) {
        pen.say(1, y, name, Role::Quiet);
        for line in text_lines(&value, pen.width().saturating_sub(11), Role::Text) {
            pen.say(10, y, &plain_line(&line), Role::Text);
            y += 1;
        }
    }
}

/// The same as plain text.
#[must_use]
pub fn text(model: &Model) -> String {
    let lines = facts(model).into_iter().map(|(name, value)| format!("{name:<9}{value}\n"));
    format!("{}\n{}", title(model), lines.collect::<String>())
}

type Fact = (&'static str, String);

fn facts(model: &Model) -> Vec<Fact> {
    let data = &*model.run.data;
    let Some(row) = model.cursor_row() else { return Vec::new() };
    let run = data.run();
    let Some((place, span)) = model.cursor_span() else { return beside(model, &run, row) };
    let mut facts = vec![what(data, &run, row, span), ("kind", span.kind.name().to_owned()), time(data, row, span)];
    facts.extend(cause(data, &run, row, span));
    if span.kind.is_idle() {
        return facts;
    }
    facts.push(("event", event(span)));
    facts.extend(values(model, &run, row, span));
    facts.extend(neighbours(data, &run, row, place));
    facts
}

/// Where there is no span: what comes next and why it is not there yet, or, where the run stopped, what the rank stands at.
fn beside(model: &Model, run: &Run, row: RowId) -> Vec<Fact> {
    let data = &*model.run.data;
    let time = Ticks(model.timeline.cursor.time);
    let Some(idle) = idle(run, data.row(row), (row.rank, row.compute), time) else {
        return stands(data, run, row);
    };
    let op = idle.kind.op();
    match idle.kind {
        IdleKind::Next(_) => vec![("waits", head(run.program, op).to_string()), ("why", idle.brief(run))],
        IdleKind::Stuck(_) => stands(data, run, row),
        IdleKind::Done(_) => vec![("ramp", idle.brief(run))],
    }
}

/// What a rank stands at when the run has stopped.
fn stands(data: &RunData, run: &Run, row: RowId) -> Vec<Fact> {
    let at = data.at(run, data.events());
    let heads = at.heads(row.rank);
    let stands = heads.iter().find(|&&op| in_compute_row(run, op) == row.compute).or(heads.first());
    let Some(&op) = stands else { return vec![("ramp", "nothing runs here, after the last op of this row".to_owned())] };
    let why = at.wait(op).map(|wait| ("why", behind_name(&Step { op, wait, until: None }.sentence(run))));
    std::iter::once(("stands", head(run.program, op).to_string())).chain(why).collect()
}

/// A sentence on an op without the op, which stands beside it already.
fn behind_name(sentence: &str) -> String {
    sentence.split_once("` ").map_or(sentence, |(_, rest)| rest).to_owned()
}

fn what(data: &RunData, run: &Run, row: RowId, span: &Span) -> Fact {
    let op = data.op_of(row, span);
    let text = head(run.program, op).to_string();
    match (span.kind.is_idle(), data.row(row).ops_of(span).len()) {
        (true, _) => ("waits", text),
        (false, 1) => ("op", text),
        (false, ops) => ("ops", format!("{}: {ops} ops, the first is `{text}`", kind::label(run, op))),
    }
}

fn time(data: &RunData, row: RowId, span: &Span) -> Fact {
    let show = |time: Ticks| data.clock().show(time);
    if span.is_mark() {
        return ("at", show(span.start));
    }
    let slack = slack(data, row, span).map_or_else(String::new, |slack| format!("  {slack}"));
    ("time", format!("{} to {}  ({}){slack}", show(span.start), show(span.end), show(span.end - span.start)))
}

/// How much later what runs could end without its step ending later.
fn slack(data: &RunData, row: RowId, span: &Span) -> Option<String> {
    if span.kind.is_idle() {
        return None;
    }
    let least = data.row(row).ops_of(span).iter().filter_map(|&op| data.slack.of(op)).min()?;
    Some(if least == Ticks::ZERO { "critical: no slack".to_owned() } else { format!("slack {}", data.clock().show(least)) })
}

/// What made it start when it did, or what it waits for.
fn cause(data: &RunData, run: &Run, row: RowId, span: &Span) -> Option<Fact> {
    let op = data.op_of(row, span);
    let wait = run.cause(op)?;
    let sentence = behind_name(&Step { op, wait, until: None }.sentence(run));
    Some((if span.kind.is_idle() { "it" } else { "why" }, sentence))
}

fn event(span: &Span) -> String {
    if span.event == 0 { "never".to_owned() } else { span.event.to_string() }
}

/// What the op's first result holds now, if it has one.
fn values(model: &Model, run: &Run, row: RowId, span: &Span) -> Vec<Fact> {
    let data = &*model.run.data;
    let last = *data.row(row).ops_of(span).last().expect("a span has an op");
    let done = data.at(run, model.now.event).state(last) == State::Done;
    let Some(values) = model.values.as_ref().filter(|values| done && values.rank == row.rank) else { return Vec::new() };
    let writes = data.program().op(last).writes;
    let written = values.buffers.iter().find(|value| writes.contains(&value.buffer));
    written.map(|value| tensor(data, value)).unwrap_or_default()
}

fn tensor(data: &RunData, value: &BufferValue) -> Vec<Fact> {
    let name = data.program().buffers[value.buffer.index()].name;
    let what = format!("{name}  {} {}", value.dtype.name(), value.shape);
    let sum = format!("norm {:.5}  max {:.4}  nan {}  sum {:08x}", value.norm, value.abs_max, value.nans, value.checksum);
    vec![("holds", what), ("", sum)]
}

fn neighbours(data: &RunData, run: &Run, row: RowId, place: usize) -> Option<Fact> {
    let next = data.row(row).spans.get(place + 1)?;
    let label = kind::label(run, data.op_of(row, next));
    Some(("next", if next.kind.is_idle() { format!("{} before {label}", next.kind.name()) } else { label }))
}
