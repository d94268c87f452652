//! A better schedule for given work: named schedules and plans that were found, each compiled and run on shapes, side by side. A search
//! starts from what list scheduling makes and from the named schedules that fit, and moves cells.
//!
//! How long the passes of a stage and its messages take is measured in a run, so that one cost function serves both. A rank's slot is
//! divided among its chunks: all rows do the same work.

use std::sync::Arc;

use crate::base::hardware::Costs;
use crate::base::mesh::Axis;
use crate::compile;
use crate::engine::session::{self, Numbers};
use crate::observe::{Ledger, Metrics, Run};
use crate::program::op::OpKind;
use crate::program::plan::{Pass, Plan, Slot};
use crate::program::sheet::Sheet;
use crate::program::trace::Outcome;
use crate::program::{Program, Trace};
use crate::scenario::{Order, Problems, Scenario, Task, Training};
use crate::schedule::list::{Listed, Rule, Work};
use crate::schedule::{Placement, SCHEDULES, Schedule};

/// What a search found.
#[derive(Clone, Debug)]
pub struct Search {
    /// Micro-batches of all layers of a rank that it may hold from F to W.
    pub room: f64,
    /// The unit of the times: `slots` or `ns`.
    pub unit: &'static str,
    /// Named schedules in the order of the table, then what was found.
    pub rows: Vec<Row>,
    /// Named schedules that do not take the size, and why.
    pub refused: Vec<(&'static str, String)>,
}

/// A schedule that ran.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name: a schedule's, or `found-line`, `found-loop`, `found-v` by the placement of its stages.
    pub name: String,
    /// What the search started from where it made the plan: `lists`, or a schedule's name.
    pub from: Option<String>,
    /// End of the step.
    pub makespan: f64,
    /// Idle time over all time.
    pub bubble: f64,
    /// The most that a rank holds from F to W, in micro-batches of all of its layers.
    pub peak: f64,
    /// Whether that is within the room.
    pub fits: bool,
    /// What it is.
    pub plan: Plan,
}

/// Placements that are searched, each with a name for what is found.
const PLACEMENTS: [(Placement, &str); 3] =
    [(Placement::Line, "found-line"), (Placement::Loop, "found-loop"), (Placement::Vee, "found-v")];

/// Lists of one placement that a search may start from: the shortest.
const LISTS: usize = 3;
/// Plans of one placement that it does start from, and that the engine runs then: the shortest by the times that they are made for.
const TRIED: usize = 2;
/// Slots that are timed to make one of them better.
const BUDGET: usize = 1_000_000;

/// Searches for the scenario `text` with `overrides`; `room` is what a rank of 1F1B holds, if it is not given.
///
/// # Errors
/// The problems of the scenario, and of one without a pipeline.
pub fn search(name: &str, text: &str, overrides: &[String], room: Option<f64>) -> Result<Search, Problems> {
    let fixed = ["numerics.values=shape", "batch.steps=1", "pipeline.chunk_costs=split"].map(str::to_owned);
    let base = Scenario::parse(name, text, &[overrides, &fixed].concat())?;
    let Task::Train(training) = &base.task else {
        let hint = "ranklab run shows what its algorithms cost";
        return Err(Problems::of(name, "a bare collective has no pipeline, and no schedule to search for", hint));
    };
    let ranks = training.mesh.size(Axis::Pipeline);
    // A sheet settles the sizes, and gives way to schedules of the same size.
    let is_sheet = matches!(training.pipeline.order, Order::Sheet(_));
    let text = if Sheet::is_likely(text) { "" } else { text };
    let sizes = [
        "pipeline.csv=none".to_owned(),
        format!("parallel.pipeline={ranks}"),
        format!("batch.micro_batches={}", training.batch.micro_batches),
    ];
    let common = [overrides, &fixed, &sizes, &layers(&base, training, ranks)].concat();
    let ask = |schedule: &Schedule| {
        let chunks = schedule.placement.usual_chunks();
        let own = [format!("pipeline.schedule={}", schedule.name), format!("pipeline.chunks={chunks}")];
        Scenario::parse(name, text, &[common.as_slice(), &own].concat())
    };
    let room = room.unwrap_or_else(|| f64::from(u32::try_from(ranks).unwrap_or(u32::MAX)));
    let mut search = Search { room, unit: if is_unit(&base) { "slots" } else { "ns" }, rows: Vec::new(), refused: Vec::new() };
    if is_sheet {
        search.rows.extend(Tried::new(&base).and_then(|tried| tried.row("sheet", room, None)));
    }
    let mut named: Vec<Named> = Vec::new();
    for schedule in SCHEDULES.iter().filter(|schedule| !schedule.updates.is_asynchronous()) {
        if schedule.segmented && is_unit(&base) {
            search
                .refused
                .push((schedule.name, "is counted in slots of a segment, and all others in those of whole sequences".to_owned()));
            continue;
        }
        match ask(schedule) {
            Ok(scenario) => {
                let Some(tried) = Tried::new(&scenario) else { continue };
                let Some(row) = tried.row(schedule.name, room, None) else { continue };
                search.rows.push(row.clone());
                named.push(Named { placement: schedule.placement, scenario, tried, row });
            }
            Err(problems) => search.refused.push((schedule.name, problems.first())),
        }
    }
    for (placement, name) in PLACEMENTS {
        let there: Vec<&Named> = named.iter().filter(|named| named.placement == placement).collect();
        let rows = found(&there, placement, room).into_iter().map(|row| Row { name: name.to_owned(), ..row });
        search.rows.extend(rows.min_by(Row::order));
    }
    Ok(search)
}

