//! The plain summary that `run` prints: outcome, times, both bubbles, a row per rank, loss, verdict; at a deadlock who waits for whom.

use std::fmt::Write;

use crate::base::units::short_number;
use crate::base::words::grouped;
use crate::base::{Bytes, Rank, Ticks};
use crate::observe::metrics::{Metrics, RankMetrics};
use crate::observe::mixture::Mixture;
use crate::observe::report::{Diagnosis, Given, Repair, SilentSwap, Tokens, Verdict, VerdictKind};
use crate::observe::routes::Routes;
use crate::observe::traffic::CollectiveStats;
use crate::observe::volume::{self, Flops, Utilization};
use crate::observe::{Run, why};
use crate::program::head::head;
use crate::program::trace::Outcome;

/// Ranks with a row of their own; a line says how many have none.
const RANKS: usize = 32;

/// The summary of `run`.
#[must_use]
pub fn summary(run: &Run, metrics: &Metrics, given: &Given) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let wrong = given.verdict.kind == VerdictKind::Wrong && run.trace.outcome == Outcome::Completed;
    let outcome = if wrong { "wrong" } else { run.trace.outcome.name() };
    let ranks = ranks(run, metrics);
    let events = counted(run.trace.events.len(), "event");
    lines.push(("outcome", format!("{outcome}; {ranks}, {events}, modelled clock ({} costs)", given.costs)));
    lines.extend(times(run, metrics));
    lines.extend(traffic(run, metrics));
    lines.extend(volume(run, metrics));
    lines.extend(utilization(run, metrics, given));
    lines.extend(tokens(given));
    if run.program.setting.experts.is_none() {
        lines.extend(Mixture::of(run.program, &given.auxiliary).map(|experts| ("experts", experts.words())));
    }
    lines.extend(Routes::of(run.program).map(|routes| ("experts", routes.words(metrics, run.program))));
    if !given.loss.is_empty() {
        let loss = given.loss.iter().map(|loss| format!("{loss:.4}")).collect::<Vec<_>>().join("  ");
        lines.push(("loss", format!("{loss}  (mean of each step)")));
    }
    lines.extend(verdict(&given.verdict));
    lines.extend(given.verdict.looks.clone().map(|looks| ("looks like", looks)));
    lines.extend(given.diagnosis.iter().map(|one| ("diagnosis", diagnosed(one))));
    let mut text = if given.title.is_empty() { String::new() } else { format!("{}\n\n", given.title) };
    for (name, value) in &lines {
        let _ = writeln!(text, "{name:<11}{value}");
    }
    let _ = write!(text, "\n{}", table(run, metrics));
    text + &swaps(&given.silent_swaps) + &explained(run, &given.repairs)
}

/// How many ranks there are, and how many are followed.
fn ranks(run: &Run, metrics: &Metrics) -> String {
    let fold = run.program.fold();
    let ranks = counted(metrics.ranks.len() * fold, "rank");
    if fold > 1 { format!("{ranks}, each below stands for {fold}") } else { ranks }
}

fn times(run: &Run, metrics: &Metrics) -> Vec<(&'static str, String)> {
    let show = |ticks: Ticks| run.trace.clock.show(ticks);
    let period = metrics.step_period.map_or_else(String::new, |period| format!(", then {} a step", show(period)));
    let mut lines = vec![("makespan", format!("{}{period}", show(metrics.makespan)))];
    if run.trace.outcome != Outcome::Completed {
        lines = vec![("stopped at", show(run.trace.end()))];
    }
    if let Some(ratio) = metrics.bubble_ratio() {
        let fraction = percent(metrics.bubble_fraction());
        lines.push(("bubble", format!("fraction {fraction} (idle / all rank time), ratio {} (idle / busy)", percent(ratio))));
    }
    if let Some(overlap) = metrics.overlap() {
        lines.push(("overlap", format!("{} of communication time is spent computing as well", percent(overlap))));
    }
    lines
}

