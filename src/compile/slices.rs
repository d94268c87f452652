//! Slices: which of the program's parameters each tensor-parallel rank holds. What several of them hold alike is one parameter.

use crate::base::ParameterId;
use crate::base::mesh::Axis;
use crate::base::model::{Model, Parameter, Part};
use crate::base::module::{Module, Split};
use crate::scenario::Training;

use super::stages;

/// The parameters of a program, and who holds them.
pub(super) struct Slices {
    /// All of them, in registration order; the slices of a tensor behind each other.
    pub parameters: Vec<Parameter>,
    /// Per place along the tensor axis and per place in forward order, what is held there.
    held: Vec<Vec<Vec<ParameterId>>>,
}

impl Slices {
    /// The parameters of a training run.
    pub(super) fn new(training: &Training) -> Self {
        let (model, ranks) = (&training.model, training.mesh.size(Axis::Tensor));
        let mut slices = Self { parameters: Vec::new(), held: vec![Vec::new(); ranks] };
        for part in model.parts() {
            let lists: Vec<Vec<Parameter>> = Split::all(ranks).map(|split| model.slices_of(part, split)).collect();
            slices.held.iter_mut().for_each(|held| held.push(Vec::new()));
            for number in 0..lists[0].len() {
                let first = slices.parameters.len();
                for (place, list) in lists.iter().enumerate() {
                    let id = slices.add(first, &list[number]);
                    slices.held[place].last_mut().expect("a list for this part").push(id);
                }
            }
        }
        slices
    }

    /// The id of `parameter`, which stands at place `first` or behind it, if it is known.
    fn add(&mut self, first: usize, parameter: &Parameter) -> ParameterId {
        let known = self.parameters[first..].iter().position(|known| known == parameter);
        if known.is_none() {
            self.parameters.push(parameter.clone());
        }
        ParameterId::new(known.map_or(self.parameters.len() - 1, |known| first + known))
    }

    /// What the rank at `place` holds of the parameters of `part` by itself.
    pub(super) fn own(&self, model: &Model, place: usize, part: Part) -> &[ParameterId] {
        &self.held[place][stages::place(model, part) as usize]
    }

    /// What the kernels of `part` take there. A tied head also takes the token embedding's weight.
    pub(super) fn taken(&self, model: &Model, place: usize, part: Part) -> Vec<ParameterId> {
        let tied = (model.tied && part == Part::Head).then(|| self.tied(place));
        self.own(model, place, part).iter().copied().chain(tied).collect()
    }

    /// What the kernels of a module take there.
    pub(super) fn of_module(&self, model: &Model, place: usize, layer: u32, module: Module) -> Vec<ParameterId> {
        let is_own = |id: &ParameterId| model.module_of(&self.parameters[id.index()]) == Some(module);
        self.own(model, place, Part::Block(layer)).iter().copied().filter(is_own).collect()
    }

    /// The places at which `parameter` of `part` is held.
    pub(super) fn holders(&self, model: &Model, parameter: ParameterId, part: Part) -> Vec<usize> {
        (0..self.held.len()).filter(|&place| self.own(model, place, part).contains(&parameter)).collect()
    }

    /// The token embedding's weight.
    pub(super) fn tied(&self, place: usize) -> ParameterId {
        self.held[place][0][0]
    }
}
