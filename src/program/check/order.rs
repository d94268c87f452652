//! Is everything in order? Vector clocks over the streams of a rank, and what every buffer went through.
//!
//! On one rank, op a comes before op b if it stands before it on the same stream, or if a chain of waits and streams leads from b to a.
//! A clock says for each stream how far it had come when an op started. Of a buffer's uses it is enough to remember the latest write and
//! the reads behind it that are in no order among themselves, nearly always one (Flanagan and Freund 2009, `FastTrack`). What a single
//! stream uses is in order anyway, so a rank's state is looked at only where another stream than its compute stream touches any.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Finding;
use crate::base::{BufferId, OpId, Rank, StreamId};
use crate::program::op::{Buffer, OpKind};
use crate::program::tables::{COMPUTE, CollectiveKind, Entry, Program};

/// What is wrong with the order of ops and with the life of buffers.
pub(super) fn check(program: &Program) -> Vec<Finding> {
    let mut walk = Walk::new(program);
    for rank in (0..program.ranks()).map(Rank::new) {
        walk.rank(rank);
    }
    walk.left_behind();
    walk.findings
}

/// The place of an op in its rank's list, from 1; 0 is none.
pub(super) type Place = u32;

/// What a buffer went through.
#[derive(Clone, Copy)]
pub(super) struct Life {
    pub rank: Rank,
    /// The latest write, or free.
    pub write: Place,
    /// A read behind it.
    pub read: Place,
    /// The only stream of its rank that has used it, as long as it is there: every use so far comes before its next one. Or [`NOBODY`], or
    /// [`SEVERAL`].
    sole: StreamId,
    /// It is there from the start and stays.
    pub stays: bool,
    pub freed: bool,
    /// Further reads, in no order with `read`, stand in [`Walk::reads`].
    more_reads: bool,
}

/// No stream has used a buffer yet.
const NOBODY: StreamId = StreamId(u32::MAX);

/// No stream that is alone with a buffer which is there.
const SEVERAL: StreamId = StreamId(u32::MAX - 1);

/// Places for so many streams side by side: compared with one another in one go. Few programs have more streams.
type Clock = [Place; 8];

/// What an op does to a buffer.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Use {
    Read,
    Write,
    Free,
}

