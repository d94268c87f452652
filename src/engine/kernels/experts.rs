//! A mixture of experts: what an op of it does to values, and what a layer that stands alone is given.
//!
//! The router computes; how many rows go where follows from the layer, as the shapes of a program must be known before it runs. Where the
//! two do not agree, the op fails.

use candle_core::{Device, Result, Tensor, bail};

use super::super::value::Value;
use super::cpu::experts::{self, Matrices, Routed, Rows};
use super::{Operands, dtype, one};
use crate::base::ExpertTensor;
use crate::base::experts::Experts;
use crate::base::routing::Routing;
use crate::program::{Kernel, Program};

/// Computes an op of a mixture of experts.
pub(super) fn compute(operands: &Operands, kernel: Kernel) -> Result<Vec<Value>> {
    let layer = layer(operands.program)?;
    match kernel {
        Kernel::Route => route(operands, layer),
        Kernel::Balance => balance(operands, layer),
        Kernel::Dispatch => dispatch(operands, layer),
        Kernel::Experts => forward(operands, layer),
        Kernel::Combine => combine(operands, layer),
        Kernel::CombineBackward => combine_backward(operands, layer),
        Kernel::ExpertsBackward => backward(operands, layer),
        Kernel::RouteBackward => route_backward(operands, layer),
        other => bail!("{other} is no kernel of a mixture of experts"),
    }
}

fn layer(program: &Program) -> Result<&Experts> {
    match &program.setting.experts {
        Some(layer) => Ok(layer),
        None => bail!("a kernel of a mixture of experts in a program without one"),
    }
}

/// Reads the tokens and the router; writes the gates and the rank's statistics.
fn route(operands: &Operands, layer: &Experts) -> Result<Vec<Value>> {
    let (probabilities, chosen) = experts::route(&operands.tensor(0)?, &operands.tensor(1)?, layer.top_k)?;
    let statistics = experts::statistics(&probabilities, &chosen)?;
    let dims = (chosen.len() / layer.top_k.max(1), layer.top_k);
    let chosen = Tensor::from_vec(chosen, dims, &Device::Cpu)?;
    Ok(vec![Value::Cpu([probabilities, chosen].into()), one(statistics)])
}

/// Reads the statistics of all ranks; writes the auxiliary loss and the experts' shares.
fn balance(operands: &Operands, layer: &Experts) -> Result<Vec<Value>> {
    let statistics = operands.rest(0)?;
    Ok(vec![Value::Cpu(experts::balance(&statistics, layer.auxiliary, layer.all_tokens())?.into())])
}

/// Reads the tokens and the gates; writes the rows for each rank.
fn dispatch(operands: &Operands, layer: &Experts) -> Result<Vec<Value>> {
    let (x, gates) = (operands.tensor(0)?, Gates::of(operands, layer, 1)?);
    let rows = |places: Vec<u32>| experts::gather(&x, layer.top_k, &places);
    gates.by_rank(layer, rows)?.into_iter().enumerate().map(|(place, parts)| operands.fitting(place, parts)).collect()
}

/// Reads the experts' matrices and the rows from each rank; writes what the first matrices made of them, and the results for each rank.
fn forward(operands: &Operands, layer: &Experts) -> Result<Vec<Value>> {
    let (matrices, arrived) = (operands.bundle(0)?, operands.bundles(1, layer.ranks)?);
    let (mut hidden, mut results) = (Vec::new(), vec![Vec::new(); layer.ranks]);
    for own in 0..layer.experts_per_rank() {
        let (parts, of_rows) = experts::forward(self::matrices(layer, &matrices, own)?, &of_expert(&arrived, own)?)?;
        hidden.push(of_rows);
        results.iter_mut().zip(parts).for_each(|(result, part)| result.push(part));
    }
    let results = results.into_iter().map(|parts| Value::Cpu(parts.into()));
    Ok(std::iter::once(Value::Cpu(hidden.into())).chain(results).collect())
}

/// Reads the gates and what came back from each rank; writes the output.
fn combine(operands: &Operands, layer: &Experts) -> Result<Vec<Value>> {
    let gates = Gates::of(operands, layer, 0)?;
    let parts = operands.bundles(1, layer.ranks)?.concat();
    let rows = Rows { parts: &parts, of: &gates.places(layer) };
    Ok(vec![one(experts::combine(&gates.probabilities, &gates.routing.chosen, rows, layer.hidden)?)])
}

