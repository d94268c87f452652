//! Slices: which of the program's parameters each rank of a stage holds. What several tensor-parallel ranks hold alike is one parameter; of
//! experts a rank holds its own.

use crate::base::ParameterId;
use crate::base::model::{Model, Parameter, Part};
use crate::base::module::Module;
use crate::base::split::Split;
use crate::scenario::Training;

use super::stages;

/// The parameters of a program, and who holds them.
pub(super) struct Slices {
    /// All of them, in registration order; the slices of a tensor behind each other.
    pub parameters: Vec<Parameter>,
    /// Per place among the ranks of a stage ([`Training::place`]) and per place in forward order, what is held there.
    held: Vec<Vec<Vec<ParameterId>>>,
    /// The first of the ranks that share tensors: those of one place among experts stand behind each other.
    split: Split,
    /// Experts of each rank.
    experts: usize,
}

impl Slices {
    /// The parameters of a training run. As a fault, `by_rows` cuts the one matrix of queries, keys and values as its rows lie.
    pub(super) fn new(training: &Training, by_rows: bool) -> Self {
        let (model, split) = (&training.model, training.split());
        let ranks = split.ranks;
        let experts = model.experts.as_ref().map_or(0, |experts| experts.count / training.expert);
        let mut slices = Self { parameters: Vec::new(), held: vec![Vec::new(); training.places()], split, experts };
        for part in model.parts() {
            let mut lists: Vec<Vec<Parameter>> = split.places().map(|split| model.slices_of(part, split)).collect();
            if by_rows && model.fused_qkv {
                lists.iter_mut().enumerate().for_each(|(place, list)| cut_by_rows(model, Split { place, ..split }, list));
            }
            slices.held.iter_mut().for_each(|held| held.push(Vec::new()));
            for number in 0..lists[0].len() {
                let first = slices.parameters.len();
                for (slice, list) in lists.iter().enumerate() {
                    let id = slices.add(first, &list[number]);
                    for place in (slice..slices.held.len()).step_by(ranks) {
                        if slices.is_at(place, &list[number]) {
                            slices.held[place].last_mut().expect("a list for this part").push(id);
                        }
                    }
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

    /// Whether the rank at `place` holds `parameter`, if any of its slices: all but other ranks' experts.
    fn is_at(&self, place: usize, parameter: &Parameter) -> bool {
        parameter.expert().is_none_or(|expert| expert / self.experts.max(1) == place / self.split.ranks)
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

    /// What the kernels of a module take there, in the order of [`Model::taken_by`].
    pub(super) fn of_module(&self, model: &Model, place: usize, (layer, module): (u32, Module), early: bool) -> Vec<ParameterId> {
        if module == Module::Logits && model.tied {
            return vec![self.tied(place)];
        }
        let mut taken = model.taken_by(layer, module, Split { place: place % self.split.ranks, ..self.split }, early);
        taken.retain(|parameter| self.is_at(place, parameter));
        let own = self.own(model, place, module.part(layer));
        let is_it = |id: &&ParameterId, parameter: &Parameter| {
            let known = &self.parameters[id.index()];
            (&known.name, &known.dims) == (&parameter.name, &parameter.dims)
        };
        let mut rest = own.to_vec();
        let mut take = |parameter: Parameter| {
            let at = rest.iter().position(|id| is_it(&id, &parameter)).expect("a part holds what its modules take");
            rest.remove(at)
        };
        taken.into_iter().map(&mut take).collect()
    }

    /// The places along the tensor axis, beside the rank at `place`, at which `parameter` of `part` is held.
    pub(super) fn holders(&self, model: &Model, place: usize, (parameter, part): (ParameterId, Part)) -> Vec<usize> {
        let first = place / self.split.ranks * self.split.ranks;
        (0..self.split.ranks).filter(|slice| self.own(model, first + slice, part).contains(&parameter)).collect()
    }

    /// The token embedding's weight.
    pub(super) fn tied(&self, place: usize) -> ParameterId {
        self.held[place][0][0]
    }
}

/// Lets the slices of queries, keys and values at `place` follow each other as rows: the first rank's are mostly queries, the last one's values.
fn cut_by_rows(model: &Model, split: Split, list: &mut [Parameter]) {
    for dims in [1, 2] {
        let mut start = split.place * model.qkv_rows() / split.ranks;
        let is_qkv = |one: &Parameter| one.dims.len() == dims && one.module(split) == Some(Module::Qkv);
        for parameter in list.iter_mut().filter(|one| is_qkv(one)) {
            if let Some(slice) = &mut parameter.slice {
                slice.start = start;
                start += parameter.dims[0];
            }
        }
    }
}
