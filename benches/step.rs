//! One training step of a small transformer on one thread, against the time of its matrix products alone.
//!
//! `cargo bench --bench step [-- ROUNDS]`. The two are timed in turn, since the speed of a shared machine drifts.
#![expect(clippy::disallowed_methods, reason = "a bench reads the wall clock")]
#![expect(clippy::cast_precision_loss, reason = "sizes and times")]

use std::time::{Duration, Instant};

use candle_core::{DType, Result, Tensor};
use ranklab::base::model::{Activation, Bias, Model, Norm, Parameter, Part, Positions};
use ranklab::engine::kernels::cpu::optimizer::{AdamState, AdamW, adamw};
use ranklab::engine::kernels::cpu::{Dims, allocator, block, data, embedding, head, init};

const MODEL: Model = Model {
    layers: 4,
    hidden: 256,
    heads: 4,
    kv_heads: 4,
    sequence: 256,
    vocab: 512,
    ffn: 1024,
    activation: Activation::Gelu,
    norm: Norm::Layer,
    positions: Positions::Learned,
    bias: Bias::All,
    fused_qkv: true,
    tied: false,
    dropout: 0.0,
};
const BATCH: usize = 8;
const SETTINGS: AdamW = AdamW { lr: 3e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };

fn main() -> Result<()> {
    allocator::keep_memory();
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(11);
    let products = products();
    let mut operands = Operands::of(&products);
    let mut training = Training::start()?;
    training.step()?;

    let (mut floor, mut phases) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        operands.multiply(&products);
        floor.push(start.elapsed());
        phases.push(training.step()?);
    }

    let gflop = products.iter().map(Product::flops).sum::<f64>() / 1e9;
    println!("{} parameters, {gflop:.1} GFLOP in matrix products, {rounds} rounds", MODEL.parameter_count());
    let [floor_best, floor_median] = report("floor: products alone", floor);
    let [best, median] = report("step", phases.iter().map(|phases| phases.iter().sum()).collect());
    for (phase, name) in ["  forward", "  backward", "  optimizer"].iter().enumerate() {
        report(name, phases.iter().map(|phases| phases[phase]).collect());
    }
    println!("{:24}best {:8.2}      median {:8.2}", "step / floor", best / floor_best, median / floor_median);
    println!("{:24}best {:8.1}      median {:8.1}", "floor in GFLOP/s", gflop / floor_best * 1e3, gflop / floor_median * 1e3);
    println!("loss after {} steps: {:.4}", training.steps, training.loss);
    Ok(())
}

/// Prints and returns the best and the median, in ms.
fn report(name: &str, mut times: Vec<Duration>) -> [f64; 2] {
    times.sort();
    let [best, median] = [times[0], times[times.len() / 2]].map(|time| time.as_secs_f64() * 1e3);
    println!("{name:24}best {best:8.1} ms   median {median:8.1} ms");
    [best, median]
}

/// A model in training: per part in forward order, its parameters' states.
struct Training {
    dims: Dims,
    parts: Vec<Vec<AdamState>>,
    steps: u32,
    loss: f32,
}

/// What the backward pass needs of the forward pass: per block, and of the head.
struct Saved {
    blocks: Vec<Vec<Tensor>>,
    head: Vec<Tensor>,
}

impl Training {
    fn start() -> Result<Training> {
        let state = |parameter: &Parameter| {
            let parameter = init::parameter(parameter, 0, DType::F32)?;
            Ok(AdamState { m: parameter.zeros_like()?, v: parameter.zeros_like()?, parameter })
        };
        let part = |part: Part| MODEL.parameters_of(part).iter().map(state).collect::<Result<Vec<_>>>();
        let parts = MODEL.parts().map(part).collect::<Result<_>>()?;
        Ok(Training { dims: Dims { model: MODEL, micro_batch_size: BATCH, grid: None }, parts, steps: 0, loss: 0.0 })
    }

    /// One step; how long forward, backward and optimizer took.
    fn step(&mut self) -> Result<[Duration; 3]> {
        let (tokens, targets) = data::batch(u64::from(self.steps) * BATCH as u64, &self.dims, 0)?;
        let values = |states: &Vec<AdamState>| states.iter().map(|state| state.parameter.clone()).collect();
        let parameters: Vec<Vec<Tensor>> = self.parts.iter().map(values).collect();
        let start = Instant::now();
        let (loss, saved) = self.forward(&tokens, &targets, &parameters)?;
        let forward = Instant::now();
        let gradients = self.backward(&tokens, &parameters, saved)?;
        let backward = Instant::now();
        self.steps += 1;
        for (states, gradients) in self.parts.iter_mut().zip(&gradients) {
            for (state, gradient) in states.iter_mut().zip(gradients) {
                *state = adamw(SETTINGS, self.steps, state, gradient)?;
            }
        }
        let optimizer = backward.elapsed();
        self.loss = loss.to_scalar()?;
        Ok([forward.duration_since(start), backward.duration_since(forward), optimizer])
    }

    fn forward(&self, tokens: &Tensor, targets: &Tensor, parameters: &[Vec<Tensor>]) -> Result<(Tensor, Saved)> {
        let last = parameters.len() - 1;
        let mut x = embedding::forward(&self.dims, tokens, &parameters[0])?;
        let mut blocks = Vec::new();
        for parameters in &parameters[1..last] {
            let (y, saved) = block::forward(&self.dims, &x, parameters)?;
            blocks.push(saved);
            x = y;
        }
        let (loss, head) = head::forward(&self.dims, &x, targets, &parameters[last])?;
        Ok((loss, Saved { blocks, head }))
    }

    fn backward(&self, tokens: &Tensor, parameters: &[Vec<Tensor>], saved: Saved) -> Result<Vec<Vec<Tensor>>> {
        let last = parameters.len() - 1;
        let (mut d_x, deferred) = head::backward_input(&self.dims, &parameters[last], &saved.head)?;
        let mut gradients = vec![head::backward_weight(&self.dims, &saved.head, &deferred, None)?];
        drop((deferred, saved.head));
        for (parameters, saved) in parameters[1..last].iter().zip(saved.blocks).rev() {
            let (gradient, deferred) = block::backward_input(&self.dims, &d_x, parameters, &saved)?;
            gradients.push(block::backward_weight(&self.dims, &saved, &deferred, None)?);
            d_x = gradient;
        }
        gradients.push(embedding::backward_weight(&self.dims, tokens, &d_x, None)?);
        gradients.reverse();
        Ok(gradients)
    }
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
fn products() -> Vec<Product> {
    let Model { layers, hidden, ffn, vocab, sequence, .. } = MODEL;
    let linears = [(layers, hidden, MODEL.qkv_rows()), (layers, hidden, hidden), (layers, hidden, ffn), (layers, ffn, hidden)];
    let tokens = BATCH * sequence;
    let mut list = Vec::new();
    let mut add = |times, rows, inner, columns, stored| list.push(Product { times, rows, inner, columns, stored });
    for (times, inputs, outputs) in linears.into_iter().chain([(1, hidden, vocab)]) {
        add(times, tokens, inputs, outputs, Stored::RightTransposed);
        add(times, tokens, outputs, inputs, Stored::Plain);
        add(times, outputs, tokens, inputs, Stored::LeftTransposed);
    }
    let heads = layers * BATCH * MODEL.heads;
    add(2 * heads, sequence, MODEL.head_size(), sequence, Stored::RightTransposed);
    add(2 * heads, sequence, sequence, MODEL.head_size(), Stored::Plain);
    add(2 * heads, sequence, sequence, MODEL.head_size(), Stored::LeftTransposed);
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
