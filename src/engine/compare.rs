//! How far two values are apart. All in f64, whatever their type.

use candle_core::{DType, Result, Tensor};

use super::value::Value;

impl Value {
    /// Whether both hold the same bits.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn same_bits(&self, other: &Self) -> Result<bool> {
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
        Ok(self.difference(other)?.iter().map(|d| d * d).sum::<f64>().sqrt())
    }

    /// The largest difference of two elements.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn max_abs_difference(&self, other: &Self) -> Result<f64> {
        // `f64::max` would hide a NaN.
        let larger = |max: f64, d: f64| if d.abs() > max || d.is_nan() { d.abs() } else { max };
        Ok(self.difference(other)?.into_iter().fold(0.0, larger))
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
        let flat = |tensor: &Tensor| tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>();
        let parts = tensors.iter().map(flat).collect::<Result<Vec<_>>>()?;
        Ok(Some(parts.concat()))
    }
}
