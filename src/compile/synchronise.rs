//! Waits: where two streams of a rank touch one buffer, the later op waits for the earlier one.
//!
//! The hazards (read after write, write after read, write after write, free after use) are found from the operands alone, in issue order,
//! so that no other pass has to think of them. Ops of one stream are in order anyway.

use std::collections::BTreeMap;

use crate::base::{BufferId, OpId, Rank, StreamId};
use crate::program::Program;
use crate::program::tables::{COMPUTE, Entry};

use super::Build;

/// Adds the waits of every rank.
pub(super) fn run(build: &mut Build) {
    let program = &mut build.program;
    let mut known = Known::new(program);
    let mut uses = Uses::new(program);
    for rank in (0..program.ranks()).map(Rank::new) {
        let order = &program.order[rank.index()];
        known.turn_to(order.len());
        uses.share(program, order);
        for &op in order {
            let entry = program.entry(op);
            let place = known.issue(op, entry.stream());
            entry.waits().for_each(|on| known.learn(entry.stream(), on));
            uses.hazards(program.lasting(), entry, place, &mut known);
        }
        let order = std::mem::take(&mut program.order[rank.index()]);
        let op = |place: Place| order[place as usize - 1];
        known.waits.drain(..).for_each(|(behind, before)| program.wait(op(behind), op(before)));
        program.order[rank.index()] = order;
    }
}

/// The place of an op in its rank's list, from 1; 0 is none.
type Place = u32;

/// How far the streams of a rank know each other to be.
struct Known {
    streams: usize,
    /// Per op, its place.
    places: Vec<Place>,
    /// Per place, the op's stream.
    stream_of: Vec<StreamId>,
    /// Per stream, for each stream the place of the latest op that it has waited for.
    latest: Vec<Place>,
    /// The waits that are missing: of which op for which.
    waits: Vec<(Place, Place)>,
}

impl Known {
    fn new(program: &Program) -> Self {
        let streams = program.streams.len();
        Self {
            streams,
            places: vec![0; program.ops()],
            stream_of: Vec::new(),
            latest: vec![0; streams * streams],
            waits: Vec::new(),
        }
    }

    /// Turns to another rank, which has so many ops.
    fn turn_to(&mut self, ops: usize) {
        self.latest.fill(0);
        self.stream_of.clear();
        self.stream_of.reserve(ops + 1);
        self.stream_of.push(COMPUTE);
    }

    /// The rank's next op.
    fn issue(&mut self, op: OpId, stream: StreamId) -> Place {
        let place = Place::try_from(self.stream_of.len()).expect("fewer than 2^32 ops");
        self.places[op.index()] = place;
        self.stream_of.push(stream);
        place
    }

    fn latest(&mut self, stream: StreamId, other: StreamId) -> &mut Place {
        &mut self.latest[stream.index() * self.streams + other.index()]
    }

    /// `stream` is behind `on` from here on.
    fn learn(&mut self, stream: StreamId, on: OpId) {
        let place = self.places[on.index()];
        let latest = self.latest(stream, self.stream_of[place as usize]);
        *latest = place.max(*latest);
    }

    /// Lets the op at `place` wait for the one at `on`, if there is one, unless its stream is behind it already.
    fn wait(&mut self, place: Place, on: Place) {
        let (stream, other) = (self.stream_of[place as usize], self.stream_of[on as usize]);
        if stream == other {
            return;
        }
        let latest = self.latest(stream, other);
        if *latest < on {
            *latest = on;
            self.waits.push((place, on));
        }
    }
}

/// The latest uses of one rank's buffers that may need a wait: those that an op of a communication stream touches.
struct Uses {
    /// Per buffer, its place in the table below, from 1; 0 for those that no other stream touches.
    shared: Vec<u32>,
    /// The first buffer that has a place.
    first: usize,
    latest: Vec<Latest>,
    /// Readers since the latest write on other streams than the latest reader, by place; few buffers have any.
    others: BTreeMap<usize, Vec<Place>>,
}

/// The latest uses of a buffer.
#[derive(Clone, Copy, Default)]
struct Latest {
    writer: Place,
    /// The latest reader since then.
    reader: Place,
    /// There are readers on other streams.
    has_others: bool,
}

impl Uses {
    fn new(program: &Program) -> Self {
        Self { shared: vec![0; program.buffers.len()], first: 0, latest: Vec::new(), others: BTreeMap::new() }
    }

    /// Turns to the ops of another rank: gives places to what its communication streams touch.
    fn share(&mut self, program: &Program, order: &[OpId]) {
        self.first = usize::MAX;
        self.latest.clear();
        for entry in order.iter().map(|&op| program.entry(op)).filter(|entry| entry.stream() != COMPUTE) {
            for &buffer in entry.operands() {
                let place = &mut self.shared[buffer.index()];
                if *place == 0 {
                    self.latest.push(Latest::default());
                    *place = u32::try_from(self.latest.len()).expect("fewer than 2^32 buffers");
                    self.first = self.first.min(buffer.index());
                }
            }
        }
        self.others.clear();
    }

    /// Where the latest uses of `buffer` stand, if another stream touches it.
    fn shared(&self, buffer: BufferId) -> Option<usize> {
        (self.shared[buffer.index()] as usize).checked_sub(1)
    }

    /// Lets the op at `place` wait for the earlier ops that it must come behind, and remembers its uses.
    fn hazards(&mut self, lasting: usize, entry: Entry, place: Place, known: &mut Known) {
        let shares_state = self.first < lasting;
        let reads = if shares_state { entry.reads() } else { entry.passing_reads() };
        let writes = if shares_state { entry.writes() } else { entry.passing_writes() };
        reads.iter().for_each(|&buffer| self.read(buffer, place, known));
        writes.iter().for_each(|&buffer| self.change(buffer, place, known));
        // Behind a free: who takes the memory again comes later.
        entry.frees().for_each(|buffer| self.change(buffer, place, known));
    }

    fn read(&mut self, buffer: BufferId, place: Place, known: &mut Known) {
        let Some(shared) = self.shared(buffer) else { return };
        let latest = &mut self.latest[shared];
        known.wait(place, latest.writer);
        let before = std::mem::replace(&mut latest.reader, place);
        if before > 0 && known.stream_of[before as usize] != known.stream_of[place as usize] {
            latest.has_others = true;
            self.keep_other(shared, before);
        }
    }

    fn change(&mut self, buffer: BufferId, place: Place, known: &mut Known) {
        let Some(shared) = self.shared(buffer) else { return };
        let Latest { writer, reader, has_others } =
            std::mem::replace(&mut self.latest[shared], Latest { writer: place, ..Latest::default() });
        known.wait(place, writer);
        known.wait(place, reader);
        if has_others {
            self.wait_for_others(shared, place, known);
        }
    }

    #[cold]
    fn keep_other(&mut self, shared: usize, reader: Place) {
        self.others.entry(shared).or_default().push(reader);
    }

    #[cold]
    fn wait_for_others(&mut self, shared: usize, place: Place, known: &mut Known) {
        let others = self.others.remove(&shared).unwrap_or_default();
        others.into_iter().for_each(|other| known.wait(place, other));
    }
}
