//! Lanes: the trace as geometry without pixels. Per rank a compute row and a communication row; between ranks, arrows.

use super::kind::Kind;
use super::rows::{Builder, Row, Span};
use super::run::Run;
use crate::base::units::Clock;
use crate::base::{OpId, Rank, StreamId, Ticks};
use crate::program::OpKind;
use crate::program::op::SkippedKind;
use crate::program::tables::COMPUTE;

/// A whole run as rows and arrows.
#[derive(Clone, Debug, PartialEq)]
pub struct Lanes {
    /// What a tick is.
    pub clock: Clock,
    /// The end of the last op.
    pub end: Ticks,
    /// One entry per rank.
    pub ranks: Vec<RankLanes>,
    /// The messages that ran, by start.
    pub arrows: Vec<Arrow>,
}

/// The rows of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct RankLanes {
    /// The rank.
    pub rank: Rank,
    /// Computation, with the gaps inside the rank's own span as idle spans. Before and behind lies the ramp.
    pub compute: Row,
    /// All communication streams in one row: what leaves lies over what arrives, and both over waiting.
    pub communication: Row,
    /// Every stream that communicates, by itself. With blocking messages the compute stream is one of them.
    pub streams: Vec<(StreamId, Row)>,
}

/// A message from rank to rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// When it leaves.
    pub start: Ticks,
    /// When it is there.
    pub end: Ticks,
    /// Its send.
    pub send: OpId,
    /// Its receive.
    pub receive: OpId,
    /// What it carries.
    pub kind: Kind,
}

impl Lanes {
    /// The lanes of `run`. Linear in its ops but for sorting each rank's messages by time.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        let ranks = (0..run.program.ranks()).map(|rank| RankLanes::new(run, Rank::new(rank))).collect();
        Self { clock: run.trace.clock, end: run.trace.end(), ranks, arrows: arrows(run) }
    }
}

impl RankLanes {
    fn new(run: &Run, rank: Rank) -> Self {
        let mut compute = Builder::new(run);
        let mut streams: Vec<(StreamId, Row)> = Vec::new();
        let mut place = vec![None; run.program.streams.len()];
        for &op in &run.program.order[rank.index()] {
            if in_compute_row(run, op) {
                compute.push(op);
                continue;
            }
            let stream = run.program.stream_of(op);
            let place = *place[stream.index()].get_or_insert_with(|| {
                streams.push((stream, Row::default()));
                streams.len() - 1
            });
            streams[place].1.push_with_wait(run, op);
        }
        Self { rank, compute: compute.finish(), communication: merged(run, &streams), streams }
    }

    /// From the start of the rank's first computation to the end of its last; `None` if it computes nothing.
    #[must_use]
    pub fn own_span(&self) -> Option<(Ticks, Ticks)> {
        Some((self.compute.spans.first()?.start, self.compute.spans.last()?.end))
    }
}

/// Whether `op` stands in its rank's compute row; otherwise it stands in the communication row.
#[must_use]
pub fn in_compute_row(run: &Run, op: OpId) -> bool {
    let skipped = matches!(run.program.kind(op), OpKind::Skipped(SkippedKind::Run(_)));
    run.computes(op) || skipped && run.program.stream_of(op) == COMPUTE
}

/// A span with its op, on its way into the merged row.
type Piece = (Span, OpId);

/// One row of all streams: layer by layer, the later ones where the earlier ones leave room.
fn merged(run: &Run, streams: &[(StreamId, Row)]) -> Row {
    let mut layers: [Vec<Piece>; 3] = Default::default();
    for (_, row) in streams {
        for span in &row.spans {
            let op = row.ops_of(span)[0];
            let receives = run.program.kind(op).receives();
            let layer = if span.kind.is_idle() { 2 } else { usize::from(receives) };
            // A free receive is the same moment as its send: one mark is enough.
            if layer != 1 || !span.is_mark() {
                layers[layer].push((*span, op));
            }
        }
    }
    let mut all = Vec::new();
    for mut layer in layers {
        layer.sort_by_key(|(span, op)| (span.start, span.end, *op));
        all = overlay(all, &layer);
    }
    let mut row = Row::default();
    for (span, op) in &all {
        row.push(run, (span.start, span.end), span.kind, *op);
    }
    row
}

/// `base`, and between its pieces those of `layer`. Both are sorted by start; the pieces of `base` do not overlap.
fn overlay(base: Vec<Piece>, layer: &[Piece]) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::with_capacity(base.len() + layer.len());
    let mut next = 0;
    let mut from = Ticks::ZERO;
    for &(span, op) in layer {
        from = from.max(span.start);
        if span.is_mark() && from == span.start {
            all.push((span, op));
        }
        while from < span.end {
            match base.get(next).map(|(busy, _)| (busy.start, busy.end)) {
                Some((_, end)) if end < from => next += 1,
                Some((start, end)) if start <= from => {
                    from = from.max(end);
                    next += 1;
                }
                busy => {
                    let until = busy.map_or(span.end, |(start, _)| start.min(span.end));
                    all.push((Span { start: from, end: until, ..span }, op));
                    from = until;
                }
            }
        }
    }
    all.extend(base);
    all.sort_by_key(|(span, op)| (span.start, span.end, *op));
    all
}

fn arrows(run: &Run) -> Vec<Arrow> {
    let arrow = |send: OpId| {
        let receive = run.links.peer(send)?;
        let (left, there) = (run.times(send)?, run.times(receive)?);
        Some(Arrow { start: left.start, end: there.end, send, receive, kind: Kind::of(run, send) })
    };
    let sends = run.program.all().filter(|&op| matches!(run.program.kind(op), OpKind::Send(_)));
    let mut arrows: Vec<Arrow> = sends.filter_map(arrow).collect();
    arrows.sort_by_key(|arrow| (arrow.start, arrow.send));
    arrows
}
