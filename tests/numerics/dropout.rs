//! Masks of dropout: drawn by counting, as often as asked for, and by whoever needs them.

use ranklab::base::model::{Model, Part};
use ranklab::engine::kernels::cpu::Dims;
use ranklab::engine::kernels::cpu::dropout::{Draw, Place, RandomState, mask};

use super::cases::{GPT, LLAMA};

const PLACES: [Place; 4] = [Place::Embedding, Place::Softmax, Place::Attention, Place::FeedForward];

fn dims(model: &Model, dropout: f64, micro_batch_size: usize) -> Dims {
    Dims { model: Model { dropout, ..model.clone() }, micro_batch_size, grid: None, half: false }
}

fn draw(part: Part, seed: u64, sample: u64) -> Draw {
    Draw { part, random: RandomState { seed, sample } }
}

/// Written from the paper of `SplitMix64` (Steele, Lea and Flood 2014) anew: a key from seed and name, then number i of the stream.
fn keeps(seed: u64, name: &str, number: u64, probability: f64) -> u8 {
    let finalise = |mut z: u64| {
        z ^= z >> 30;
        z = z.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 27;
        z = z.wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut key = finalise(seed);
    for byte in name.bytes() {
        key = finalise(key ^ u64::from(byte));
    }
    let bits = finalise(key.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    u8::from(bits as f64 >= probability * 2f64.powi(64))
}

#[test]
fn an_element_depends_on_seed_place_and_number() {
    let check = |part, place, name: &str, elements: usize| {
        for (seed, sample, probability) in [(0, 0, 0.1), (7, 1_000_003, 0.5), (u64::from(u32::MAX), 12, 0.9)] {
            let drawn = mask(&dims(&GPT, probability, 3), draw(part, seed, sample), place);
            let expected: Vec<u8> =
                (0..3 * elements as u64).map(|i| keeps(seed, name, sample * elements as u64 + i, probability)).collect();
            assert_eq!(drawn, expected, "{name} from sample {sample}, seed {seed}");
        }
    };
    let (stream, square) = (GPT.sequence * GPT.hidden, GPT.heads * GPT.sequence * GPT.sequence);
    check(Part::Embedding, Place::Embedding, "embedding.dropout.embedding", stream);
    check(Part::Block(0), Place::Softmax, "blocks.0.dropout.softmax", square);
    check(Part::Block(11), Place::Attention, "blocks.11.dropout.attention", stream);
    check(Part::Block(1), Place::FeedForward, "blocks.1.dropout.feed-forward", stream);
}

/// Five standard deviations of a binomial distribution: one run in two million would miss them by chance, and these runs never change.
#[test]
fn as_many_are_dropped_as_asked_for() {
    for probability in [0.01, 0.1, 0.5, 0.9, 0.99] {
        for (part, place) in
            [(Part::Embedding, Place::Embedding), (Part::Block(0), Place::Softmax), (Part::Block(3), Place::Attention)]
        {
            let drawn = mask(&dims(&Model { sequence: 64, ..LLAMA }, probability, 8), draw(part, 3, 40), place);
            let kept: usize = drawn.iter().map(|&keep| usize::from(keep)).sum();
            check_share(drawn.len() - kept, drawn.len(), probability);
        }
    }
}

/// Whether `hits` of `all` is a likely number for this probability.
#[track_caller]
fn check_share(hits: usize, all: usize, probability: f64) {
    let (mean, deviation) = (all as f64 * probability, (all as f64 * probability * (1.0 - probability)).sqrt());
    assert!((hits as f64 - mean).abs() < 5.0 * deviation, "{hits} of {all}, and {mean} +- {deviation} are likely");
}

/// Ranks that take a part of the batch, and micro-batches of any size, drop what one device drops.
#[test]
fn a_part_of_the_batch_drops_what_the_whole_does() {
    for place in PLACES {
        let whole = mask(&dims(&GPT, 0.3, 6), draw(Part::Block(1), 2, 12), place);
        for size in [1, 2, 3] {
            let parts =
                (0..6 / size).map(|part| mask(&dims(&GPT, 0.3, size), draw(Part::Block(1), 2, 12 + (part * size) as u64), place));
            assert_eq!(parts.collect::<Vec<_>>().concat(), whole, "{place:?} in parts of {size}");
        }
    }
}

/// Two masks that have nothing to do with each other agree by chance: where both keep and where both drop.
#[test]
fn masks_have_nothing_to_do_with_each_other() {
    const PROBABILITY: f64 = 0.3;
    let dims = dims(&Model { sequence: 64, ..LLAMA }, PROBABILITY, 2);
    let one = |part, place, seed, sample| mask(&dims, draw(part, seed, sample), place);
    let first = one(Part::Block(0), Place::Attention, 1, 4);
    for other in [
        one(Part::Block(0), Place::Attention, 2, 4),
        one(Part::Block(0), Place::Attention, 1, 6),
        one(Part::Block(0), Place::FeedForward, 1, 4),
        one(Part::Block(1), Place::Attention, 1, 4),
        one(Part::Embedding, Place::Embedding, 1, 4),
    ] {
        let agree = first.iter().zip(&other).filter(|(a, b)| a == b).count();
        check_share(agree, first.len(), PROBABILITY * PROBABILITY + (1.0 - PROBABILITY) * (1.0 - PROBABILITY));
    }
}
