//! Repairs of a deadlock: what would resolve its circles. Each is tried by the engine, on shapes, before it is proposed.
//!
//! A circle goes through ranks, each of which stands at the end of a message while the rank before it waits for one that it would issue
//! later. If that rank issues the later one first (*reorder*), or both at once (*batch*, as `batch_isend_irecv` does), the circle is
//! broken. Mostly the next one comes a few events behind, so the same is done again until the run completes or nothing more helps.
//! A third way is to change nothing but the queues (*semantics*).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{OpId, Rank, StreamId};
use crate::compile;
use crate::engine::session::{self, Numbers};
use crate::observe::Run;
use crate::observe::report::{Repair, RepairKind};
use crate::program::head::head;
use crate::program::tables::COMPUTE;
use crate::program::trace::{Outcome, WaitGraph};
use crate::program::{OpKind, Program, Trace, check};
use crate::scenario::{PointToPoint, Scenario, Task};

/// Events of all tries together: whoever looks at a deadlock does not wait for its repair.
const MOST_EVENTS: usize = 1_000_000;

/// What resolves the deadlock of `program`, which stopped with `graph`. Empty where no circle is to blame, or nothing helps.
#[must_use]
pub fn repairs(scenario: &Scenario, program: &Program, graph: &WaitGraph) -> Vec<Repair> {
    if graph.cycles.is_empty() {
        return Vec::new();
    }
    let changed =
        [RepairKind::Reorder, RepairKind::Batch].into_iter().filter_map(|kind| Attempt::new(scenario, kind).run(program));
    changed.chain(other_semantics(scenario)).collect()
}

/// Other queues with which the same orders complete.
fn other_semantics(scenario: &Scenario) -> Vec<Repair> {
    let Task::Train(training) = &scenario.task else { return Vec::new() };
    let try_one = |&p2p: &PointToPoint| {
        let mut training = training.clone();
        training.pipeline.p2p = p2p;
        let scenario = Scenario { task: Task::Train(training), ..scenario.clone() };
        let program = Arc::new(compile::compile(&scenario).program);
        if program.ops() > MOST_EVENTS {
            return None;
        }
        let (_, trace) =
            session::run(program.clone(), &scenario.hardware, &scenario.trouble, Numbers::Shape, &mut |_, _| {}).ok()?;
        let what = format!("pipeline.p2p = \"{p2p}\"");
        (trace.outcome == Outcome::Completed).then(|| repair(RepairKind::Semantics, what, Vec::new(), &program, &trace))
    };
    let others = [PointToPoint::EdgeFifo, PointToPoint::Buffered].into_iter().filter(|&p2p| p2p != training.pipeline.p2p);
    others.filter_map(|p2p| try_one(&p2p)).collect()
}

fn repair(kind: RepairKind, what: String, changes: Vec<String>, program: &Program, trace: &Trace) -> Repair {
    let makespan = trace.clock.in_unit(Run::new(program, trace).makespan());
    Repair { kind, what, changes, makespan }
}

/// A deadlocked program that is changed until it completes.
struct Attempt<'a> {
    scenario: &'a Scenario,
    kind: RepairKind,
    /// Events that may still be run.
    left: usize,
    changes: Vec<String>,
    /// Per stream of batches, the stream whose ops they begin beside.
    roots: BTreeMap<StreamId, StreamId>,
}

/// Two ends of messages on one rank: the one at which it stands, and a later one that another rank waits for.
#[derive(Clone, Copy)]
struct Pair {
    rank: Rank,
    stands: OpId,
    needed: OpId,
}

impl<'a> Attempt<'a> {
    fn new(scenario: &'a Scenario, kind: RepairKind) -> Self {
        Self { scenario, kind, left: MOST_EVENTS, changes: Vec::new(), roots: BTreeMap::new() }
    }

    fn run(mut self, program: &Program) -> Option<Repair> {
        let mut program = Arc::new(program.clone());
        let (mut reached, mut vain) = (0, 0);
        loop {
            let trace = self.trace(&program)?;
            let graph = match &trace.outcome {
                Outcome::Completed => return self.finish(&program, &trace),
                Outcome::Deadlocked(graph) => graph,
                Outcome::OutOfMemory { .. } => return None,
            };
            // Several ranks of a circle may have to change before it moves.
            vain = if trace.events.len() > reached { 0 } else { vain + 1 };
            reached = reached.max(trace.events.len());
            let is_stuck = vain > program.ranks();
            let changed = Arc::make_mut(&mut program);
            let pair = graph.cycles.iter().find_map(|cycle| pair(changed, graph, cycle)).filter(|_| !is_stuck)?;
            self.changes.push(self.sentence(changed, pair));
            match self.kind {
                RepairKind::Batch => self.batch(changed, pair),
                _ => reorder(changed, pair),
            }
        }
    }

    fn trace(&mut self, program: &Arc<Program>) -> Option<Trace> {
        let Scenario { hardware, trouble, .. } = self.scenario;
        self.left = self.left.checked_sub(program.ops())?;
        let (_, trace) = session::run(program.clone(), hardware, trouble, Numbers::Shape, &mut |_, _| {}).ok()?;
        Some(trace)
    }

