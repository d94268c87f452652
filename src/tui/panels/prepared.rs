//! What the data panels draw and is too much to find at every frame: made once per run, beside its lanes and metrics.

use crate::base::hardware::{Costs, Link};
use crate::base::{Bytes, OpId, Rank, Ticks};
use crate::observe::blocks::Blocks;
use crate::observe::cube::Cube;
use crate::observe::flow::{Flow, flows};
use crate::observe::formula::{self, Formula};
use crate::observe::gaps::{Gap, longest};
use crate::observe::held::Lives;
use crate::observe::kind::Kind;
use crate::observe::lanes::Lanes;
use crate::observe::ledger::{Account, Ledger};
use crate::observe::metrics::Metrics;
use crate::observe::routes::Routes;
use crate::observe::routes::step::Step;
use crate::observe::run::Run;
use crate::observe::spread::{Chunks, chunks};
use crate::program::OpKind;
use crate::program::plan::Pass;
use crate::scenario::{Scenario, Task};

/// Everything that is prepared.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What every wire carries.
    pub flows: Vec<Flow>,
    /// The chunks of expanded collectives.
    pub chunks: Vec<Chunks>,
    /// The blocks of a layer of attention.
    pub blocks: Option<Blocks>,
    /// Where the tokens of a mixture of experts go that stands alone.
    pub routes: Option<Routes>,
    /// The layers of experts of training steps.
    pub experts: Option<Step>,
    /// Which buffers are held when.
    pub lives: Lives,
    /// Per rank, the samples that hold the most, block by block.
    pub peaks: Vec<Peaks>,
    /// Per rank, what it computed in the first step, by kind.
    pub busy: Vec<Vec<(Kind, Ticks)>>,
    /// The longest gaps of the first step.
    pub gaps: Vec<Gap>,
    /// Per rank and step, where its phases change.
    pub phases: Vec<Vec<Turn>>,
    /// Ops whose other end the program never issues.
    pub unmatched: Vec<OpId>,
    /// What the scenario says that a trace does not.
    pub asked: Asked,
}

/// What the scenario says.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// A device's memory.
    pub limit: Option<Bytes>,
    /// The links inside a node and between nodes, and the ranks of a node; `None` with unit costs.
    pub links: Option<(Link, Link, usize)>,
    /// Closed forms.
    pub formulas: Vec<Formula>,
    /// Schedule and point-to-point semantics: `1f1b, edge-fifo`; empty for a bare collective.
    pub schedule: String,
    /// Pipeline stages.
    pub stages: usize,
    /// The mesh, where ranks have several groups.
    pub cube: Option<Cube>,
}

/// Where a rank's phases change in a step: places in its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The first op of a backward; before it the rank warms up.
    pub first_backward: Option<usize>,
    /// The last op of a forward; behind it the rank drains.
    pub last_forward: Option<usize>,
}

/// The samples of an account in blocks, each with its largest.
#[derive(Clone, Debug)]
pub struct Peaks {
    largest: Vec<u32>,
}

/// Samples in a block.
const BLOCK: usize = 64;

/// Gaps that are kept.
const MOST_GAPS: usize = 64;

impl Prepared {
    /// Prepares a run. Linear in its ops but for sorting.
    #[must_use]
    pub fn new(run: &Run, lanes: &Lanes, ledger: &Ledger, metrics: &Metrics) -> Self {
        let ranks = (0..run.program.ranks()).map(Rank::new);
        Self {
            flows: flows(run),
            chunks: chunks(run),
            blocks: Blocks::of(run.program),
            routes: Routes::of(run.program),
            experts: Step::of(run),
            lives: Lives::new(run, ledger),
            peaks: ledger.ranks.iter().map(Peaks::new).collect(),
            busy: ranks.clone().map(|rank| busy(run, rank)).collect(),
            gaps: longest(run, lanes, metrics, MOST_GAPS),
            phases: ranks.map(|rank| turns(run, rank)).collect(),
            unmatched: run.program.all().filter(|&op| is_unmatched(run, op)).collect(),
            asked: Asked::default(),
        }
    }
}

