//! State: the buffers in which every rank keeps parameters, gradients and the optimizer's tensors, whole or as shards.
//!
//! What is kept between steps comes first in the program's table, what comes and goes behind it: gathered parameters, and gradients that the
//! ranks have not summed yet.

use crate::base::{BufferId, Dtype, LayoutId, ParameterId, Rank};
use crate::program::tables::{Layout, TensorPart};
use crate::program::{Name, Program, Role};
use crate::scenario::Training;

use super::Sharing;

/// What a rank holds of a parameter, or of a unit's shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copies {
    pub parameter: Option<BufferId>,
    pub gradient: Option<BufferId>,
    /// Its gradient before the ranks sum it, of a micro-batch or of a step; of a shard, once they have summed that of a micro-batch.
    pub fresh: Option<BufferId>,
    /// Of a shard of parameters, the larger one that is kept from forward to backward.
    pub near: Option<BufferId>,
    /// What the optimizer keeps: moments, then the copy in full precision.
    pub optimizer: [Option<BufferId>; 3],
}

/// What one rank holds.
#[derive(Debug, Default)]
pub struct Held {
    /// The parameters of its stages, in order.
    parameters: Vec<ParameterId>,
    /// Per parameter of its stages.
    whole: Vec<Copies>,
    /// Per unit of its stages.
    pub shards: Vec<Copies>,
}

impl Held {
    /// What it holds of `parameter`.
    pub fn whole(&self, parameter: ParameterId) -> &Copies {
        let place = self.parameters.binary_search(&parameter).expect("a parameter of one of its stages");
        &self.whole[place]
    }

    /// The buffer that backward adds the gradient of `parameter` to.
    pub fn target(&self, parameter: ParameterId) -> BufferId {
        let copies = self.whole(parameter);
        copies.fresh.or(copies.gradient).expect("backward makes every gradient")
    }

    /// The gradients that it keeps over a step: whole, or else as shards.
    pub fn gradients(&self) -> Vec<BufferId> {
        let whole: Vec<BufferId> = self.whole.iter().filter_map(|copies| copies.gradient).collect();
        if whole.is_empty() { self.shards.iter().filter_map(|copies| copies.gradient).collect() } else { whole }
    }

    /// One kind of buffer of several parameters.
    pub fn of(&self, parameters: &[ParameterId], kind: fn(&Copies) -> Option<BufferId>) -> Vec<BufferId> {
        parameters.iter().filter_map(|&parameter| kind(self.whole(parameter))).collect()
    }
}

impl Copies {
    /// The optimizer's tensors that there are.
    pub fn optimizer(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.optimizer.iter().copied().flatten()
    }
}

/// Gives every rank its buffers.
pub fn add(program: &mut Program, training: &Training, sharing: &Sharing) -> Vec<Held> {
    let mut makers: Vec<Maker> = training.followed().map(|ranks| Maker::new(training, sharing, ranks)).collect();
    makers.iter_mut().for_each(|maker| maker.lasting(program));
    makers.iter_mut().for_each(|maker| maker.passing(program));
    makers.into_iter().map(|maker| maker.held).collect()
}

/// One rank's buffers, while they are made.
struct Maker<'a> {
    training: &'a Training,
    sharing: &'a Sharing,
    rank: Rank,
    /// Its number among all ranks.
    whole: Rank,
    seat: usize,
    held: Held,
}

impl<'a> Maker<'a> {
    fn new(training: &'a Training, sharing: &'a Sharing, (rank, whole): (Rank, Rank)) -> Self {
        let seat = training.seat(whole);
        let parameters = &sharing.parameters[seat];
        let held = Held {
            parameters: parameters.clone(),
            whole: vec![Copies::default(); parameters.len()],
            shards: vec![Copies::default(); if sharing.row.optimizer { sharing.units[seat].len() } else { 0 }],
        };
        Self { training, sharing, rank, whole, seat, held }
    }

    /// What is there between steps.
    fn lasting(&mut self, program: &mut Program) {
        let row = self.sharing.row;
        for place in 0..self.held.whole.len() {
            let parameter = self.held.parameters[place];
            let dims = program.parameters[parameter.index()].dims.clone();
            let names = [Name::FirstMoment(parameter), Name::SecondMoment(parameter), Name::Master(parameter)];
            let mut copies = Copies::default();
            if !row.optimizer {
                copies.optimizer = self.optimizer(program, names, &dims);
            }
            if !row.parameters {
                copies.parameter = Some(self.parameter(program, Name::Parameter(parameter), Role::Parameter, &dims));
            }
            if !row.gradients {
                copies.gradient = Some(self.gradient(program, Name::Gradient(parameter), &dims));
            }
            self.held.whole[place] = copies;
        }
        for place in 0..self.held.shards.len() {
            let (unit, shard) = self.shard(place);
            let dims = [self.sharing.units[self.seat][place].shard_elements(program)];
            let names =
                [Name::FirstMomentShard(unit, shard), Name::SecondMomentShard(unit, shard), Name::MasterShard(unit, shard)];
            let mut copies = Copies { optimizer: self.optimizer(program, names, &dims), ..Copies::default() };
            if row.parameters {
                copies.parameter = Some(self.parameter(program, Name::Shard(unit, shard), Role::Parameter, &dims));
            }
            if row.gradients {
                copies.gradient = Some(self.gradient(program, Name::GradientShard(unit, shard), &dims));
            }
            self.held.shards[place] = copies;
        }
    }

