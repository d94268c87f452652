//! Blame: the first op of a wrong run whose result differs from one device's.
//!
//! Both runs are repeated up to the step in question. What belongs to one micro-batch alone (activations, their gradients, losses) is made
//! by one op on either side and must agree closely; the first op, in the order of the run, whose result does not is to blame. If all of
//! those agree, the sum over micro-batches and ranks is wrong, and the gradient's own writer is to blame.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::verdict::Difference;
use crate::base::{Dtype, OpId, Rank};
use crate::engine::session::{self, Numbers};
use crate::engine::value::{Value, Values};
use crate::engine::world::World;
use crate::program::op::SkippedKind;
use crate::program::{Name, OpKind, Program};
use crate::scenario::Scenario;

/// Relative distance above which two results differ by more than rounding: bf16 has 8 binary digits.
fn rounding(program: &Program) -> f64 {
    if program.setting.dtype == Dtype::Bf16 { 0.05 } else { 1e-3 }
}

/// The first difference of a wrong run from `one_device`, given the wrong gradient that was found.
pub(super) fn blame(
    scenario: &Scenario,
    (program, numbers): (&Arc<Program>, Numbers),
    one_device: &Program,
    found: &Difference,
) -> crate::engine::Result<Difference> {
    let expected = results(one_device.clone(), numbers, found.step)?;
    let mut first = None;
    let mut compare = |world: &World, op: OpId| {
        if first.is_none() && world.machine.program.op(op).origin.step == found.step {
            first = difference(world, op, &expected);
        }
    };
    session::run(program.clone(), &scenario.hardware, &scenario.trouble, numbers, &mut compare)?;
    Ok(first.unwrap_or_else(|| found.clone()))
}

/// What one device computes for each micro-batch of `step`.
fn results(program: Program, numbers: Numbers, step: u32) -> crate::engine::Result<BTreeMap<Name, Value>> {
    let mut results = BTreeMap::new();
    let hardware = super::reference::untimed();
    let mut record = |world: &World, op: OpId| {
        let (program, Values::Real { buffers, .. }) = (&world.machine.program, &world.values) else { return };
        let view = program.op(op);
        for buffer in view.writes.iter().filter(|_| view.origin.step == step) {
            let name = program.buffers[buffer.index()].name;
            if is_of_one_micro_batch(name) {
                results.insert(name, buffers[buffer.index()].clone());
            }
        }
    };
    session::run(Arc::new(program), &hardware, &[], numbers, &mut record)?;
    Ok(results)
}

fn is_of_one_micro_batch(name: Name) -> bool {
    matches!(name, Name::Loss(_) | Name::Activation(..) | Name::ActivationGradient(..))
}

/// How a result of `op` differs from one device's.
fn difference(world: &World, op: OpId, expected: &BTreeMap<Name, Value>) -> Option<Difference> {
    let (program, Values::Real { buffers, .. }) = (&world.machine.program, &world.values) else { return None };
    let view = program.op(op);
    let differs = |name: &Name, value: &Value| {
        // The mean over a slice's tokens is not that over all of them.
        if matches!(name, Name::Loss(_)) && program.setting.context.ranks > 1 {
            return None;
        }
        let all = expected.get(name)?.elements().ok()??;
        // What was never written is zeros.
        let own = value.elements().ok()?.unwrap_or_else(|| vec![0.0; all.len()]);
        let mut all = rows_of(program, view.rank, all, own.len())?;
        if let Name::ActivationGradient(..) = name {
            // Of the mean over a slice's tokens: those of the slices are averaged like replicas'.
            let slices = f64::from(u32::try_from(program.setting.context.ranks).unwrap_or(u32::MAX));
            all.iter_mut().for_each(|x| *x *= slices);
        }
        let norm = |elements: &mut dyn Iterator<Item = f64>| elements.map(|x| x * x).sum::<f64>().sqrt();
        let distance = norm(&mut own.iter().zip(&all).map(|(a, b)| a - b));
        let close = distance <= rounding(program) * norm(&mut all.iter().copied());
        (!close).then_some(())
    };
    let wrong = view.writes.iter().find(|buffer| {
        let name = program.buffers[buffer.index()].name;
        differs(&name, &buffers[buffer.index()]).is_some()
    })?;
    let (rank, tensor): (Rank, String) = (view.rank, program.buffers[wrong.index()].name.to_string());
    let op = left_out(program, op).unwrap_or(op);
    Some(Difference { step: view.origin.step, op, tensor, rank })
}

/// The rows of one device's result that a rank has: those of its slice of every sequence, and of those a stretch of so many elements where
/// ranks share out tokens.
fn rows_of(program: &Program, rank: Rank, mut all: Vec<f64>, own: usize) -> Option<Vec<f64>> {
    let setting = &program.setting;
    if let Some(attention) = setting.attention.filter(|_| own < all.len()) {
        let width = all.len() / (attention.batch * attention.sequence);
        let positions = attention.positions(setting.context.place(rank));
        let tokens = (0..attention.batch).flat_map(|b| positions.iter().map(move |&at| b * attention.sequence + at as usize));
        all = tokens.flat_map(|token| &all[token * width..(token + 1) * width]).copied().collect();
    }
    let place = setting.tensor.place(rank);
    if own < all.len() { Some(all.get(place * own..(place + 1) * own)?.to_vec()) } else { Some(all) }
}

/// The op of the same slot, at `wrong` or before it, that a trouble rule took out: what it should have made lies inside a part, where
/// nothing is compared.
fn left_out(program: &Program, wrong: OpId) -> Option<OpId> {
    let (view, order) = (program.op(wrong), &program.order[program.rank_of(wrong).index()]);
    let of_slot = |op: &OpId| {
        let origin = program.op(*op).origin;
        (origin.slot, origin.step) == (view.origin.slot, view.origin.step)
    };
    let until = order.iter().position(|&op| op == wrong)?;
    let is_left_out = |op: &OpId| of_slot(op) && matches!(program.kind(*op), OpKind::Skipped(SkippedKind::Collective(_)));
    order[..until].iter().copied().find(is_left_out)
}
