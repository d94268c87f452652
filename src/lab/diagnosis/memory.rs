//! A full device: which rank dies, and where the others will be found waiting for it.

use super::{Diagnosis, ranks};
use crate::base::{Bytes, OpId, Rank};
use crate::observe::Run;
use crate::program::OpKind;
use crate::program::head::head;

/// Why `rank` dies at `op`, and at which ops the others report a time-out.
pub(super) fn diagnose(
    run: &Run,
    (rank, op): (Rank, Option<OpId>),
    (needed, limit): (Bytes, Bytes),
    usual: Option<Bytes>,
) -> Diagnosis {
    let smaller = usual.filter(|usual| *usual > limit);
    let others =
        smaller.map_or_else(String::new, |usual| format!(", where other devices have {usual}: somebody else uses the rest"));
    let stuck = stuck(run, rank);
    let waiting: Vec<Rank> = stuck.iter().map(|&op| run.program.rank_of(op)).collect();
    let time_out = stuck.first().map_or_else(String::new, |&op| {
        let (who, verb) = (ranks(run.program, &waiting), if waiting.len() == 1 { "waits" } else { "wait" });
        let first = run.program.whole_rank_of(op);
        format!("; {who} {verb} for it and would report a time-out, {first} in `{}`", head(run.program, op))
    });
    Diagnosis { rank, op, cause: format!("its device is full: it needs {needed} of {limit}{others}{time_out}") }
}

/// For every other rank, the first message or collective that never ends once `dead` has stopped.
fn stuck(run: &Run, dead: Rank) -> Vec<OpId> {
    let program = run.program;
    let mut never: Vec<bool> = vec![false; program.ops()];
    for &op in program.order[dead.index()].iter().filter(|&&op| run.times(op).is_none()) {
        never[op.index()] = true;
    }
    let mut changed = true;
    while changed {
        changed = false;
        for order in &program.order {
            let mut stopped = vec![false; program.streams.len()];
            for &op in order {
                let stream = program.stream_of(op).index();
                let is_stuck =
                    never[op.index()] || stopped[stream] || run.times(op).is_none() && waits_for_never(run, op, &never);
                stopped[stream] = is_stuck;
                changed |= is_stuck && !std::mem::replace(&mut never[op.index()], true);
            }
        }
    }
    let others = program.order.iter().enumerate().filter(|(rank, _)| *rank != dead.index());
    others.filter_map(|(_, order)| order.iter().find(|&&op| never[op.index()] && run.communicates(op)).copied()).collect()
}

/// Whether an op waits for one that never runs.
fn waits_for_never(run: &Run, op: OpId, never: &[bool]) -> bool {
    let program = run.program;
    let is_never = |op: OpId| never[op.index()];
    if program.waits(op).any(is_never) {
        return true;
    }
    match program.kind(op) {
        OpKind::Collective(collective) => run.links.members(collective).iter().copied().any(is_never),
        OpKind::Recv(_) | OpKind::RecvReduce(_) => run.links.peer(op).is_none_or(is_never),
        OpKind::Send(channel) if !program.channels[channel.index()].buffered => run.links.peer(op).is_none_or(is_never),
        _ => false,
    }
}
