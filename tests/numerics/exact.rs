//! Sums of gradients: over micro-batches, in exact mode in any order, and the same bits in every run.

use candle_core::{DType, Result, Tensor};
use ranklab::base::model::Model;
use ranklab::engine::kernels::cpu::{Dims, elementwise};

use super::cases::{self, GPT, LLAMA, distance, elements, parameters, run_parts};

const ORDERS: [[u64; 4]; 4] = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]];

#[test]
fn accumulated_gradients_are_the_sum_of_their_parts() -> Result<()> {
    for model in [GPT, LLAMA, Model { tied: true, ..LLAMA }] {
        for grid in [None, Some(20)] {
            let dims = Dims { model: model.clone(), micro_batch_size: 2, grid, half: false };
            let values = parameters(&dims.model, DType::F64)?;
            let first = run_parts(&dims, &values, 0, None)?.1;
            let second = run_parts(&dims, &values, 2, None)?.1;
            let both = run_parts(&dims, &values, 2, Some(&first))?.1;
            for ((first, second), both) in first.iter().flatten().zip(second.iter().flatten()).zip(both.iter().flatten()) {
                let (error, size) = distance(both, &elementwise::add(first, second)?)?;
                assert!(error <= 1e-14 * size, "off by {error} of {size}, grid {grid:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn on_a_grid_sums_do_not_depend_on_order() -> Result<()> {
    let sums = sums_in_all_orders(Some(18))?;
    assert!(sums.iter().all(|sum| *sum == sums[0]));
    Ok(())
}

/// What makes the test above worth having.
#[test]
fn without_a_grid_sums_depend_on_order() -> Result<()> {
    let sums = sums_in_all_orders(None)?;
    assert!(sums.iter().any(|sum| *sum != sums[0]));
    Ok(())
}

#[test]
fn on_a_grid_every_element_is_a_multiple_near_the_gradient() -> Result<()> {
    let dims = Dims { model: GPT, micro_batch_size: 2, grid: None, half: false };
    let values = parameters(&dims.model, DType::F32)?;
    let plain = run_parts(&dims, &values, 0, None)?.1;
    let rounded = run_parts(&Dims { grid: Some(12), ..dims }, &values, 0, None)?.1;
    for (plain, rounded) in plain.iter().flatten().zip(rounded.iter().flatten()) {
        for (plain, rounded) in elements(plain)?.iter().zip(elements(rounded)?) {
            assert_eq!((rounded * 4096.0).fract(), 0.0);
            assert!((plain - rounded).abs() <= 0.5 / 4096.0);
        }
    }
    Ok(())
}

#[test]
fn two_runs_give_the_same_bits() -> Result<()> {
    for (name, dims) in cases::all() {
        let values = parameters(&dims.model, DType::F32)?;
        let (first, second) = (run_parts(&dims, &values, 0, None)?, run_parts(&dims, &values, 0, None)?);
        assert_eq!(bits(&[first.0])?, bits(&[second.0])?, "{name}");
        assert_eq!(bits(&first.1.concat())?, bits(&second.1.concat())?, "{name}");
    }
    Ok(())
}

/// The gradients of four micro-batches, added up in each of the orders.
fn sums_in_all_orders(grid: Option<i32>) -> Result<Vec<Vec<u32>>> {
    let dims = Dims { model: LLAMA, micro_batch_size: 1, grid, half: false };
    let values = parameters(&dims.model, DType::F32)?;
    let in_order = |order: &[u64; 4]| {
        let mut sum: Option<Vec<Vec<Tensor>>> = None;
        for &sample in order {
            sum = Some(run_parts(&dims, &values, sample, sum.as_deref())?.1);
        }
        bits(&sum.unwrap_or_default().concat())
    };
    ORDERS.iter().map(in_order).collect()
}

fn bits(tensors: &[Tensor]) -> Result<Vec<u32>> {
    let bits = |tensor: &Tensor| Ok(tensor.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect::<Vec<u32>>());
    Ok(tensors.iter().map(bits).collect::<Result<Vec<_>>>()?.concat())
}
