//! Hangs: who never issues what others wait for, or issues alone what takes all.

use std::cmp::Ordering;

use super::{Diagnosis, is_idle_in, ranks};
use crate::base::{ChannelId, CollectiveId, OpId, Rank};
use crate::program::head::head;
use crate::program::op::SkippedKind;
use crate::program::trace::{WaitEdge, WaitGraph};
use crate::program::{Name, OpKind, Program};

/// What is never issued: a message's other end, or a part of a collective.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    End(ChannelId),
    Part(CollectiveId),
}

/// So many different things that are never issued are looked at: in a large run one cause leaves everybody waiting.
const MOST: usize = 8;

/// Who is guilty of a hang: not those that wait, but those at whom the waiting ends.
pub(super) fn diagnose(program: &Program, graph: &WaitGraph) -> Vec<Diagnosis> {
    let (mut all, mut seen): (Vec<Diagnosis>, Vec<Awaited>) = (Vec::new(), Vec::new());
    for edge in graph.edges.iter().filter(|edge| edge.on_op.is_none()) {
        let Some(awaited) = awaited(program, edge.op) else { continue };
        if seen.contains(&awaited) || seen.len() == MOST {
            continue;
        }
        seen.push(awaited);
        for diagnosis in never_issued(program, edge, awaited, graph) {
            if !all.iter().any(|known| known.rank == diagnosis.rank) {
                all.push(diagnosis);
            }
        }
    }
    if all.is_empty() { graph.cycles.iter().filter_map(|cycle| in_circle(program, cycle)).collect() } else { all }
}

fn awaited(program: &Program, op: OpId) -> Option<Awaited> {
    let part = collective_of(program, op).map(Awaited::Part);
    part.or_else(|| program.kind(op).channel().map(Awaited::End))
}

fn in_circle(program: &Program, cycle: &[(Rank, OpId)]) -> Option<Diagnosis> {
    if let Some(found) = out_of_order(program, cycle) {
        return Some(found);
    }
    let &(rank, op) = cycle.first()?;
    let stands = |(rank, op): &(Rank, OpId)| format!("{} at `{}`", program.whole(*rank), head(program, *op));
    let others: Vec<String> = cycle[1..].iter().map(stands).collect();
    let cause = if others.is_empty() {
        "it waits for itself".to_owned()
    } else {
        format!("it waits in a circle with {}: each issues first what the other issues later", others.join(", "))
    };
    Some(Diagnosis { rank, op: Some(op), cause })
}

/// The one of a group that issues two of its collectives the other way round than most.
fn out_of_order(program: &Program, cycle: &[(Rank, OpId)]) -> Option<Diagnosis> {
    let mut met = cycle.iter().filter_map(|&(_, op)| collective_of(program, op));
    let first = met.next()?;
    let second = met.find(|&id| id != first)?;
    let group = |id: CollectiveId| program.collectives[id.index()].group;
    let members = &program.groups[group(first).index()].ranks;
    let begins =
        |rank: Rank, id: CollectiveId| program.order[rank.index()].iter().position(|&op| collective_of(program, op) == Some(id));
    let is_first = |rank: &Rank| begins(*rank, first) < begins(*rank, second);
    let (one_way, other_way): (Vec<Rank>, Vec<Rank>) = members.iter().partition(|rank| is_first(rank));
    let ((few, early, late), many) = match one_way.len().cmp(&other_way.len()) {
        Ordering::Less => ((one_way, first, second), other_way),
        Ordering::Greater => ((other_way, second, first), one_way),
        Ordering::Equal => return None,
    };
    let &rank = few.first().filter(|_| group(first) == group(second))?;
    let op = program.order[rank.index()].iter().copied().find(|&op| collective_of(program, op) == Some(early));
    let (early, late) = (name(program, early), name(program, late));
    let cause = format!(
        "it issues `{early}` before `{late}`, and {} the other way round: ranks of a group must agree",
        ranks(program, &many)
    );
    Some(Diagnosis { rank, op, cause })
}