/// The walk through the lists of all ranks.
pub(super) struct Walk<'a> {
    pub program: &'a Program,
    pub findings: Vec<Finding>,
    /// Per op, its place, once it is issued.
    pub places: Vec<Place>,
    /// Per buffer.
    pub lives: Vec<Life>,
    reads: BTreeMap<BufferId, Vec<Place>>,
    /// So many clocks behind each other have a place for every stream.
    clocks_of_op: usize,
    /// Per rank, ids of state that it owns.
    state: Vec<Range<u32>>,
    /// The rank at work, and the stream of the op at work.
    pub rank: Rank,
    stream: StreamId,
    /// State of the rank that its compute stream alone touches; empty if another one touches any.
    plain: Range<u32>,
    /// Per op of the rank, its stream.
    stream_of: Vec<u32>,
    /// Per op of the rank, for each stream the place of the latest op that comes before it, or is it.
    clocks: Vec<Clock>,
    /// Where the clock of the op at work stands among them.
    now: usize,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program) -> Self {
        let life = |buffer: &Buffer| Life {
            rank: buffer.rank,
            write: 0,
            read: 0,
            sole: NOBODY,
            stays: buffer.stays(),
            freed: false,
            more_reads: false,
        };
        Self {
            program,
            findings: Vec::new(),
            places: vec![0; program.ops()],
            lives: program.buffers.iter().map(life).collect(),
            reads: BTreeMap::new(),
            clocks_of_op: program.streams.len().div_ceil(Clock::default().len()),
            state: state(program),
            rank: Rank(0),
            stream: StreamId(0),
            plain: 0..0,
            stream_of: Vec::new(),
            clocks: Vec::new(),
            now: 0,
        }
    }

    fn rank(&mut self, rank: Rank) {
        let program = self.program;
        let order = &program.order[rank.index()];
        self.rank = rank;
        self.plain = if touches_state_elsewhere(program, order) { 0..0 } else { self.state[rank.index()].clone() };
        self.stream_of.clear();
        self.clocks.clear();
        let mut latest = vec![0; program.streams.len()];
        for (place, &op) in (1..).zip(order) {
            let entry = program.entry(op);
            if self.is_misplaced(op, entry.rank()) {
                // It keeps its place, so that places stay those of the list, and does nothing.
                self.stream_of.push(0);
                self.clocks.extend(std::iter::repeat_n(Clock::default(), self.clocks_of_op));
                continue;
            }
            self.stream = entry.stream();
            let before = std::mem::replace(&mut latest[self.stream.index()], place);
            self.tick((op, entry), place, before);
            self.uses((op, entry), place);
        }
    }

    /// Sets the clock for an op: behind the op before it on its stream, and behind all that it waits for.
    fn tick(&mut self, (op, entry): (OpId, Entry), place: Place, before: Place) {
        self.now = self.clocks.len();
        if before == 0 {
            self.clocks.extend(std::iter::repeat_n(Clock::default(), self.clocks_of_op));
        } else {
            self.clocks.extend_from_within(self.clock(before));
        }
        for on in entry.waits() {
            let waited = self.places[on.index()];
            if waited == 0 || self.program.rank_of(on) != self.rank {
                self.bad_wait(op, on);
                continue;
            }
            let then = self.clock(waited);
            let (earlier, now) = self.clocks.split_at_mut(self.now);
            for (now, then) in now.iter_mut().zip(&earlier[then]) {
                now.iter_mut().zip(then).for_each(|(now, then)| *now = *then.max(now));
            }
        }
        let (part, lane) = part_and_lane(self.stream.0);
        self.clocks[self.now + part][lane] = place;
        self.places[op.index()] = place;
        self.stream_of.push(self.stream.0);
    }

    /// Where the clocks of the op at `place` stand.
    fn clock(&self, place: Place) -> Range<usize> {
        let start = (place as usize - 1) * self.clocks_of_op;
        start..start + self.clocks_of_op
    }

    /// How far the clock of the op at work knows `stream` to be.
    fn known(&self, stream: u32) -> Place {
        let (part, lane) = part_and_lane(stream);
        self.clocks[self.now + part][lane]
    }

    fn uses(&mut self, (op, entry): (OpId, Entry), place: Place) {
        let (mut reads, mut writes) = (entry.reads(), entry.writes());
        if !takes(self.program, entry.kind(), (reads, writes)) {
            self.wrong_operands(op);
        }
        let state = entry.state();
        if self.stream == COMPUTE && state.iter().all(|state| is_within(state, &self.plain)) {
            reads = &reads[..reads.len() - state[0].len()];
            writes = &writes[..writes.len() - state[1].len()];
        }
        reads.iter().for_each(|&buffer| self.read(op, place, buffer));
        writes.iter().for_each(|&buffer| self.change(op, place, buffer, Use::Write));
        entry.frees().for_each(|buffer| self.change(op, place, buffer, Use::Free));
    }

    /// Whether the op at `place` comes before the op at work, or is it.
    fn is_before(&self, place: Place) -> bool {
        place == 0 || self.known(self.stream_of[place as usize - 1]) >= place
    }

    #[inline]
    fn read(&mut self, op: OpId, place: Place, buffer: BufferId) {
        let life = &mut self.lives[buffer.index()];
        if life.sole == self.stream && life.rank == self.rank {
            life.read = place;
        } else {
            self.read_with_others(op, place, buffer);
        }
    }

    /// Not inlined, nor is its twin for changes: what is common stays short enough to stand where it is called.
    #[inline(never)]
    fn read_with_others(&mut self, op: OpId, place: Place, buffer: BufferId) {
        let life = self.lives[buffer.index()];
        let is_there = !life.freed && life.rank == self.rank && (life.write > 0 || life.stays);
        if !is_there {
            self.misuse(op, buffer, life, Use::Read);
        }
        if !life.freed && !self.is_before(life.write) {
            self.race(op, life.write, buffer, (Use::Write, Use::Read));
        }
        let is_ordered = self.is_before(life.read);
        let life = &mut self.lives[buffer.index()];
        life.sole = if is_there && life.sole == NOBODY { self.stream } else { SEVERAL };
        if is_ordered {
            life.read = place;
        } else {
            life.more_reads = true;
            self.reads.entry(buffer).or_default().push(place);
        }
    }

    /// A write or a free: it must come behind every earlier use.
    #[inline]
    fn change(&mut self, op: OpId, place: Place, buffer: BufferId, change: Use) {
        let life = &mut self.lives[buffer.index()];
        let is_free = change == Use::Free;
        let is_alone = life.sole == self.stream || (life.sole == NOBODY && !is_free);
        if is_alone && life.rank == self.rank && !(is_free && life.stays) {
            (life.write, life.read, life.freed) = (place, 0, is_free);
            life.sole = if is_free { SEVERAL } else { self.stream };
        } else {
            self.change_with_others(op, place, buffer, change);
        }
    }

    #[inline(never)]
    fn change_with_others(&mut self, op: OpId, place: Place, buffer: BufferId, change: Use) {
        let life = self.lives[buffer.index()];
        // A write takes memory anew where it was given back: gathered parameters come and go.
        let is_free = change == Use::Free;
        if life.rank != self.rank || (is_free && (life.freed || life.stays)) {
            self.misuse(op, buffer, life, change);
        }
        let is_told = is_free && life.freed;
        if !is_told && !self.is_before(life.write) {
            let earlier = if life.freed { Use::Free } else { Use::Write };
            self.race(op, life.write, buffer, (earlier, change));
        }
        if !self.is_before(life.read) {
            self.race(op, life.read, buffer, (Use::Read, change));
        }
        if life.more_reads {
            for read in self.reads.remove(&buffer).unwrap_or_default() {
                if !self.is_before(read) {
                    self.race(op, read, buffer, (Use::Read, change));
                }
            }
        }
        self.lives[buffer.index()] = Life { write: place, read: 0, sole: SEVERAL, freed: is_free, more_reads: false, ..life };
    }
}

