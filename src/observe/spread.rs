//! Spread: whose contributions each rank's chunks of an expanded all-reduce hold, at any event.
//!
//! Found by following the messages: a receive-reduce adds what the sender's chunk holds to the receiver's, a receive replaces it.

use super::replay::replay;
use super::run::Run;
use super::state::{At, State};
use super::traffic::collective_of;
use crate::base::{CollectiveId, OpId, Rank};
use crate::program::{Name, OpKind};

/// The chunks of one collective.
#[derive(Clone, Debug)]
pub struct Chunks {
    /// Which collective.
    pub collective: CollectiveId,
    /// Its members.
    pub ranks: Vec<Rank>,
    /// How many chunks each member has.
    pub chunks: usize,
    /// How its messages go.
    pub shape: Shape,
    /// The event of its first message.
    pub first: usize,
    /// The event of its last one.
    pub last: usize,
    /// Per member, its receives in order.
    pub receives: Vec<Vec<OpId>>,
    /// Per member, how many of its receives come before the first that does not reduce.
    reduces: Vec<usize>,
    /// Per member and chunk, what it holds from an event on.
    cells: Vec<Vec<(u32, Held)>>,
}

/// How the messages of a collective go. Members are named by their places in the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Round a ring, in this order.
    Ring(Vec<usize>),
    /// Up a tree and down again: per member its parent; the root has none.
    Tree(Vec<Option<usize>>),
    /// Some other way.
    Other,
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The members whose contributions are summed in: bit i is the member at place i.
    pub of: u64,
    /// Whether some contribution is in it twice.
    pub twice: bool,
}

/// How far a collective is: of a ring the steps that have started, of how many; of anything else the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// Reduce-scatter, or reduction.
    pub reduce: (usize, usize),
    /// All-gather, or broadcast.
    pub gather: (usize, usize),
}

/// Contributions are followed for groups of at most this many ranks.
pub const MOST_RANKS: usize = 64;

/// The chunks of all expanded collectives whose messages ran, by their first event. Linear in the ops but for sorting.
#[must_use]
pub fn chunks(run: &Run) -> Vec<Chunks> {
    let mut all: Vec<Option<Chunks>> = vec![None; run.program.collectives.len()];
    for (index, ends) in receives(run).into_iter().enumerate() {
        all[index] = Chunks::new(run, CollectiveId::new(index), &ends);
    }
    if all.iter().flatten().any(|chunks| !chunks.cells.is_empty()) {
        replay(run, |moment| {
            if !moment.starts
                && run.program.kind(moment.op).receives()
                && let Some(chunks) = collective_of(run, moment.op).and_then(|id| all[id.index()].as_mut())
            {
                chunks.receive(run, moment.op, moment.event);
            }
        });
    }
    let mut all: Vec<Chunks> = all.into_iter().flatten().collect();
    all.sort_by_key(|chunks| chunks.first);
    all
}

/// Per collective, the receives that ran.
fn receives(run: &Run) -> Vec<Vec<OpId>> {
    let mut receives = vec![Vec::new(); run.program.collectives.len()];
    for op in run.program.all().filter(|&op| run.program.kind(op).receives() && run.times(op).is_some()) {
        if let Some(id) = collective_of(run, op) {
            receives[id.index()].push(op);
        }
    }
    receives
}

impl Chunks {
    fn new(run: &Run, collective: CollectiveId, ends: &[OpId]) -> Option<Self> {
        let group = run.program.collectives[collective.index()].group;
        let ranks = run.program.groups[group.index()].ranks.clone();
        let events = ends.iter().filter_map(|&op| run.trace.event_of(op));
        let (first, last) = (events.clone().min()?, events.max()?);
        let mut receives = vec![Vec::new(); ranks.len()];
        for &op in ends {
            receives[place(&ranks, run.program.rank_of(op))?].push(op);
        }
        let reduces = |op: &&OpId| matches!(run.program.kind(**op), OpKind::RecvReduce(_));
        let reduces = receives.iter().map(|ops: &Vec<OpId>| ops.iter().take_while(reduces).count()).collect();
        let chunks = ends.iter().flat_map(|&op| carried(run, op)).max()? + 1;
        let shape = Shape::of(run, &ranks, ends);
        let own = |member: usize| (0, Held { of: 1 << member, twice: false });
        let followed = ranks.len() <= MOST_RANKS;
        let cells = if followed { (0..ranks.len() * chunks).map(|cell| vec![own(cell / chunks)]).collect() } else { Vec::new() };
        Some(Self { collective, ranks, chunks, shape, first, last, receives, reduces, cells })
    }

    /// What the chunk `chunk` of the member at `place` holds at an event; `None` if the group is too large to follow.
    #[must_use]
    pub fn held(&self, place: usize, chunk: usize, event: usize) -> Option<Held> {
        let cell = self.cells.get(place * self.chunks + chunk)?;
        let behind = cell.partition_point(|&(from, _)| from as usize <= event);
        cell.get(behind.checked_sub(1)?).map(|&(_, held)| held)
    }

