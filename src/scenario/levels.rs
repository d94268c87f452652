//! Two-level collectives: nodes must cut every group of ranks evenly.

use super::keys::{Key, collective, data_parallel, hardware, parallel};
use super::problem::Problem;
use super::written::Written;
use super::{AllReduce, Scenario, Task, Training};
use crate::base::Rank;
use crate::base::hardware::members_per_node;
use crate::base::mesh::Axis;
use crate::base::words::grouped;

/// Refuses `hierarchical` where some node would hold fewer members of a group than others.
pub(super) fn check(written: &mut Written, scenario: &Scenario) {
    let per_node = scenario.hardware.ranks_per_node;
    let is_even = |group: &[Rank]| members_per_node(group, per_node).is_some();
    let (keys, ranks): ([&'static Key; 3], usize) = match &scenario.task {
        Task::Collective(task) if task.algorithm == AllReduce::Hierarchical => {
            let all: Vec<Rank> = (0..task.ranks).map(Rank::new).collect();
            if is_even(&all) {
                return;
            }
            ([&collective::RANKS, &hardware::RANKS_PER_NODE, &hardware::NODES], task.ranks)
        }
        Task::Train(training) if training.data_parallel.all_reduce == AllReduce::Hierarchical => {
            if groups(training).iter().all(|group| is_even(group)) {
                return;
            }
            ([&data_parallel::ALL_REDUCE, &parallel::DATA, &hardware::RANKS_PER_NODE], training.mesh.size(Axis::Data))
        }
        _ => return,
    };
    let message = format!(
        "hierarchical needs equally many ranks in every node: nodes of {} cut {} ranks unevenly",
        grouped(per_node as i128),
        grouped(ranks as i128)
    );
    let hint = match &scenario.task {
        Task::Collective(_) | Task::Layer(_) | Task::Experts(_) => {
            format!("ranks = {} or {} would do", ranks / per_node * per_node, ranks.next_multiple_of(per_node))
        }
        Task::Train(_) => format!("ranks_per_node = {ranks} would do"),
    };
    let problem = Problem::new(message).allowed("as many ranks as fill whole nodes, or an even share of each");
    written.refuse(&keys, problem.hint(format!("{hint}; a ring or halving-doubling takes any number")));
}

/// The groups that all-reduce: data-parallel ranks, or the copies of each shard; and the ranks that share a layer's tensors.
fn groups(training: &Training) -> Vec<Vec<Rank>> {
    let shards = if training.data_parallel.strategy.sharing().parameters { training.fsdp.shard_size } else { 1 };
    let copies = |group: Vec<Rank>| (0..shards).map(move |first| group.iter().copied().skip(first).step_by(shards).collect());
    let mut replicas: Vec<Vec<Rank>> = (0..training.mesh.ranks()).map(|rank| training.data_group(Rank::new(rank))).collect();
    replicas.sort_unstable();
    replicas.dedup();
    replicas.into_iter().flat_map(copies).chain(training.mesh.groups(Axis::Tensor)).collect()
}
