//! Lowering: every slot of the plan becomes the compute ops of its stage's parts.
//!
//! A stage reads what its neighbour wrote: here it simply names the neighbour's buffer. The messages pass turns such reads into messages.

use std::collections::BTreeMap;

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::{BufferId, CollectiveId, GroupId, KernelId, Rank};
use crate::program::plan::{Cell, Pass, Slot};
use crate::program::tables::COMPUTE;
use crate::program::trouble::TroubleKind;
use crate::program::{Flow as InsideFlow, Inside, Name, OpKind, Origin, PassName, Program, Role};
use crate::scenario::Training;

use super::data_parallel::{self, Held, Sharing};
use super::homes::Homes;
use super::layer::Stock;
use super::slices::Slices;
use super::stages::{self, PartTables, Passes, Stages};
use super::tensor_parallel::Meeting;
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
    let by_rows = build.scenario.trouble.iter().any(|rule| rule.kind == TroubleKind::RowsOfQkv);
    let slices = Slices::new(training, by_rows);
    build.program.parameters.clone_from(&slices.parameters);
    let sharing = Sharing::new(&build.program, (training, build.scenario.sums_once(training)), &homes, &slices);
    build.held = data_parallel::add_state(&mut build.program, training, &sharing);
    build.program.units = if sharing.row.optimizer { sharing.all_units() } else { Vec::new() };
    build.sharing = Some(sharing);
    let stages = Stages::new(&mut build.program, training, &homes, &slices, &build.held);
    make_room(&mut build.program, training, &stages);
    let (mut meetings, mut groups, mut stock) =
        (BTreeMap::new(), BTreeMap::new(), Stock::new(build.program.setting.attention.as_ref()));
    for (number, lane) in stages::lanes(training).into_iter().enumerate() {
        let rounds = if training.pipeline.updates.is_asynchronous() { 1 } else { training.batch.steps };
        for round in 0..rounds {
            let mut walk = Walk {
                program: &mut build.program,
                training,
                stages: &stages,
                homes: &homes,
                lane: Lane::new(training, (number, lane), round),
                ranks: (0..training.mesh.size(Axis::Pipeline)).map(|row| stages::rank(training, lane, row)).collect(),
                flow: Flow::new(&stages, homes.micro_batches),
                stock: &mut stock,
                meetings: &mut meetings,
                groups: &mut groups,
                overlapped: false,
                reads: Vec::new(),
            };
            walk.zero_gradients(&build.held);
            plan.rows.iter().flatten().for_each(|&cell| walk.cell(cell));
        }
    }
    build.slices = Some(slices);
}

/// Room for what is to come, roughly. For each micro-batch a part has three ops, which name its parameters four times, and up to six buffers;
/// both ends load tokens, and between two stages two messages go, each with two ends and a copy. For each step a part is averaged and updated,
/// and a rank clears its gradients and meets the others.
fn make_room(program: &mut Program, training: &Training, stages: &Stages) {
    let ranks = training.followed().count();
    let steps = training.batch.steps as usize;
    let lanes = ranks / training.mesh.size(Axis::Pipeline);
    let micro_batches = training.pieces() as usize * steps * lanes;
    let whole = |part: &PartTables| part.modules.is_empty();
    let parts =
        || stages.parts.iter().flatten().flat_map(|part| part.modules.iter().chain(Some(part).filter(|part| whole(part))));
    let messages = 2 * (stages.parts.len() - 1);
    let ops = 3 * parts().count() + 2 + 2 * messages;
    let operands: usize = parts().map(|part| 4 * part.weights[0].len() + 10).sum::<usize>() + 2 * messages;
    let buffers = 6 * parts().count() + messages;
    let at_the_end = 2 * (parts().count() * lanes + ranks) * steps;
    program.reserve(micro_batches * ops + at_the_end, micro_batches * operands, micro_batches * buffers);
}

