//! Layers of experts inside a training step: which ops belong to one, who meets in it with which micro-batch, and where tokens go.

use std::collections::BTreeMap;

use super::{Passes, Routes};
use crate::base::experts::Experts;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::routing::Routing;
use crate::base::{CollectiveId, OpId, Rank};
use crate::observe::run::Run;
use crate::program::{CollectiveKind, Flow, Inside, Kernel, Name, OpKind, Program};

/// The most steps of drawing a rank's choices again: some milliseconds.
const MOST_DRAWS: usize = 1 << 21;

/// All layers of experts of a run's training steps.
#[derive(Clone, Debug)]
pub struct Step {
    /// Tokens that a rank routes in each micro-batch.
    pub tokens: usize,
    /// Per layer and ranks that meet, what is done.
    sites: Vec<Site>,
    /// The site of a rank's layer and micro-batch.
    of: BTreeMap<Key, usize>,
    /// Per rank, the events at which it begins something at a site, and which.
    begun: Vec<Vec<(usize, usize)>>,
}

/// A rank's layer and micro-batch.
type Key = (Rank, u32, u32);

/// A layer, and the ranks that meet in it, each with a micro-batch.
#[derive(Clone, Debug, Default)]
struct Site {
    layer: u32,
    members: Vec<(Rank, u32)>,
    ops: Vec<Passes>,
    collectives: Vec<CollectiveId>,
}

/// What a rank does at its layer and micro-batch.
#[derive(Default)]
struct Found {
    passes: Passes,
    collectives: Vec<CollectiveId>,
    /// The all-to-all to its experts.
    meets: Option<CollectiveId>,
}

impl Step {
    /// Those of `run`; `None` if its model has no experts.
    #[must_use]
    pub fn of(run: &Run) -> Option<Self> {
        let program = run.program;
        program.setting.model.as_ref()?.experts.as_ref()?;
        let mut found: BTreeMap<Key, Found> = BTreeMap::new();
        for op in program.all() {
            if let Some(key) = key(program, op) {
                found.entry(key).or_default().add(program, op);
            }
        }
        let mut step =
            Self { tokens: routed(program)?, sites: Vec::new(), of: BTreeMap::new(), begun: vec![Vec::new(); program.ranks()] };
        let mut known: BTreeMap<CollectiveId, usize> = BTreeMap::new();
        for (key, found) in found {
            let place = found.meets.and_then(|meets| known.get(&meets).copied()).unwrap_or(step.sites.len());
            known.extend(found.meets.map(|meets| (meets, place)));
            if place == step.sites.len() {
                step.sites.push(Site { layer: key.1, collectives: found.collectives, ..Site::default() });
            }
            step.sites[place].members.push((key.0, key.2));
            step.sites[place].ops.push(found.passes);
            step.of.insert(key, place);
        }
        step.note_events(run);
        Some(step)
    }

    fn note_events(&mut self, run: &Run) {
        for op in run.program.all() {
            if let Some((site, event)) = self.site(run.program, op).zip(run.trace.event_of(op)) {
                self.begun[run.program.rank_of(op).index()].push((event, site));
            }
        }
        self.begun.iter_mut().for_each(|begun| begun.sort_unstable());
    }

    /// The number of the site that `op` works at.
    fn site(&self, program: &Program, op: OpId) -> Option<usize> {
        self.of.get(&key(program, op)?).copied()
    }

    /// The routes of the layer and micro-batch of `op`, if it works at a layer of experts.
    #[must_use]
    pub fn routes_of(&self, program: &Program, op: OpId) -> Option<Routes> {
        self.sites[self.site(program, op)?].routes(program, self.tokens)
    }

    /// The routes of the layer and micro-batch at which `rank` began something last, `event` included; of its first ones before.
    #[must_use]
    pub fn routes_at(&self, program: &Program, (rank, event): (Rank, usize)) -> Option<Routes> {
        let begun = self.begun.get(rank.index())?;
        let before = begun.partition_point(|(at, _)| *at <= event);
        let (_, site) = begun.get(before.saturating_sub(1))?;
        self.sites[*site].routes(program, self.tokens)
    }
}

