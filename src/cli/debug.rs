//! `ranklab debug FILE`: the debugger without a screen. Where the time goes that nobody computes, when breakpoints are met, why a rank is
//! idle at a time.

use std::fmt::Write;

use super::failure::print;
use super::input::Input;
use super::{Exit, Failure, Outcome};
use crate::base::words::counted;
use crate::base::{Rank, Ticks};
use crate::lab::Lab;
use crate::observe::breakpoint::Breakpoint;
use crate::observe::explain::idle;
use crate::observe::kind::label;
use crate::observe::slack::Slack;
use crate::observe::why::{chain, critical_path};
use crate::observe::{Observed, gaps};
use crate::program::Program;
use crate::program::head::head_with_rank;

/// What to debug, and what to ask.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    /// When a breakpoint is met, such as "r2 op 2B3", "mb 3", "time 14", "r0 memory 1.5 MiB", "nan"; may be given several times
    #[arg(long = "break", value_name = "COND")]
    breakpoints: Vec<String>,
    /// Why a rank is idle at a time, such as "r3 12"; may be given several times
    #[arg(long = "why", value_name = "RANK TIME")]
    places: Vec<String>,
}

/// Events of a breakpoint that are printed.
const MOST_HITS: usize = 20;
/// Gaps that are printed.
const MOST_GAPS: usize = 12;

/// Runs it, and answers; without a question, prints the critical path and the longest gaps.
pub fn run(arguments: &Arguments) -> Outcome {
    let breakpoints: Vec<Breakpoint> =
        arguments.breakpoints.iter().map(|text| Breakpoint::parse(text).map_err(Failure::Input)).collect::<Result<_, _>>()?;
    let places: Vec<(Rank, f64)> = arguments.places.iter().map(|text| place(text)).collect::<Result<_, _>>()?;
    let asked = arguments.input.scenario()?;
    let run = Lab::new().run(&asked.scenario).map_err(|error| asked.failure(error))?;
    let observed = run.observed();
    let mut text = String::new();
    for breakpoint in &breakpoints {
        breakpoint.rank.map(|rank| followed(observed.run.program, rank)).transpose()?;
        text += &met(&observed, breakpoint, &breakpoint.hits(&observed.run, observed.ledger(), run.first_nan));
    }
    for &(rank, time) in &places {
        text += &why(&observed, rank, time)?;
    }
    if breakpoints.is_empty() && places.is_empty() {
        text = overview(&observed);
    }
    print(text.trim_end())?;
    Ok(Exit::of(&run))
}

/// `r3 12`: a rank, and a time in the clock's unit.
fn place(text: &str) -> Result<(Rank, f64), Failure> {
    let parts = text.trim().split_once(char::is_whitespace).or(text.trim().split_once('@'));
    let read = parts.and_then(|(rank, time)| {
        let rank = rank.strip_prefix('r')?.parse().ok().map(Rank)?;
        let time = time.trim().trim_end_matches('u').parse().ok().filter(|time: &f64| time.is_finite() && *time >= 0.0)?;
        Some((rank, time))
    });
    read.ok_or_else(|| Failure::Input(format!("`{text}` is no rank with a time, such as \"r3 12\"")))
}

