//! The whole run as a figure for print: a row per rank, labels, hatches by kind, arrows for messages, axis and legend. Idle is blank.

use std::fmt::Write;

use super::svg_style::{COMMUNICATION, GRID, IDLE, INK, SOFT, colour, fill, patterns};
use crate::base::Ticks;
use crate::base::units::{Clock, short_number};
use crate::observe::kind::Kind;
use crate::observe::lanes::{Arrow, RankLanes};
use crate::observe::metrics::Metrics;
use crate::observe::report::Given;
use crate::observe::rows::{Row, Span};
use crate::observe::{Lanes, Run};

/// Width of the figure.
const WIDTH: f64 = 1200.0;
/// Left and right of the time axis.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 22.0;
/// Above the rows: title and numbers.
const TOP: f64 = 64.0;
/// Messages above which the arrows would be a carpet.
const ARROWS: usize = 600;
/// Widths below this are joined with their neighbour of the same kind.
const HAIR: f64 = 0.4;

/// The figure.
#[must_use]
pub fn figure(run: &Run, lanes: &Lanes, metrics: &Metrics, given: &Given) -> String {
    let mut figure = Figure::new(run, lanes);
    let bottom = TOP + figure.size.pitch() * count(lanes.ranks.len());
    figure.grid(bottom);
    for (place, rank) in lanes.ranks.iter().enumerate() {
        figure.rank(place, rank);
    }
    if figure.size.communication > 4.0 && lanes.arrows.len() <= ARROWS {
        lanes.arrows.iter().for_each(|arrow| figure.arrow(arrow));
    }
    let height = figure.legend(bottom + 44.0) + 14.0;
    let title = if given.title.is_empty() { "run" } else { &given.title };
    let numbers = numbers(run, metrics, given);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" font-family="Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">
<title>{title}</title>
<desc>ranklab: {title}; {numbers}</desc>
<defs>
{defs}</defs>
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="24" font-size="17" font-weight="600">{title}</text>
<text x="{LEFT}" y="44" fill="{SOFT}">{numbers}</text>
{body}</svg>
"##,
        title = escape(title),
        numbers = escape(&numbers),
        defs = figure.definitions(),
        body = figure.body,
    )
}

/// The line under the title.
fn numbers(run: &Run, metrics: &Metrics, given: &Given) -> String {
    let clock = run.trace.clock;
    let time = |ticks| match clock {
        Clock::Slots { .. } => format!("{} slots", short_number(clock.in_unit(ticks))),
        Clock::Nanoseconds => clock.show(ticks),
    };
    let mut parts = vec![run.trace.outcome.name().to_owned(), format!("makespan {}", time(metrics.makespan))];
    if let Some(ratio) = metrics.bubble_ratio() {
        let fraction = metrics.bubble_fraction() * 100.0;
        parts.push(format!("bubble {fraction:.2} % of all rank time ({:.2} % of busy time)", ratio * 100.0));
    }
    parts.push(format!("modelled clock, {} costs", given.costs));
    parts.join("  \u{b7}  ")
}

/// Heights of a rank's two rows and of the space below; they shrink with the number of ranks.
struct Size {
    compute: f64,
    communication: f64,
    gap: f64,
}

impl Size {
    fn new(lanes: &Lanes) -> Self {
        let size = match lanes.ranks.len() {
            0..=16 => Self { compute: 24.0, communication: 9.0, gap: 11.0 },
            17..=48 => Self { compute: 14.0, communication: 5.0, gap: 5.0 },
            49..=160 => Self { compute: 7.0, communication: 2.0, gap: 2.0 },
            _ => Self { compute: 2.5, communication: 0.0, gap: 0.5 },
        };
        // A bare collective computes nothing: its messages take all the room.
        let computes = lanes.ranks.iter().any(|rank| !rank.compute.spans.is_empty());
        if computes { size } else { Self { compute: 0.0, communication: size.compute, gap: size.gap } }
    }

    fn pitch(&self) -> f64 {
        self.compute + self.communication + self.gap
    }
}

/// Ink so far.
struct Figure<'run, 'a> {
    run: &'run Run<'a>,
    end: Ticks,
    size: Size,
    body: String,
    /// Kinds that were drawn, by number.
    kinds: Vec<bool>,
}

impl<'run, 'a> Figure<'run, 'a> {
    fn new(run: &'run Run<'a>, lanes: &Lanes) -> Self {
        Self {
            run,
            end: lanes.end.max(Ticks(1)),
            size: Size::new(lanes),
            body: String::new(),
            kinds: vec![false; Kind::ALL.len()],
        }
    }

    fn x(&self, time: Ticks) -> f64 {
        LEFT + share(time, self.end) * (WIDTH - LEFT - RIGHT)
    }

    /// Tops of the compute and the communication row of the rank at `place`.
    fn tops(&self, place: usize) -> (f64, f64) {
        let top = TOP + self.size.pitch() * count(place);
        (top, top + self.size.compute)
    }

