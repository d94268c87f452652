//! What sharding costs the lab: `cargo bench --bench sharding [-- ROUNDS]`.
//!
//! A shape-only ZeRO-3 step of a 70B model on 1,024 ranks, compiled and run, folded and with every rank followed. And with real values: a
//! step of two ranks under ZeRO-3, half of it against a plain step of one, in turn, since the speed of a shared machine drifts.
#![expect(clippy::disallowed_methods, reason = "a bench reads the wall clock")]

use std::sync::Arc;
use std::time::Instant;

use ranklab::compile;
use ranklab::engine::kernels::cpu::allocator::keep_memory;
use ranklab::engine::session::{Numbers, run};
use ranklab::program::trace::Outcome;
use ranklab::scenario::Scenario;

const LARGE: &str = r#"
model = { preset = "llama-70b", bytes_per_parameter = "mixed-adam-16" }
batch = { micro_batches = 1, steps = 1 }
parallel = { data = 1024 }
data_parallel = { strategy = "zero-3" }
numerics = { values = "shape" }
hardware = { costs = "h100-nvlink", memory_gb = 1000 }
"#;

/// The model of the bench `step`.
const REAL: &str = r#"
model = { layers = 4, hidden = 256, heads = 4, sequence = 256, vocab = 512, bias = "all" }
batch = { micro_batches = 1, micro_batch_size = 8, steps = 2 }
data_parallel = { strategy = "zero-3" }
"#;

fn main() {
    keep_memory();
    let rounds: usize = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(5);
    for (name, fold) in [("70B on 1,024 ranks", "true"), ("the same, unfolded", "false")] {
        let scenario = scenario(LARGE, &[format!("parallel.fold={fold}")]);
        report(name, (0..rounds).map(|_| time(&scenario, Numbers::Shape)).collect());
    }
    let (plain, sharded) = (scenario(REAL, &[]), scenario(REAL, &["parallel.data=2".to_owned()]));
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let (one, two) = (time(&plain, Numbers::Real), time(&sharded, Numbers::Real));
        ratios.push(two / 2.0 / one);
    }
    ratios.sort_by(f64::total_cmp);
    println!("{:24}median of pairs {:.3}", "a rank of two / plain", ratios[rounds / 2]);
}

fn scenario(text: &str, overrides: &[String]) -> Scenario {
    Scenario::parse("bench", text, overrides).unwrap_or_else(|problems| panic!("{}", problems.render(false, 100)))
}

/// Milliseconds from the scenario to the end of its run.
fn time(scenario: &Scenario, numbers: Numbers) -> f64 {
    let start = Instant::now();
    let program = Arc::new(compile::compile(scenario).program);
    let (_, trace) = run(program, &scenario.hardware, &[], numbers, &mut |_, _| {}).expect("a run");
    assert_eq!(trace.outcome, Outcome::Completed);
    start.elapsed().as_secs_f64() * 1e3
}

fn report(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    println!("{name:24}best {:9.2} ms   median {:9.2} ms", times[0], times[times.len() / 2]);
}
