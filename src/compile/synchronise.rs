//! Waits: where two streams of a rank touch one buffer, the later op waits for the earlier one.
//!
//! The hazards (read after write, write after read, write after write, free after use) are found from the operands alone, in issue order,
//! so that no other pass has to think of them. Ops of one stream are in order anyway.

use crate::base::{BufferId, OpId, Rank};
use crate::program::Program;
use crate::program::tables::COMPUTE;

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
            known.places[op.index()] = place;
            uses.hazards(program, op, &mut hazards);
            program.waits(op).for_each(|on| known.learn(program, op, on));
            hazards.drain(..).for_each(|on| known.wait(program, op, on));
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

    fn latest(&mut self, program: &Program, op: OpId, on: OpId) -> &mut u32 {
        &mut self.latest[program.stream_of(op).index() * self.streams + program.stream_of(on).index()]
    }

    /// The stream of `op` is behind `on` from here on.
    fn learn(&mut self, program: &Program, op: OpId, on: OpId) {
        let place = self.places[on.index()];
        let latest = self.latest(program, op, on);
        *latest = place.max(*latest);
    }

    /// Lets `op` wait for `on`, unless its stream is behind `on` already.
    fn wait(&mut self, program: &mut Program, op: OpId, on: OpId) {
        let is_behind = program.stream_of(op) == program.stream_of(on);
        if !is_behind && *self.latest(program, op, on) < self.places[on.index()] {
            program.wait(op, on);
            self.learn(program, op, on);
        }
    }
}

/// The latest uses of one rank's buffers that may need a wait: those that an op of a communication stream touches.
struct Uses {
    streams: usize,
    /// Per buffer, its place in the tables below, from 1; 0 for those that no other stream touches.
    place: Vec<u32>,
    /// The first buffer that has a place.
    first: usize,
    /// Per place.
    writer: Vec<Option<OpId>>,
    /// Per place and stream.
    readers: Vec<Option<OpId>>,
}

impl Uses {
    fn new(program: &Program) -> Self {
        let (streams, place) = (program.streams.len(), vec![0; program.buffers.len()]);
        Self { streams, place, first: 0, writer: Vec::new(), readers: Vec::new() }
    }

    /// Turns to the ops of another rank: gives places to what its communication streams touch.
    fn share(&mut self, program: &Program, order: &[OpId]) {
        let mut places = 0;
        self.first = usize::MAX;
        for &op in order.iter().filter(|&&op| program.stream_of(op) != COMPUTE) {
            for buffer in program.reads(op).iter().chain(program.writes(op)) {
                let place = &mut self.place[buffer.index()];
                if *place == 0 {
                    places += 1;
                    *place = places;
                    self.first = self.first.min(buffer.index());
                }
            }
        }
        self.writer.clear();
        self.writer.resize(places as usize, None);
        self.readers.clear();
        self.readers.resize(places as usize * self.streams, None);
    }

    fn place(&self, buffer: BufferId) -> Option<usize> {
        if buffer.index() < self.first {
            return None;
        }
        self.place[buffer.index()].checked_sub(1).map(|place| place as usize)
    }

    /// Collects the earlier ops that `op` must come behind, and remembers its uses.
    fn hazards(&mut self, program: &Program, op: OpId, hazards: &mut Vec<OpId>) {
        let shares_state = self.first < program.lasting();
        let reads = if shares_state { program.reads(op) } else { program.passing_reads(op) };
        let writes = if shares_state { program.writes(op) } else { program.passing_writes(op) };
        for &buffer in reads {
            if let Some(place) = self.place(buffer) {
                hazards.extend(self.writer[place]);
                self.readers[place * self.streams + program.stream_of(op).index()] = Some(op);
            }
        }
        for &buffer in writes {
            if let Some(place) = self.place(buffer) {
                self.all(place, hazards);
                self.writer[place] = Some(op);
            }
        }
        for buffer in program.frees(op) {
            if let Some(place) = self.place(buffer) {
                self.all(place, hazards);
                // Who takes the memory again comes behind.
                self.writer[place] = Some(op);
            }
        }
    }

    /// Every use of a buffer since its latest write, and that write.
    fn all(&mut self, place: usize, hazards: &mut Vec<OpId>) {
        hazards.extend(self.writer[place]);
        let readers = &mut self.readers[place * self.streams..][..self.streams];
        hazards.extend(readers.iter_mut().filter_map(Option::take));
    }
}