impl Asked {
    /// What `scenario` says.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let hardware = &scenario.hardware;
        let links = match &hardware.costs {
            Costs::Table(table) => Some((table.inside.clone(), table.between.clone(), hardware.ranks_per_node)),
            Costs::Unit(_) => None,
        };
        let (schedule, stages) = match &scenario.task {
            Task::Train(training) => {
                let pipeline = &training.pipeline;
                (format!("{}, {}", pipeline.order.name(), pipeline.p2p), pipeline.layers_per_stage.len())
            }
            Task::Collective(_) | Task::Layer(_) | Task::Experts(_) => (String::new(), 0),
        };
        let cube = Cube::of(scenario).filter(Cube::has_groups);
        Self { limit: hardware.memory, links, formulas: formula::of(scenario), schedule, stages, cube }
    }

    /// The link of a wire; `None` with unit costs.
    #[must_use]
    pub fn link(&self, from: Rank, to: Rank) -> Option<(&'static str, &Link)> {
        let (inside, between, ranks_per_node) = self.links.as_ref()?;
        let node = |rank: Rank| rank.index() / (*ranks_per_node).max(1);
        Some(if node(from) == node(to) { ("node", inside) } else { ("net", between) })
    }
}

impl Peaks {
    fn new(account: &Account) -> Self {
        let largest = |(block, samples): (usize, &[crate::observe::ledger::Sample])| {
            let best =
                (0..samples.len()).reduce(|best, next| if samples[next].total() > samples[best].total() { next } else { best });
            u32::try_from(block * BLOCK + best.unwrap_or(0)).unwrap_or(u32::MAX)
        };
        Self { largest: account.samples.chunks(BLOCK).enumerate().map(largest).collect() }
    }

    /// The place of the largest of the samples `first..=last`.
    #[must_use]
    pub fn largest(&self, account: &Account, first: usize, last: usize) -> usize {
        let mut best = first;
        let mut place = first;
        while place <= last {
            let whole = place.is_multiple_of(BLOCK) && place + BLOCK <= last + 1;
            let candidate = if whole { self.largest[place / BLOCK] as usize } else { place };
            if account.samples[candidate].total() > account.samples[best].total() {
                best = candidate;
            }
            place += if whole { BLOCK } else { 1 };
        }
        best
    }
}

fn busy(run: &Run, rank: Rank) -> Vec<(Kind, Ticks)> {
    let mut busy: Vec<(Kind, Ticks)> = Vec::new();
    for &op in run.program.order[rank.index()].iter().filter(|&&op| run.computes(op) && run.of_step(op, 0)) {
        let Some(times) = run.times(op).filter(|times| times.end > times.start) else { continue };
        let (kind, length) = (Kind::of(run, op), times.end - times.start);
        match busy.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += length,
            None => busy.push((kind, length)),
        }
    }
    busy.sort_by_key(|&(kind, _)| kind);
    busy
}

fn turns(run: &Run, rank: Rank) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (place, &op) in run.program.order[rank.index()].iter().enumerate() {
        let origin = run.program.op(op).origin;
        let step = origin.step as usize;
        if turns.len() <= step {
            turns.resize(step + 1, Turn::default());
        }
        let turn: &mut Turn = &mut turns[step];
        match origin.slot.map(|slot| slot.pass) {
            Some(Pass::F) => turn.last_forward = Some(place),
            Some(_) => turn.first_backward = turn.first_backward.or(Some(place)),
            None => {}
        }
    }
    turns
}

fn is_unmatched(run: &Run, op: OpId) -> bool {
    let ends = matches!(run.program.kind(op), OpKind::Send(_)) || run.program.kind(op).receives();
    ends && run.links.peer(op).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::ledger::Sample;

    #[test]
    fn the_largest_of_a_range_is_found_by_blocks() {
        let total = |place: usize| Bytes((place as u64 * 7919) % 1009);
        let sample = |place: usize| {
            let mut by_role = [Bytes::ZERO; 7];
            by_role[place % 7] = total(place);
            Sample { time: Ticks(0), event: 0, op: None, by_role }
        };
        let account = Account { samples: (0..500).map(sample).collect(), peak: 0 };
        let peaks = Peaks::new(&account);
        for (first, last) in [(0, 499), (3, 3), (60, 70), (64, 127), (63, 400), (130, 499)] {
            let expected = (first..=last).map(total).max();
            assert_eq!(Some(total(peaks.largest(&account, first, last))), expected, "{first}..={last}");
        }
    }
}