/// Reads the gradient of the output, the gates, and what came back from each rank; writes the gradient of the gates, and of those rows.
fn combine_backward(operands: &Operands, layer: &Experts) -> Result<Vec<Value>> {
    let (gradient, gates) = (operands.tensor(0)?, Gates::of(operands, layer, 1)?);
    let parts = operands.bundles(2, layer.ranks)?.concat();
    let rows = Rows { parts: &parts, of: &gates.places(layer) };
    let [by_place, of_gates] = experts::combine_backward(&gates.probabilities, &gates.routing.chosen, rows, &gradient)?;
    let back = gates.by_rank(layer, |places| experts::gather(&by_place, 1, &places))?;
    Ok(std::iter::once(one(of_gates)).chain(back.into_iter().map(|parts| Value::Cpu(parts.into()))).collect())
}

/// Reads the experts' matrices, what the first ones made of the rows, the rows from each rank, and the gradients of the results for each;
/// writes the gradients of the matrices, and of the rows of each rank.
fn backward(operands: &Operands, layer: &Experts) -> Result<Vec<Value>> {
    let (matrices, hidden) = (operands.bundle(0)?, operands.bundle(1)?);
    let arrived = operands.bundles(2, layer.ranks)?;
    let gradients = operands.bundles(2 + layer.ranks, layer.ranks)?;
    let (mut of_matrices, mut of_rows) = (Vec::new(), vec![Vec::new(); layer.ranks]);
    for own in 0..layer.experts_per_rank() {
        let Some(hidden) = hidden.get(own) else { bail!("expert {own} of the rank kept nothing") };
        let (parts, d_matrices) = experts::backward(
            self::matrices(layer, &matrices, own)?,
            &of_expert(&arrived, own)?,
            hidden,
            &of_expert(&gradients, own)?,
        )?;
        of_matrices.extend(d_matrices);
        of_rows.iter_mut().zip(parts).for_each(|(rows, part)| rows.push(part));
    }
    let of_rows = of_rows.into_iter().map(|parts| Value::Cpu(parts.into()));
    Ok(std::iter::once(Value::Cpu(of_matrices.into())).chain(of_rows).collect())
}

/// Reads the tokens, the router, the gates and their gradient, the shares, and the gradients that came back from each rank; writes the
/// gradients of the tokens and of the router.
fn route_backward(operands: &Operands, layer: &Experts) -> Result<Vec<Value>> {
    let (x, router, gates) = (operands.tensor(0)?, operands.tensor(1)?, Gates::of(operands, layer, 2)?);
    let (of_gates, balance) = (operands.tensor(3)?, operands.bundle(4)?);
    let [_, shares] = balance.as_slice() else { bail!("the balance is a loss and shares") };
    let parts = operands.bundles(5, layer.ranks)?.concat();
    let rows = Rows { parts: &parts, of: &gates.places(layer) };
    #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
    let auxiliary = layer.auxiliary / layer.all_tokens() as f64;
    let found =
        Routed { probabilities: &gates.probabilities, chosen: &gates.routing.chosen, gates: &of_gates, shares, auxiliary };
    let [d_x, d_router] = experts::route_backward(&x, &router, found, rows)?;
    Ok(vec![one(d_x), one(d_router)])
}

/// The matrices of the rank's own expert of this number.
fn matrices<'a>(layer: &Experts, all: &'a [Tensor], own: usize) -> Result<Matrices<'a>> {
    match all.get(2 * own..2 * own + 2) {
        Some([fc1, fc2]) => Ok(Matrices { fc1, fc2, activation: layer.activation }),
        _ => bail!("the rank has no expert {own}"),
    }
}

/// The part of an expert in what came from each rank.
fn of_expert(from_each: &[Vec<Tensor>], own: usize) -> Result<Vec<Tensor>> {
    let part = |parts: &Vec<Tensor>| match parts.get(own) {
        Some(part) => Ok(part.clone()),
        None => bail!("nothing came for expert {own} of the rank"),
    };
    from_each.iter().map(part).collect()
}

/// What the router found for the rank's tokens.
struct Gates {
    probabilities: Tensor,
    routing: Routing,
}

impl Gates {
    /// Those in the `place`-th read.
    fn of(operands: &Operands, layer: &Experts, place: usize) -> Result<Self> {
        let gates = operands.bundle(place)?;
        let [probabilities, chosen] = gates.as_slice() else { bail!("gates are probabilities and choices") };
        let chosen = chosen.flatten_all()?.to_vec1::<u32>()?;
        if chosen.iter().any(|&expert| expert as usize >= layer.count) || chosen.len() != layer.tokens_per_rank() * layer.top_k {
            bail!("{} choices are not those of {} tokens", chosen.len(), layer.tokens_per_rank());
        }
        Ok(Self { probabilities: probabilities.clone(), routing: Routing::of(layer, chosen) })
    }

