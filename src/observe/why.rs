//! Why: what a rank or an op waits for, across ranks, back to the op that held all others up; and the critical path of a run.

use std::fmt;

use super::kind::label;
use super::run::Run;
use crate::base::{OpId, Rank, Ticks};
use crate::program::head::{head, head_with_rank};
use crate::program::trace::{Outcome, WaitEdge};
use crate::program::{OpKind, Wait};

/// One link of a chain: `op` waited for something until `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who waited.
    pub op: OpId,
    /// For what.
    pub wait: Wait,
    /// Until when; `None`: it waits still.
    pub until: Option<Ticks>,
}

/// Why an op could not start before it did: from the op back to the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Each step's wait names the op of the next one.
    pub steps: Vec<Step>,
    /// The op at which the chain ends.
    pub root: OpId,
    /// What that op has to do with it.
    pub end: End,
}

/// How a chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The root was running when the wait began.
    Running,
    /// The root stands in the chain already: they wait for each other.
    Circle,
    /// The root waits for a rank that never issues its part.
    Never(Rank),
    /// The root is a send whose message was on the way.
    OnTheWay,
    /// The root had nothing to wait for.
    Free,
}

/// Why `op` did not start at `since`: follows what each op waited for until one that was running then, or had started before.
#[must_use]
pub fn chain(run: &Run, op: OpId, since: Ticks) -> Chain {
    let runs = |root| run.times(root).is_some_and(|times| times.start <= since && times.end > since);
    Chain::follow(run, op, |op| cause(run, op, since), runs)
}

impl Chain {
    /// Follows what `op` waits for, and what that waits for, to the op that waits for nothing; `runs` says whether that one runs.
    pub(super) fn follow(run: &Run, op: OpId, wait: impl Fn(OpId) -> Option<Wait>, runs: impl Fn(OpId) -> bool) -> Self {
        let mut chain = Self { steps: Vec::new(), root: op, end: End::Free };
        while let Some(wait) = wait(chain.root) {
            let until = run.times(chain.root).map(|times| times.start);
            chain.steps.push(Step { op: chain.root, wait, until });
            let Some(on) = wait.on() else {
                if let Wait::NoPeer(rank) | Wait::NoMember(rank) = wait {
                    chain.end = End::Never(rank);
                }
                return chain;
            };
            if chain.steps.iter().any(|step| step.op == on) {
                chain.end = End::Circle;
                return chain;
            }
            chain.root = on;
        }
        if runs(chain.root) {
            chain.end = End::Running;
        } else if matches!(chain.steps.last(), Some(Step { wait: Wait::Message(_), .. })) {
            chain.end = End::OnTheWay;
        }
        chain
    }
}

/// What `op` waited for last, if it had not started at `since`.
fn cause(run: &Run, op: OpId, since: Ticks) -> Option<Wait> {
    match run.times(op) {
        Some(times) if times.start <= since => None,
        _ => run.cause(op),
    }
}

/// A sequence of ops in which each made the next one start, from the beginning of the run to the end of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CriticalPath {
    /// The ops, in order of time. A message stands as one of its ends, a collective as one of its members.
    pub ops: Vec<OpId>,
    /// Time in computation.
    pub computing: Ticks,
    /// Time in messages and collectives.
    pub communicating: Ticks,
}

/// Which of `ops` ends last, and when; of equals the first.
pub(super) fn last(run: &Run, ops: impl Iterator<Item = OpId>) -> Option<(Ticks, OpId)> {
    ops.filter_map(|op| Some((run.times(op)?.end, op))).reduce(|a, b| if b.0 > a.0 { b } else { a })
}

/// The critical path to the end of step `step`: no op on it could start earlier, and together they last as long as the run.
#[must_use]
pub fn critical_path(run: &Run, step: u32) -> CriticalPath {
    let last = last(run, run.program.all().filter(|&op| run.of_step(op, step)));
    let mut path = CriticalPath::default();
    let mut next = last.map(|(_, op)| op);
    let mut until = last.map_or(Ticks::ZERO, |(end, _)| end);
    // Whether `next` is the other end of a message or collective that is on the path already.
    let mut met = false;
    while let Some((op, times)) = next.and_then(|op| Some((op, run.times(op)?))) {
        let from = times.start.min(until);
        *(if run.communicates(op) { &mut path.communicating } else { &mut path.computing }) += until - from;
        until = from;
        if !met {
            path.ops.push(op);
        }
        let wait = run.cause(op);
        met = matches!(wait, Some(Wait::Peer(_) | Wait::Member(_)));
        next = wait.and_then(Wait::on);
    }
    path.ops.reverse();
    path
}

/// A chain as sentences, one a line; the ops of one slot count as one.
pub struct Sentences<'a> {
    run: &'a Run<'a>,
    chain: &'a Chain,
}

