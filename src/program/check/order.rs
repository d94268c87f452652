//! Is everything in order? Vector clocks over the streams of a rank, and what every buffer went through.
//!
//! On one rank, op a comes before op b if it stands before it on the same stream, or if a chain of waits and streams leads from b to a.
//! A clock says for each stream how far it had come when an op started. Of a buffer's uses it is enough to remember the latest write and
//! the reads behind it that are in no order among themselves, nearly always one (Flanagan and Freund 2009, `FastTrack`). What a single
//! stream uses is in order anyway.

use std::collections::BTreeMap;

use super::Finding;
use crate::base::{BufferId, OpId, Rank, StreamId};
use crate::program::op::{Buffer, OpKind};
use crate::program::tables::{CollectiveKind, Program};

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
    /// Streams of the program.
    streams: usize,
    /// The rank at work, and the stream of the op at work.
    pub rank: Rank,
    stream: StreamId,
    /// Per op of the rank, its stream.
    stream_of: Vec<u32>,
    /// Per op of the rank, for each stream the place of the latest op that comes before it, or is it.
    clocks: Vec<Place>,
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
        let streams = program.streams.len();
        Self {
            program,
            findings: Vec::new(),
            places: vec![0; program.ops()],
            lives: program.buffers.iter().map(life).collect(),
            reads: BTreeMap::new(),
            streams,
            rank: Rank(0),
            stream: StreamId(0),
            stream_of: Vec::new(),
            clocks: Vec::new(),
            now: 0,
        }
    }

    fn rank(&mut self, rank: Rank) {
        self.rank = rank;
        let order = &self.program.order[rank.index()];
        self.stream_of.clear();
        self.clocks.clear();
        let mut latest = vec![0; self.streams];
        for (place, &op) in (1..).zip(order) {
            if self.is_misplaced(op) {
                // It keeps its place, so that places stay those of the list, and does nothing.
                self.stream_of.push(0);
                self.clocks.extend(std::iter::repeat_n(0, self.streams));
                continue;
            }
            let stream = self.program.stream_of(op);
            self.tick(op, place, std::mem::replace(&mut latest[stream.index()], place));
            self.uses(op, place);
        }
    }

    /// Sets the clock for `op`: behind the op before it on its stream, and behind all that it waits for.
    fn tick(&mut self, op: OpId, place: Place, before: Place) {
        let Self { program, streams, .. } = *self;
        let clock = |place: Place| (place as usize - 1) * streams..place as usize * streams;
        self.now = self.clocks.len();
        if before == 0 {
            self.clocks.resize(self.now + streams, 0);
        } else {
            self.clocks.extend_from_within(clock(before));
        }
        for on in program.waits(op) {
            let waited = self.places[on.index()];
            if waited == 0 || program.rank_of(on) != self.rank {
                self.bad_wait(op, on);
                continue;
            }
            let (earlier, now) = self.clocks.split_at_mut(self.now);
            for (now, &then) in now.iter_mut().zip(&earlier[clock(waited)]) {
                *now = then.max(*now);
            }
        }
        self.stream = program.stream_of(op);
        self.clocks[self.now + self.stream.index()] = place;
        self.places[op.index()] = place;
        self.stream_of.push(self.stream.0);
    }

    fn uses(&mut self, op: OpId, place: Place) {
        let program = self.program;
        let (reads, writes) = (program.reads(op), program.writes(op));
        if !takes(program, program.kind(op), (reads, writes)) {
            self.wrong_operands(op);
        }
        reads.iter().for_each(|&buffer| self.read(op, place, buffer));
        writes.iter().for_each(|&buffer| self.change(op, place, buffer, Use::Write));
        program.frees(op).for_each(|buffer| self.change(op, place, buffer, Use::Free));
    }

    /// Whether the op at `place` comes before the op at work, or is it.
    fn is_before(&self, place: Place) -> bool {
        place == 0 || self.clocks[self.now + self.stream_of[place as usize - 1] as usize] >= place
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
        if life.sole == self.stream && life.rank == self.rank && !(is_free && life.stays) {
            (life.write, life.read, life.freed) = (place, 0, is_free);
            if is_free {
                life.sole = SEVERAL;
            }
        } else {
            self.change_with_others(op, place, buffer, change);
        }
    }

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
        let is_first = !is_free && life.sole == NOBODY && life.rank == self.rank;
        let sole = if is_first { self.stream } else { SEVERAL };
        self.lives[buffer.index()] = Life { write: place, read: 0, sole, freed: is_free, more_reads: false, ..life };
    }
}

/// Whether a kind of op takes these operands.
fn takes(program: &Program, kind: OpKind, (reads, writes): (&[BufferId], &[BufferId])) -> bool {
    match kind.original() {
        OpKind::Send(_) => !reads.is_empty() && writes.is_empty(),
        OpKind::Recv(_) => reads.is_empty() && !writes.is_empty(),
        OpKind::RecvReduce(_) => !reads.is_empty() && reads == writes,
        OpKind::Collective(collective) => match program.collectives[collective.index()].kind {
            CollectiveKind::AllReduce | CollectiveKind::Barrier => reads.len() == writes.len(),
            CollectiveKind::ReduceScatter => writes.len() == 1 || reads == writes,
            CollectiveKind::AllGather => reads.len() == 1 || reads == writes,
            CollectiveKind::AllToAll => reads.len() == 1 || writes.len() == 1 || reads.len() == writes.len(),
        },
        OpKind::Run(_) | OpKind::Skipped(_) => true,
    }
}
