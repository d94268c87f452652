//! One training step of a small transformer on one thread, against the time of its matrix products alone.
//!
//! `cargo bench --bench step [-- ROUNDS]`. The two are timed in turn, since the speed of a shared machine drifts.
#![expect(clippy::disallowed_methods, reason = "a bench reads the wall clock")]
#![expect(clippy::cast_precision_loss, reason = "sizes and times")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use ranklab::base::model::Model;
use ranklab::compile;
use ranklab::engine::kernels::cpu::allocator;
use ranklab::engine::session::{Numbers, Session};
use ranklab::program::{Kernel, OpKind};
use ranklab::scenario::{Scenario, Task, Training};

/// The model of the bench: 3.5 million parameters, 46.7 GFLOP of matrix products a step.
const SCENARIO: &str = r#"
[model]
layers = 4
hidden = 256
heads = 4
sequence = 256
vocab = 512
bias = "all"
[batch]
micro_batches = 1
micro_batch_size = 8
"#;

fn main() {
    allocator::keep_memory();
    let rounds: u32 = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(11);
    let scenario = Scenario::parse("bench", SCENARIO, &[format!("batch.steps={}", rounds + 1)]).expect("a scenario");
    let Task::Train(training) = &scenario.task else { unreachable!("it trains") };
    let products = products(training);
    let mut operands = Operands::of(&products);
    let program = Arc::new(compile::compile(&scenario).program);

    // The steps of one session are timed from optimizer to optimizer, and the floor between them: the pairs share the machine's mood.
    let (mut floor, mut steps) = (Vec::new(), Vec::new());
    let mut start = Instant::now();
    let mut on_end = |world: &ranklab::engine::world::World, op| {
        let program = &world.machine.program;
        let OpKind::Run(kernel) = program.kind(op) else { return };
        let last_of_step = matches!(program.kernels[kernel.index()].kernel, Kernel::Optimizer(ranklab::base::model::Part::Head));
        if last_of_step {
            steps.push(start.elapsed());
            let begin = Instant::now();
            operands.multiply(&products);
            floor.push(begin.elapsed());
            start = Instant::now();
        }
    };
    let session = Session::record(program, &scenario.hardware, &[], Numbers::Real, &mut on_end).expect("a run");
    // The first step also lays out memory.
    (floor, steps) = (floor.split_off(1), steps.split_off(1));

    let gflop = products.iter().map(Product::flops).sum::<f64>() / 1e9;
    println!("{} parameters, {gflop:.1} GFLOP in matrix products, {rounds} rounds", training.model.parameter_count());
    let ratios: Vec<f64> = steps.iter().zip(&floor).map(|(step, floor)| step.as_secs_f64() / floor.as_secs_f64()).collect();
    let [floor_best, floor_median] = report("floor: products alone", &floor);
    let [best, _] = report("step through a session", &steps);
    println!("{:24}best {:8.2}      median of pairs {:8.2}", "step / floor", best / floor_best, median(ratios));
    println!("{:24}best {:8.1}      median {:8.1}", "floor in GFLOP/s", gflop / floor_best * 1e3, gflop / floor_median * 1e3);
    let losses: Vec<f64> = session.values().losses().iter().map(|loss| loss.value).collect();
    println!("loss {:.4} -> {:.4}", losses[0], losses[losses.len() - 1]);
}

/// Prints and returns the best and the median, in ms.
fn report(name: &str, times: &[Duration]) -> [f64; 2] {
    let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    let median = median(times);
    println!("{name:24}best {best:8.1} ms   median {median:8.1} ms");
    [best, median]
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A product `[rows,inner] [inner,columns]` that a step computes `times` times.
struct Product {
    times: usize,
    rows: usize,
    inner: usize,
    columns: usize,
    /// Which operand is stored with its rows as columns.
    stored: Stored,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    Plain,
    LeftTransposed,
    RightTransposed,
}

impl Product {
    fn flops(&self) -> f64 {
        2.0 * (self.times * self.rows * self.inner * self.columns) as f64
    }
}

/// The matrix products of a step: y = x W^T, dx = dy W, dW = dy^T x per linear layer, and attention's without regard to its mask.
fn products(training: &Training) -> Vec<Product> {
    let model = &training.model;
    let &Model { layers, hidden, ffn, vocab, sequence, .. } = model;
    let batch = training.batch.micro_batch_size;
    let linears = [(layers, hidden, model.qkv_rows()), (layers, hidden, hidden), (layers, hidden, ffn), (layers, ffn, hidden)];
    let tokens = batch * sequence;
    let mut list = Vec::new();
    let mut add = |times, rows, inner, columns, stored| list.push(Product { times, rows, inner, columns, stored });
    for (times, inputs, outputs) in linears.into_iter().chain([(1, hidden, vocab)]) {
        add(times, tokens, inputs, outputs, Stored::RightTransposed);
        add(times, tokens, outputs, inputs, Stored::Plain);
        add(times, outputs, tokens, inputs, Stored::LeftTransposed);
    }
    let heads = layers * batch * model.heads;
    add(2 * heads, sequence, model.head_size(), sequence, Stored::RightTransposed);
    add(2 * heads, sequence, sequence, model.head_size(), Stored::Plain);
    add(2 * heads, sequence, sequence, model.head_size(), Stored::LeftTransposed);
    list
}

/// Memory for the operands and the result of any of the products.
struct Operands {
    left: Vec<f32>,
    right: Vec<f32>,
    result: Vec<f32>,
}

impl Operands {
    fn of(products: &[Product]) -> Operands {
        let values = |size: &dyn Fn(&Product) -> usize| -> Vec<f32> {
            let largest = products.iter().map(size).max().unwrap_or(0);
            (0..largest).map(|i| (i % 1013) as f32 / 1013.0 - 0.5).collect()
        };
        Operands {
            left: values(&|p| p.rows * p.inner),
            right: values(&|p| p.inner * p.columns),
            result: values(&|p| p.rows * p.columns),
        }
    }

    fn multiply(&mut self, products: &[Product]) {
        for product in products {
            (0..product.times).for_each(|_| self.multiply_one(product));
        }
    }

    fn multiply_one(&mut self, product: &Product) {
        let &Product { rows, inner, columns, stored, .. } = product;
        let strides = |rows: usize, columns: usize, transposed| {
            let [rows, columns] = [rows, columns].map(|size| isize::try_from(size).expect("a size of memory"));
            if transposed { (rows, 1) } else { (1, columns) }
        };
        let left = strides(rows, inner, stored == Stored::LeftTransposed);
        let right = strides(inner, columns, stored == Stored::RightTransposed);
        let result = strides(rows, columns, false);
        let (left_at, right_at) = (self.left.as_ptr(), self.right.as_ptr());
        // SAFETY: each vector holds the largest matrix that it is used for.
        unsafe {
            gemm::gemm(
                rows,
                columns,
                inner,
                self.result.as_mut_ptr(),
                result.0,
                result.1,
                false,
                left_at,
                left.0,
                left.1,
                right_at,
                right.0,
                right.1,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}
