//! Dropout: which elements stay is drawn by counting, so it depends on the seed, the place in the model and the element's number alone.
//!
//! Elements are numbered over all samples of a run: by sample, then row and column of what is dropped, of the probabilities by head before
//! these. So whoever computes a part of the batch, in whatever order, and once more for backward, drops what one device drops. What stays
//! is divided by 1 - p, as in `torch.nn.Dropout`.

use std::borrow::Cow;
use std::ops::Range;

use super::Dims;
use super::counter::Stream;
use super::float::{Float, vectorised};
use crate::base::model::Part;

/// Where the random numbers of an op stand: all that it takes to draw its masks once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomState {
    /// The run's seed.
    pub seed: u64,
    /// The first sample of the micro-batch, counted over the whole run.
    pub sample: u64,
}

/// What tells an op's random numbers from all others: which part of the model draws them, and where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The part.
    pub part: Part,
    /// Where they stand.
    pub random: RandomState,
}

/// A place where elements are dropped: the four of GPT-2 and Megatron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// What leaves the embedding.
    Embedding,
    /// Attention probabilities, behind the softmax.
    Softmax,
    /// What attention adds to the residual stream, behind its projection.
    Attention,
    /// What the feed-forward layers add to it.
    FeedForward,
}

impl Place {
    /// Its name in streams of random numbers.
    fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Softmax => "softmax",
            Self::Attention => "attention",
            Self::FeedForward => "feed-forward",
        }
    }

    /// Elements of one sample.
    fn elements(self, dims: &Dims) -> usize {
        let model = &dims.model;
        match self {
            Self::Softmax => model.heads * model.sequence * model.sequence,
            Self::Embedding | Self::Attention | Self::FeedForward => model.sequence * model.hidden,
        }
    }
}

/// The mask of a place over a micro-batch: 1 where an element stays, 0 where it is dropped.
#[must_use]
pub fn mask(dims: &Dims, draw: Draw, place: Place) -> Vec<u8> {
    mask_of(dims, draw, place, std::iter::once(0..dims.micro_batch_size * place.elements(dims)))
}

/// The mask of some elements of a place, which are numbered from the micro-batch's first on.
pub(in crate::engine::kernels) fn mask_of(
    dims: &Dims,
    Draw { part, random }: Draw,
    place: Place,
    elements: impl Iterator<Item = Range<usize>>,
) -> Vec<u8> {
    let stream = Stream::new(random.seed, &format!("{part}.dropout.{}", place.name()));
    let first = random.sample * place.elements(dims) as u64;
    let threshold = threshold(dims.model.dropout);
    elements.flatten().map(|number| u8::from(stream.bits(first + number as u64) >= threshold)).collect()
}

/// Of 2^64 equally likely numbers, how many drop an element.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a probability below 1 of 2^64")]
fn threshold(probability: f64) -> u64 {
    (probability * 2f64.powi(64)) as u64
}

/// A mask with what it does to the elements that stay.
#[derive(Clone, Copy)]
pub(super) struct Mask<'a, T> {
    keep: &'a [u8],
    scale: T,
}

impl<'a, T: Float> Mask<'a, T> {
    /// The mask of elements that are dropped with this probability.
    pub(super) fn new(keep: &'a [u8], probability: f64) -> Self {
        Self { keep, scale: T::of(1.0 / (1.0 - probability)) }
    }

    /// The part of it over these elements.
    pub(super) fn over(self, range: Range<usize>) -> Self {
        Self { keep: &self.keep[range], ..self }
    }

    /// Drops elements. Forward and backward are the same: a product with the mask.
    pub(super) fn apply(self, values: &mut [T]) {
        vectorised!(for (value, &keep) in values.iter_mut().zip(self.keep) {
            *value *= if keep == 0 { T::zero() } else { self.scale };
        });
    }
}

/// The values behind dropout, where there is any.
pub(super) fn dropped<'v, T: Float>(values: &'v [T], mask: Option<Mask<T>>) -> Cow<'v, [T]> {
    let mut values = Cow::Borrowed(values);
    if let Some(mask) = mask {
        mask.apply(values.to_mut());
    }
    values
}
