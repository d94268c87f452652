//! Stragglers: ranks whose computations or messages take longer than their device or link would need.

use super::Diagnosis;
use crate::base::{OpId, Rank, Ticks};
use crate::engine::cost::CostModel;
use crate::observe::Run;
use crate::program::OpKind;
use crate::program::head::head;
use crate::scenario::Scenario;

/// Who is slower than the hardware says, and by how much at most.
pub(super) fn diagnose(scenario: &Scenario, run: &Run) -> Vec<Diagnosis> {
    // Without trouble the engine's times are the table's own.
    if scenario.trouble.is_empty() {
        return Vec::new();
    }
    let expected = CostModel::new(run.program, &scenario.hardware, &[]);
    let ranks = (0..run.program.ranks()).map(Rank::new);
    let shares_links = scenario.hardware.sharing.is_some();
    let computing = |rank| slowest(run, &expected, rank, |kind| matches!(kind, OpKind::Run(_)));
    let sending = |rank| if shares_links { None } else { slowest(run, &expected, rank, |kind| matches!(kind, OpKind::Send(_))) };
    ranks
        .flat_map(|rank| [tell(run, rank, computing(rank), "computation"), tell(run, rank, sending(rank), "message")])
        .flatten()
        .collect()
}

/// What was slow on one rank.
struct Slow {
    /// The op that lost most, what it should have taken, and what it took.
    worst: (OpId, Ticks, Ticks),
    /// How many ops were slow, and how many there were.
    late: usize,
    all: usize,
}

/// The slow ops of a kind on `rank`.
fn slowest(run: &Run, expected: &CostModel, rank: Rank, is_meant: impl Fn(OpKind) -> bool) -> Option<Slow> {
    let mut found: Option<Slow> = None;
    let mut all = 0;
    for &op in run.program.order[rank.index()].iter().filter(|&&op| is_meant(run.program.kind(op))) {
        let (Some(times), due) = (run.times(op), expected.cost(op)) else { continue };
        if due == Ticks::ZERO {
            continue;
        }
        all += 1;
        let took = times.end - times.start;
        if took > due {
            let slow = found.get_or_insert(Slow { worst: (op, due, took), late: 0, all: 0 });
            slow.late += 1;
            if took - due > slow.worst.2 - slow.worst.1 {
                slow.worst = (op, due, took);
            }
        }
    }
    found.map(|found| Slow { all, ..found })
}

#[expect(clippy::cast_precision_loss, reason = "a factor for people")]
fn tell(run: &Run, rank: Rank, slow: Option<Slow>, what: &str) -> Option<Diagnosis> {
    let Slow { worst: (op, due, took), late, all } = slow?;
    let times = took.0 as f64 / due.0 as f64;
    let time = |ticks| run.trace.clock.show(ticks);
    let others = if all == 1 { what.to_owned() } else { format!("{what}s") };
    let cause = format!(
        "it is a straggler: `{}` took {} where {} was to be expected, {times:.2} times as long, and so did {late} of its {all} {others}",
        head(run.program, op),
        time(took),
        time(due),
    );
    Some(Diagnosis { rank, op: Some(op), cause })
}
