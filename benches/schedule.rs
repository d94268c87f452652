//! How fast a scenario is planned, compiled, checked and run, shapes only, on one core: `cargo bench --bench schedule [CASE]`.
//!
//! Pipelines of up to 64 ranks with textbook slots, and one ring all-reduce over 1,024 ranks expanded into its 2.1 million messages,
//! alpha-beta. Every phase is timed by itself, several rounds; best and median are printed.

use std::sync::Arc;

use ranklab::compile;
use ranklab::engine::kernels::cpu::allocator::keep_memory;
use ranklab::engine::session::{Numbers, run};
use ranklab::program::links::Links;
use ranklab::program::trace::Outcome;
use ranklab::program::{Program, Trace, check};
use ranklab::scenario::{Scenario, Task};

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

fn main() {
    keep_memory();
    let wanted = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let pipelines = PIPELINES.map(|(name, schedule, p, v, m)| (name, pipeline(schedule, p, v, m)));
    for (name, text) in pipelines.into_iter().chain([("ring", RING.to_owned())]) {
        if wanted.as_ref().is_none_or(|wanted| wanted == name) {
            let scenario = Scenario::parse(name, &text, &[]).unwrap_or_else(|problems| panic!("{}", problems.render(false, 100)));
            measure(name, &scenario);
        }
    }
}

/// Textbook slots.
fn pipeline(schedule: &str, p: u32, v: u32, m: u32) -> String {
    let stages = p * v;
    format!(
        "model = {{ preset = \"tiny\", layers = {stages} }}\nbatch = {{ micro_batches = {m}, steps = 1 }}\nparallel.pipeline = {p}\n\
         pipeline = {{ schedule = \"{schedule}\", chunks = {v} }}\nnumerics.values = \"shape\"\n"
    )
}

const ROUNDS: usize = 9;

/// Times every phase of `scenario`, and all of them in one go.
fn measure(name: &str, scenario: &Scenario) {
    let mut phases = Phases::default();
    let mut size = (0, 0);
    for _ in 0..ROUNDS {
        phases.next = 0;
        if let Task::Train(training) = &scenario.task {
            phases.time("plan", || compile::plan(training));
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
    phases.print(name, size);
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

/// Seconds of processor time that this process has used: what else runs on the machine hardly matters.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53 nanoseconds")]
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec to a place that is valid for it.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "the clock of this process can be read");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
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
    fn print(&mut self, name: &str, (ops, messages): (usize, usize)) {
        println!("{name}: {ops} ops, {messages} messages; {ROUNDS} rounds");
        println!("  {:<30} {:>9} {:>9} {:>10} {:>12}", "phase", "best ms", "median", "M ops/s", "M messages/s");
        for (phase, seconds) in &mut self.rows {
            seconds.sort_by(f64::total_cmp);
            let (best, median) = (seconds[0], seconds[seconds.len() / 2]);
            let rate = |count: usize| count as f64 / best / 1e6;
            println!("  {phase:<30} {:>9.2} {:>9.2} {:>10.2} {:>12.2}", best * 1e3, median * 1e3, rate(ops), rate(messages));
        }
    }
}
