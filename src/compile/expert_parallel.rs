//! Experts inside a layer: in the feed-forward's place every rank routes its own tokens, and computes what is sent to its experts.
//!
//! The ranks that share out the experts see different data. Their micro-batches of the same number, or slices of one, go through a layer
//! together: two all-to-alls forward, tokens to the experts that they chose and results back, and two backward, of the gradients. They have a
//! stream of their own. Ranks that share an expert's matrices add up what their slices made before results go back, and backward the
//! gradients of the tokens, as Megatron's dispatcher does. Source: Lepikhin et al. 2020, `GShard`, arXiv 2006.16668, section 3.

use std::ops::Range;

use crate::base::mesh::Axis;
use crate::base::mixture::Mixture;
use crate::base::module::Module;
use crate::base::{BufferId, Bytes, LayoutId};
use crate::program::tables::{CollectiveKind, Layout, TensorPart};
use crate::program::{Flow, Kernel, KernelCost, Program};
use crate::scenario::Training;

use super::lower::{Site, Walk};
use super::stages::PartTables;
use super::tensor_parallel::{self, Circle, Way};

/// Under unit costs experts cost what the feed-forward's two products would, by the rows that they have beside an even share.
const OF_PRODUCTS: u32 = 2;

/// The experts of a layer on the rank at one place among those that share them out.
struct Share<'a> {
    training: &'a Training,
    /// Groups of a micro-batch's tokens that the rank has.
    groups: usize,
    /// Groups that it has together with those who share its experts' matrices: of its slice of every sequence.
    gathered: usize,
    /// Tokens that each expert takes of a group.
    rows: Vec<usize>,
    /// The rank's experts.
    own: Range<usize>,
    experts: &'a Mixture,
}

impl<'a> Share<'a> {
    /// # Panics
    /// If the model has no experts.
    fn new(training: &'a Training, place: usize) -> Self {
        let experts = training.model.experts.as_ref().expect("a model with experts");
        let each = experts.count / training.expert;
        let stretches = usize::try_from(tensor_parallel::stretches(training)).expect("a checked mesh");
        let rows = experts.rows(&training.model, training.batch.micro_batch_size);
        let gathered = experts.groups.count() / training.mesh.size(Axis::Context);
        Self { training, groups: gathered / stretches, gathered, rows, own: place * each..(place + 1) * each, experts }
    }

    /// Tokens that the rank routes.
    fn tokens(&self) -> usize {
        self.groups * self.experts.group_tokens(&self.training.model, self.training.batch.micro_batch_size)
    }

    /// Rows of all ranks for the rank's experts.
    fn own_rows(&self) -> usize {
        self.training.expert * self.gathered * self.rows[self.own.clone()].iter().sum::<usize>()
    }

    /// Columns of an expert that the rank has.
    fn width(&self) -> usize {
        self.training.model.ffn / self.training.mesh.size(Axis::Tensor)
    }

    /// Columns behind an expert's first matrices.
    fn inner(&self) -> usize {
        self.width() * (Mixture::matrices(self.training.model.activation) - 1)
    }

    /// A tensor for each group and expert: rows of the rank's own tokens.
    fn sent(&self) -> Vec<TensorPart> {
        self.parts(self.groups, &(0..self.experts.count), self.training.model.hidden)
    }

    /// A tensor for each rank, group and own expert: rows of that rank's tokens.
    fn taken(&self) -> Vec<TensorPart> {
        self.parts(self.training.expert * self.groups, &self.own, self.training.model.hidden)
    }

    /// What the experts work on, so wide: what the rank has taken, and those who share its experts' matrices.
    fn gathered(&self, width: usize) -> Vec<TensorPart> {
        self.parts(self.training.expert * self.gathered, &self.own, width)
    }

    fn parts(&self, groups: usize, experts: &Range<usize>, width: usize) -> Vec<TensorPart> {
        let dtype = self.training.precision.parameter;
        let part = |(group, expert): (usize, usize)| {
            let name = if groups == 1 { expert.to_string() } else { format!("{group}.{expert}") };
            TensorPart { name, dtype, dims: vec![self.rows[expert], width] }
        };
        (0..groups).flat_map(|group| experts.clone().map(move |expert| (group, expert))).map(part).collect()
    }
}