impl Search {
    /// The best that fits: the shortest, and of equals the one that holds least.
    #[must_use]
    pub fn best(&self) -> Option<&Row> {
        self.best_of(|_| true)
    }

    /// The best that fits of what was found.
    #[must_use]
    pub fn best_found(&self) -> Option<&Row> {
        self.best_of(|row| row.from.is_some())
    }

    fn best_of(&self, is_one: impl Fn(&Row) -> bool) -> Option<&Row> {
        self.rows.iter().filter(|row| row.fits && is_one(row)).min_by(|a, b| a.order(b))
    }
}

impl Row {
    /// The shorter first, and of equals the one that holds less.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.makespan.total_cmp(&other.makespan).then(self.peak.total_cmp(&other.peak))
    }
}

/// Under unit costs the number of layers changes no time: there are enough for two stages on every rank.
fn layers(base: &Scenario, training: &Training, ranks: usize) -> Vec<String> {
    if is_unit(base) && training.model.layers < 2 * ranks { vec![format!("model.layers={}", 2 * ranks)] } else { Vec::new() }
}

/// A named schedule that ran.
struct Named {
    placement: Placement,
    scenario: Scenario,
    tried: Tried,
    row: Row,
}

/// Plans of one placement: the lists that all rules make for the times of a named schedule's run, and the named ones that fit, each with
/// cells moved, the best few run; and the named ones as they are, so that nothing found is worse than what has a name.
fn found(named: &[&Named], placement: Placement, room: f64) -> Vec<Row> {
    // Times are measured where backward is cut in two.
    let Some(probe) = named.iter().find(|named| named.tried.cuts_backward()) else { return Vec::new() };
    let Task::Train(training) = &probe.scenario.task else { return Vec::new() };
    let Some(work) = probe.tried.work(training, placement, room) else { return Vec::new() };
    let fitting: Vec<&Row> = named.iter().map(|named| &named.row).filter(|row| row.fits).collect();
    let mut starts = lists(&work);
    starts.extend(fitting.iter().map(|row| (row.name.clone(), row.plan.clone())));
    let timed = starts.into_iter().filter_map(|(from, plan)| Some((from, work.improve(&plan, 0)?)));
    let mut timed: Vec<(String, Listed)> = timed.collect();
    timed.sort_by_key(|(_, listed)| listed.makespan);
    let better = timed.into_iter().take(TRIED).filter_map(|(from, listed)| Some((from, work.improve(&listed.plan, BUDGET)?)));
    let run = |(from, listed): (String, Listed)| {
        let mut training = training.clone();
        training.pipeline.order = Order::Plan(Arc::new(listed.plan));
        let scenario = Scenario { task: Task::Train(training), ..probe.scenario.clone() };
        Tried::new(&scenario)?.row("", room, Some(from)).filter(|row| row.fits)
    };
    let as_it_is = |row: &&Row| Row { from: Some(row.name.clone()), ..Row::clone(row) };
    better.filter_map(run).chain(fitting.iter().map(as_it_is)).collect()
}

