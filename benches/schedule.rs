//! How fast a scenario is planned, compiled, checked and run, shapes only, on one core: `cargo bench --bench schedule [CASE [ROUNDS [PHASE]]]`.
//!
//! Pipelines of up to 64 ranks with textbook slots; one ring all-reduce over 1,024 ranks expanded into its 2.1 million messages,
//! alpha-beta; `shared`, the same ring on links that are shared max-min fairly; `incast`, 64 and 1,024 ranks that all send to one. Every
//! phase is timed by itself, several rounds; best and median are printed.

mod support;

use std::sync::Arc;

use ranklab::base::{Dtype, Rank};
use ranklab::compile;
use ranklab::engine::kernels::cpu::allocator::keep_memory;
use ranklab::engine::session::{Numbers, run};
use ranklab::program::links::Links;
use ranklab::program::plan::{Cell, Pass, Plan};
use ranklab::program::tables::{Channel, Layout, Setting};
use ranklab::program::trace::Outcome;
use ranklab::program::{Name, OpKind, Origin, PassName, Program, Role, Trace, check};
use ranklab::scenario::{Scenario, Task};

use support::processor_seconds;

/// Pipelines: case, schedule, ranks, stages of each, micro-batches. One block to a stage.
const PIPELINES: [(&str, &str, u32, u32, u32); 6] = [
    ("pipeline", "1f1b", 64, 1, 1024),
    ("interleaved", "interleaved", 32, 2, 512),
    ("interleaved-small", "interleaved", 8, 2, 128),
    ("interleaved-512", "interleaved", 64, 2, 512),
    ("interleaved-1024", "interleaved", 64, 2, 1024),
    ("zbv", "zbv", 32, 2, 256),
];

/// Alpha-beta costs.
const RING: &str = r#"
collective = { kind = "all-reduce", bytes = 4_194_304, ranks = 1024, algorithm = "ring", chunks = 1024 }
hardware = { costs = "h100-nvlink" }
numerics = { values = "shape" }
"#;

/// The same on shared links, in nodes of eight behind one NIC each.
const SHARED: &str = r#"
collective = { kind = "all-reduce", bytes = 4_194_304, ranks = 1024, algorithm = "ring", chunks = 1024 }
hardware = { costs = "h100-nvlink", ranks_per_node = 8, sharing = true, nics_per_node = 1 }
numerics = { values = "shape" }
"#;

fn main() {
    keep_memory();
    let wanted = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let pipelines = PIPELINES.map(|(name, schedule, p, v, m)| (name, pipeline(schedule, p, v, m)));
    for (name, text) in pipelines.into_iter().chain([("ring", RING.to_owned()), ("shared", SHARED.to_owned())]) {
        if wanted.as_ref().is_none_or(|wanted| wanted == name) {
            let scenario = Scenario::parse(name, &text, &[]).unwrap_or_else(|problems| panic!("{}", problems.render(false, 100)));
            measure(name, &scenario);
        }
    }
    if wanted.is_none_or(|wanted| wanted == "incast") {
        incast();
    }
}

/// The time of a message, if 64 ranks or 1,024 send to one at the same time, each message with a length of its own.
#[expect(clippy::cast_precision_loss, reason = "a number of messages")]
fn incast() {
    const MESSAGES: usize = 1 << 17;
    let scenario = Scenario::parse("incast", SHARED, &["hardware.ranks_per_node=2048".to_owned()]).expect("a scenario");
    let mut each = Vec::new();
    for senders in [64, 1024] {
        let program = Arc::new(many_to_one(senders, MESSAGES / senders));
        let seconds = (0..rounds()).map(|_| {
            let start = processor_seconds();
            drop(run_to_the_end(program.clone(), &scenario));
            processor_seconds() - start
        });
        each.push(seconds.fold(f64::INFINITY, f64::min) / MESSAGES as f64);
        println!("incast: {senders} flows at once on one link, {:.0} ns a message", each[each.len() - 1] * 1e9);
    }
    println!("incast: 1,024 flows cost {:.2} times what 64 do", each[1] / each[0]);
}

/// Every rank but the last sends so many messages to the last, which takes those of each on a stream of their own.
fn many_to_one(senders: usize, messages: usize) -> Program {
    let mut program = Program::new(senders + 1, Setting::default());
    let origin = Origin { slot: None, step: 0, pass: PassName::Hand };
    let root = Rank::new(senders);
    for (number, sender) in (0..).zip((0..senders).map(Rank::new)) {
        let channel = program.channel(Channel { from: sender, to: root, buffered: false });
        let stream = program.communication_stream(&format!("in{sender}"));
        let layout = program.layout(Layout::tensor(Dtype::F32, &[20_000 + 37 * sender.index()]));
        let [sent, received] = [sender, root].map(|rank| program.buffer(rank, Name::Chunk(number), Role::Bucket, layout));
        for _ in 0..messages {
            program.append((sender, stream), OpKind::Send(channel), (&[sent], &[]), origin);
            program.append((root, stream), OpKind::Recv(channel), (&[], &[received]), origin);
        }
    }
    program
}

/// Textbook slots.
fn pipeline(schedule: &str, p: u32, v: u32, m: u32) -> String {
    let stages = p * v;
    format!(
        "model = {{ preset = \"tiny\", layers = {stages} }}\nbatch = {{ micro_batches = {m}, steps = 1 }}\nparallel.pipeline = {p}\n\
         pipeline = {{ schedule = \"{schedule}\", chunks = {v} }}\nnumerics.values = \"shape\"\n"
    )
}

/// Rounds, unless the second word says otherwise: one is enough for an instruction counter.
fn rounds() -> usize {
    std::env::args().nth(2).and_then(|word| word.parse().ok()).unwrap_or(9)
}

