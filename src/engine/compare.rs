//! How far two values are apart. All in f64, whatever their type.

use candle_core::{DType, Result, Tensor};

use super::kernels::cpu::memory::Slice;
use super::value::Value;

/// The larger of two numbers, or a NaN: `f64::max` would hide it.
#[must_use]
pub fn larger(most: f64, x: f64) -> f64 {
    if x > most || x.is_nan() { x } else { most }
}

/// The Euclidean norm.
pub fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The largest difference of two elements; infinite where one list has none.
#[must_use]
pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    if a.len() == b.len() { a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, larger) } else { f64::INFINITY }
}

impl Value {
    /// Whether both hold the same bits.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn same_bits(&self, other: &Self) -> Result<bool> {
        if let (Some(a), Some(b)) = (self.single()?, other.single()?) {
            return Ok(a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
        let (a, b) = (self.elements()?, other.elements()?);
        // Widening to f64 keeps all values apart, and NaN never equals: compare bits.
        let is_zero = |elements: &[f64]| elements.iter().all(|x| x.to_bits() == 0);
        Ok(match (a, b) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits()),
            (Some(a), None) | (None, Some(a)) => is_zero(&a),
            (None, None) => true,
        })
    }

    /// The Euclidean norm of the difference; infinite or NaN where an element is.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn distance(&self, other: &Self) -> Result<f64> {
        Ok(norm(self.difference(other)?))
    }

    /// The largest difference of two elements.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn max_abs_difference(&self, other: &Self) -> Result<f64> {
        Ok(self.difference(other)?.into_iter().map(f64::abs).fold(0.0, larger))
    }

    /// The Euclidean norm.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn norm(&self) -> Result<f64> {
        self.distance(&Self::Zeros)
    }

    fn difference(&self, other: &Self) -> Result<Vec<f64>> {
        Ok(match (self.elements()?, other.elements()?) {
            (Some(a), Some(b)) if a.len() == b.len() => a.iter().zip(&b).map(|(a, b)| a - b).collect(),
            (Some(_), Some(_)) => vec![f64::NAN],
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => Vec::new(),
        })
    }

    /// All elements of all tensors; `None` for zeros.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn elements(&self) -> Result<Option<Vec<f64>>> {
        let Self::Cpu(tensors) = self else { return Ok(None) };
        let mut elements = Vec::with_capacity(tensors.iter().map(Tensor::elem_count).sum());
        for tensor in tensors.iter() {
            let tensor = tensor.contiguous()?;
            match tensor.dtype() {
                DType::F32 => elements.extend(Slice::<f32>::of(&tensor)?.iter().copied().map(f64::from)),
                _ => elements.extend_from_slice(&Slice::<f64>::of(&tensor.to_dtype(DType::F64)?)?),
            }
        }
        Ok(Some(elements))
    }

    /// The elements of one tensor in f32, which is what most values are: they need no widening to be told apart.
    fn single(&self) -> Result<Option<Slice<'_, f32>>> {
        match self {
            Self::Cpu(tensors) if matches!(&**tensors, [one] if one.dtype() == DType::F32 && one.is_contiguous()) => {
                Slice::of(&tensors[0]).map(Some)
            }
            _ => Ok(None),
        }
    }
}