/// The layouts of what flows in and out of a module of experts, at a place among the ranks that share them out.
pub(super) fn layouts(program: &mut Program, training: &Training, place: usize, module: Module) -> [(Flow, LayoutId); 6] {
    let share = Share::new(training, place);
    // Nobody takes probabilities in half precision.
    let (t, wide) = (share.tokens(), training.precision.parameter.widened());
    let tensor = |dims: &[usize]| Layout::tensor(wide, dims).parts;
    let (sent, taken, gathered) = (share.sent(), share.taken(), share.gathered(training.model.hidden));
    let stream = [tensor_parallel::tokens(training), vec![training.model.hidden]].concat();
    let stream = Layout::tensor(training.precision.parameter, &stream).parts;
    let [output, output_gradient, met, met_gradient, saved, deferred] = match module {
        Module::Route => {
            let logits = tensor(&[t, share.experts.count]);
            let gates = tensor(&[t, share.experts.top_k]);
            // Where what has arrived is gathered, and the gradients of the rank's own rows of it.
            [logits.clone(), gates, gathered, taken, tensor(&[1]), logits]
        }
        Module::Dispatch => [sent.clone(), gathered, taken, sent, Vec::new(), Vec::new()],
        Module::Experts => {
            let hidden = share.gathered(share.inner());
            let deferred = [hidden.clone(), share.gathered(share.width())].concat();
            [gathered, sent.clone(), sent, taken, hidden, deferred]
        }
        // Where each rank's own results are left, and their gradients are gathered.
        _ => [stream.clone(), stream, taken, gathered, Vec::new(), Vec::new()],
    };
    [
        (Flow::Output, output),
        (Flow::OutputGradient, output_gradient),
        (Flow::Tokens, met),
        (Flow::TokensGradient, met_gradient),
        (Flow::Saved, saved),
        (Flow::Deferred, deferred),
    ]
    .map(|(flow, parts)| (flow, program.layout(Layout { parts })))
}

/// What a kernel of a module of experts costs, where `shares` products of layers share a slot.
pub(super) fn cost(training: &Training, place: usize, (kernel, module): (Kernel, Module), shares: u32) -> KernelCost {
    let share = Share::new(training, place);
    let (h, element) = (training.model.hidden, training.precision.parameter.size());
    let even = training.batch.micro_batch_size * tensor_parallel::own(training).sequence * share.experts.top_k;
    let has_weights = matches!(module, Module::Route | Module::Experts);
    let count = |rows: usize| u32::try_from(rows).expect("a checked number of rows");
    let cost = KernelCost::free(kernel);
    match module {
        _ if matches!(kernel, Kernel::BackwardWeight(_)) && !has_weights => cost,
        Module::Experts => {
            let rows = share.own_rows();
            KernelCost {
                shares: shares * count(even),
                taken: OF_PRODUCTS * count(rows),
                flops: 2 * (rows * h * (share.inner() + share.width())) as u64,
                bytes: 2 * (rows * h) as u64 * element,
                ..cost
            }
        }
        Module::Route => KernelCost { flops: 2 * (share.tokens() * h * share.experts.count) as u64, ..cost },
        // Rows are read once and written once.
        _ => KernelCost { bytes: 2 * (share.groups * share.rows.iter().sum::<usize>() * h) as u64 * element, ..cost },
    }
}

