//! How parameters start.

use candle_core::{DType, Result, Tensor, bail};

use super::counter::Stream;
use super::float::Float;
use super::memory::{filled, tensor};
use crate::base::model::{Init, Parameter};

/// The parameter's first values: element i depends on the seed, the parameter's name and i alone.
///
/// # Errors
/// When the dtype is neither f32 nor f64.
pub fn parameter(parameter: &Parameter, seed: u64, dtype: DType) -> Result<Tensor> {
    match dtype {
        DType::F32 => tensor(values::<f32>(parameter, seed), &parameter.dims),
        DType::F64 => tensor(values::<f64>(parameter, seed), &parameter.dims),
        other => bail!("the CPU kernels compute in f32 and f64, not in {other:?}"),
    }
}

fn values<T: Float>(parameter: &Parameter, seed: u64) -> Vec<T> {
    let n = parameter.elements();
    match parameter.init {
        Init::Zeros => vec![T::zero(); n],
        Init::Ones => vec![T::one(); n],
        Init::Normal(deviation) => {
            let stream = Stream::new(seed, &parameter.name);
            let [values] = filled([n], |[values]| {
                for (pair, values) in (0..).zip(values.chunks_mut(2)) {
                    for (value, normal) in values.iter_mut().zip(stream.normals(pair)) {
                        *value = T::of(deviation * normal);
                    }
                }
            });
            values
        }
    }
}
