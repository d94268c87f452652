//! Memory of the kernels: fresh vectors that are not zeroed first, and tensors seen as slices.

use std::marker::PhantomData;
use std::ops::{Deref, Range};

use candle_core::{Device, Error, Result, Storage, StorageRef, Tensor, WithDType};

use super::float::Float;

/// Vectors of these lengths, filled by `fill`, which must write every element before it reads it.
///
/// The memory isn't zeroed first: that pass over every output would cost a twentieth of a training step. In debug
/// builds it starts as NaN instead, so that the tests of a kernel show an element that it doesn't write.
pub(super) fn filled<T: Float, const N: usize>(lengths: [usize; N], fill: impl FnOnce([&mut [T]; N])) -> [Vec<T>; N] {
    let mut vectors = lengths.map(Vec::with_capacity);
    let mut length = lengths.iter();
    let slices = vectors.each_mut().map(|vector| {
        let length = *length.next().expect("as many lengths as vectors");
        if cfg!(debug_assertions) {
            vector.resize(length, T::of(f64::NAN));
        }
        // SAFETY: the capacity is `length`, every bit pattern is a float, and nothing is read that `fill` didn't write.
        unsafe { std::slice::from_raw_parts_mut(vector.as_mut_ptr(), length) }
    });
    fill(slices);
    for (vector, length) in vectors.iter_mut().zip(lengths) {
        // SAFETY: `fill` has written all elements.
        unsafe { vector.set_len(length) };
    }
    vectors
}

/// A tensor that owns `values`, without a copy.
pub(super) fn tensor<T: WithDType>(values: Vec<T>, dims: &[usize]) -> Result<Tensor> {
    Tensor::from_vec(values, dims, &Device::Cpu)
}

/// The elements of a contiguous tensor on the CPU.
pub(in crate::engine) struct Slice<'a, T> {
    storage: StorageRef<'a>,
    range: Range<usize>,
    element: PhantomData<T>,
}

impl<'a, T: WithDType> Slice<'a, T> {
    /// Reads `tensor`.
    ///
    /// # Errors
    /// When it isn't contiguous, not on the CPU, or of another dtype.
    pub(in crate::engine) fn of(tensor: &'a Tensor) -> Result<Slice<'a, T>> {
        let (storage, layout) = tensor.storage_and_layout();
        let (start, end) = layout.contiguous_offsets().ok_or_else(|| Error::RequiresContiguous { op: "cpu kernel" }.bt())?;
        elements::<T>(&storage)?;
        Ok(Slice { storage, range: start..end, element: PhantomData })
    }

    /// Reads all of `tensors`.
    ///
    /// # Errors
    /// As [`Slice::of`].
    pub(super) fn all(tensors: &'a [Tensor]) -> Result<Vec<Slice<'a, T>>> {
        tensors.iter().map(Slice::of).collect()
    }
}

impl<T: WithDType> Deref for Slice<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &elements::<T>(&self.storage).expect("checked when it was made")[self.range.clone()]
    }
}

fn elements<T: WithDType>(storage: &Storage) -> Result<&[T]> {
    match storage {
        Storage::Cpu(storage) => T::cpu_storage_as_slice(storage),
        _ => candle_core::bail!("a CPU kernel was given a tensor on another device"),
    }
}