/// Per rank, ids of state that it owns: the first that stand side by side in the table, mostly all.
fn state(program: &Program) -> Vec<Range<u32>> {
    let mut of_rank = vec![0..0; program.ranks()];
    for (id, buffer) in (0..).zip(&program.buffers[..program.lasting()]) {
        let ids = &mut of_rank[buffer.rank.index()];
        if ids.start == ids.end {
            *ids = id..id + 1;
        } else if ids.end == id {
            ids.end += 1;
        }
    }
    of_rank
}

/// Whether an op on another stream than the compute stream touches state.
fn touches_state_elsewhere(program: &Program, order: &[OpId]) -> bool {
    let is_state = |buffer: &BufferId| buffer.index() < program.lasting();
    let mut others = order.iter().map(|&op| program.entry(op)).filter(|entry| entry.stream() != COMPUTE);
    others.any(|entry| entry.reads().iter().any(is_state) || entry.writes().iter().any(is_state))
}

/// Whether all `buffers` are among `ids`. There is no way out of the loop: mostly they are, and several are compared at once.
fn is_within(buffers: &[BufferId], ids: &Range<u32>) -> bool {
    let size = ids.end - ids.start;
    buffers.iter().fold(true, |is_within, buffer| is_within & (buffer.0.wrapping_sub(ids.start) < size))
}

/// Where the place of a stream stands in the clocks of an op.
fn part_and_lane(stream: u32) -> (usize, usize) {
    let lanes = Clock::default().len();
    (stream as usize / lanes, stream as usize % lanes)
}

/// Whether a kind of op takes these operands.
fn takes(program: &Program, kind: OpKind, (reads, writes): (&[BufferId], &[BufferId])) -> bool {
    match kind.original() {
        OpKind::Run(_) | OpKind::Skipped(_) => true,
        OpKind::Send(_) => !reads.is_empty() && writes.is_empty(),
        OpKind::Recv(_) => reads.is_empty() && !writes.is_empty(),
        OpKind::RecvReduce(_) => !reads.is_empty() && reads == writes,
        OpKind::Collective(collective) => match program.collectives[collective.index()].kind {
            CollectiveKind::AllReduce | CollectiveKind::Barrier => reads.len() == writes.len(),
            CollectiveKind::ReduceScatter => writes.len() == 1 || reads == writes,
            CollectiveKind::AllGather => reads.len() == 1 || reads == writes,
            CollectiveKind::AllToAll => reads.len() == 1 || writes.len() == 1 || reads.len() == writes.len(),
        },
    }
}
