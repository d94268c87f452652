//! Wrong numbers among ranks that share tensors: slices that start alike, rows that are not those of their heads, biases that count often.

use super::Diagnosis;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::{OpId, ParameterId, Rank};
use crate::program::{Kernel, Name, Program};

/// What of this the program shows, if any of it does.
pub(super) fn diagnose(program: &Program) -> Option<Diagnosis> {
    let causes: [fn(&Program) -> Option<Diagnosis>; 3] = [copies, rows, biases];
    if program.setting.tensor.ranks == 1 { None } else { causes.into_iter().find_map(|cause| cause(program)) }
}

/// Slices start as their places in the whole tensor say.
fn copies(program: &Program) -> Option<Diagnosis> {
    let (ranks, second) = (program.setting.tensor.ranks, Rank::new(program.setting.tensor.stride));
    let cause = format!(
        "its slices start with the random numbers of r0's: a matrix is {ranks} copies of one slice, and has no more rank than that"
    );
    program.setting.same_seed.then_some(Diagnosis { rank: second, op: None, cause })
}

/// A rank's queries, keys and values are those of its heads.
fn rows(program: &Program) -> Option<Diagnosis> {
    let model = program.setting.model.as_ref()?;
    program.all().find_map(|op| {
        let Part::Module(_, Module::Qkv) = forward(program, op)? else { return None };
        let rank = program.rank_of(op);
        let is_its = |id: &ParameterId| {
            let parameter = &program.parameters[id.index()];
            model.slices_of(parameter.part, program.setting.split(rank)).contains(parameter)
        };
        let wrong = parameters(program, op).find(|id| !is_its(id))?;
        let parameter = &program.parameters[wrong.index()];
        let (slice, length) = (parameter.slice?, parameter.dims[0]);
        let cause = format!(
            "it takes rows {} to {} of {}, which are no queries, keys or values of its heads: the matrix is cut as its rows lie",
            slice.start,
            slice.start + length - 1,
            parameter.name
        );
        Some(Diagnosis { rank, op: Some(op), cause })
    })
}

/// A bias behind a sum is added once.
fn biases(program: &Program) -> Option<Diagnosis> {
    program.all().find_map(|op| {
        let Part::Module(_, module) = forward(program, op)? else { return None };
        let split = program.setting.split(program.rank_of(op));
        let is_early = |id: &ParameterId| {
            let parameter = &program.parameters[id.index()];
            parameter.dims.len() == 1 && parameter.module(split).is_some_and(|own| own != module)
        };
        let bias = parameters(program, op).find(is_early)?;
        let (name, ranks) = (&program.parameters[bias.index()].name, program.setting.tensor.ranks);
        let cause = format!("it adds {name} before the sum, and so do the others: behind the sum it counts {ranks} times");
        Some(Diagnosis { rank: program.rank_of(op), op: Some(op), cause })
    })
}

/// The part that `op` computes forward.
fn forward(program: &Program, op: OpId) -> Option<Part> {
    let Kernel::Forward(part) = program.kernel_of(op)? else { return None };
    Some(part)
}

/// The parameters that `op` reads.
fn parameters(program: &Program, op: OpId) -> impl Iterator<Item = ParameterId> + '_ {
    program.reads(op).iter().filter_map(|buffer| match program.buffers[buffer.index()].name {
        Name::Parameter(id) => Some(id),
        _ => None,
    })
}