    /// A changed program counts only if it is as sound as it was.
    fn finish(self, program: &Program, trace: &Trace) -> Option<Repair> {
        let what = match (self.kind, self.changes.as_slice()) {
            (_, []) => return None,
            (RepairKind::Batch, [only]) => format!("batch {only}"),
            (RepairKind::Batch, [first, rest @ ..]) => format!("batch {first}, and {} such pairs more", rest.len()),
            (_, [only]) => format!("let {only}"),
            (_, [first, rest @ ..]) => format!("let {first}, and {} such pairs more", rest.len()),
        };
        check(program).is_empty().then(|| repair(self.kind, what, self.changes, program, trace))
    }

    /// Lets the rank issue both ends at once: they start together, and what comes behind waits for both. Ops of one stream run one after the
    /// other, so each further end of a batch has a stream of its own, and waits in place of the order.
    fn batch(&mut self, program: &mut Program, pair: Pair) {
        let Pair { rank, stands, needed } = pair;
        let root = self.root(program.stream_of(stands));
        let here = take(program, pair);
        let order = &program.order[rank.index()];
        let of_root = |op: &OpId| program.stream_of(*op) == root;
        // The end at which the rank stands may be of a batch already, which begins with an op of the stream itself.
        let first = (0..=here).rev().find(|&place| of_root(&order[place])).unwrap_or(here);
        let joins = |op: &&OpId| !of_root(op) && self.root(program.stream_of(**op)) == root;
        let members = order[first + 1..].iter().take_while(joins).count();
        let place = first + 1 + members;
        let earlier = order[..first].iter().rev().copied().find(of_root);
        let later = order[place..].iter().copied().find(of_root);
        let own = batch_stream(program, root, members + 1);
        self.roots.insert(own, root);
        program.order[rank.index()].insert(place, needed);
        program.set_stream(needed, own);
        earlier.into_iter().for_each(|earlier| program.wait(needed, earlier));
        later.into_iter().for_each(|later| program.wait(later, needed));
    }

    /// The stream beside whose ops those of `stream` begin; itself, if it is of no batch.
    fn root(&self, stream: StreamId) -> StreamId {
        self.roots.get(&stream).copied().unwrap_or(stream)
    }

    fn sentence(&self, program: &Program, Pair { rank, stands, needed }: Pair) -> String {
        let (rank, stands, needed) = (program.whole(rank), head(program, stands), head(program, needed));
        match self.kind {
            RepairKind::Batch => format!("`{stands}` and `{needed}` of {rank}"),
            _ => format!("{rank} issue `{needed}` before `{stands}`"),
        }
    }
}

/// A pair on some rank of `cycle` that may change places; the last rank's if it may.
fn pair(program: &Program, graph: &WaitGraph, cycle: &[(Rank, OpId)]) -> Option<Pair> {
    let pairs = (0..cycle.len()).rev().filter_map(|place| {
        let ((_, before), (rank, stands)) = (cycle[(place + cycle.len() - 1) % cycle.len()], cycle[place]);
        let needed = graph.edges.iter().find(|edge| edge.op == before)?.on_op?;
        Some(Pair { rank, stands, needed })
    });
    let legal: Vec<Pair> = pairs.filter(|pair| may_change(program, *pair)).collect();
    // A receive needs nothing to be posted; a send is better left where it is.
    let receives = |pair: &&Pair| program.kind(pair.needed).receives();
    legal.iter().find(receives).or(legal.first()).copied()
}

/// Whether what `needed` sends is there where the rank stands.
fn may_change(program: &Program, Pair { rank, stands, needed }: Pair) -> bool {
    let order = &program.order[rank.index()];
    let place = |op: OpId| order.iter().position(|&other| other == op);
    let (Some(here), Some(there)) = (place(stands), place(needed)) else { return false };
    let is_message = |op: OpId| program.kind(op).channel().is_some();
    let uses = program.reads(needed);
    let makes = |op: &OpId| program.writes(*op).iter().any(|written| uses.contains(written));
    let is_made_between = || !matches!(program.kind(needed), OpKind::Recv(_)) && order[here..there].iter().any(makes);
    here < there && program.rank_of(stands) == rank && is_message(stands) && is_message(needed) && !is_made_between()
}

/// Lets the rank issue the needed end first.
fn reorder(program: &mut Program, pair: Pair) {
    let here = take(program, pair);
    program.order[pair.rank.index()].insert(here, pair.needed);
}

/// The stream of the ends of batches that begin beside ops of `root`: of the second, of the third, and so on.
fn batch_stream(program: &mut Program, root: StreamId, member: usize) -> StreamId {
    let name = if root == COMPUTE { "pp".to_owned() } else { program.streams[root.index()].name.clone() };
    program.communication_stream(&format!("{name}{}", ".batch".repeat(member)))
}

/// Takes the needed end out of its rank's list; it waits for what the other end waits for, and for nothing that is issued behind it. Returns
/// the place of the other end.
fn take(program: &mut Program, Pair { rank, stands, needed }: Pair) -> usize {
    let order = &mut program.order[rank.index()];
    order.retain(|&op| op != needed);
    let here = order.iter().position(|&op| op == stands).unwrap_or(order.len());
    let before = order[..here].to_vec();
    let mut waits: Vec<OpId> = program.waits(needed).filter(|on| before.contains(on)).collect();
    waits.extend(program.waits(stands));
    waits.sort_unstable();
    waits.dedup();
    program.set_waits(needed, &waits);
    here
}