/// The only phase that is timed, if the third word names one: for a profiler.
fn only() -> Option<String> {
    std::env::args().nth(3).filter(|word| !word.starts_with('-'))
}

/// Times every phase of `scenario`, and all of them in one go.
fn measure(name: &str, scenario: &Scenario) {
    let mut phases = Phases::default();
    let (mut size, mut slots) = ((0, 0), 0);
    for _ in 0..rounds() {
        phases.next = 0;
        if let Task::Train(training) = &scenario.task {
            let plan = compile::plan(training);
            phases.time("plan", || compile::plan(training));
            slots = plan.slots().count();
            phases.time("bare pass over slots", || bare_pass(&plan));
        }
        for pass in compile::pass_names() {
            phases.time(&format!("compile to {pass}"), || compile::compile_until(scenario, pass));
        }
        let program = Arc::new(compile::compile(scenario).program);
        size = count(&program);
        phases.time("check", || check(&program));
        phases.time("links", || Links::new(&program));
        phases.time("run", || run_to_the_end(program.clone(), scenario));
        drop(program);
        phases.time("compile, check, run", || {
            let program = Arc::new(compile::compile(scenario).program);
            assert!(check(&program).is_empty(), "a compiled program is sound");
            run_to_the_end(program, scenario)
        });
        phases.time("compile, run", || run_to_the_end(Arc::new(compile::compile(scenario).program), scenario));
    }
    phases.print(name, size, slots);
}

/// The least that a pass over a plan can do, as a measure of the machine: every slot starts when its rank and the slot that it needs are done,
/// in integers, without memory, messages or a record. How long the plan takes.
fn bare_pass(plan: &Plan) -> u64 {
    let (stages, micro_batches) = (plan.stages(), plan.micro_batches());
    let end_of =
        |forward: bool, stage: usize, micro_batch: usize| (usize::from(forward) * stages + stage) * micro_batches + micro_batch;
    let home = |stage: usize| stage % plan.rows.len();
    let mut ends = vec![0_u64; 2 * stages * micro_batches];
    let mut next = vec![0; plan.rows.len()];
    let mut clocks = vec![0; plan.rows.len()];
    let mut awake: Vec<usize> = (0..plan.rows.len()).rev().collect();
    while let Some(rank) = awake.pop() {
        while let Some(&Cell::One(slot)) = plan.rows[rank].get(next[rank]) {
            let (stage, micro_batch) = (slot.stage as usize, slot.micro_batch as usize);
            let is_forward = slot.pass == Pass::F;
            let (needed, neighbour) = match (is_forward, stage) {
                (true, 0) => (None, Some(1)),
                (true, _) => (Some(end_of(true, stage - 1, micro_batch)), Some(stage + 1)),
                (false, _) if stage + 1 == stages => (Some(end_of(true, stage, micro_batch)), stage.checked_sub(1)),
                (false, _) => (Some(end_of(false, stage + 1, micro_batch)), stage.checked_sub(1)),
            };
            let ready = needed.map_or(1, |needed| ends[needed]);
            if ready == 0 {
                break;
            }
            clocks[rank] = ready.max(clocks[rank]) + if is_forward { 1 } else { 2 };
            ends[end_of(is_forward, stage, micro_batch)] = clocks[rank];
            next[rank] += 1;
            awake.extend(neighbour.filter(|&stage| stage < stages).map(home));
        }
    }
    assert!(next.iter().zip(&plan.rows).all(|(next, row)| *next == row.len()), "every slot has run");
    clocks.into_iter().max().unwrap_or_default()
}

fn run_to_the_end(program: Arc<Program>, scenario: &Scenario) -> Trace {
    let (_, trace) =
        run(program, &scenario.hardware, &[], Numbers::Shape, &mut |_, _| {}).expect("a run of shapes calls no kernel");
    assert_eq!(trace.outcome, Outcome::Completed);
    trace
}

/// Ops and messages of `program`.
fn count(program: &Program) -> (usize, usize) {
    let receives = program.all().filter(|&op| program.kind(op).receives());
    (program.all().count(), receives.count())
}

/// Phases in order, with the seconds of each round.
#[derive(Default)]
struct Phases {
    rows: Vec<(String, Vec<f64>)>,
    next: usize,
}

impl Phases {
    /// Times `work`, without the time that it takes to drop its result.
    fn time<T>(&mut self, phase: &str, work: impl FnOnce() -> T) {
        if only().is_some_and(|only| only != phase) {
            return;
        }
        let start = processor_seconds();
        let result = work();
        let seconds = processor_seconds() - start;
        drop(result);
        if self.next == self.rows.len() {
            self.rows.push((phase.to_owned(), Vec::new()));
        }
        self.rows[self.next].1.push(seconds);
        self.next += 1;
    }

    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    fn print(&mut self, name: &str, (ops, messages): (usize, usize), slots: usize) {
        println!("{name}: {ops} ops, {messages} messages, {slots} slots; {} rounds", rounds());
        println!("  {:<30} {:>9} {:>9} {:>10} {:>12}", "phase", "best ms", "median", "M ops/s", "M messages/s");
        for (phase, seconds) in &mut self.rows {
            seconds.sort_by(f64::total_cmp);
            let (best, median) = (seconds[0], seconds[seconds.len() / 2]);
            let rate = |count: usize| count as f64 / best / 1e6;
            let ops = if phase.starts_with("bare") { slots } else { ops };
            println!("  {phase:<30} {:>9.2} {:>9.2} {:>10.2} {:>12.2}", best * 1e3, median * 1e3, rate(ops), rate(messages));
        }
    }
}
