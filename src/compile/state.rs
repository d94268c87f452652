//! The buffers that a rank owns between steps: parameters, gradients, optimizer moments.

use std::collections::BTreeMap;

use crate::base::{BufferId, Rank};
use crate::program::{Name, Program, Role};

/// Finds state buffers by rank and name.
pub(super) struct State {
    places: BTreeMap<(Rank, Name), BufferId>,
}

impl State {
    /// The state buffers of `program`.
    pub(super) fn of(program: &Program) -> Self {
        let state = program.buffers.iter().enumerate().filter(|(_, buffer)| buffer.role.is_state());
        Self { places: state.map(|(index, buffer)| ((buffer.rank, buffer.name), BufferId::new(index))).collect() }
    }

    /// The buffer called `name` on `rank`.
    ///
    /// # Panics
    /// If the rank does not own it: lowering gives every rank the state of its stage.
    pub(super) fn get(&self, rank: Rank, name: Name) -> BufferId {
        self.places[&(rank, name)]
    }

    /// The gradients that `rank` owns, in registration order.
    pub(super) fn gradients(&self, program: &Program, rank: Rank) -> Vec<BufferId> {
        let mine =
            self.places.range((rank, Name::Tokens(0))..).take_while(|((owner, _), _)| *owner == rank).map(|(_, &buffer)| buffer);
        mine.filter(|buffer| program.buffers[buffer.index()].role == Role::Gradient).collect()
    }
}