/// The shortest plans that rules make.
fn lists(work: &Work) -> Vec<(String, Plan)> {
    let mut listed: Vec<Listed> = Rule::all().filter_map(|rule| work.plan(rule)).collect();
    listed.sort_by_key(|listed| listed.makespan);
    listed.dedup_by(|a, b| a.plan == b.plan);
    listed.into_iter().take(LISTS).map(|listed| ("lists".to_owned(), listed.plan)).collect()
}

fn is_unit(scenario: &Scenario) -> bool {
    matches!(scenario.hardware.costs, Costs::Unit(_))
}

/// A scenario that ran to its end, on shapes.
struct Tried {
    plan: Plan,
    chunks: u32,
    program: Arc<Program>,
    trace: Trace,
}

impl Tried {
    fn new(scenario: &Scenario) -> Option<Self> {
        let Task::Train(training) = &scenario.task else { return None };
        let compiled = compile::compile(scenario);
        let program = Arc::new(compiled.program);
        let (_, trace) =
            session::run(program.clone(), &scenario.hardware, &scenario.trouble, Numbers::Shape, &mut |_, _| {}).ok()?;
        let plan = compiled.plan.filter(|_| trace.outcome == Outcome::Completed)?;
        // A copy of a stage that stands twice counts as a chunk of its rank.
        let is_twice = if training.is_two_way() { 2 } else { 1 };
        Some(Self { plan, chunks: training.size().chunks * is_twice, program, trace })
    }

    fn cuts_backward(&self) -> bool {
        self.plan.slots().any(|slot| slot.pass == Pass::W)
    }

    fn row(&self, name: &str, room: f64, from: Option<String>) -> Option<Row> {
        let run = Run::new(&self.program, &self.trace);
        let metrics = Metrics::new(&run, &Ledger::new(&run));
        let held = metrics.ranks.iter().map(|rank| rank.peak_in_flight_to_weight).max()?;
        // Where a stage stands twice, each of its chunks is a whole rank's share of the layers.
        let per_rank = if self.plan.stages() == self.plan.rows.len() { 1 } else { self.chunks };
        let peak = f64::from(held) / f64::from(per_rank);
        let makespan = self.trace.clock.in_unit(metrics.makespan);
        let bubble = metrics.bubble_fraction();
        Some(Row { name: name.to_owned(), from, makespan, bubble, peak, fits: peak <= room, plan: self.plan.clone() })
    }

    /// The times of the passes and messages of micro-batch 0.
    fn work(&self, training: &Training, placement: Placement, room: f64) -> Option<Work> {
        let run = Run::new(&self.program, &self.trace);
        let stages = training.stages();
        let mut times = vec![[0; 3]; stages];
        let mut hops = vec![0; stages];
        for op in self.program.all() {
            let Some(Slot { stage, pass, micro_batch: 0 }) = self.program.op(op).origin.slot else { continue };
            let Some(length) = run.times(op).map(|times| (times.end - times.start).0) else { continue };
            match (self.program.kind(op), pass) {
                (OpKind::Run(_), Pass::F) => times[stage as usize][0] += length,
                (OpKind::Run(_), Pass::I | Pass::B) => times[stage as usize][1] += length,
                (OpKind::Run(_), Pass::W) => times[stage as usize][2] += length,
                (OpKind::Send(_), Pass::F) => hops[stage as usize] = length.max(hops[stage as usize]),
                (OpKind::Send(_), _) if stage > 0 => hops[stage as usize - 1] = length.max(hops[stage as usize - 1]),
                _ => {}
            }
        }
        let size = training.size();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a checked room of a few chunks")]
        let room = (room * f64::from(size.chunks)).floor() as u32;
        (room > 0).then_some(Work { size, placement, times, hops, room })
    }
}
