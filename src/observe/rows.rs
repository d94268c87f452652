//! Rows: the spans of one stream, and how ops, waits and idle stretches become spans.

use std::ops::Range;

use super::idle;
use super::kind::{Kind, label};
use super::run::Run;
use crate::base::{OpId, Ticks};
use crate::program::{Origin, Wait};

/// What fills a row, in order of start. No two spans overlap; a free message starts and ends at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The spans.
    pub spans: Vec<Span>,
    /// The ops that they stand for.
    pub ops: Vec<OpId>,
}

/// A stretch of a row: ops that run one after the other, or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it starts.
    pub start: Ticks,
    /// When it ends.
    pub end: Ticks,
    /// What it is.
    pub kind: Kind,
    /// The event that started its first op, from 1; of an idle span, the event that ended the wait.
    pub event: u32,
    /// The place of its first op in [`Row::ops`].
    pub first: u32,
    /// How many ops it stands for.
    pub count: u32,
}

impl Row {
    /// The ops of `span`, in order; of an idle span, the op that waits.
    #[must_use]
    pub fn ops_of(&self, span: &Span) -> &[OpId] {
        &self.ops[span.range()]
    }

    /// The slot, step and pass that `span` comes from.
    #[must_use]
    pub fn origin(&self, run: &Run, span: &Span) -> Origin {
        run.program.op(self.ops[span.first as usize]).origin
    }

    /// The label of `span`: `F3`; of an idle span, that of the op that waits.
    #[must_use]
    pub fn label(&self, run: &Run, span: &Span) -> String {
        label(run, self.ops[span.first as usize])
    }

    /// What an idle span waits for in the end; `None` for ops that run.
    #[must_use]
    pub fn wait(&self, run: &Run, span: &Span) -> Option<Wait> {
        span.kind.is_idle().then(|| run.cause(self.ops[span.first as usize])).flatten()
    }

    /// The place of the span that covers `time`, or of the mark at it.
    #[must_use]
    pub fn place_at(&self, time: Ticks) -> Option<usize> {
        let place = self.spans.partition_point(|span| span.start <= time).checked_sub(1)?;
        let span = &self.spans[place];
        (time < span.end || time == span.start).then_some(place)
    }

    /// The place of the span in which `op` runs.
    #[must_use]
    pub fn place_of(&self, run: &Run, op: OpId) -> Option<usize> {
        let start = run.times(op)?.start;
        let started = self.spans.partition_point(|span| span.start <= start);
        let here = |span: &Span| !span.kind.is_idle() && self.ops_of(span).contains(&op);
        let near = self.spans[..started].iter().rev().take_while(|span| span.end >= start);
        near.enumerate().find(|(_, span)| here(span)).map(|(back, _)| started - 1 - back)
    }

    /// Adds a span of one op.
    pub(super) fn push(&mut self, run: &Run, (start, end): (Ticks, Ticks), kind: Kind, op: OpId) {
        let first = index(self.ops.len());
        self.ops.push(op);
        self.spans.push(Span { start, end, kind, event: event(run, op), first, count: 1 });
    }

    /// Adds the wait of `op` for its peers, if it waited, and its run.
    pub(super) fn push_with_wait(&mut self, run: &Run, op: OpId) {
        let Some(times) = run.times(op) else { return };
        if times.start > times.posted {
            self.push(run, (times.posted, times.start), Kind::Waiting, op);
        }
        self.push(run, (times.start, times.end), Kind::of(run, op), op);
    }
}

impl Span {
    /// Whether it takes no time.
    #[must_use]
    pub fn is_mark(&self) -> bool {
        self.start == self.end
    }

    fn range(&self) -> Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

/// A compute row under construction: ops of one slot that follow each other without a pause are one span.
pub(super) struct Builder<'run, 'a> {
    run: &'run Run<'a>,
    row: Row,
    open: Option<(Span, Origin)>,
    /// The end of the last span that took time: what follows is idle.
    busy_until: Option<Ticks>,
}

impl<'run, 'a> Builder<'run, 'a> {
    pub(super) fn new(run: &'run Run<'a>) -> Self {
        Self { run, row: Row::default(), open: None, busy_until: None }
    }

    /// Adds the next op of the stream.
    pub(super) fn push(&mut self, op: OpId) {
        let Some(times) = self.run.times(op) else { return };
        let kind = Kind::of(self.run, op);
        let origin = self.run.program.op(op).origin;
        match &mut self.open {
            Some((span, of)) if span.end == times.start && span.kind == kind && *of == origin => {
                span.end = times.end;
                span.count += 1;
            }
            _ => {
                self.close();
                let first = index(self.row.ops.len());
                let span = Span { start: times.start, end: times.end, kind, event: event(self.run, op), first, count: 1 };
                self.open = Some((span, origin));
            }
        }
        self.row.ops.push(op);
    }

    /// The finished row.
    pub(super) fn finish(mut self) -> Row {
        self.close();
        self.row
    }

    /// Ends the open span. Free compute leaves no span; what takes time ends the gap before it.
    fn close(&mut self) {
        let Some((span, _)) = self.open.take() else { return };
        if span.kind == Kind::Skipped {
            self.row.spans.push(span);
            return;
        }
        if span.is_mark() {
            self.row.ops.truncate(span.first as usize);
            return;
        }
        if let Some(from) = self.busy_until.filter(|&from| from < span.start) {
            for idle in idle::gap(self.run, from, self.row.ops[span.first as usize]) {
                self.row.spans.push(Span { start: idle.start, end: idle.end, kind: idle.kind, count: 1, ..span });
            }
        }
        self.busy_until = Some(span.end);
        self.row.spans.push(span);
    }
}

/// The event that started `op`, from 1; 0 if it never started.
fn event(run: &Run, op: OpId) -> u32 {
    index(run.trace.event_of(op).unwrap_or(0))
}

fn index(place: usize) -> u32 {
    u32::try_from(place).expect("fewer than 2^32 ops")
}