    /// Lines of the axis with their times below, and the ends of steps.
    fn grid(&mut self, bottom: f64) {
        let clock = self.run.trace.clock;
        let step = round_step(clock, self.end);
        for time in (0..).map(|tick| Ticks(tick * step.0)).take_while(|time| *time <= self.end) {
            let x = number(self.x(time));
            let label = match clock {
                Clock::Slots { .. } => short_number(clock.in_unit(time)),
                Clock::Nanoseconds => clock.show(time),
            };
            let _ = writeln!(
                self.body,
                r#"<path d="M{x} {}V{}" stroke="{GRID}"/><text x="{x}" y="{}" text-anchor="middle" fill="{SOFT}" font-size="11">{label}</text>"#,
                number(TOP - 6.0),
                number(bottom),
                number(bottom + 14.0)
            );
        }
        if let Clock::Slots { .. } = clock {
            let (x, y) = (number(WIDTH - RIGHT), number(bottom + 28.0));
            let _ = writeln!(
                self.body,
                r#"<text x="{x}" y="{y}" text-anchor="end" fill="{SOFT}" font-size="11">time in slots</text>"#
            );
        }
        let ends = self.run.step_ends.clone();
        for (step, end) in ends.iter().enumerate().filter(|_| ends.len() > 1) {
            let x = number(self.x(*end));
            let (top, y) = (number(TOP - 6.0), number(TOP - 8.0));
            let _ = writeln!(
                self.body,
                r#"<path d="M{x} {top}V{}" stroke="{INK}" stroke-dasharray="2 3"/><text x="{x}" y="{y}" text-anchor="end" fill="{SOFT}" font-size="10">end of step {step}</text>"#,
                number(bottom)
            );
        }
    }

