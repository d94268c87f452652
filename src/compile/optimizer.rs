//! The end of a step: gradients are averaged once, ranks meet where the scenario asks for it, the optimizer updates the parameters.

use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::{BufferId, KernelId, OpId, ParameterId, Rank};
use crate::program::tables::{COMPUTE, Collective, CollectiveKind, Group};
use crate::program::{Kernel, Name, OpKind, Origin, PassName, Program};
use crate::scenario::Training;

use super::state::State;
use super::{Build, stages};

/// Appends the end of every step, rank by rank.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let program = &mut build.program;
    let state = State::of(program);
    let barriers = barriers(program, training);
    for rank in (0..training.mesh.ranks()).map(Rank::new) {
        let parts = owned_parts(program, &state, rank);
        let order = std::mem::take(&mut program.order[rank.index()]);
        let mut ops = order.into_iter().peekable();
        for step in 0..training.batch.steps {
            let mut issued: Vec<OpId> = Vec::new();
            while let Some(op) = ops.next_if(|&op| program.op(op).origin.step == step) {
                issued.push(op);
            }
            program.order[rank.index()].append(&mut issued);
            let origin = Origin { slot: None, step, pass: PassName::Optimizer };
            end_of_step(program, training, &state, (rank, &parts), barriers.get(step as usize).copied(), origin);
        }
    }
}

/// With a pipeline and `barrier` the ranks meet once a step: that is what a global gradient norm costs.
fn barriers(program: &mut Program, training: &Training) -> Vec<crate::base::CollectiveId> {
    if training.mesh.size(Axis::Pipeline) == 1 || !training.pipeline.barrier {
        return Vec::new();
    }
    let ranks = (0..training.mesh.ranks()).map(Rank::new).collect();
    let group = program.group(Group { name: "world".to_owned(), ranks });
    let barrier = |step| Collective {
        group,
        kind: CollectiveKind::Barrier,
        label: "step".to_owned(),
        step,
        bytes: crate::base::Bytes::ZERO,
    };
    (0..training.batch.steps).map(|step| program.collective(barrier(step))).collect()
}

/// The parts whose own parameters `rank` holds, with those parameters.
fn owned_parts(program: &Program, state: &State, rank: Rank) -> Vec<(Part, Vec<ParameterId>)> {
    let mut parts: Vec<(Part, Vec<ParameterId>)> = Vec::new();
    for gradient in state.gradients(program, rank) {
        let Name::Gradient(parameter) = program.buffers[gradient.index()].name else { continue };
        let part = program.parameters[parameter.index()].part;
        match parts.last_mut() {
            Some((last, parameters)) if *last == part => parameters.push(parameter),
            _ => parts.push((part, vec![parameter])),
        }
    }
    parts
}

fn end_of_step(
    program: &mut Program,
    training: &Training,
    state: &State,
    (rank, parts): (Rank, &[(Part, Vec<ParameterId>)]),
    barrier: Option<crate::base::CollectiveId>,
    origin: Origin,
) {
    let buffers = |parameters: &[ParameterId], name: fn(ParameterId) -> Name| -> Vec<BufferId> {
        parameters.iter().map(|&parameter| state.get(rank, name(parameter))).collect()
    };
    for (part, parameters) in parts {
        let gradients = buffers(parameters, Name::Gradient);
        let kernel = kernel(program, training, Kernel::Average(*part));
        program.append((rank, COMPUTE), OpKind::Run(kernel), (&gradients, &gradients), origin);
    }
    if let Some(barrier) = barrier {
        program.append((rank, COMPUTE), OpKind::Collective(barrier), (&[], &[]), origin);
    }
    for (part, parameters) in parts {
        let mut state_buffers = buffers(parameters, Name::Parameter);
        if training.optimizer.kind.moments() > 0 {
            state_buffers.extend(buffers(parameters, Name::FirstMoment));
            state_buffers.extend(buffers(parameters, Name::SecondMoment));
        }
        let mut reads = buffers(parameters, Name::Gradient);
        reads.extend_from_slice(&state_buffers);
        let kernel = kernel(program, training, Kernel::Optimizer(*part));
        program.append((rank, COMPUTE), OpKind::Run(kernel), (&reads, &state_buffers), origin);
    }
}

fn kernel(program: &mut Program, training: &Training, kernel: Kernel) -> KernelId {
    program.kernel(stages::cost(training, kernel, 0))
}
