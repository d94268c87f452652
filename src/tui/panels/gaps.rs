//! The table of the longest gaps: where, how long, because of what, and what changes it.

use super::parts::{Head, Line, choice, first_row, left, mark, right, table};
use crate::base::OpId;
use crate::observe::gaps::{Gap, GapKind};
use crate::observe::kind::{label, message};
use crate::observe::run::Run;
use crate::observe::why::{Chain, End, chain};
use crate::tui::data::{PanelView, RunData};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

const HEADS: [Head; 7] =
    [left("rank"), right("from"), right("to"), right("length"), left("kind"), left("because"), left("what changes it")];

/// Draws at most `room` lines; returns the line below.
pub fn draw(data: &RunData, view: &PanelView<'_>, room: u16, pen: &mut Pen<'_>) -> u16 {
    let gaps = &data.prepared.gaps;
    if gaps.is_empty() {
        let nothing = if data.metrics.ranks.iter().any(|rank| rank.busy.0 > 0) {
            "none: every rank computes from the start to the end"
        } else {
            "none: this run computes nothing"
        };
        pen.say(1, 0, nothing, Role::Text);
        return 1;
    }
    let run = data.run();
    let rows = usize::from(room.saturating_sub(1)).max(1);
    let chosen = view.chosen.min(gaps.len() - 1);
    let first = first_row(chosen, gaps.len(), rows);
    let shown = gaps.iter().enumerate().skip(first).take(rows);
    let lines: Vec<Line> = shown.map(|(place, gap)| line(data, &run, gap, choice(place == chosen, view.focused))).collect();
    table(pen, 0, &HEADS, &lines)
}

fn line(data: &RunData, run: &Run, gap: &Gap, role: Role) -> Line {
    let clock = data.clock();
    let cells = vec![
        format!("{}{}", mark(role != Role::Text), data.program().whole(gap.rank)),
        clock.show(gap.start),
        clock.show(gap.end),
        clock.show(gap.end - gap.start),
        gap.kind.name().to_owned(),
        because(run, gap),
        remedy(data, run, gap).to_owned(),
    ];
    Line { role, cells }
}

/// `B0 needs dx2.0 from r1, it from r2, it from r3 (B0 ran)`.
fn because(run: &Run, gap: &Gap) -> String {
    let Some(op) = gap.op else { return "no work is left in this step".to_owned() };
    let chain = chain(run, op, gap.start);
    let needs = format!("{} needs {}", label(run, op), first_need(run, &chain));
    let ranks = route(run, op, &chain);
    let route = ranks.iter().skip(1).fold(String::new(), |route, rank| route + ", it " + &rank.to_string());
    let from = ranks.first().map_or_else(String::new, |rank| format!(" from {rank}"));
    let root = match chain.end {
        End::Running => format!(" ({} ran)", label(run, chain.root)),
        End::Never(rank) => format!(" ({} never comes)", run.program.whole(rank)),
        End::Circle => " (a circle)".to_owned(),
        End::OnTheWay => format!(" ({} on the way)", label(run, chain.root)),
        End::Free => String::new(),
    };
    format!("{needs}{from}{route}{root}")
}

/// The message that the chain meets first; without one, the op that it ends at.
fn first_need(run: &Run, chain: &Chain) -> String {
    let ops = chain.steps.iter().filter_map(|step| step.wait.on());
    let mut messages = ops.filter_map(|op| message(run, op));
    messages.next().map_or_else(|| label(run, chain.root), |name| name.to_string())
}

/// The ranks that the chain goes through, without the first, by their names.
fn route(run: &Run, op: OpId, chain: &Chain) -> Vec<crate::base::Rank> {
    const MOST: usize = 12;
    let mut ranks = vec![run.program.rank_of(op)];
    for on in chain.steps.iter().filter_map(|step| step.wait.on()) {
        let rank = run.program.rank_of(on);
        if ranks.last() != Some(&rank) && ranks.len() <= MOST {
            ranks.push(rank);
        }
    }
    ranks.iter().skip(1).map(|&rank| run.program.whole(rank)).collect()
}

/// Whether a ramp is the time of a collective or message that nothing comes before: the same wait as one between ops.
fn is_of_a_transfer(run: &Run, gap: &Gap) -> bool {
    let Some(op) = gap.op.filter(|_| gap.kind == GapKind::RampUp) else { return false };
    let chain = chain(run, op, gap.start);
    matches!(chain.end, End::Running | End::OnTheWay) && !run.computes(chain.root)
}

/// What makes such gaps shorter, or a smaller share.
fn remedy(data: &RunData, run: &Run, gap: &Gap) -> &'static str {
    let pipeline = data.prepared.asked.stages > 1;
    let kind = if is_of_a_transfer(run, gap) { GapKind::Exposed } else { gap.kind };
    match (kind, pipeline) {
        (GapKind::Blocked, _) => "what it waits for must come (7 Waits)",
        (GapKind::Exposed, true) => "faster links, larger micro-batches",
        (GapKind::Exposed, false) => "faster links, other bucket sizes, overlap",
        (GapKind::Bubble, true) => "more micro-batches",
        (GapKind::Bubble, false) => "ranks that are equally fast",
        (GapKind::RampUp | GapKind::RampDown, true) => "fewer stages, more micro-batches",
        (GapKind::RampUp | GapKind::RampDown, false) => "less work at the ends of a step",
    }
}