impl Walk<'_> {
    /// The second half of a layer: what the experts make of its norm.
    pub(super) fn experts_forward(&mut self, site: Site, part: &PartTables, way: Way, middle: BufferId) -> BufferId {
        let norm = self.inside(site, part, Flow::Output, Module::Norm2);
        self.module_forward(site, part, (Module::Norm2, way), &[middle], norm);
        let (route, gates) = (part.module(Module::Route), self.inside(site, part, Flow::Output, Module::Route));
        let loss = (way == Way::Forward).then(|| self.inside(site, part, Flow::Saved, Module::Route));
        let passes = self.passes(site, route);
        self.operands(&[norm], &route.weights[site.home]);
        self.write(site, if way == Way::Again { passes.again } else { passes.forward }, gates, loss);
        let rows = self.inside(site, part, Flow::Output, Module::Dispatch);
        self.module_forward(site, part, (Module::Dispatch, way), &[norm, gates], rows);
        let arrived = self.exchange(site, part, (Module::Dispatch, way), rows);
        let all = self.gathered(site, part, way, arrived);
        let results = self.inside(site, part, Flow::Output, Module::Experts);
        self.module_forward(site, part, (Module::Experts, way), &[all], results);
        let results = self.left(site, part, way, results);
        let returned = self.exchange(site, part, (Module::Combine, way), results);
        let output = self.inside(site, part, Flow::Output, Module::Combine);
        self.module_forward(site, part, (Module::Combine, way), &[gates, returned], output);
        output
    }

    /// From the gradient of what the experts made that of the norm's output.
    pub(super) fn experts_backward_input(&mut self, site: Site, part: &PartTables, gradient: BufferId) -> BufferId {
        let way = Way::BackwardInput;
        let gates = self.inside(site, part, Flow::Output, Module::Route);
        let returned = self.exchanged(site, part, (Module::Combine, Way::Forward));
        let [d_returned, d_gates] =
            [Module::Experts, Module::Route].map(|module| self.inside(site, part, Flow::OutputGradient, module));
        self.backward_op(site, part, Module::Combine, &[gradient, gates, returned], [d_returned, d_gates]);
        let d_results = self.exchange(site, part, (Module::Combine, way), d_returned);
        let d_results = self.gathered(site, part, way, d_results);
        let hidden = self.inside(site, part, Flow::Saved, Module::Experts);
        let d_arrived = self.inside(site, part, Flow::OutputGradient, Module::Dispatch);
        let deferred = self.inside(site, part, Flow::Deferred, Module::Experts);
        self.backward_op(site, part, Module::Experts, &[d_results, hidden], [d_arrived, deferred]);
        let d_arrived = self.left(site, part, way, d_arrived);
        let d_rows = self.exchange(site, part, (Module::Dispatch, way), d_arrived);
        let d_norm = self.inside(site, part, Flow::OutputGradient, Module::Norm2);
        let d_logits = self.inside(site, part, Flow::Deferred, Module::Route);
        self.backward_op(site, part, Module::Route, &[d_gates, d_rows, gates], [d_norm, d_logits]);
        d_norm
    }

    /// Gradients of the experts' matrices, then of the router's and of the norm before it.
    pub(super) fn experts_backward_weight(&mut self, site: Site, part: &PartTables) {
        let arrived = self.exchanged(site, part, (Module::Dispatch, Way::Forward));
        let arrived = self.all_of(site, part, Way::Forward, arrived);
        let deferred = self.inside(site, part, Flow::Deferred, Module::Experts);
        let d_results = self.exchanged(site, part, (Module::Combine, Way::BackwardInput));
        let d_results = self.all_of(site, part, Way::BackwardInput, d_results);
        self.weight_gradient(site, part, Module::Experts, &[arrived, deferred, d_results]);
        let norm = self.norm_again(tensor_parallel::again(site), part, Module::Norm2);
        let d_logits = self.inside(site, part, Flow::Deferred, Module::Route);
        self.weight_gradient(site, part, Module::Route, &[norm, d_logits]);
        let kept = self.inside(site, part, Flow::Deferred, Module::Norm2);
        self.weight_gradient(site, part, Module::Norm2, &[kept]);
    }

    /// What has arrived at all ranks that share the experts' matrices: rows, or gradients of results.
    fn gathered(&mut self, site: Site, part: &PartTables, way: Way, arrived: BufferId) -> BufferId {
        let to = self.all_of(site, part, way, arrived);
        if to != arrived {
            self.gather_to(site, part, (Module::Experts, way), (arrived, to));
        }
        to
    }

    /// The sum of what the slices of the experts made: of all rows, or of those that the rank's own tokens sent.
    fn left(&mut self, site: Site, part: &PartTables, way: Way, value: BufferId) -> BufferId {
        let to = tensor_parallel::shares_tokens(self.training).then(|| {
            let (flow, module) = Self::left_at(way);
            self.inside(site, part, flow, module)
        });
        self.leave(site, part, (Module::Experts, way), value, to)
    }

    fn left_at(way: Way) -> (Flow, Module) {
        if way == Way::BackwardInput { (Flow::TokensGradient, Module::Route) } else { (Flow::Tokens, Module::Combine) }
    }

    /// Where that is put: nowhere else, if all of them have all tokens.
    fn all_of(&mut self, site: Site, part: &PartTables, way: Way, arrived: BufferId) -> BufferId {
        match way {
            _ if !tensor_parallel::shares_tokens(self.training) => arrived,
            Way::BackwardInput => self.inside(site, part, Flow::TokensGradient, Module::Combine),
            _ => self.inside(site, part, Flow::Tokens, Module::Route),
        }
    }

    fn backward_op(&mut self, site: Site, part: &PartTables, module: Module, values: &[BufferId], writes: [BufferId; 2]) {
        let tables = part.module(module);
        self.operands(values, &tables.weights[site.home]);
        self.run(site, self.passes(site, tables).backward_input, &writes);
    }

    /// Sends `value` where it belongs: rows to the experts, or back to the tokens. Alone, it is there already.
    fn exchange(&mut self, site: Site, part: &PartTables, at: (Module, Way), value: BufferId) -> BufferId {
        let to = self.exchanged(site, part, at);
        let all = self.training.expert_group(self.training.folding.unfold(site.rank, 0));
        let slot = site.origin.slot.map_or(0, |slot| slot.micro_batch % self.training.pieces());
        let circle = Circle {
            kind: "ep",
            number: Training::expert_group_number,
            micro_batch: site.origin.step * self.training.pieces() + slot,
            all,
        };
        let share = Share::new(self.training, 0);
        let elements = share.tokens() * share.experts.top_k * self.training.model.hidden;
        let bytes = Bytes(elements as u64 * self.training.precision.parameter.size());
        self.meet_in(circle, (site, part, at), (CollectiveKind::AllToAll, bytes), (value, to));
        to
    }

    /// Where what is sent at a module arrives.
    fn exchanged(&mut self, site: Site, part: &PartTables, (module, way): (Module, Way)) -> BufferId {
        let (is_backward, to_tokens) = (way == Way::BackwardInput, (module == Module::Dispatch) == (way == Way::BackwardInput));
        let travelling = if module == Module::Dispatch { Module::Dispatch } else { Module::Experts };
        let (made, met) = if is_backward { (Flow::OutputGradient, Flow::TokensGradient) } else { (Flow::Output, Flow::Tokens) };
        let (flow, module) = match () {
            () if self.training.expert > 1 => (met, travelling),
            // What stays where it is stands where it was made.
            () if to_tokens && tensor_parallel::shares_tokens(self.training) => Self::left_at(way),
            () => (made, travelling),
        };
        self.inside(site, part, flow, module)
    }
}
