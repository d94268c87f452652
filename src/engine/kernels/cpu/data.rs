//! The training text and the samples cut from it.

use candle_core::{Device, Result, Tensor};

use super::Dims;
use super::counter::Stream;

/// The text that the tiny models are trained on, written for this project.
pub const CORPUS: &[u8] = include_bytes!("../../../../assets/corpus.txt");

/// Tokens and targets, both u32 `[b,t]`, of the samples from number `first_sample` on. A sample starts at a place drawn from the
/// seed and its number; tokens are the text's bytes (mod the vocabulary's size), and a token's target is the next one.
///
/// # Errors
/// Only what candle reports when a tensor is made.
pub fn batch(first_sample: u64, dims: &Dims, seed: u64) -> Result<(Tensor, Tensor)> {
    let stream = Stream::new(seed, "data");
    let starts = (first_sample..).take(dims.micro_batch_size).map(|sample| stream.bits(sample));
    let below = |bits: u64| usize::try_from(bits % CORPUS.len() as u64).expect("an index into the text");
    let starts: Vec<usize> = starts.map(below).collect();
    Ok((samples(dims, &starts, 0)?, samples(dims, &starts, 1)?))
}

/// One row per start, `shift` bytes further on; the text goes round.
fn samples(dims: &Dims, starts: &[usize], shift: usize) -> Result<Tensor> {
    let token = |at: usize| {
        let byte = CORPUS[at % CORPUS.len()];
        u32::from(u8::try_from(dims.model.vocab).map_or(byte, |vocab| byte % vocab))
    };
    let rows = starts.iter().flat_map(|start| (start + shift..).take(dims.model.sequence).map(token));
    Tensor::from_vec(rows.collect::<Vec<u32>>(), (starts.len(), dims.model.sequence), &Device::Cpu)
}
