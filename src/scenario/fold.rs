//! Folding: ranks that do the same at the same time are followed as one, replicas and those that share a layer's tensors. A thousand of them
//! cost no more than that.

use super::keys::parallel;
use super::problem::Problem;
use super::written::Written;
use super::{Reshard, Scenario, Task, Training, Values};
use crate::base::folding::Folding;
use crate::base::hardware::{Costs, Hardware};
use crate::base::mesh::{Axis, Line};

/// Folds the scenario where it can be folded, unless it says otherwise.
pub(super) fn settle(written: &mut Written, scenario: &mut Scenario) {
    let wanted = if written.has(&parallel::FOLD, 0) { written.flag(&parallel::FOLD) } else { None };
    if wanted == Some(false) {
        return;
    }
    let found = folding(scenario);
    match (found, &mut scenario.task) {
        (Ok(folding), Task::Train(training)) => training.folding = folding,
        (Err(why), _) if wanted == Some(true) => {
            let problem = Problem::new(format!("the ranks cannot be folded: {why}")).hint("leave `fold` out");
            written.refuse(&[&parallel::FOLD], problem);
        }
        _ => {}
    }
}

/// Along which lines ranks are followed as one; or what tells them apart along all of them.
fn folding(scenario: &Scenario) -> Result<Folding, &'static str> {
    let Task::Train(training) = &scenario.task else { return Err("a bare piece is followed message by message") };
    let axes = [Axis::Data, Axis::Tensor].into_iter().filter(|&axis| training.mesh.size(axis) > 1);
    let lines: Vec<Result<Line, &'static str>> = axes.map(|axis| line(training, &scenario.hardware, axis)).collect();
    match () {
        () if scenario.numerics.values == Values::Real => return Err("each has its own numbers"),
        () if !scenario.trouble.is_empty() => return Err("trouble may meet some of them"),
        () if lines.is_empty() => return Ok(Folding::default()),
        () if training.data_parallel.expand => return Err("their collectives are followed message by message"),
        () if scenario.hardware.sharing.is_some() => return Err("each shares links with others"),
        () => {}
    }
    let obstacle = lines.iter().find_map(|line| line.err());
    let folding = Folding::new(lines.into_iter().flatten());
    match obstacle {
        Some(why) if folding.lines().is_empty() => Err(why),
        _ => Ok(folding),
    }
}

/// The ranks along `axis` that do the same; or what tells them apart.
fn line(training: &Training, hardware: &Hardware, axis: Axis) -> Result<Line, &'static str> {
    let Line { ranks, stride } = training.mesh.line(axis);
    let (line, blocks) = match axis {
        Axis::Tensor if !training.model.vocab.is_multiple_of(ranks) => return Err("the last has less of the vocabulary"),
        // Those that have the same key and value head meet by themselves.
        Axis::Tensor => (Line { ranks, stride }, vec![(ranks / training.model.kv_heads).max(1)]),
        _ => {
            let blocks = blocks_of_replicas(training).ok_or("some share state with a part of the slices of a sequence")?;
            // Replicas of all the ranks that share out experts do the same.
            let (experts, blocks) = (blocks[0], blocks[1..].iter().map(|block| block / blocks[0]).collect());
            (Line { ranks: ranks / experts, stride: stride * experts }, blocks)
        }
    };
    let is_alike = line.ranks == 1 || is_placed_alike(training, hardware, line, blocks);
    if is_alike { Ok(line) } else { Err("some talk inside a node where others talk between nodes") }
}

/// How many replicas are among the data-parallel ranks that share out experts, that share a copy of the state, and that keep a part of it from
/// forward to backward. `None` where one of these blocks ends amid the slices of a sequence.
fn blocks_of_replicas(training: &Training) -> Option<[usize; 3]> {
    let (sharing, shards) = training.sharing();
    let near = match training.fsdp.reshard_after_forward {
        Reshard::To(ranks) if sharing.parameters => ranks,
        _ => shards,
    };
    let [data, context] = [Axis::Data, Axis::Context].map(|axis| training.mesh.line(axis));
    // Data-parallel ranks are counted along the faster axis first.
    let is_faster = data.stride < context.stride;
    let inner = if is_faster { data.ranks } else { context.ranks };
    let replicas = |ranks: usize| match () {
        () if inner.is_multiple_of(ranks) => Some(if is_faster { ranks } else { 1 }),
        () if ranks.is_multiple_of(inner) => Some(if is_faster { inner } else { ranks / inner }),
        () => None,
    };
    // Who shares nothing is a block of one, whichever experts it has.
    let [experts, shards, near] = [training.expert, shards, near].map(replicas);
    Some([experts?, shards?.max(experts?), near?.max(experts?)])
}

/// Whether all ranks of a line have the same links to those that they talk to, if they meet in such blocks of the line.
fn is_placed_alike(training: &Training, hardware: &Hardware, line: Line, blocks: Vec<usize>) -> bool {
    let (all, node) = (training.mesh.ranks(), hardware.ranks_per_node);
    let (Costs::Table(_), true) = (&hardware.costs, all > node) else { return true };
    // So many ranks differ along what is counted faster than the line, than its blocks, and than what is slower than the line.
    let lengths = blocks.into_iter().chain([1, line.ranks]).map(|ranks| line.stride * ranks);
    lengths.filter(|&length| length < all).all(|length| node.is_multiple_of(length) || length.is_multiple_of(node))
}
