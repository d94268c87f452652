//! Deadlock: when nothing can start any more, who waits for whom, and in which circles.

use super::world::{World, blocked};
use crate::base::OpId;
use crate::program::trace::WaitGraph;

/// The wait-for graph of a world in which nothing moves.
#[must_use]
pub fn wait_graph(world: &World) -> WaitGraph {
    let program = &world.machine.program;
    let waiting: Vec<OpId> = program.all().filter(|&op| !world.is_done(op)).collect();
    WaitGraph::new(program, &waiting, |op| blocked(world, op))
}
