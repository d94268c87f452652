//! The block kernel of attention on one thread: one device, and the two ranks of a ring, against the time of the products alone.
//!
//! `cargo bench --bench attention [-- ROUNDS]`: batch 1, 8 heads of 64, f32, 2,048 tokens. All variants are timed in turn, since the
//! speed of a shared machine drifts: compare the ratios. For the scale: PyTorch's `scaled_dot_product_attention` took 0.121 s forward and
//! 0.324 s backward, causal 0.076 s and 0.202 s, on a core whose products alone take 0.101 s forward.
#![expect(clippy::disallowed_methods, reason = "a bench reads the wall clock")]
#![expect(clippy::cast_precision_loss, reason = "sizes")]

use std::time::Instant;

use candle_core::{Device, Result, Tensor};
use ranklab::base::settings::Placement;
use ranklab::engine::kernels::cpu::allocator;
use ranklab::engine::kernels::cpu::flash::{self, Block, Mask, MergeRule, Outcome};

const SEQUENCE: usize = 2_048;
const HEADS: usize = 8;
const SIZE: usize = 64;

/// Seconds forward and backward, per rank.
type Times = Vec<[f64; 2]>;

fn main() -> Result<()> {
    allocator::keep_memory();
    let rounds: usize = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(7);
    let layer = Layer::new()?;
    println!("one device of {SEQUENCE} tokens, and 2 ranks of half of them; best of {rounds} rounds, in seconds");
    println!("{:24}{:>10}{:>10}{:>14}{:>14}", "", "forward", "backward", "to products", "to products");
    for (mask, placements) in [("full", &Placement::ALL[..1]), ("causal", Placement::ALL)] {
        let is_causal = mask == "causal";
        let variants: Vec<(usize, Placement)> =
            std::iter::once((1, Placement::Contiguous)).chain(placements.iter().map(|&placement| (2, placement))).collect();
        let mut best: Vec<Times> = variants.iter().map(|&(ranks, _)| vec![[f64::INFINITY; 2]; ranks]).collect();
        let mut products = f64::INFINITY;
        for _ in 0..rounds {
            products = products.min(products_alone());
            for (best, &(ranks, placement)) in best.iter_mut().zip(&variants) {
                for (best, times) in best.iter_mut().flatten().zip(layer.run(is_causal, placement, ranks)?.iter().flatten()) {
                    *best = best.min(*times);
                }
            }
        }
        let sum = |times: &Times, pass: usize| times.iter().map(|times| times[pass]).sum::<f64>();
        println!("{mask}: products alone     {products:10.3}");
        for (times, (ranks, placement)) in best.iter().zip(variants) {
            let [forward, backward] = [0, 1].map(|pass| sum(times, pass));
            let name = if ranks == 1 { "one device".to_owned() } else { format!("2 ranks, {placement}, sum") };
            print!("{name:24}{forward:10.3}{backward:10.3}{:14.2}{:14.2}", forward / products, backward / products);
            if ranks > 1 {
                let one = sum(&best[0], 0) + sum(&best[0], 1);
                let all: Vec<f64> = times.iter().map(|times| times[0] + times[1]).collect();
                let slowest = all.iter().copied().fold(0.0, f64::max);
                print!("   sum / one device {:.3}", (forward + backward) / one);
                print!("   slowest / mean {:.3}", slowest * ranks as f64 / all.iter().sum::<f64>());
            }
            println!();
        }
    }
    Ok(())
}

/// Seconds of the forward pass' products of one device, without a mask.
fn products_alone() -> f64 {
    let operand = vec![0.5_f32; SEQUENCE * SIZE];
    let mut result = vec![0.0_f32; SEQUENCE * SEQUENCE];
    let stride = |stride: usize| isize::try_from(stride).expect("a small stride");
    let start = Instant::now();
    for _ in 0..2 * HEADS {
        // SAFETY: the vectors hold the matrices of these sizes and strides.
        unsafe {
            gemm::gemm(
                SEQUENCE,
                SEQUENCE,
                SIZE,
                result.as_mut_ptr(),
                1,
                stride(SEQUENCE),
                false,
                operand.as_ptr(),
                1,
                stride(SIZE),
                operand.as_ptr(),
                stride(SIZE),
                1,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
    start.elapsed().as_secs_f64()
}

/// Queries, keys, values and the gradient of the output, `[1,t,n,d]`.
struct Layer {
    tensors: [Tensor; 4],
}

impl Layer {
    fn new() -> Result<Self> {
        let tensor = |salt: f32| {
            let values = (0..SEQUENCE * HEADS * SIZE).map(|i| (i as f32 * (0.7 + salt)).sin() * 1.7).collect::<Vec<f32>>();
            Tensor::from_vec(values, (1, SEQUENCE, HEADS, SIZE), &Device::Cpu)
        };
        Ok(Self { tensors: [tensor(0.1)?, tensor(0.2)?, tensor(0.3)?, tensor(0.4)?] })
    }

    /// Every rank's seconds, as a ring computes: one block of keys after the other, its own first.
    fn run(&self, is_causal: bool, placement: Placement, ranks: usize) -> Result<Times> {
        let held: Vec<Vec<u32>> = (0..ranks).map(|rank| placement.positions(SEQUENCE, ranks, rank)).collect();
        let parts = held.iter().map(|held| {
            let own = Tensor::new(held.as_slice(), &Device::Cpu)?;
            self.tensors.iter().map(|tensor| tensor.index_select(&own, 1)).collect::<Result<Vec<_>>>()
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let one = |rank: usize| {
            let sources = (0..ranks).map(|hop| (rank + ranks - hop) % ranks);
            let mask = |source: usize| {
                if is_causal { Mask::Causal { queries: &held[rank], keys: &held[source] } } else { Mask::Full }
            };
            let block = |source: usize| Block::new(&parts[source][1], &parts[source][2]);
            let q = &parts[rank][0];
            let start = Instant::now();
            let mut state = None;
            for source in sources.clone() {
                let attended = flash::attend(q, block(source), &mask(source))?;
                state = Some(match state {
                    Some(state) => flash::merge(&state, &attended, MergeRule::Exact)?,
                    None => attended,
                });
            }
            let [output, lse] = flash::finish(&state.expect("at least one block"))?;
            let forward = start.elapsed().as_secs_f64();
            let outcome = Outcome { output: &output, lse: &lse, gradient: &parts[rank][3] };
            let start = Instant::now();
            let mut dq = None;
            for source in sources {
                let [gradient, ..] = flash::backward(q, block(source), outcome, &mask(source), [dq.as_ref(), None, None])?;
                dq = Some(gradient);
            }
            Ok([forward, start.elapsed().as_secs_f64()])
        };
        (0..ranks).map(one).collect()
    }
}
