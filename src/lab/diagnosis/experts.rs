//! A mixture of experts: tokens that nobody wanted to lose, ranks whose experts have far more than others, sizes that do not agree.

use super::Diagnosis;
use crate::base::experts::Experts;
use crate::base::routing::Routing;
use crate::base::{OpId, Rank};
use crate::lab::Verdict;
use crate::observe::routes::Routes;
use crate::program::{CollectiveKind, Kernel, OpKind, Program};

/// Experts of one rank that have so many times an even share are worth a word.
const FAR: f64 = 1.25;

/// What is wrong with a layer that ran to its end: nothing, if the program is none.
pub(super) fn diagnose(program: &Program, verdict: &Verdict) -> Vec<Diagnosis> {
    let Some(routes) = Routes::of(program) else { return Vec::new() };
    lost(program, &routes, verdict).or_else(|| overloaded(program, &routes)).into_iter().collect()
}

/// Tokens that find no room where the layer's own capacity factor has room for them.
fn lost(program: &Program, routes: &Routes, verdict: &Verdict) -> Option<Diagnosis> {
    let Verdict::Wrong { first_difference: first, .. } = verdict else { return None };
    let layer = &routes.layer;
    let meant = Routing::planned(&Experts { lost: None, ..layer.clone() });
    if routes.all_dropped() <= meant.dropped() {
        return None;
    }
    let fullest = (0..layer.count).max_by_key(|&expert| (routes.dropped(expert), std::cmp::Reverse(expert)))?;
    let (all, room) = (routes.all_choices(), layer.capacity().unwrap_or(0));
    let cause = format!(
        "{} of {all} choices find no room: every expert takes {room} tokens of a rank, and e{fullest} leaves out {} of its {}; \
         these tokens come back without what it would have made of them",
        routes.all_dropped(),
        routes.dropped(fullest),
        routes.chosen(fullest),
    );
    let home = Rank::new(layer.home(fullest));
    Some(Diagnosis { rank: home, op: kernel(program, home, Kernel::Experts).or(Some(first.op)), cause })
}

/// A rank whose experts have far more than an even share.
fn overloaded(program: &Program, routes: &Routes) -> Option<Diagnosis> {
    let rank = routes.slowest()?;
    let burden = routes.burden(rank);
    let cause = format!(
        "its experts have {} of {} rows, {burden:.2} times an even share: all ranks wait for their results",
        routes.rows(rank),
        (0..routes.layer.ranks).map(|rank| routes.rows(rank)).sum::<usize>(),
    );
    let rank = Rank::new(rank);
    (burden >= FAR).then(|| Diagnosis { rank, op: kernel(program, rank, Kernel::Experts), cause })
}

fn kernel(program: &Program, rank: Rank, wanted: Kernel) -> Option<OpId> {
    program.order[rank.index()].iter().copied().find(|&op| program.kernel_of(op) == Some(wanted))
}

/// A rank that comes to an all-to-all of the same rows by itself: its sizes are not those that the others expect.
pub(super) fn disagrees(program: &Program) -> Option<Diagnosis> {
    program.setting.experts.as_ref()?;
    let ops = program.all().filter_map(|op| match program.kind(op) {
        OpKind::Collective(id) if program.collectives[id.index()].kind == CollectiveKind::AllToAll => Some((op, id)),
        _ => None,
    });
    let all: Vec<_> = ops.collect();
    // Of two ranks each is alone: then it is the one that is not among the layer's own meetings, which are made first.
    let is_alone = |id| all.iter().filter(|(_, other)| *other == id).count() == 1;
    let (op, id) = all.iter().copied().filter(|(_, id)| is_alone(*id)).max_by_key(|(_, id)| *id)?;
    let layout = |buffer: &crate::base::BufferId| program.buffers[buffer.index()].name;
    let same = all
        .iter()
        .find(|(other, of)| *of != id && program.writes(*other).first().map(layout) == program.writes(op).first().map(layout))?;
    let [own, others] = [id, same.1].map(|id| program.collectives[id.index()].label.as_str());
    let cause = format!(
        "it is in `all-to-all {own}` while the others are in `all-to-all {others}`: its sizes are not those that they expect, \
         and such an exchange never ends"
    );
    Some(Diagnosis { rank: program.rank_of(op), op: Some(op), cause })
}
