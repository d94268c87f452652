//! Data parallelism: the gradients of a step are summed over the replicas, bucket by bucket.
//!
//! A bucket's all-reduce is issued as soon as the last backward of the step has written its gradients. It runs on its own stream, beside
//! the backward of earlier layers; without overlap it is issued after the whole backward.

use crate::base::{BufferId, Bytes, OpId, Rank, StreamId};
use crate::program::tables::{Collective, CollectiveKind, Group};
use crate::program::{OpKind, Origin, PassName, Program};
use crate::scenario::Training;

use super::state::State;
use super::{Build, buckets};

/// Inserts the all-reduces of every step.
pub(super) fn run(build: &mut Build) {
    let Some(training) = build.training() else { return };
    let groups = build.homes().map_or_else(Vec::new, |homes| homes.alike(training));
    if groups.iter().all(|ranks| ranks.len() == 1) {
        return;
    }
    let program = &mut build.program;
    let state = State::of(program);
    let stream = program.communication_stream("dp");
    for (index, ranks) in groups.into_iter().enumerate() {
        let buckets: Vec<Vec<Packed>> = ranks.iter().map(|&rank| packed(program, training, &state, rank)).collect();
        let group = program.group(Group { name: format!("dp{index}"), ranks: ranks.clone() });
        for step in 0..training.batch.steps {
            let first = program.collectives.len();
            for (number, bucket) in buckets[0].iter().enumerate() {
                let label = format!("bucket{number}");
                program.collective(Collective { group, kind: CollectiveKind::AllReduce, label, step, bytes: bucket.bytes });
            }
            for (&rank, buckets) in ranks.iter().zip(&buckets) {
                insert(program, training, &Site { rank, stream, step, first }, buckets);
            }
        }
    }
}

/// A bucket with its gradients' buffers.
struct Packed {
    gradients: Vec<BufferId>,
    bytes: Bytes,
}

/// Where a step's all-reduces go.
struct Site {
    rank: Rank,
    stream: StreamId,
    step: u32,
    /// Place of bucket 0's collective in the program's table.
    first: usize,
}

/// The buckets of `rank`: its gradients in the order in which backward makes them, which is registration order reversed.
fn packed(program: &Program, training: &Training, state: &State, rank: Rank) -> Vec<Packed> {
    let mut gradients = state.gradients(program, rank);
    gradients.reverse();
    let sizes: Vec<Bytes> = gradients.iter().map(|&gradient| program.bytes(gradient)).collect();
    let assigned = buckets::assign(&sizes, training.data_parallel.first_bucket, training.data_parallel.bucket);
    let packed = |bucket: buckets::Bucket| Packed {
        gradients: bucket.members.iter().map(|&member| gradients[member]).collect(),
        bytes: bucket.bytes,
    };
    assigned.into_iter().map(packed).collect()
}

/// Issues each bucket's all-reduce behind the last op of the step that writes one of its gradients.
fn insert(program: &mut Program, training: &Training, site: &Site, buckets: &[Packed]) {
    let order = std::mem::take(&mut program.order[site.rank.index()]);
    let of_step = |program: &Program, op: OpId| program.op(op).origin.step == site.step;
    let last = order.iter().rposition(|&op| of_step(program, op)).expect("every rank works in every step");
    let writes =
        |program: &Program, op: OpId, bucket: &Packed| program.op(op).writes.iter().any(|b| bucket.gradients.contains(b));
    let ready = |bucket: &Packed| {
        order[..=last].iter().rposition(|&op| writes(program, op, bucket)).expect("backward writes every gradient")
    };
    // Buckets are issued in their own order, as the reducer does: the same order on every rank.
    let mut latest = 0;
    let places: Vec<usize> = buckets
        .iter()
        .map(|bucket| {
            latest = latest.max(if training.data_parallel.overlap { ready(bucket) } else { last });
            latest
        })
        .collect();

    let mut issued = Vec::with_capacity(order.len() + buckets.len());
    let mut next = 0;
    for (place, &op) in order.iter().enumerate() {
        issued.push(op);
        while next < buckets.len() && places[next] == place {
            let kind = OpKind::Collective(crate::base::CollectiveId::new(site.first + next));
            let gradients = &buckets[next].gradients;
            let origin = Origin { slot: None, step: site.step, pass: PassName::DataParallel };
            let all_reduce = program.add((site.rank, site.stream), kind, (gradients, gradients), origin);
            if !training.data_parallel.overlap {
                program.wait(all_reduce, op);
            }
            issued.push(all_reduce);
            next += 1;
        }
    }
    program.order[site.rank.index()] = issued;
}