    fn rank(&mut self, place: usize, lanes: &RankLanes) {
        let (compute, communication) = self.tops(place);
        let letters = (self.size.pitch() - 1.0).min(12.0);
        if letters > 8.0 || place.is_multiple_of(16) {
            let letters = letters.max(9.0);
            let middle = compute + self.size.compute.max(self.size.communication) / 2.0;
            let (x, y, size) = (number(LEFT - 8.0), number(middle + letters / 3.0), number(letters));
            let _ = writeln!(self.body, r#"<text x="{x}" y="{y}" text-anchor="end" font-size="{size}">{}</text>"#, lanes.rank);
        }
        self.row(&lanes.compute, compute, self.size.compute);
        if self.size.communication > 0.0 {
            self.row(&lanes.communication, communication + 1.5, self.size.communication - 1.5);
        }
    }

    fn row(&mut self, row: &Row, top: f64, height: f64) {
        // What is thinner than a hair is drawn with its neighbours of the same kind.
        let mut thin: Option<(Kind, f64, f64)> = None;
        for span in &row.spans {
            let (from, to) = (self.x(span.start), self.x(span.end));
            if span.is_mark() || to - from >= HAIR {
                self.thin(thin.take(), top, height);
                self.span(row, span, (from, to), (top, height));
                continue;
            }
            match &mut thin {
                Some((kind, _, end)) if *kind == span.kind && from - *end < HAIR => *end = to,
                _ => {
                    self.thin(thin.take(), top, height);
                    thin = Some((span.kind, from, to));
                }
            }
        }
        self.thin(thin, top, height);
    }

    fn thin(&mut self, thin: Option<(Kind, f64, f64)>, top: f64, height: f64) {
        if let Some((kind, from, to)) = thin.filter(|(kind, ..)| !kind.is_idle()) {
            self.kinds[kind as usize] = true;
            self.block(kind, (from, to.max(from + HAIR)), (top, height));
        }
    }

    fn span(&mut self, row: &Row, span: &Span, (from, to): (f64, f64), (top, height): (f64, f64)) {
        match span.kind {
            Kind::Bubble => return,
            Kind::Waiting if height < 4.0 => return,
            Kind::Waiting | Kind::ExposedCommunication => self.line(span.kind, (from, to), top + height / 2.0),
            _ if span.is_mark() => self.mark(row, span, from, (top, height)),
            _ => {
                self.block(span.kind, (from, to), (top, height));
                let label = row.label(self.run, span);
                if height > 10.0 && to - from > 7.0 * count(label.len()) {
                    let (x, y) = (number(f64::midpoint(from, to)), number(top + height / 2.0 + 4.0));
                    let ink = colour(span.kind);
                    let _ = writeln!(
                        self.body,
                        r##"<text x="{x}" y="{y}" text-anchor="middle" font-size="11" font-weight="600" fill="#fff" stroke="{ink}" stroke-width="2.5" paint-order="stroke">{label}</text>"##
                    );
                }
            }
        }
        self.kinds[span.kind as usize] = true;
    }

    fn block(&mut self, kind: Kind, (from, to): (f64, f64), (top, height): (f64, f64)) {
        // A white edge parts neighbours of the same kind, where there is room for one.
        let edge = if to - from > 4.0 { r##" stroke="#fff" stroke-width="1""## } else { "" };
        let (x, y, width, height) = (number(from), number(top), number(to - from), number(height));
        let fill = fill(kind);
        let _ = writeln!(self.body, r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"{edge}/>"#);
    }

    /// A wait: a dotted line, in the colour of communication where compute waits for it.
    fn line(&mut self, kind: Kind, (from, to): (f64, f64), y: f64) {
        let stroke = if kind == Kind::Waiting { IDLE } else { COMMUNICATION };
        let (from, to, y) = (number(from + 1.0), number(to - 1.0), number(y));
        let _ = writeln!(
            self.body,
            r#"<path d="M{from} {y}H{to}" stroke="{stroke}" stroke-width="1.6" stroke-linecap="round" stroke-dasharray="0.1 4"/>"#
        );
    }

    /// A free message: a wedge towards the higher or the lower rank. Anything else: a bar.
    fn mark(&mut self, row: &Row, span: &Span, x: f64, (top, height): (f64, f64)) {
        let op = row.ops_of(span)[0];
        let channel = self.run.program.kind(op).channel().map(|channel| self.run.program.channels[channel.index()]);
        let ink = colour(span.kind);
        let half = (height / 2.0).min(4.0);
        let path = match channel {
            Some(channel) => {
                let (base, tip) = if channel.to > channel.from { (top, top + height) } else { (top + height, top) };
                format!("M{} {b}H{}L{} {}Z", number(x - half), number(x + half), number(x), number(tip), b = number(base))
            }
            None => format!(
                "M{x1} {t}H{x2}V{b}H{x1}Z",
                x1 = number(x - 1.0),
                x2 = number(x + 1.0),
                t = number(top),
                b = number(top + height)
            ),
        };
        let _ = writeln!(self.body, r#"<path d="{path}" fill="{ink}"/>"#);
    }

    /// From the sender's communication row to the receiver's rows.
    fn arrow(&mut self, arrow: &Arrow) {
        let program = self.run.program;
        let (from, to) = (program.rank_of(arrow.send).index(), program.rank_of(arrow.receive).index());
        let (sender, receiver) = (self.tops(from), self.tops(to));
        let communication = self.size.communication;
        let (y1, y2) = if to > from { (sender.1 + communication, receiver.0) } else { (sender.1, receiver.1 + communication) };
        let (x1, x2) = (number(self.x(arrow.start)), number(self.x(arrow.end)));
        let _ = writeln!(
            self.body,
            r#"<path d="M{x1} {}L{x2} {}" stroke="{COMMUNICATION}" stroke-width=".9" stroke-opacity=".65" marker-end="url(#tip)"/>"#,
            number(y1),
            number(y2)
        );
    }

    /// One entry for every kind that occurs; the y of its last line.
    fn legend(&mut self, y: f64) -> f64 {
        let shown: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| self.kinds[*kind as usize]).collect();
        let (mut x, mut y) = (LEFT, y);
        for kind in shown {
            let width = 42.0 + 7.0 * count(kind.name().len());
            if x + width > WIDTH - RIGHT {
                (x, y) = (LEFT, y + 20.0);
            }
            if kind.is_idle() {
                self.line(kind, (x, x + 20.0), y - 4.0);
            } else {
                self.block(kind, (x, x + 20.0), (y - 10.0, 12.0));
            }
            let _ = writeln!(self.body, r#"<text x="{}" y="{}">{}</text>"#, number(x + 26.0), number(y), kind.name());
            x += width;
        }
        let _ = writeln!(self.body, r#"<text x="{}" y="{}" fill="{SOFT}">blank = idle</text>"#, number(x), number(y));
        y
    }

    fn definitions(&self) -> String {
        let tip = format!(
            r#"<marker id="tip" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="5" markerHeight="5" orient="auto"><path d="M0 .8L6 3L0 5.2Z" fill="{COMMUNICATION}"/></marker>"#
        );
        patterns(Kind::ALL.into_iter().filter(|kind| self.kinds[*kind as usize])) + &tip + "\n"
    }
}

/// A round distance between lines of the axis: 1, 2 or 5 times a power of ten, for about sixteen lines.
fn round_step(clock: Clock, end: Ticks) -> Ticks {
    let unit = if let Clock::Slots { ticks_per_slot } = clock { ticks_per_slot } else { 1 };
    let round = (0..18).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let step = round.map(|digit| digit.saturating_mul(unit)).find(|step| step.saturating_mul(16) >= end.0);
    Ticks(step.unwrap_or(end.0))
}

/// Two decimals, none of them zero at the end.
fn number(value: f64) -> String {
    short_number(value)
}

#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
fn share(time: Ticks, end: Ticks) -> f64 {
    time.0 as f64 / end.0 as f64
}

#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
fn count(number: usize) -> f64 {
    number as f64
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