    /// How far it is. Round a ring all members step together, and the furthest one counts; in a tree some have more messages than others,
    /// and all count.
    #[must_use]
    pub fn phase(&self, at: &At) -> Phase {
        let mut phase = Phase::default();
        let together = if matches!(self.shape, Shape::Ring(_)) { usize::max } else { |sum, more| sum + more };
        for (receives, &split) in self.receives.iter().zip(&self.reduces) {
            let started = receives.partition_point(|&op| at.state(op) >= State::Running);
            let of = |sum: &mut (usize, usize), done: usize, all: usize| *sum = (together(sum.0, done), together(sum.1, all));
            of(&mut phase.reduce, started.min(split), split);
            of(&mut phase.gather, started.saturating_sub(split), receives.len() - split);
        }
        phase
    }

    /// The receives of the member at `place` that are moving.
    #[must_use]
    pub fn moving(&self, place: usize, at: &At) -> Option<OpId> {
        let receives = &self.receives[place];
        let next = receives.partition_point(|&op| at.state(op) == State::Done);
        receives.get(next).copied().filter(|&op| at.state(op) == State::Running)
    }

    fn receive(&mut self, run: &Run, op: OpId, event: u32) {
        if self.cells.is_empty() {
            return;
        }
        let of = |op: OpId| place(&self.ranks, run.program.rank_of(op));
        let Some((from, send)) = run.links.peer(op).and_then(|send| Some((of(send)?, send))) else { return };
        let Some(to) = of(op) else { return };
        for (theirs, own) in carried(run, send).zip(carried(run, op)) {
            let now = |cell: usize| self.cells.get(cell).and_then(|cell| cell.last()).map(|&(_, held)| held);
            let target = to * self.chunks + own;
            let (Some(message), Some(mine)) = (now(from * self.chunks + theirs), now(target)) else { return };
            let held = match run.program.kind(op) {
                OpKind::RecvReduce(_) => mine.plus(message),
                _ => message,
            };
            self.cells[target].push((event, held));
        }
    }
}

impl Held {
    /// How many members' contributions it holds.
    #[must_use]
    pub fn count(self) -> usize {
        self.of.count_ones() as usize
    }

    fn plus(self, other: Self) -> Self {
        Self { of: self.of | other.of, twice: self.twice || other.twice || self.of & other.of != 0 }
    }
}

impl Shape {
    fn of(run: &Run, ranks: &[Rank], ends: &[OpId]) -> Self {
        let wire = |&op: &OpId| {
            let channel = run.program.channels[run.program.kind(op).channel()?.index()];
            Some((place(ranks, channel.from)?, place(ranks, channel.to)?, matches!(run.program.kind(op), OpKind::RecvReduce(_))))
        };
        let mut wires: Vec<(usize, usize, bool)> = ends.iter().filter_map(wire).collect();
        wires.sort_unstable();
        wires.dedup();
        ring(ranks.len(), &wires).or_else(|| tree(ranks.len(), &wires)).unwrap_or(Self::Other)
    }
}

/// The place of a member; groups list their ranks in order.
fn place(ranks: &[Rank], rank: Rank) -> Option<usize> {
    ranks.binary_search(&rank).ok().or_else(|| ranks.iter().position(|&member| member == rank))
}

/// Everybody sends to one other, sums and results alike, and all stand on one circle.
fn ring(n: usize, wires: &[(usize, usize, bool)]) -> Option<Shape> {
    let mut to = vec![None; n];
    for &(from, target, _) in wires {
        if to[from].replace(target).is_some_and(|other| other != target) {
            return None;
        }
    }
    let mut reduces = vec![false; n];
    wires.iter().filter(|wire| wire.2).for_each(|wire| reduces[wire.1] = true);
    let reduces_everywhere = reduces.iter().all(|&reduces| reduces);
    let mut order = vec![0];
    while let Some(next) = to[order[order.len() - 1]].filter(|&next| next != 0 && order.len() < n) {
        order.push(next);
    }
    let closed = order.len() == n && to[order[n - 1]] == Some(0);
    (closed && reduces_everywhere).then_some(Shape::Ring(order))
}

/// Everybody but the root sends its sum to one parent.
fn tree(n: usize, wires: &[(usize, usize, bool)]) -> Option<Shape> {
    let mut parents = vec![None; n];
    for &(from, to, _) in wires.iter().filter(|wire| wire.2) {
        if parents[from].replace(to).is_some() {
            return None;
        }
    }
    let roots = parents.iter().filter(|parent| parent.is_none()).count();
    let leads_up = |mut member: usize| (0..n).any(|_| parents[member].map(|parent| member = parent).is_none());
    (roots == 1 && (0..n).all(leads_up)).then_some(Shape::Tree(parents))
}

/// The chunks that a message carries.
fn carried<'a>(run: &'a Run, op: OpId) -> impl Iterator<Item = usize> + 'a {
    run.program.carried(op).iter().filter_map(|buffer| match run.program.buffers[buffer.index()].name {
        Name::Piece(_, chunk) | Name::Chunk(chunk) => Some(chunk as usize),
        _ => None,
    })
}