impl Chain {
    /// The chain in words.
    #[must_use]
    pub fn sentences<'a>(&'a self, run: &'a Run<'a>) -> Sentences<'a> {
        Sentences { run, chain: self }
    }

    /// The chain's way over the ranks in one sentence: `r0 B0 waits for g0 of r1, which waits for g0 of r2, where B0 was running`.
    #[must_use]
    pub fn brief(&self, run: &Run) -> String {
        let mut parts = Vec::new();
        for step in &self.steps {
            let other = step.wait.on().map(|on| run.program.rank_of(on));
            if let Some(other) = other.filter(|&other| other != run.program.rank_of(step.op)) {
                parts.push(format!("waits for {} of {}", label(run, step.op), run.program.whole(other)));
            }
        }
        let first = self.steps.first().map_or(self.root, |step| step.op);
        let start = format!("{} {}", run.program.whole_rank_of(first), label(run, first));
        let root = label(run, self.root);
        let end = match self.end {
            End::Running if parts.is_empty() => format!(" waits for {root}, which was running"),
            End::Running => format!(", where {root} was running"),
            End::OnTheWay => format!(", and {root} was on the way"),
            End::Circle => ": a circle".to_owned(),
            End::Never(rank) => format!(", and {} never issues its part of {root}", run.program.whole(rank)),
            End::Free => String::new(),
        };
        let gap = if parts.is_empty() { "" } else { " " };
        format!("{start}{gap}{}{end}", parts.join(", which "))
    }
}

impl fmt::Display for Sentences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run;
        for step in self.chain.steps.iter().filter(|step| !step.stays_in_slot(run)) {
            writeln!(f, "{}", step.sentence(run))?;
        }
        let root = head_with_rank(run.program, self.chain.root);
        match self.chain.end {
            End::Running => {
                let times = run.times(self.chain.root).unwrap_or_default();
                write!(f, "{root} was running, until {}", run.trace.clock.show(times.end))
            }
            End::Circle => write!(f, "and so they wait for each other in a circle"),
            End::Never(rank) => write!(f, "{} never issues its part", run.program.whole(rank)),
            End::OnTheWay => write!(f, "its message was on the way"),
            End::Free => write!(f, "{root} had nothing to wait for"),
        }
    }
}

impl Step {
    /// Whether the step goes from one op of a slot to the one before.
    fn stays_in_slot(&self, run: &Run) -> bool {
        let origin = |op: OpId| run.program.op(op).origin;
        matches!(self.wait, Wait::Stream(on) if origin(on) == origin(self.op) && origin(on).slot.is_some())
    }

    /// The step in words: `r0 1F5 forward blocks.3 needs the result of r0 recv x4.5 <- r1, until 14u`.
    #[must_use]
    pub fn sentence(&self, run: &Run) -> String {
        let on = match self.wait {
            Wait::NoPeer(rank) | Wait::NoMember(rank) => run.program.whole(rank).to_string(),
            wait => wait.on().map_or_else(String::new, |on| head_with_rank(run.program, on)),
        };
        let until = self.until.map_or_else(String::new, |until| format!(", until {}", run.trace.clock.show(until)));
        format!("{} {} {on}{until}", head_with_rank(run.program, self.op), self.wait.why())
    }
}

/// An edge of the wait-for graph in words: `r0 at 'send x4.1 -> r1' meets its peer at r1 recv x4.1 <- r0`.
#[must_use]
pub fn edge_sentence(run: &Run, edge: &WaitEdge) -> String {
    Step { op: edge.op, wait: edge.why, until: None }.sentence(run)
}

/// A cycle of the wait-for graph in words, one line per rank; nothing if the run did not deadlock.
#[must_use]
pub fn cycles(run: &Run) -> Vec<String> {
    let Outcome::Deadlocked(graph) = &run.trace.outcome else { return Vec::new() };
    let name = |cycle: &Vec<(Rank, OpId)>| {
        let stands = |(rank, op): &(Rank, OpId)| format!("{} at `{}`", run.program.whole(*rank), head(run.program, *op));
        cycle.iter().map(stands).collect::<Vec<_>>().join(" <-> ")
    };
    graph.cycles.iter().map(name).collect()
}

impl CriticalPath {
    /// The path in short: `r0 F0 > r1 F0 B0 > r0 B0`. Messages show as the change of rank.
    #[must_use]
    pub fn sentence(&self, run: &Run) -> String {
        let takes_time = |op: &OpId| run.times(*op).is_some_and(|times| times.end > times.start);
        let computing = self.ops.iter().copied().filter(|&op| matches!(run.program.kind(op), OpKind::Run(_)));
        let mut words: Vec<String> = Vec::new();
        let mut rank = None;
        for op in computing.filter(takes_time) {
            let here = run.program.rank_of(op);
            if rank.replace(here) != Some(here) {
                words.extend(rank.filter(|_| !words.is_empty()).map(|_| ">".to_owned()));
                words.push(run.program.whole(here).to_string());
            }
            let label = label(run, op);
            if words.last() != Some(&label) {
                words.push(label);
            }
        }
        words.join(" ")
    }
}