/// What all ranks move, those that are folded each for itself.
fn traffic(run: &Run, metrics: &Metrics) -> Option<(&'static str, String)> {
    let fold = run.program.fold();
    let messages: u64 = metrics.wires.iter().map(|wire| wire.messages).sum();
    let messages = usize::try_from(messages).unwrap_or(usize::MAX).saturating_mul(fold);
    let bytes = metrics.wires.iter().map(|wire| wire.bytes).sum::<Bytes>() * fold as u64;
    let wires = counted(metrics.wires.len() * fold, "wire");
    let groups = |stats: &CollectiveStats| run.program.group_of(stats.collective).alike();
    let collectives = match metrics.collectives.iter().map(groups).sum() {
        0 => String::new(),
        number => format!("; {}", counted(number, "collective")),
    };
    (messages > 0)
        .then(|| ("traffic", format!("{}, {bytes} over {wires}{collectives} (first step)", counted(messages, "message"))))
}

/// Traffic in units of the parameters, and what recomputation costs.
fn volume(run: &Run, metrics: &Metrics) -> Option<(&'static str, String)> {
    let psi = metrics.traffic_psi(run)?;
    let padding: Bytes = volume::padding(run.program).into_iter().sum();
    let Flops { model, hardware } = metrics.flops;
    let mut words = Vec::new();
    if psi > 0.0 {
        words.push(format!("collectives carry {} times a rank's parameters", short_number(psi)));
    }
    if let Some([forward, backward]) = volume::inside_layers(run, 0) {
        words.push(format!("ranks that share layers add up {forward} forward and {backward} backward"));
    }
    if padding > Bytes::ZERO {
        words.push(format!("{padding} of all ranks' state is padding"));
    }
    let again = if hardware > model { format!(" and {} again", scientific(hardware - model)) } else { String::new() };
    words.push(format!("{} FLOPs{again}", scientific(model)));
    Some(("volume", format!("{} (first step)", words.join("; "))))
}

/// Shares of the devices' peak, as far as the clock tells.
fn utilization(run: &Run, metrics: &Metrics, given: &Given) -> Option<(&'static str, String)> {
    let Utilization { model, hardware } = volume::utilization(run, metrics, given.peak_flops)?;
    let peak = short_number(given.peak_flops? / 1e12);
    let words = format!("MFU {}, HFU {} of {peak} TFLOP/s a rank", percent(model), percent(hardware));
    Some(("peak", format!("{words} (first step, modelled, not measured)")))
}

/// Whether the micro-batch is large enough to hide its traffic.
fn tokens(given: &Given) -> Option<(&'static str, String)> {
    let Tokens { micro_batch, hide_traffic } = given.tokens?;
    let (there, wanted) = (grouped(i128::from(micro_batch)), short_number(hide_traffic.ceil()));
    Some(("tokens", format!("{there} in a micro-batch; by formula {wanted} take as long to compute as its traffic")))
}

/// `1.68e9`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn scientific(number: u128) -> String {
    format!("{:.2e}", number as f64)
}

fn verdict(verdict: &Verdict) -> Option<(&'static str, String)> {
    let device = verdict.device();
    let words = match verdict.kind {
        VerdictKind::None => return None,
        VerdictKind::Equal => format!("equal to {device}, bit for bit"),
        VerdictKind::ExpectedDrift => format!("expected drift: as near to {device} as rounding allows"),
        VerdictKind::Wrong => format!("WRONG: not what {device} computes"),
    };
    let difference = verdict.max_abs_diff.filter(|_| verdict.kind != VerdictKind::Equal);
    let difference = difference.map_or_else(String::new, |difference| format!(", largest difference {difference:.2e}"));
    let first = verdict.first_difference.as_ref().map_or_else(String::new, |first| {
        format!("; first at step {}, r{} `{}`, tensor {}", first.step, first.rank, first.op, first.tensor)
    });
    Some(("verdict", format!("{words}{difference}{first}")))
}

/// The rank, its op, and why.
fn diagnosed(Diagnosis { rank, op, cause }: &Diagnosis) -> String {
    let op = op.as_ref().map_or_else(String::new, |op| format!(" `{op}`"));
    format!("r{rank}{op}: {cause}")
}

