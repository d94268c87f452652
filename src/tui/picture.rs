//! What the panels draw: one run as plain rows, spans, gaps and arrows. No pixels, no engine.

use crate::base::units::{Clock, Ticks};

/// One run, ready to be drawn. Never changed: another run is another picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// What one tick means.
    pub clock: Clock,
    /// The end of the run.
    pub end: Ticks,
    /// Ranks in the run.
    pub ranks: u32,
    /// One row per rank and stream, the streams of a rank together, the compute stream first.
    pub rows: Vec<Row>,
    /// The texts that spans refer to.
    pub texts: Vec<Box<str>>,
    /// The run's events in their total order: what `s` steps over.
    pub events: Vec<Event>,
}

/// One stream of one rank.
#[derive(Clone, Debug)]
pub struct Row {
    /// The rank.
    pub rank: u32,
    /// The stream's short name, such as `comp` or `net`.
    pub stream: Box<str>,
    /// Whether this is a rank's compute stream: its row carries the rank's name.
    pub compute: bool,
    /// What fills the row, in order of start: ops, and the gaps in which nothing ran although it could have. No two
    /// overlap. A free message starts and ends at once.
    pub spans: Vec<Span>,
}

/// One op, transfer or collective, or a gap with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First tick.
    pub start: u64,
    /// One past the last tick.
    pub end: u64,
    /// What it is.
    pub kind: Kind,
    /// Its label, such as `F3`, or why nothing ran: a place in [`Picture::texts`].
    pub text: u32,
    /// The event of its end: a place in [`Picture::events`].
    pub event: u32,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time: u64,
    /// On which row: a place in [`Picture::rows`].
    pub row: u32,
}

/// What fills a stretch of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Forward.
    Forward,
    /// Full backward: input and weights together.
    Backward,
    /// Backward for the input only.
    BackwardInput,
    /// Backward for the weights only.
    BackwardWeight,
    /// Forward done again for the backward.
    Recompute,
    /// The optimizer's step.
    Optimizer,
    /// A collective of several ranks.
    Collective,
    /// Activations leave for the next stage.
    SendActivation,
    /// Gradients leave for the previous stage.
    SendGradient,
    /// Another transfer: a step of an expanded collective.
    Transfer,
    /// Posted, but the peer is not there.
    Waiting,
    /// Compute is idle while a transfer it needs is moving.
    ExposedCommunication,
    /// Compute is idle inside the rank's own span, waiting for data.
    Bubble,
}

impl Kind {
    /// All kinds; a kind's place here is its number.
    pub const ALL: [Self; 13] = [
        Self::Forward,
        Self::Backward,
        Self::BackwardInput,
        Self::BackwardWeight,
        Self::Recompute,
        Self::Optimizer,
        Self::Collective,
        Self::SendActivation,
        Self::SendGradient,
        Self::Transfer,
        Self::Waiting,
        Self::ExposedCommunication,
        Self::Bubble,
    ];

    /// The kind's name in legends.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "fwd",
            Self::Backward => "bwd",
            Self::BackwardInput => "bwd input",
            Self::BackwardWeight => "bwd weight",
            Self::Recompute => "recompute",
            Self::Optimizer => "optimizer",
            Self::Collective => "collective",
            Self::SendActivation => "act",
            Self::SendGradient => "grad",
            Self::Transfer => "transfer",
            Self::Waiting => "waits for peer",
            Self::ExposedCommunication => "exposed comm",
            Self::Bubble => "bubble",
        }
    }

    /// Whether a rank computes while this runs.
    #[must_use]
    pub fn is_compute(self) -> bool {
        self <= Self::Optimizer
    }

    /// Whether nothing runs.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self >= Self::Waiting
    }
}

impl Picture {
    /// A run in which nothing happens.
    #[must_use]
    pub fn empty() -> Self {
        let clock = Clock::Slots { ticks_per_slot: 1 };
        let (rows, texts, events) = Default::default();
        Self { clock, end: Ticks::ZERO, ranks: 0, rows, texts, events }
    }

    /// The label of a span, or the reason of a gap.
    #[must_use]
    pub fn text(&self, span: &Span) -> &str {
        self.texts.get(span.text as usize).map_or("", AsRef::as_ref)
    }

    /// The time after `events` events; the run starts at 0.
    #[must_use]
    pub fn time_after(&self, events: u32) -> Ticks {
        let last = events.checked_sub(1).and_then(|index| self.events.get(index as usize));
        Ticks(last.map_or(0, |event| event.time))
    }

    /// How many events happen at `time` or before.
    #[must_use]
    pub fn events_until(&self, time: Ticks) -> u32 {
        count(self.events.partition_point(|event| event.time <= time.0))
    }

    /// How many events the run has.
    #[must_use]
    pub fn event_count(&self) -> u32 {
        count(self.events.len())
    }
}

impl Row {
    /// The row's name: `r0 comp` for a rank's compute stream, the bare stream below it.
    #[must_use]
    pub fn name(&self) -> String {
        if self.compute { format!("r{} {}", self.rank, self.stream) } else { format!("   {}", self.stream) }
    }

    /// The place of the span that covers `time`, or of the free message at it.
    #[must_use]
    pub fn place_at(&self, time: u64) -> Option<usize> {
        let last = self.spans.partition_point(|span| span.start <= time).checked_sub(1)?;
        let span = self.spans[last];
        (time < span.end.max(span.start + 1)).then_some(last)
    }

    /// The span that covers `time`, or the free message at it.
    #[must_use]
    pub fn span_at(&self, time: u64) -> Option<&Span> {
        self.place_at(time).map(|place| &self.spans[place])
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
