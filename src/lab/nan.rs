//! The first result that is no number. A run that ends with numbers has none; otherwise it is run again, with an eye on every result.

use std::sync::Arc;

use crate::base::{BufferId, OpId};
use crate::engine;
use crate::engine::session::{self, Numbers, Session};
use crate::engine::value::Value;
use crate::engine::world::World;
use crate::program::Role;
use crate::scenario::Scenario;

/// The op whose result is the first that is no number; `None` if the run of `session`, which is that of `scenario` with `numbers`, ends with
/// numbers, or has none.
///
/// # Errors
/// If a kernel fails; it did not when the run was made.
pub fn first(scenario: &Scenario, session: &Session, numbers: Numbers) -> engine::Result<Option<OpId>> {
    if matches!(numbers, Numbers::Shape) || ends_well(session)? {
        return Ok(None);
    }
    let (mut first, mut failed) = (None, Ok(()));
    let mut watch = |world: &World, op: OpId| {
        if first.is_none() && failed.is_ok() {
            match any_nan(world, op) {
                Ok(true) => first = Some(op),
                Ok(false) => {}
                Err(error) => failed = Err(error),
            }
        }
    };
    let program = Arc::clone(session.program());
    session::run(program, &scenario.hardware, &scenario.trouble, numbers, &mut watch)?;
    failed.map(|()| first)
}

/// Whether losses and parameters are numbers. What is none spreads: a forward with such a parameter has no other result.
fn ends_well(session: &Session) -> engine::Result<bool> {
    let values = session.values();
    if values.losses().iter().any(|loss| loss.value.is_nan()) {
        return Ok(false);
    }
    let buffers = &session.program().buffers;
    let parameters = (0..buffers.len()).filter(|&buffer| buffers[buffer].role == Role::Parameter).map(BufferId::new);
    for value in parameters.filter_map(|buffer| values.get(buffer)) {
        if is_nan(value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn any_nan(world: &World, op: OpId) -> engine::Result<bool> {
    for value in world.machine.program.op(op).writes.iter().filter_map(|&buffer| world.values.get(buffer)) {
        if is_nan(value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_nan(value: &Value) -> engine::Result<bool> {
    Ok(value.elements()?.is_some_and(|elements| elements.iter().any(|element| element.is_nan())))
}
