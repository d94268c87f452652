//! What can be said about a run, in words: its outcome, times, memory, traffic and numbers.

use std::collections::BTreeMap;

use ranklab::base::units::short_number;
use ranklab::base::{Bytes, OpId, Rank};
use ranklab::lab::{Run, Verdict};
use ranklab::observe::blocks::Blocks;
use ranklab::observe::cube::Cube;
use ranklab::observe::metrics::RankMetrics;
use ranklab::observe::routes::Routes;
use ranklab::program::head::head;
use ranklab::program::plan::Pass;
use ranklab::program::trace::Outcome;
use ranklab::program::{CollectiveKind, OpKind};

/// What can be said about a run, in words.
pub fn facts(run: &Run) -> Vec<String> {
    let mut facts = ending(run);
    facts.extend(verdict(run));
    facts.extend(losses(&run.losses));
    facts.extend(buckets(run));
    facts.extend(memory(run));
    facts.extend(traffic(run));
    facts.extend(pipeline(run));
    facts.extend([true, false].map(|is_forward| in_a_layer(run, is_forward)));
    facts.push(most_sent(run));
    facts.push(peaks(run));
    facts.extend(attention(run));
    facts.extend(run.first_nan.map(|op| format!("nan at {}", head(run.session.program(), op))));
    facts.extend(experts(run));
    facts.extend(cube(run));
    facts
}

/// What rank 0 of a mesh sends each of its groups, and over which wires; and who is to blame.
fn cube(run: &Run) -> Vec<String> {
    let Some(cube) = Cube::of(&run.scenario).filter(|cube| cube.axes().len() > 1) else { return Vec::new() };
    let parties = cube.parties(&run.observed().run, Rank(0));
    let sends = parties.iter().map(|party| format!("r0 sends {} {} {}", party.name(), party.sent, party.wires.text()));
    sends.chain(run.diagnosis.iter().map(|found| format!("{} is to blame", found.rank))).collect()
}

/// What the ranks of a layer of attention compute forward, in pairs of a query and a key; and what a wrong result looks like.
fn attention(run: &Run) -> Vec<String> {
    let Some(blocks) = Blocks::of(run.session.program()) else { return Vec::new() };
    let work = (0..blocks.slices).map(|rank| blocks.work(rank).to_string()).collect::<Vec<_>>().join(" ");
    let mut facts = vec![format!("computes {work}")];
    if let Some(looks) = &run.looks {
        facts.push(format!("wrong: {}", looks.wrong.join(" ")));
        facts.extend(looks.suspects.iter().map(|bug| format!("as with {bug}")));
    }
    facts
}

/// What the experts of each rank compute, how uneven that is, what finds no room, and what an all-to-all moves.
fn experts(run: &Run) -> Vec<String> {
    let Some(routes) = Routes::of(run.session.program()) else { return Vec::new() };
    let rows = (0..routes.layer.ranks).map(|rank| routes.rows(rank).to_string()).collect::<Vec<_>>().join(" ");
    let mut facts = vec![format!("rows {rows}"), format!("{} of {} choices lost", routes.all_dropped(), routes.all_choices())];
    facts.extend(routes.slowest().map(|rank| format!("r{rank} has {} times an even share", short_number(routes.burden(rank)))));
    let program = run.session.program();
    let observed = run.observed();
    let exchanges = observed
        .metrics()
        .collectives
        .iter()
        .filter(|stats| program.collectives[stats.collective.index()].kind == CollectiveKind::AllToAll);
    facts.extend(exchanges.map(|stats| format!("a rank sends {}", decimal(Bytes(stats.sent.0 / routes.layer.ranks as u64)))));
    facts.extend(run.diagnosis.iter().map(|found| format!("{} is to blame", found.rank)));
    facts
}

