//! Lowering: every slot of the plan becomes the compute ops of its stage's parts.
//!
//! A stage reads what its neighbour wrote: here it simply names the neighbour's buffer. The messages pass turns such reads into messages.

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::{BufferId, KernelId, Rank};
use crate::program::plan::{Cell, Pass, Slot};
use crate::program::tables::COMPUTE;
use crate::program::{Name, OpKind, Origin, PassName, Program, Role};
use crate::scenario::Training;

use super::data_parallel::{self, Held, Sharing};
use super::homes::Homes;
use super::stages::{self, PartTables, Passes, Stages};
use super::{Build, collective, experts, layer};

/// Makes the compute ops of all steps and replicas; for a bare piece its own.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else {
        collective::run(build);
        layer::run(build);
        experts::run(build);
        return;
    };
    let (Some(plan), Some(homes)) = (&build.plan, build.homes()) else { return };
    build.program.parameters = training.model.parameters();
    let sums_once = build.scenario.sums_once(training);
    let sharing = Sharing::new(&build.program, (training, sums_once), &homes);
    build.held = data_parallel::add_state(&mut build.program, training, &sharing);
    build.program.units = if sharing.row.optimizer { sharing.units.concat() } else { Vec::new() };
    build.sharing = Some(sharing);
    let stages = Stages::new(&mut build.program, training, &homes, &build.held);
    make_room(&mut build.program, training, &stages);
    for replica in 0..training.mesh.size(Axis::Data) {
        let rounds = if training.pipeline.updates.is_asynchronous() { 1 } else { training.batch.steps };
        for round in 0..rounds {
            let flow = Flow::new(stages.stage_of_place.len(), homes.micro_batches);
            let (program, stages, homes, overlapped) = (&mut build.program, &stages, &homes, false);
            let rows = 0..training.mesh.size(Axis::Pipeline);
            let ranks = rows.map(|row| stages::rank(training, replica, row)).collect();
            let mut walk = Walk { program, training, stages, homes, replica, ranks, round, flow, overlapped, reads: Vec::new() };
            walk.zero_gradients(&build.held);
            plan.rows.iter().flatten().for_each(|&cell| walk.cell(cell));
        }
    }
}

/// Room for what is to come, roughly: a part has three ops for each micro-batch, which name its parameters four times, and up to six buffers;
/// between two stages two messages go, each with two ends and a copy.
fn make_room(program: &mut Program, training: &Training, stages: &Stages) {
    let micro_batches = (training.pieces() * training.batch.steps) as usize * training.mesh.size(Axis::Data);
    let parts = || stages.parts.iter().flatten();
    let messages = 2 * (stages.parts.len() - 1);
    let ops = 3 * parts().count() + 2 * messages;
    let operands: usize = parts().map(|part| 4 * part.weights[0].len() + 10).sum::<usize>() + 2 * messages;
    let buffers = 6 * parts().count() + messages;
    program.reserve(micro_batches * ops, micro_batches * operands, micro_batches * buffers);
}

/// The plan once, of one replica: a step, or all steps where the pipeline is never drained.
struct Walk<'a> {
    program: &'a mut Program,
    training: &'a Training,
    stages: &'a Stages,
    homes: &'a Homes,
    replica: usize,
    /// The replica's ranks, by the row of the plan.
    ranks: Vec<Rank>,
    round: u32,
    flow: Flow,
    /// The slot at work runs as one with another.
    overlapped: bool,
    /// The operands of the op at work; kept, so that no op allocates.
    reads: Vec<BufferId>,
}

/// A slot at work: whose it is and which micro-batch it takes.
#[derive(Clone, Copy)]
struct Site {
    rank: Rank,
    /// Among the replicas and homes of the stage.
    home: usize,
    /// Micro-batch of the plan.
    local: usize,
    /// Its segment of the sequences.
    segment: usize,
    /// Which kind of piece that is.
    kind: usize,
    /// Micro-batch of the whole run, over all steps and replicas.
    global: u32,
    origin: Origin,
}

impl Site {
    /// The same of another segment of the micro-batch.
    fn at(self, segment: usize) -> Self {
        let number = |segment: usize| u32::try_from(segment).expect("a checked number of segments");
        Self {
            segment,
            kind: self.kind - self.segment + segment,
            local: self.local - self.segment + segment,
            global: self.global - number(self.segment) + number(segment),
            ..self
        }
    }
}

/// What flows from op to op, for every place and micro-batch.
#[derive(Clone, Copy)]
enum Flows {
    Tokens,
    Targets,
    Activation,
    ActivationGradient,
    Saved,
    Deferred,
    KeyValueGradient,
}