/// The plan once, of one lane: a step, or all steps where the pipeline is never drained.
pub(super) struct Walk<'a> {
    pub program: &'a mut Program,
    pub training: &'a Training,
    pub stages: &'a Stages,
    homes: &'a Homes,
    lane: Lane,
    /// Its ranks, by the row of the plan.
    ranks: Vec<Rank>,
    flow: Flow,
    /// What the attentions of layers share, where ranks have slices of sequences.
    pub stock: &'a mut Stock,
    /// The collectives inside layers so far.
    pub meetings: &'a mut BTreeMap<Meeting, CollectiveId>,
    /// The groups of ranks that meet there, by kind and first rank among all.
    pub groups: &'a mut BTreeMap<(&'static str, Rank), GroupId>,
    /// The slot at work runs as one with another.
    overlapped: bool,
    /// The operands of the op at work; kept, so that no op allocates.
    pub reads: Vec<BufferId>,
}

/// A lane in one round of the plan.
struct Lane {
    /// Among those that are followed.
    number: usize,
    /// Its place among the ranks that share out experts.
    expert: usize,
    round: u32,
    /// Its first micro-batch of the round, over all steps and replicas.
    first: u32,
}

impl Lane {
    /// The lane of this number, which starts at `rank` among all.
    fn new(training: &Training, (number, rank): (usize, Rank), round: u32) -> Self {
        let checked = |place| u32::try_from(place).expect("a checked mesh");
        let replicas = checked(training.mesh.size(Axis::Data));
        let replica = checked(training.mesh.coordinate(rank, Axis::Data));
        let before = training.batch.before.micro_batches * training.pipeline.segments;
        let first = before + (round * replicas + replica) * training.pieces();
        Self { number, expert: training.expert_place(rank), round, first }
    }
}

/// A slot at work: whose it is and which micro-batch it takes.
#[derive(Clone, Copy)]
pub(super) struct Site {
    pub rank: Rank,
    /// Among the lanes and homes of the stage.
    pub home: usize,
    /// Micro-batch of the plan.
    pub local: usize,
    /// Its segment of the sequences.
    pub segment: usize,
    /// Which kind of piece that is.
    pub kind: usize,
    /// Micro-batch of the whole run, over all steps and replicas.
    pub global: u32,
    pub origin: Origin,
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
pub(super) enum Flows {
    Tokens,
    Targets,
    Activation,
    ActivationGradient,
    Saved,
    Deferred,
    KeyValueGradient,
    Inside(Inside),
}

/// The buffers of what flows; made by whichever op names them first.
struct Flow {
    places: usize,
    micro_batches: usize,
    table: Vec<Option<BufferId>>,
}

impl Flow {
    fn new(stages: &Stages, micro_batches: usize) -> Self {
        let places = stages.stage_of_place.len();
        let tables =
            OF_PARTS + if stages.inside.iter().all(BTreeMap::is_empty) { 0 } else { InsideFlow::ALL.len() * Module::ALL.len() };
        Self { places, micro_batches, table: vec![None; tables * places * micro_batches] }
    }

    /// Where the buffer stands in the table.
    fn index(&self, what: Flows, place: u32, micro_batch: usize) -> usize {
        (what.number() * self.places + place as usize) * self.micro_batches + micro_batch
    }
}

/// What flows between whole parts.
const OF_PARTS: usize = 7;

impl Flows {
    fn number(self) -> usize {
        match self {
            Self::Tokens => 0,
            Self::Targets => 1,
            Self::Activation => 2,
            Self::ActivationGradient => 3,
            Self::Saved => 4,
            Self::Deferred => 5,
            Self::KeyValueGradient => 6,
            Self::Inside(Inside { flow, module }) => OF_PARTS + flow as usize * Module::ALL.len() + module as usize,
        }
    }
}

impl Walk<'_> {
    fn zero_gradients(&mut self, held: &[Held]) {
        let origin = Origin { slot: None, step: self.lane.round, pass: PassName::Lower };
        for &rank in &self.ranks {
            let gradients = held[rank.index()].gradients();
            self.program.append((rank, COMPUTE), OpKind::Run(self.stages.zero_gradients), (&[], &gradients), origin);
        }
    }

    fn home(&self, stage: usize, copy: usize) -> usize {
        self.lane.number * self.homes.of_stage[stage].len() + copy
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
        let stage = slot.stage as usize;
        let home = self.homes.of(stage, slot.micro_batch as usize);
        let (step, piece) = (slot.micro_batch / self.training.pieces(), slot.micro_batch % self.training.pieces());
        Site {
            rank: self.ranks[home.row],
            home: self.home(stage, home.copy),
            local: slot.micro_batch as usize,
            segment: (piece % self.training.pipeline.segments) as usize,
            kind: self.stages.kinds[piece as usize] + self.lane.expert,
            global: self.lane.first + slot.micro_batch,
            // Where the plan has the micro-batches of all steps there is one round.
            origin: Origin { slot: Some(slot), step: self.lane.round + step, pass: PassName::Lower },
        }
    }

