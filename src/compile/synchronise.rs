//! Waits: where two streams of a rank touch one buffer, the later op waits for the earlier one.
//!
//! The hazards (read after write, write after read, write after write, free after use) are found from the operands alone, in issue order,
//! so that no other pass has to think of them. Ops of one stream are in order anyway.

use std::collections::BTreeMap;

use crate::base::{BufferId, OpId, Rank, StreamId};
use crate::program::Program;
use crate::program::links::SomeOp;
use crate::program::tables::{COMPUTE, Entry};

use super::Build;

/// Adds the waits of every rank.
pub(super) fn run(build: &mut Build) {
    let program = &mut build.program;
    let mut known = Known::new(program);
    let mut uses = Uses::new(program);
    let mut hazards = Vec::new();
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = std::mem::take(&mut program.order[rank.index()]);
        known.latest.fill(0);
        uses.share(program, &order);
        for (place, &op) in (1..).zip(&order) {
            let entry = program.entry(op);
            let stream = entry.stream();
            known.places[op.index()] = place;
            uses.hazards(program, (op, entry), &mut hazards);
            entry.waits().for_each(|on| known.learn(program, stream, on));
            hazards.drain(..).for_each(|on| known.wait(program, (op, stream), on));
        }
        program.order[rank.index()] = order;
    }
}

/// How far the streams of a rank know each other to be.
struct Known {
    streams: usize,
    /// Per op, its place in its rank's list, from 1.
    places: Vec<u32>,
    /// Per stream, for each stream the place of the latest op that it has waited for.
    latest: Vec<u32>,
}

impl Known {
    fn new(program: &Program) -> Self {
        let streams = program.streams.len();
        Self { streams, places: vec![0; program.ops()], latest: vec![0; streams * streams] }
    }

    fn latest(&mut self, stream: StreamId, other: StreamId) -> &mut u32 {
        &mut self.latest[stream.index() * self.streams + other.index()]
    }

    /// `stream` is behind `on` from here on.
    fn learn(&mut self, program: &Program, stream: StreamId, on: OpId) {
        let place = self.places[on.index()];
        let latest = self.latest(stream, program.stream_of(on));
        *latest = place.max(*latest);
    }

    /// Lets `op` wait for `on`, unless its stream is behind `on` already.
    fn wait(&mut self, program: &mut Program, (op, stream): (OpId, StreamId), on: OpId) {
        let (other, place) = (program.stream_of(on), self.places[on.index()]);
        let latest = self.latest(stream, other);
        if stream != other && *latest < place {
            *latest = place;
            program.wait(op, on);
        }
    }
}

/// The latest uses of one rank's buffers that may need a wait: those that an op of a communication stream touches.
struct Uses {
    /// Per buffer, its place in the table below, from 1; 0 for those that no other stream touches.
    place: Vec<u32>,
    /// The first buffer that has a place.
    first: usize,
    latest: Vec<Latest>,
    /// Readers since the latest write on other streams than the latest reader, by place; few buffers have any.
    others: BTreeMap<usize, Vec<OpId>>,
}

/// The latest uses of a buffer.
#[derive(Clone, Copy, Default)]
struct Latest {
    writer: Option<SomeOp>,
    /// The latest reader since then.
    reader: Option<SomeOp>,
    /// There are readers on other streams.
    has_others: bool,
}

impl Uses {
    fn new(program: &Program) -> Self {
        Self { place: vec![0; program.buffers.len()], first: 0, latest: Vec::new(), others: BTreeMap::new() }
    }

    /// Turns to the ops of another rank: gives places to what its communication streams touch.
    fn share(&mut self, program: &Program, order: &[OpId]) {
        let mut places = 0;
        self.first = usize::MAX;
        for entry in order.iter().map(|&op| program.entry(op)).filter(|entry| entry.stream() != COMPUTE) {
            for buffer in entry.reads().iter().chain(entry.writes()) {
                let place = &mut self.place[buffer.index()];
                if *place == 0 {
                    places += 1;
                    *place = places;
                    self.first = self.first.min(buffer.index());
                }
            }
        }
        self.latest.clear();
        self.latest.resize(places as usize, Latest::default());
        self.others.clear();
    }

    fn place(&self, buffer: BufferId) -> Option<usize> {
        if buffer.index() < self.first {
            return None;
        }
        self.place[buffer.index()].checked_sub(1).map(|place| place as usize)
    }

    /// Collects the earlier ops that `op` must come behind, and remembers its uses.
    fn hazards(&mut self, program: &Program, (op, entry): (OpId, Entry), hazards: &mut Vec<OpId>) {
        let shares_state = self.first < program.lasting();
        let reads = if shares_state { entry.reads() } else { entry.passing_reads() };
        let writes = if shares_state { entry.writes() } else { entry.passing_writes() };
        for &buffer in reads {
            if let Some(place) = self.place(buffer) {
                hazards.extend(self.latest[place].writer.map(OpId::from));
                self.read(program, op, place);
            }
        }
        for buffer in writes.iter().copied().chain(entry.frees()) {
            if let Some(place) = self.place(buffer) {
                // Behind a free: who takes the memory again comes later.
                let Latest { writer, reader, has_others } =
                    std::mem::replace(&mut self.latest[place], Latest { writer: Some(op.into()), ..Latest::default() });
                hazards.extend(writer.into_iter().chain(reader).map(OpId::from));
                if has_others {
                    hazards.extend(self.others.remove(&place).unwrap_or_default());
                }
            }
        }
    }

    fn read(&mut self, program: &Program, op: OpId, place: usize) {
        let latest = &mut self.latest[place];
        let before = latest.reader.replace(op.into()).map(OpId::from);
        if let Some(before) = before.filter(|&before| program.stream_of(before) != program.stream_of(op)) {
            latest.has_others = true;
            self.others.entry(place).or_default().push(before);
        }
    }
}