/// The buffers of what flows; made by whichever op names them first.
struct Flow {
    micro_batches: usize,
    tables: [Vec<Option<BufferId>>; 7],
}

impl Flow {
    fn new(places: usize, micro_batches: usize) -> Self {
        Self { micro_batches, tables: std::array::from_fn(|_| vec![None; places * micro_batches]) }
    }

    fn entry(&mut self, what: Flows, place: u32, micro_batch: usize) -> &mut Option<BufferId> {
        &mut self.tables[what as usize][place as usize * self.micro_batches + micro_batch]
    }
}

impl Walk<'_> {
    fn zero_gradients(&mut self, held: &[Held]) {
        let origin = Origin { slot: None, step: self.round, pass: PassName::Lower };
        for &rank in &self.ranks {
            let gradients = held[rank.index()].gradients();
            self.program.append((rank, COMPUTE), OpKind::Run(self.stages.zero_gradients), (&[], &gradients), origin);
        }
    }

    fn home(&self, stage: usize, copy: usize) -> usize {
        self.replica * self.homes.of_stage[stage].len() + copy
    }

    fn cell(&mut self, cell: Cell) {
        self.overlapped = matches!(cell, Cell::Overlap(..));
        cell.slots().for_each(|slot| self.slot(slot));
    }

    fn slot(&mut self, slot: Slot) {
        let site = self.site(slot);
        let parts = &self.stages.parts[slot.stage as usize];
        match slot.pass {
            Pass::F => parts.iter().for_each(|part| self.forward(site, part)),
            Pass::B => parts.iter().rev().for_each(|part| {
                self.backward_input(site, part);
                self.backward_weight(site, part);
            }),
            Pass::I => parts.iter().rev().for_each(|part| self.backward_input(site, part)),
            Pass::W => parts.iter().rev().for_each(|part| self.backward_weight(site, part)),
        }
    }

    fn site(&self, slot: Slot) -> Site {
        let replicas = u32::try_from(self.training.mesh.size(Axis::Data)).expect("a checked mesh");
        let replica = u32::try_from(self.replica).expect("a checked mesh");
        let stage = slot.stage as usize;
        let home = self.homes.of(stage, slot.micro_batch as usize);
        let before = self.training.batch.before;
        Site {
            rank: self.ranks[home.row],
            home: self.home(stage, home.copy),
            local: slot.micro_batch as usize,
            segment: (slot.micro_batch % self.training.pipeline.segments) as usize,
            kind: self.stages.kinds[(slot.micro_batch % self.training.pieces()) as usize],
            global: before.micro_batches * self.training.pipeline.segments
                + (self.round * replicas + replica) * self.training.pieces()
                + slot.micro_batch,
            // Where the plan has the micro-batches of all steps there is one round.
            origin: Origin {
                slot: Some(slot),
                step: self.round + slot.micro_batch / self.training.pieces(),
                pass: PassName::Lower,
            },
        }
    }

    fn forward(&mut self, site: Site, part: &PartTables) {
        self.reads.clear();
        match part.part {
            Part::Embedding => self.load(site, Flows::Tokens, part, self.stages.load_tokens),
            Part::Block(_) => self.read(site, Flows::Activation, part.place - 1, part),
            Part::Head => {
                self.load(site, Flows::Targets, part, self.stages.load_targets);
                let targets = self.reads.pop();
                self.read(site, Flows::Activation, part.place - 1, part);
                self.reads.extend(targets);
            }
        }
        self.reads.extend_from_slice(&part.weights[site.home]);
        self.read_earlier(site, part);
        match part.part {
            Part::Embedding => {
                let output = self.buffer(site, Flows::Activation, part.place, part);
                let kernel = self.passes(site, part).forward;
                match self.embedding_mask(site, part) {
                    Some(mask) => self.run(site, kernel, &[output, mask]),
                    None => self.run(site, kernel, &[output]),
                }
            }
            Part::Block(_) => {
                let output = self.buffer(site, Flows::Activation, part.place, part);
                let saved = self.buffer(site, Flows::Saved, part.place, part);
                self.run(site, self.passes(site, part).forward, &[output, saved]);
            }
            Part::Head => {
                let loss = self.program.buffer(site.rank, Name::Loss(site.global), Role::Scratch, self.stages.loss);
                let saved = self.buffer(site, Flows::Saved, part.place, part);
                self.run(site, self.passes(site, part).forward, &[loss, saved]);
            }
        }
    }

    fn backward_input(&mut self, site: Site, part: &PartTables) {
        self.reads.clear();
        match part.part {
            // Nothing stands before the embedding.
            Part::Embedding => return,
            Part::Block(_) => self.read(site, Flows::ActivationGradient, part.place, part),
            Part::Head => {}
        }
        self.read(site, Flows::Saved, part.place, part);
        self.reads.extend_from_slice(&part.weights[site.home]);
        let gradient = self.buffer(site, Flows::ActivationGradient, part.place - 1, part);
        let deferred = self.buffer(site, Flows::Deferred, part.place, part);
        let mut earlier = None;
        if matches!(part.part, Part::Block(_)) {
            self.read_earlier(site, part);
            if site.segment + 1 < self.training.pipeline.segments as usize {
                self.read(site.at(site.segment + 1), Flows::KeyValueGradient, part.place, part);
            }
            earlier = (site.segment > 0).then(|| self.buffer(site, Flows::KeyValueGradient, part.place, part));
        }
        let kernel = self.passes(site, part).backward_input;
        match earlier {
            Some(earlier) => self.run(site, kernel, &[gradient, deferred, earlier]),
            None => self.run(site, kernel, &[gradient, deferred]),
        }
    }

    /// A block's attention looks at the keys and values of the segments before.
    fn read_earlier(&mut self, site: Site, part: &PartTables) {
        if matches!(part.part, Part::Block(_)) {
            for segment in 0..site.segment {
                self.read(site.at(segment), Flows::Saved, part.place, part);
            }
        }
    }

    fn backward_weight(&mut self, site: Site, part: &PartTables) {
        self.reads.clear();
        let (first, second) = match part.part {
            Part::Embedding => (Flows::Tokens, Flows::ActivationGradient),
            _ => (Flows::Saved, Flows::Deferred),
        };
        self.read(site, first, part.place, part);
        self.read(site, second, part.place, part);
        let mask = if part.part == Part::Embedding { self.embedding_mask(site, part) } else { None };
        self.reads.extend(mask);
        let gradients = &part.gradients[site.home];
        self.reads.extend_from_slice(gradients);
        self.run(site, self.passes(site, part).backward_weight, gradients);
    }

    /// What an embedding with dropout saves.
    fn embedding_mask(&mut self, site: Site, part: &PartTables) -> Option<BufferId> {
        (self.training.model.dropout > 0.0).then(|| self.buffer(site, Flows::Saved, part.place, part))
    }

    fn passes(&self, site: Site, part: &PartTables) -> Passes {
        let tables = &part.pieces[site.kind];
        if self.overlapped { tables.overlapped } else { tables.alone }
    }

    /// Adds the op that loads the micro-batch's tokens or targets, and reads them.
    fn load(&mut self, site: Site, what: Flows, part: &PartTables, kernel: KernelId) {
        let buffer = self.buffer(site, what, part.place, part);
        self.run(site, kernel, &[buffer]);
        self.reads.push(buffer);
    }

    fn read(&mut self, site: Site, what: Flows, place: u32, part: &PartTables) {
        let buffer = self.buffer(site, what, place, part);
        self.reads.push(buffer);
    }

    fn run(&mut self, site: Site, kernel: KernelId, writes: &[BufferId]) {
        self.program.append((site.rank, COMPUTE), OpKind::Run(kernel), (&self.reads, writes), site.origin);
    }

    /// The buffer of what flows, which is made when it is named first.
    fn buffer(&mut self, site: Site, what: Flows, place: u32, part: &PartTables) -> BufferId {
        if let Some(known) = *self.flow.entry(what, place, site.local) {
            return known;
        }
        let (stages, m, tables) = (self.stages, site.global, &part.pieces[site.kind]);
        let (name, role, layout) = match what {
            Flows::Tokens => (Name::Tokens(m), Role::Activation, stages.tokens[site.kind]),
            Flows::Targets => (Name::Targets(m), Role::Activation, stages.tokens[site.kind]),
            Flows::Activation => (Name::Activation(place, m), Role::Activation, stages.activations[site.kind]),
            Flows::ActivationGradient => (Name::ActivationGradient(place, m), Role::Scratch, stages.activations[site.kind]),
            Flows::Saved => (Name::Saved(place, m), Role::Activation, tables.saved),
            Flows::Deferred => (Name::Deferred(place, m), Role::Activation, tables.deferred),
            Flows::KeyValueGradient => (Name::KeyValueGradient(place, m), Role::Activation, tables.key_value_gradient),
        };
        // An activation belongs to the stage that computes it, its gradient to the stage behind it.
        let owner = match what {
            Flows::Activation => place as usize,
            Flows::ActivationGradient => place as usize + 1,
            _ => part.place as usize,
        };
        let home = self.homes.of(stages.stage_of_place[owner], site.local);
        let buffer = self.program.buffer(self.ranks[home.row], name, role, layout);
        *self.flow.entry(what, place, site.local) = Some(buffer);
        buffer
    }
}