/// Who is to blame for what is never issued.
fn never_issued(program: &Program, edge: &WaitEdge, awaited: Awaited, graph: &WaitGraph) -> Vec<Diagnosis> {
    let Awaited::Part(collective) = awaited else { return vec![missing(program, edge.on_rank, edge, awaited, graph)] };
    let members = &program.group_of(collective).ranks;
    let (issuers, absent): (Vec<Rank>, Vec<Rank>) = members.iter().partition(|&&rank| issues(program, rank, collective));
    let step = program.op(edge.op).origin.step;
    let has_reason = |&rank: &Rank| left_out(program, rank, awaited).is_some() || is_idle_in(program, rank, step);
    // The few are to blame, unless it is seen that the others left something out.
    if issuers.len() <= absent.len() && !absent.iter().any(has_reason) {
        let [first, last] = [members.first(), members.last()].map(|rank| program.whole(rank.copied().unwrap_or_default()));
        let name = name(program, collective);
        let cause = format!("it issues `{name}` without the others, and a collective takes all of {first} to {last}");
        return issuers.into_iter().map(|rank| Diagnosis { rank, op: Some(edge.op), cause: cause.clone() }).collect();
    }
    absent.into_iter().map(|rank| missing(program, rank, edge, awaited, graph)).collect()
}

/// `rank` does not issue what others wait for.
fn missing(program: &Program, rank: Rank, edge: &WaitEdge, awaited: Awaited, graph: &WaitGraph) -> Diagnosis {
    let mut waiting: Vec<Rank> = graph.edges.iter().map(|edge| edge.rank).filter(|&waiting| waiting != rank).collect();
    waiting.sort_unstable();
    waiting.dedup();
    let waiting = format!("{} {}", ranks(program, &waiting), if waiting.len() == 1 { "waits" } else { "wait" });
    let (op, step, stands) = (left_out(program, rank, awaited), program.op(edge.op).origin.step, head(program, edge.op));
    let what = match awaited {
        Awaited::End(_) => format!("the other end of `{stands}`"),
        Awaited::Part(collective) => format!("`{}`", name(program, collective)),
    };
    let cause = if is_idle_in(program, rank, step) {
        format!("it does nothing in step {step}: its steps have ended, and {waiting} for it in `{stands}`")
    } else if op.is_some() {
        format!("it leaves out {what}, for which {waiting}")
    } else {
        format!("it never issues {what}, for which {waiting}")
    };
    Diagnosis { rank, op, cause }
}

/// The op of `rank` that was to meet the others, if it was left out.
fn left_out(program: &Program, rank: Rank, awaited: Awaited) -> Option<OpId> {
    let is_it = |&&op: &&OpId| match (program.kind(op), awaited) {
        (OpKind::Skipped(SkippedKind::Collective(id)), Awaited::Part(part)) => id == part,
        (OpKind::Skipped(SkippedKind::Send(_) | SkippedKind::Recv(_) | SkippedKind::RecvReduce(_)), Awaited::Part(part)) => {
            carries(program, op, part)
        }
        (OpKind::Skipped(SkippedKind::Send(id) | SkippedKind::Recv(id) | SkippedKind::RecvReduce(id)), Awaited::End(end)) => {
            id == end
        }
        _ => false,
    };
    program.order[rank.index()].iter().find(is_it).copied()
}

/// Whether `rank` takes part in `collective`, or in a message of it.
fn issues(program: &Program, rank: Rank, collective: CollectiveId) -> bool {
    program.order[rank.index()].iter().any(|&op| match program.kind(op) {
        OpKind::Collective(id) => id == collective,
        OpKind::Send(_) | OpKind::Recv(_) | OpKind::RecvReduce(_) => carries(program, op, collective),
        OpKind::Run(_) | OpKind::Skipped(_) => false,
    })
}

fn carries(program: &Program, op: OpId, collective: CollectiveId) -> bool {
    collective_of(program, op) == Some(collective)
}

/// The collective that `op` is, or is a message of.
fn collective_of(program: &Program, op: OpId) -> Option<CollectiveId> {
    if let OpKind::Collective(collective) = program.kind(op) {
        return Some(collective);
    }
    let mut buffers = program.reads(op).iter().chain(program.writes(op));
    buffers.find_map(|buffer| match program.buffers[buffer.index()].name {
        Name::Piece(collective, _) => Some(CollectiveId(collective)),
        _ => None,
    })
}

fn name(program: &Program, collective: CollectiveId) -> String {
    let collective = &program.collectives[collective.index()];
    format!("{} {}", collective.kind.name(), collective.label)
}