/// How it ended, and who waits for whom or has no room.
fn ending(run: &Run) -> Vec<String> {
    let (program, trace) = (run.session.program(), run.session.trace());
    let mut facts = vec![trace.outcome.name().to_owned(), trace.clock.show(trace.step_end(program, 0))];
    match &trace.outcome {
        Outcome::Completed => {}
        Outcome::Deadlocked(graph) => {
            let circle = |cycle: &Vec<(Rank, OpId)>| cycle.iter().map(|(rank, _)| rank.to_string()).collect::<Vec<_>>().join(" ");
            facts.extend(graph.cycles.iter().map(circle));
            facts.extend(graph.edges.iter().map(|edge| format!("{} waits for {}", edge.rank, edge.on_rank)));
        }
        Outcome::OutOfMemory { op, needed, limit, .. } => {
            facts.push(op.map_or("full before the first op".to_owned(), |op| format!("full at {}", head(program, op))));
            facts.push(format!("needs {needed} of {limit}"));
        }
    }
    facts
}

/// How its numbers compare with one device's.
fn verdict(run: &Run) -> Vec<String> {
    match &run.verdict {
        Verdict::Equal => vec!["equal".to_owned()],
        Verdict::ExpectedDrift { .. } => vec!["drift".to_owned()],
        Verdict::Wrong { first_difference: first, .. } => {
            let op = head(run.session.program(), first.op).to_string();
            vec!["wrong".to_owned(), op, format!("wrong in step {}", first.step)]
        }
        Verdict::None => Vec::new(),
    }
}

fn losses(losses: &[f64]) -> Vec<String> {
    let (Some(first), Some(last)) = (losses.first(), losses.last()) else { return Vec::new() };
    let mut facts = vec![format!("loss {last:.4}"), format!("loss {first:.3} to {last:.3}")];
    if last < first {
        facts.push("loss falls".to_owned());
    }
    facts
}

/// What rank 0 keeps, and what it holds at its peak, in units of 1000 and of 1024.
fn memory(run: &Run) -> Vec<String> {
    let observed = run.observed();
    let metrics = &observed.metrics().ranks[0];
    let state = metrics.state;
    let [_, _, _, activation, bucket, ..] = metrics.peak_by_role;
    let amounts = [
        ("state", state.parameter + state.gradient + state.optimizer),
        ("parameters", state.parameter),
        ("gradients", state.gradient),
        ("optimizer", state.optimizer),
        ("peak", metrics.peak_bytes),
        ("activations", activation),
        ("gathered", bucket),
    ];
    let mut facts: Vec<String> =
        amounts.iter().flat_map(|(name, bytes)| [format!("{name} {bytes}"), format!("{name} {}", decimal(*bytes))]).collect();
    let program = run.session.program();
    if let Some(op) = observed.ledger().rank(Rank::new(0)).peak().op {
        facts.push(format!("peak at {}", head(program, op)));
    }
    facts.extend(program.setting.model.as_ref().map(|model| format!("{} blocks", model.layers)));
    facts
}

/// Bytes in units of 1000, as pages on large models have them.
#[expect(clippy::cast_precision_loss, reason = "a number on a page")]
fn decimal(bytes: Bytes) -> String {
    match bytes.0 {
        0..1_000_000_000 => format!("{} MB", short_number(bytes.0 as f64 / 1e6)),
        _ => format!("{} GB", short_number(bytes.0 as f64 / 1e9)),
    }
}

/// What rank 0 moves in the first step, what of that nothing hides, and what is computed again.
#[expect(clippy::cast_precision_loss, reason = "a number on a page")]
fn traffic(run: &Run) -> Vec<String> {
    let observed = run.observed();
    let metrics = observed.metrics();
    let (rank, flops) = (&metrics.ranks[0], metrics.flops);
    let again = (flops.hardware - flops.model) as f64 / flops.model.max(1) as f64;
    let sums = ranklab::observe::volume::inside_layers(&observed.run, 0);
    let sums = sums.map(|[forward, backward]| format!("sums {} forward and {} backward", decimal(forward), decimal(backward)));
    let mut facts = vec![
        format!("moves {}", short_number(rank.traffic_psi)),
        format!("sent {}", rank.bytes_sent),
        format!("exposed {}", run.session.trace().clock.show(rank.exposed_comm)),
        format!("again {} %", short_number((again * 1000.0).round() / 10.0)),
    ];
    facts.extend(sums);
    facts
}

