//! The one interpreter: what an op does to values when it ends.

use candle_core::Result;

use super::kernels;
use super::value::{Auxiliary, Loss, Value, Values};
use super::world::World;
use crate::base::OpId;
use crate::base::module::Module;
use crate::program::{Flow, Inside, Kernel, Name, OpKind, Program};

/// Applies `op` to the values. Shape-only runs have none.
pub(super) fn apply(world: &mut World, op: OpId) -> Result<()> {
    let Values::Real { buffers, mailboxes, losses, auxiliary } = &mut world.values else { return Ok(()) };
    let program = &*world.machine.program;
    let view = program.op(op);
    match view.kind {
        OpKind::Run(kernel) => {
            let kernel = program.kernels[kernel.index()].kernel;
            let results = kernels::run(program, view, kernel, buffers)?;
            if let Kernel::Forward(_) = kernel {
                let loss = loss(program, op, &results)?;
                // Ranks that share the head's tensors all have the loss.
                let place = |loss: &Loss| (loss.micro_batch, loss.slice);
                let is_new = |loss: &Loss| losses.iter().rev().all(|known| place(known) != place(loss));
                losses.extend(loss.filter(is_new));
                let of_router = router_loss(program, op, &results)?;
                let place = |one: &Auxiliary| (one.layer, one.place, one.loss.micro_batch, one.loss.slice);
                let is_new = |one: &Auxiliary| auxiliary.iter().rev().all(|known| place(known) != place(one));
                auxiliary.extend(of_router.filter(is_new));
            }
            for (&buffer, value) in view.writes.iter().zip(results) {
                buffers[buffer.index()] = value;
            }
        }
        OpKind::Recv(channel) => {
            for buffer in view.writes {
                buffers[buffer.index()] = mailboxes[channel.index()].pop_front().unwrap_or_default();
            }
        }
        OpKind::RecvReduce(channel) => {
            for buffer in view.writes.iter().map(|buffer| buffer.index()) {
                let message = mailboxes[channel.index()].pop_front().unwrap_or_default();
                let layout = &program.layouts[program.buffers[buffer].layout.index()];
                buffers[buffer] = kernels::add(layout, &buffers[buffer], &message)?;
            }
        }
        OpKind::Send(channel) => {
            let values = view.reads.iter().map(|buffer| buffers[buffer.index()].clone());
            mailboxes[channel.index()].extend(values);
        }
        OpKind::Collective(_) | OpKind::Skipped(_) => {}
    }
    Ok(())
}

/// The loss, where `op` has just computed one.
fn loss(program: &Program, op: OpId, results: &[Value]) -> Result<Option<Loss>> {
    let view = program.op(op);
    let Some(Name::Loss(micro_batch)) = view.writes.first().map(|buffer| program.buffers[buffer.index()].name) else {
        return Ok(None);
    };
    let Some(Value::Cpu(tensors)) = results.first() else { return Ok(None) };
    let value = tensors[0].to_dtype(candle_core::DType::F64)?.to_scalar::<f64>()?;
    let slice = program.setting.context.place(view.rank);
    Ok(Some(Loss { step: view.origin.step, micro_batch, slice, value }))
}

/// The auxiliary loss, where `op` is a router: it stands behind the gates.
fn router_loss(program: &Program, op: OpId, results: &[Value]) -> Result<Option<Auxiliary>> {
    const LOSS: Inside = Inside { flow: Flow::Saved, module: Module::Route };
    let view = program.op(op);
    let [gates, written] = view.writes else { return Ok(None) };
    let Name::Inside(LOSS, layer, micro_batch) = program.buffers[written.index()].name else { return Ok(None) };
    let Some(Value::Cpu(tensors)) = results.get(1) else { return Ok(None) };
    let value = tensors[0].to_dtype(candle_core::DType::F64)?.flatten_all()?.sum_all()?.to_scalar::<f64>()?;
    let (setting, rank) = (&program.setting, view.rank);
    let slice = setting.context.place(rank);
    // Ranks that all have all tokens all have the loss.
    let all = setting.micro_batch_size * setting.model.as_ref().map_or(0, |model| model.sequence) / setting.context.ranks;
    let own = program.layouts[program.buffers[gates.index()].layout.index()].parts.first().map_or(0, |part| part.dims[0]);
    let place = if own < all { setting.tensor.place(rank) } else { 0 };
    Ok(Some(Auxiliary { layer, place, loss: Loss { step: view.origin.step, micro_batch, slice, value } }))
}

impl Values {
    /// Drops the values of the buffers whose last use `op` is.
    pub(super) fn forget(&mut self, program: &Program, op: OpId) {
        if let Self::Real { buffers, .. } = self {
            for buffer in program.frees(op) {
                buffers[buffer.index()] = Value::Zeros;
            }
        }
    }
}