fn met(observed: &Observed, breakpoint: &Breakpoint, hits: &[usize]) -> String {
    let run = &observed.run;
    let mut text =
        format!("{breakpoint}: met {}{}\n", counted(hits.len() as u64, "time"), folded_away(run.program, breakpoint.rank));
    for &event in hits.iter().take(MOST_HITS) {
        let happened = run.trace.events[event - 1];
        // A message is the event of two ranks: what is told is what the rank does that was asked for.
        let asked = breakpoint.rank.and_then(|rank| run.program.followed(rank));
        let op = asked.and_then(|rank| run.part_of(rank, happened.op)).unwrap_or(happened.op);
        let _ = writeln!(text, "  event {event} at {}: {}", run.trace.clock.show(happened.time), head_with_rank(run.program, op));
    }
    if hits.len() > MOST_HITS {
        let _ = writeln!(text, "  ... and {} more", hits.len() - MOST_HITS);
    }
    text
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a typed time is not negative, and casts saturate")]
fn why(observed: &Observed, rank: Rank, time: f64) -> Result<String, Failure> {
    let run = &observed.run;
    let followed = followed(run.program, rank)?;
    let clock = run.trace.clock;
    let ticks = Ticks((time / clock.in_unit(Ticks(1))).round() as u64);
    let mut text = format!("{rank} at {}{}\n", clock.show(ticks), folded_away(run.program, Some(rank)));
    let row = &observed.lanes().ranks[followed.index()].compute;
    if let Some(found) = idle(run, row, (followed, true), ticks) {
        let heading = found.heading(run);
        let sentences = if found.chain.steps.is_empty() { String::new() } else { found.chain.sentences(run).to_string() };
        heading.lines().chain(sentences.lines()).for_each(|line| _ = writeln!(text, "  {line}"));
    } else if let Some(place) = row.place_at(ticks) {
        let span = row.spans[place];
        let op = row.ops_of(&span)[0];
        let slack = Slack::new(run).of(op).map_or_else(String::new, |slack| format!(", slack {}", clock.show(slack)));
        let _ = writeln!(text, "  {} runs from {} to {}{slack}", label(run, op), clock.show(span.start), clock.show(span.end));
        let chain = chain(run, op, Ticks(span.start.0.saturating_sub(1)));
        chain.sentences(run).to_string().lines().for_each(|line| _ = writeln!(text, "  {line}"));
    } else {
        let _ = writeln!(text, "  the run has ended");
    }
    Ok(text)
}

/// A path `r0 F0 > r1 F0 B0 > r0 B0` with the first and the last ops of each stay on a rank: a long run has thousands.
fn shortened(path: &str) -> String {
    const SHOWN: usize = 8;
    let stay = |stay: &str| {
        let words: Vec<&str> = stay.split(' ').collect();
        let left_out = words.len().saturating_sub(2 * SHOWN + 1);
        if left_out == 0 {
            return stay.to_owned();
        }
        let (first, last) = (words[..=SHOWN].join(" "), words[words.len() - SHOWN..].join(" "));
        format!("{first} ... {left_out} more ... {last}")
    };
    path.split(" > ").map(stay).collect::<Vec<_>>().join(" > ")
}

/// Who is followed for `rank`, one of all.
fn followed(program: &Program, rank: Rank) -> Result<Rank, Failure> {
    let all = program.whole_ranks();
    program.followed(rank).ok_or_else(|| Failure::Input(format!("there is no {rank}; the run has {all} ranks")))
}

/// Says who is followed for a rank that is not followed itself.
fn folded_away(program: &Program, rank: Option<Rank>) -> String {
    let followed = |rank| program.followed(rank).map(|followed| program.whole(followed));
    match rank.and_then(|rank| Some((rank, followed(rank)?))) {
        Some((rank, followed)) if rank != followed => format!("; {rank} does the same as {followed}, which is followed for it"),
        _ => String::new(),
    }
}

/// The critical path, and the longest gaps with their causes.
fn overview(observed: &Observed) -> String {
    let run = &observed.run;
    let show = |ticks: Ticks| run.trace.clock.show(ticks);
    let path = critical_path(run, 0);
    let mut text = format!("critical path: {} of computation, {} of messages\n", show(path.computing), show(path.communicating));
    let _ = writeln!(text, "  {}\n", shortened(&path.sentence(run)));
    let longest = gaps::longest(run, observed.lanes(), observed.metrics(), MOST_GAPS);
    let _ = writeln!(text, "the longest gaps of the first step");
    for gap in longest {
        let found = observed
            .lanes()
            .ranks
            .get(gap.rank.index())
            .and_then(|of_rank| idle(run, &of_rank.compute, (gap.rank, true), gap.start));
        let cause = found.map_or_else(|| "no work is left in this step".to_owned(), |found| found.brief(run));
        let _ = writeln!(
            text,
            "  {} {} to {} ({}): {cause}",
            gap.kind.name(),
            show(gap.start),
            show(gap.end),
            run.program.whole(gap.rank)
        );
    }
    text
}