impl Found {
    fn add(&mut self, program: &Program, op: OpId) {
        match program.kind(op).original() {
            OpKind::Run(kernel) => match program.kernels[kernel.index()].kernel {
                Kernel::Forward(Part::Module(_, Module::Dispatch)) if self.meets.is_none() => self.passes.arrives = Some(op),
                Kernel::Forward(Part::Module(_, Module::Experts)) => self.passes.forward = Some(op),
                Kernel::BackwardInput(Part::Module(_, Module::Experts)) => self.passes.backward = Some(op),
                _ => {}
            },
            OpKind::Collective(id) if program.collectives[id.index()].kind == CollectiveKind::AllToAll => {
                self.collectives.push(id);
                if self.meets.is_none() && is_met(program, op, Inside { flow: Flow::Tokens, module: Module::Dispatch }) {
                    (self.meets, self.passes.arrives) = (Some(id), Some(op));
                }
            }
            _ => {}
        }
    }
}

impl Site {
    /// Its routes, with the tokens that all of its ranks bring.
    fn routes(&self, program: &Program, tokens: usize) -> Option<Routes> {
        let model = program.setting.model.as_ref()?;
        let experts = model.experts.as_ref()?;
        let size = program.setting.micro_batch_size;
        let each = experts.group_tokens(model, size).max(1);
        let (ranks, own) = (self.members.len(), tokens / each);
        let group = experts.group(model, each, program.setting.seed);
        let loads = group.loads.iter().map(|load| load * (own * ranks) as u64).collect();
        let taken: Vec<usize> = experts.rows(model, size).into_iter().map(|rows| rows * own).collect();
        Some(Routes {
            layer: Experts { groups: own * ranks, ranks, loads, ..group },
            ranks: self.members.iter().map(|(rank, _)| *rank).collect(),
            site: Some((self.layer, self.members.iter().map(|(_, micro_batch)| *micro_batch).collect())),
            collectives: self.collectives.clone(),
            routing: None,
            sent: vec![taken; ranks],
            ops: self.ops.clone(),
        })
    }
}

/// Tokens that a rank routes: those for which it has gates.
fn routed(program: &Program) -> Option<usize> {
    const GATES: Inside = Inside { flow: Flow::Output, module: Module::Route };
    let gates = program.buffers.iter().find(|buffer| matches!(buffer.name, Name::Inside(GATES, ..)))?;
    program.layouts[gates.layout.index()].parts.first()?.dims.first().copied()
}

/// Where the tokens of the rank at `place` go; `None` where drawing them again takes too long.
pub(super) fn routing(program: &Program, routes: &Routes, place: usize) -> Option<Routing> {
    let model = program.setting.model.as_ref()?;
    let experts = model.experts.as_ref()?;
    let (layer, micro_batches) = routes.site.as_ref()?;
    let (rank, micro_batch) = (*routes.ranks.get(place)?, *micro_batches.get(place)?);
    if routes.layer.tokens_per_rank() * routes.layer.top_k * routes.layer.count > MOST_DRAWS {
        return None;
    }
    let (own, setting) = (routes.layer.groups_per_rank(), &program.setting);
    let first = if own < experts.groups.count() { setting.own_group(rank, experts.groups) } else { 0 };
    Some(experts.routing(model, setting.micro_batch_size, (setting.seed, *layer, micro_batch), first..first + own))
}

/// The rank, layer and micro-batch of an op that works at a layer of experts, by the names of its operands.
fn key(program: &Program, op: OpId) -> Option<Key> {
    let name = |buffer: &crate::base::BufferId| program.buffers[buffer.index()].name;
    let mut names = program.writes(op).iter().chain(program.reads(op)).map(name);
    names.find_map(|name| match name {
        Name::Inside(inside, layer, micro_batch) if inside.module.is_of_experts() => {
            Some((program.rank_of(op), layer, micro_batch))
        }
        _ => None,
    })
}

/// Whether `op` writes what `inside` is.
fn is_met(program: &Program, op: OpId, inside: Inside) -> bool {
    let names = program.writes(op).iter().map(|buffer| program.buffers[buffer.index()].name);
    names.into_iter().any(|name| matches!(name, Name::Inside(of, ..) if of == inside))
}