    /// The places that an expert takes, group by group.
    fn rows(&self, layer: &Experts, expert: usize) -> Vec<u32> {
        (0..layer.groups_per_rank()).flat_map(|group| self.routing.rows(group, expert).iter().copied()).collect()
    }

    /// For each rank a part for each of its experts.
    fn by_rank(&self, layer: &Experts, part: impl Fn(Vec<u32>) -> Result<Tensor>) -> Result<Vec<Vec<Tensor>>> {
        let own = layer.experts_per_rank();
        let of_rank = |rank: usize| (rank * own..(rank + 1) * own).map(|expert| part(self.rows(layer, expert))).collect();
        (0..layer.ranks).map(of_rank).collect()
    }

    /// By place, the expert whose part has its row, and which row.
    fn places(&self, layer: &Experts) -> Vec<Option<(usize, usize)>> {
        let mut places = vec![None; self.routing.chosen.len()];
        for expert in 0..layer.count {
            for (row, place) in self.rows(layer, expert).into_iter().enumerate() {
                places[place as usize] = Some((expert, row));
            }
        }
        places
    }
}

impl Operands<'_> {
    /// All tensors of so many reads from `first` on.
    fn bundles(&self, first: usize, count: usize) -> Result<Vec<Vec<Tensor>>> {
        (first..first + count).map(|place| self.bundle(place)).collect()
    }

    /// The value of the `place`-th write, if it has the shapes that are expected there.
    fn fitting(&self, place: usize, parts: Vec<Tensor>) -> Result<Value> {
        let Some(&buffer) = self.op.writes.get(place) else { bail!("there are more ranks than writes") };
        let expected = &self.layout(buffer).parts;
        let fits = expected.len() == parts.len() && expected.iter().zip(&parts).all(|(part, own)| part.dims == own.dims());
        if !fits {
            let name = self.program.buffers[buffer.index()].name;
            bail!("{name} has other rows than the layer's loads: the router chose otherwise");
        }
        Ok(Value::Cpu(parts.into()))
    }
}

/// What a layer that stands alone is given, on one rank.
pub(super) fn given(program: &Program, tensor: ExpertTensor, rank: usize) -> Result<Value> {
    let layer = layer(program)?;
    if rank >= layer.ranks {
        bail!("rank {rank} of a layer over {}", layer.ranks);
    }
    let own = layer.experts_per_rank();
    let values: Vec<(Vec<usize>, Vec<f64>)> = match tensor {
        ExpertTensor::Input | ExpertTensor::OutputGradient => vec![tokens(layer, tensor, rank)],
        ExpertTensor::Router => {
            let elements = (0..layer.count).flat_map(|expert| (0..layer.hidden).map(move |column| layer.router(expert, column)));
            vec![(vec![layer.count, layer.hidden], elements.collect())]
        }
        ExpertTensor::Weights => (rank * own..(rank + 1) * own).flat_map(|expert| weights(layer, expert)).collect(),
        other => bail!("{other} is made, not given"),
    };
    let (initial, run) = (dtype(program.setting.initial)?, program.setting.dtype);
    let run = dtype(if tensor == ExpertTensor::Router { run.widened() } else { run })?;
    let tensor = |(dims, values): (Vec<usize>, Vec<f64>)| {
        Tensor::from_vec(values, dims.as_slice(), &Device::Cpu)?.to_dtype(initial)?.to_dtype(run)
    };
    Ok(Value::Cpu(values.into_iter().map(tensor).collect::<Result<Vec<_>>>()?.into()))
}

/// Shape and elements of the tokens of a rank, or of the gradient of their output.
fn tokens(layer: &Experts, tensor: ExpertTensor, rank: usize) -> (Vec<usize>, Vec<f64>) {
    let own = layer.tokens_per_rank();
    let routing = Routing::planned(layer);
    let row = |token: usize| {
        let chosen = &routing.chosen[token * layer.top_k..(token + 1) * layer.top_k];
        let element = |column: usize| match tensor {
            ExpertTensor::Input => layer.input(token, chosen, column),
            _ => layer.output_gradient(token, column),
        };
        (0..layer.hidden).map(element).collect::<Vec<f64>>()
    };
    (vec![own, layer.hidden], (rank * own..(rank + 1) * own).flat_map(row).collect())
}

/// Shapes and elements of an expert's two matrices.
fn weights(layer: &Experts, expert: usize) -> [(Vec<usize>, Vec<f64>); 2] {
    [(false, layer.inner(), layer.hidden), (true, layer.hidden, layer.ffn)].map(|(is_second, rows, columns)| {
        let row = |row: usize| (0..columns).map(move |column| layer.weight(expert, is_second, row, column));
        (vec![rows, columns], (0..rows).flat_map(row).collect())
    })
}