    fn forward(&mut self, site: Site, part: &PartTables) {
        if !part.modules.is_empty() {
            return self.modules_forward(site, part);
        }
        self.reads.clear();
        match part.part {
            Part::Embedding => {
                self.load(site, Flows::Tokens, part, self.stages.load_tokens);
            }
            Part::Block(_) | Part::Module(..) => self.read(site, Flows::Activation, part.place - 1, part),
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
            Part::Block(_) | Part::Module(..) => {
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
        if !part.modules.is_empty() {
            return self.modules_backward_input(site, part);
        }
        self.reads.clear();
        match part.part {
            // Nothing stands before the embedding.
            Part::Embedding => return,
            Part::Block(_) | Part::Module(..) => self.read(site, Flows::ActivationGradient, part.place, part),
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
        if !part.modules.is_empty() {
            return self.modules_backward_weight(site, part);
        }
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

    pub fn passes(&self, site: Site, part: &PartTables) -> Passes {
        let tables = &part.pieces[site.kind];
        if self.overlapped { tables.overlapped } else { tables.alone }
    }

    /// Adds the op that loads the micro-batch's tokens or targets, and reads them.
    pub fn load(&mut self, site: Site, what: Flows, part: &PartTables, kernel: KernelId) -> BufferId {
        let buffer = self.buffer(site, what, part.place, part);
        self.run(site, kernel, &[buffer]);
        self.reads.push(buffer);
        buffer
    }

    fn read(&mut self, site: Site, what: Flows, place: u32, part: &PartTables) {
        let buffer = self.buffer(site, what, place, part);
        self.reads.push(buffer);
    }

    pub fn run(&mut self, site: Site, kernel: KernelId, writes: &[BufferId]) {
        self.program.append((site.rank, COMPUTE), OpKind::Run(kernel), (&self.reads, writes), site.origin);
    }

    /// The buffer of what flows, which is made when it is named first.
    #[inline]
    pub fn buffer(&mut self, site: Site, what: Flows, place: u32, part: &PartTables) -> BufferId {
        let index = self.flow.index(what, place, site.local);
        self.flow.table[index].unwrap_or_else(|| {
            let buffer = self.new_buffer(site, what, place, part);
            self.flow.table[index] = Some(buffer);
            buffer
        })
    }

    fn new_buffer(&mut self, site: Site, what: Flows, place: u32, part: &PartTables) -> BufferId {
        let (stages, m, tables) = (self.stages, site.global, &part.pieces[site.kind]);
        let (name, role, layout) = match what {
            Flows::Tokens => (Name::Tokens(m), Role::Activation, stages.tokens[site.kind]),
            Flows::Targets => (Name::Targets(m), Role::Activation, stages.tokens[site.kind]),
            Flows::Activation => (Name::Activation(place, m), Role::Activation, stages.activations[site.kind]),
            Flows::ActivationGradient => (Name::ActivationGradient(place, m), Role::Scratch, stages.activations[site.kind]),
            Flows::Saved => (Name::Saved(place, m), Role::Activation, tables.saved),
            Flows::Deferred => (Name::Deferred(place, m), Role::Activation, tables.deferred),
            Flows::KeyValueGradient => (Name::KeyValueGradient(place, m), Role::Activation, tables.key_value_gradient),
            Flows::Inside(inside) => {
                // Layers are numbered; embedding and head have number 0.
                let layer = if let Part::Block(layer) = part.part { layer } else { 0 };
                let name = Name::Inside(inside, layer, m);
                (name, name.usual_role(), stages.inside[site.kind][&inside])
            }
        };
        let rank_of = |place: u32| self.ranks[self.homes.of(stages.stage_of_place[place as usize], site.local).row];
        // An activation belongs to the stage that computes it, its gradient to the stage behind it.
        let owner = match what {
            Flows::Activation => rank_of(place),
            Flows::ActivationGradient => rank_of(place + 1),
            _ => rank_of(part.place),
        };
        self.program.buffer(owner, name, role, layout)
    }
}