/// Heads of the columns, and what stands in them.
type Column = (&'static str, fn(&Run, &RankMetrics) -> String);

const COLUMNS: [Column; 11] = [
    ("rank", |run, rank| run.program.whole(rank.rank).to_string()),
    ("busy", |run, rank| run.trace.clock.show(rank.busy)),
    ("idle", |run, rank| run.trace.clock.show(rank.idle)),
    ("ramp", |run, rank| run.trace.clock.show(rank.ramp)),
    ("bubble", |run, rank| run.trace.clock.show(rank.bubble)),
    ("exposed", |run, rank| run.trace.clock.show(rank.exposed_comm)),
    ("in flight", |_, rank| rank.peak_in_flight.to_string()),
    ("peak memory", |_, rank| rank.peak_bytes.to_string()),
    ("state", |_, rank| (rank.state.parameter + rank.state.gradient + rank.state.optimizer).to_string()),
    ("sent", |_, rank| rank.bytes_sent.to_string()),
    ("messages", |_, rank| rank.messages_sent.to_string()),
];

fn table(run: &Run, metrics: &Metrics) -> String {
    let shown = &metrics.ranks[..metrics.ranks.len().min(RANKS)];
    let cells = |rank: &RankMetrics| COLUMNS.map(|(_, cell)| cell(run, rank));
    let rows: Vec<[String; COLUMNS.len()]> =
        std::iter::once(COLUMNS.map(|(head, _)| head.to_owned())).chain(shown.iter().map(cells)).collect();
    let widths =
        std::array::from_fn::<usize, { COLUMNS.len() }, _>(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let aligned = row.iter().zip(widths).enumerate();
        let cell = |(column, (cell, width)): (usize, (&String, usize))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let _ = writeln!(text, "{}", aligned.map(cell).collect::<Vec<_>>().join("  "));
    }
    if metrics.ranks.len() > shown.len() {
        let _ = writeln!(text, "... and {} ranks more", metrics.ranks.len() - shown.len());
    }
    text
}

/// Messages that met the wrong way around.
fn swaps(swaps: &[SilentSwap]) -> String {
    swaps.iter().fold(String::new(), |mut text, SilentSwap { from, send, to, receive }| {
        let _ = writeln!(
            text,
            "silent swap: `{send}` of r{from} meets `{receive}` of r{to}: equal shapes, other data, and nothing would notice"
        );
        text
    })
}

/// Why a run did not complete.
fn explained(run: &Run, repairs: &[Repair]) -> String {
    match &run.trace.outcome {
        Outcome::Completed => String::new(),
        Outcome::Deadlocked(_) => format!("\n{}", deadlock(run, repairs)),
        Outcome::OutOfMemory { rank, op, needed, limit } => {
            let what = op.map_or_else(
                || "before the first op its parameters, gradients and optimizer state take".to_owned(),
                |op| format!("with the result of `{}` it holds", head(run.program, op)),
            );
            let [needed, limit] = needed.beside(*limit);
            let rank = run.program.whole(*rank);
            format!(
                "\n{rank} runs out of memory: {what} {needed}, and its device has {limit}. A run fits if it needs less than that: \
                 more pipeline stages, fewer or smaller micro-batches, or a larger `hardware.memory_gb`.\n"
            )
        }
    }
}

fn deadlock(run: &Run, repairs: &[Repair]) -> String {
    let Outcome::Deadlocked(graph) = &run.trace.outcome else { return String::new() };
    let time = run.trace.clock.show(run.trace.end());
    let mut waiting: Vec<Rank> = graph.edges.iter().map(|edge| edge.rank).collect();
    waiting.dedup();
    let mut text = format!(
        "deadlock at {time}: nothing can start any more, {} of {} ranks wait for another\n",
        waiting.len() * run.program.fold(),
        run.program.whole_ranks()
    );
    for edge in graph.edges.iter().take(RANKS) {
        let _ = writeln!(text, "  {}", why::edge_sentence(run, edge));
    }
    if graph.edges.len() > RANKS {
        let _ = writeln!(text, "  ... and {} waits more", graph.edges.len() - RANKS);
    }
    for cycle in why::cycles(run) {
        let _ = writeln!(text, "  in a circle: {cycle}");
    }
    let behind: Vec<String> = graph.behind().map(|rank| run.program.whole(rank).to_string()).collect();
    if !behind.is_empty() {
        let _ = writeln!(text, "  only behind: {}", behind.join(", "));
    }
    for Repair { what, makespan, .. } in repairs {
        let _ = writeln!(text, "  would resolve it: {what}; then it completes in {}", run.trace.clock.in_words(*makespan));
    }
    text
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