    /// What comes and goes within a step.
    fn passing(&mut self, program: &mut Program) {
        let row = self.sharing.row;
        for place in 0..self.held.whole.len() {
            let parameter = self.held.parameters[place];
            let dims = program.parameters[parameter.index()].dims.clone();
            if row.parameters {
                let gathered = self.parameter(program, Name::Parameter(parameter), Role::Bucket, &dims);
                self.held.whole[place].parameter = Some(gathered);
            }
            if self.sharing.every_micro_batch || row.gradients {
                let layout = program.layout(Layout::tensor(self.training.precision.gradient, &dims));
                let fresh = program.buffer(self.rank, Name::Unreduced(parameter), Role::Bucket, layout);
                self.held.whole[place].fresh = Some(fresh);
            }
        }
        for place in 0..self.held.shards.len() {
            let (unit, shard) = self.shard(place);
            if let Some(ranks) = self.sharing.near(self.training) {
                let dims = [self.sharing.units[self.seat][place].elements(program).div_ceil(ranks)];
                let number = u32::try_from(ranks).expect("a checked mesh");
                let near = self.parameter(program, Name::Near(unit, shard % number), Role::Bucket, &dims);
                self.held.shards[place].near = Some(near);
            }
            let dims = [self.sharing.units[self.seat][place].shard_elements(program)];
            let layout = program.layout(Layout::tensor(self.training.precision.gradient, &dims));
            let copies = &mut self.held.shards[place];
            if !row.parameters {
                // The part that is updated, on its way from the whole and back.
                let layout = program.layout(Layout::tensor(self.training.precision.parameter, &dims));
                copies.parameter = Some(program.buffer(self.rank, Name::Shard(unit, shard), Role::Bucket, layout));
            }
            if !row.gradients {
                copies.gradient = Some(program.buffer(self.rank, Name::GradientShard(unit, shard), Role::Bucket, layout));
            }
            if self.sharing.every_micro_batch {
                copies.fresh = Some(program.buffer(self.rank, Name::Reduced(unit, shard), Role::Bucket, layout));
            }
        }
    }

    /// The numbers in names of the shard of the unit at `place`.
    fn shard(&self, place: usize) -> (u32, u32) {
        let shard = u32::try_from(self.sharing.place(self.training, self.whole, place)).expect("a checked mesh");
        (self.sharing.number(self.seat, place), shard)
    }

    fn parameter(&self, program: &mut Program, name: Name, role: Role, dims: &[usize]) -> BufferId {
        let layout = program.layout(Layout::tensor(self.training.precision.parameter, dims));
        program.buffer(self.rank, name, role, layout)
    }

    /// A gradient, and the copy in which micro-batches add up where the convention has one.
    fn gradient(&self, program: &mut Program, name: Name, dims: &[usize]) -> BufferId {
        let precision = self.training.precision;
        let layout = gradient_layout(program, precision.gradient, precision.accumulator, dims);
        program.buffer(self.rank, name, Role::Gradient, layout)
    }

    /// Moments, as many as the rule has, and the copy in full precision, where there is one.
    fn optimizer(&self, program: &mut Program, names: [Name; 3], dims: &[usize]) -> [Option<BufferId>; 3] {
        let precision = self.training.precision;
        let moments = self.training.optimizer.kind.moments();
        let dtypes = [(moments > 0).then_some(precision.moment), (moments > 1).then_some(precision.moment), precision.master];
        let mut dtypes = dtypes.into_iter();
        names.map(|name| {
            let layout = program.layout(Layout::tensor(dtypes.next().flatten()?, dims));
            Some(program.buffer(self.rank, name, Role::Optimizer, layout))
        })
    }
}

fn gradient_layout(program: &mut Program, dtype: Dtype, accumulator: Option<Dtype>, dims: &[usize]) -> LayoutId {
    let part = |dtype, name: &str| TensorPart { name: name.to_owned(), dtype, dims: dims.to_vec() };
    match accumulator {
        None => program.layout(Layout::tensor(dtype, dims)),
        Some(wide) => program.layout(Layout { parts: vec![part(dtype, "gradient"), part(wide, "sum")] }),
    }
}
