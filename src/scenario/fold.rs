//! Folding: data-parallel ranks that do the same at the same time are followed as one. A thousand of them cost no more than that.

use super::keys::parallel;
use super::problem::Problem;
use super::written::Written;
use super::{Scenario, Task, Training, Values};
use crate::base::hardware::{Costs, Hardware};
use crate::base::mesh::Axis;

/// Folds the scenario where it can be folded, unless it says otherwise.
pub(super) fn settle(written: &mut Written, scenario: &mut Scenario) {
    let wanted = if written.has(&parallel::FOLD, 0) { written.flag(&parallel::FOLD) } else { None };
    let obstacle = obstacle(scenario);
    let Task::Train(training) = &mut scenario.task else { return };
    match (wanted, obstacle) {
        (Some(false), _) | (None, Some(_)) => {}
        (Some(true), Some(why)) => {
            let problem = Problem::new(format!("the ranks cannot be folded: {why}")).hint("leave `fold` out");
            written.refuse(&[&parallel::FOLD], problem);
        }
        (_, None) => {
            training.fold = training.mesh.size(Axis::Data);
            training.mesh = training.mesh.sized(Axis::Data, 1);
        }
    }
}

/// What tells data-parallel ranks apart.
fn obstacle(scenario: &Scenario) -> Option<&'static str> {
    let Task::Train(training) = &scenario.task else { return Some("a bare piece is followed message by message") };
    let data = training.mesh.size(Axis::Data);
    match () {
        () if scenario.numerics.values == Values::Real => Some("each has its own numbers"),
        () if training.data_parallel.expand && data > 1 => Some("their collectives are followed message by message"),
        () if training.mesh.size(Axis::Context) > 1 => Some("each has its own part of every sequence"),
        () if training.expert > 1 => Some("they have different experts"),
        () if training.is_two_way() => Some("some hold the same stages as others in another place"),
        () if training.splits_embedding() => Some("some share an embedding with others"),
        () if !scenario.trouble.is_empty() => Some("trouble may meet some of them"),
        () if scenario.hardware.sharing.is_some() => Some("each shares links with others"),
        () if !are_placed_alike(training, &scenario.hardware) => Some("some talk inside a node where others talk between nodes"),
        () => None,
    }
}

/// Whether all data-parallel ranks have the same links to those that they talk to.
fn are_placed_alike(training: &Training, hardware: &Hardware) -> bool {
    let (data, node) = (training.mesh.size(Axis::Data), hardware.ranks_per_node);
    let (Costs::Table(_), true) = (&hardware.costs, training.mesh.ranks() > node) else { return true };
    // Between two replicas stand so many ranks: all of a replica's that the mesh counts faster.
    let stride = training.mesh.stride(Axis::Data);
    let fits = |ranks: usize| node.is_multiple_of(ranks) || ranks.is_multiple_of(node);
    let whole_copies = training.fsdp.shard_size == data || fits(training.fsdp.shard_size * stride);
    let rest = training.mesh.ranks() / (data * stride);
    let whole_stages = rest == 1 || (data * stride).is_multiple_of(node);
    fits(stride) && whole_copies && whole_stages
}