/// What a pipeline holds and sends, and how much of the first step it idles.
fn pipeline(run: &Run) -> Vec<String> {
    let observed = run.observed();
    let metrics = observed.metrics();
    let list =
        |number: fn(&RankMetrics) -> u64| metrics.ranks.iter().map(|rank| number(rank).to_string()).collect::<Vec<_>>().join(" ");
    let clock = run.session.trace().clock;
    let mut facts = vec![
        format!("holds {}", list(|rank| rank.peak_in_flight.into())),
        format!("holds to W {}", list(|rank| rank.peak_in_flight_to_weight.into())),
        format!("versions {}", list(|rank| rank.weight_versions.into())),
        format!("sends {} messages", list(|rank| rank.messages_sent)),
        format!("bubble {:.1} %", metrics.bubble_fraction() * 100.0),
        format!("idle {}", clock.show(metrics.ranks[0].idle)),
    ];
    facts.extend(metrics.bubble_ratio().map(|ratio| format!("of the work {:.1} %", ratio * 100.0)));
    facts.extend(metrics.step_period.map(|period| format!("{} a step", clock.show(period))));
    facts
}

/// The number of a step's buckets; the last one and all together.
fn buckets(run: &Run) -> Vec<String> {
    let collectives = &run.session.program().collectives;
    let sizes: Vec<_> = collectives.iter().filter(|c| c.step == 0 && c.label.starts_with("bucket")).map(|c| c.bytes).collect();
    let Some(last) = sizes.last() else { return Vec::new() };
    let all: Bytes = sizes.iter().copied().sum();
    vec![format!("{} buckets", sizes.len()), format!("last {last} of {all}")]
}

/// How many collectives of each kind layer 1 has on rank 0, for one micro-batch forward or backward.
fn in_a_layer(run: &Run, is_forward: bool) -> String {
    let program = run.session.program();
    let kind = |op: OpId| {
        let (OpKind::Collective(id), origin) = (program.kind(op), program.op(op).origin) else { return None };
        let is_here =
            origin.step == 0 && origin.slot.is_some_and(|slot| slot.micro_batch == 0 && (slot.pass == Pass::F) == is_forward);
        let collective = &program.collectives[id.index()];
        (is_here && collective.label.starts_with("blocks.1.")).then_some(collective.kind)
    };
    let kinds: Vec<CollectiveKind> = program.order[0].iter().filter_map(|&op| kind(op)).collect();
    let count = |kind: CollectiveKind| kinds.iter().filter(|&&each| each == kind).count();
    let [gathers, scatters, sums] =
        [CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllReduce].map(count);
    let way = if is_forward { "forward" } else { "backward" };
    format!("a layer {way}: {gathers} ag {scatters} rs {sums} ar")
}

/// What the rank that sends most sends, in payloads of a bare collective.
fn most_sent(run: &Run) -> String {
    let program = run.session.program();
    let sent = |rank: Rank| -> u64 {
        let sends = program.order[rank.index()].iter().map(|&op| program.op(op)).filter(|op| matches!(op.kind, OpKind::Send(_)));
        sends.map(|op| program.bytes(op.reads[0]).0).sum()
    };
    let most = (0..program.ranks()).map(|rank| sent(Rank::new(rank))).max().unwrap_or(0);
    let payload = program.collectives.first().map_or(1, |collective| collective.bytes.0.max(1));
    #[expect(clippy::cast_precision_loss, reason = "bytes of a small run")]
    let share = most as f64 / payload as f64;
    format!("most sent {share}")
}

/// Per rank, the most micro-batches of the first step between the start of their F and the end of their B.
fn peaks(run: &Run) -> String {
    let (program, trace) = (run.session.program(), run.session.trace());
    let peak = |rank: usize| {
        let mut held: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for &op in &program.order[rank] {
            let origin = program.op(op).origin;
            let (Some(slot), Some(times), 0) = (origin.slot, trace.times(op), origin.step) else { continue };
            let (_, end) = held.entry(slot.micro_batch).or_insert((times.start.0, 0));
            *end = times.end.0;
        }
        let at = |time: u64| held.values().filter(|(start, end)| (*start..*end).contains(&time)).count();
        held.values().map(|(start, _)| at(*start)).max().unwrap_or(0).to_string()
    };
    format!("peaks {}", (0..program.ranks()).map(peak).collect::<Vec<_>>().join(" "))
}
