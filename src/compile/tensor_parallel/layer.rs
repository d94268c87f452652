//! One layer, module by module: which op reads what another wrote, and where the ranks meet.

use crate::base::module::Module;
use crate::base::settings::{AttentionTensor, Bias, Recompute};
use crate::base::split::Seam;
use crate::base::{BufferId, KernelId};
use crate::compile::lower::{Flows, Site, Walk};
use crate::compile::stages::PartTables;
use crate::program::{Flow, Inside, Origin, PassName};

use super::layouts::is_nothing;
use super::meeting::Way;

impl Walk<'_> {
    /// Forward through a layer.
    pub(super) fn layer_forward(&mut self, site: Site, part: &PartTables) {
        self.layer_outputs(site, part, Way::Forward);
    }

    /// Backward for the input, with what has to be computed again before it.
    pub(super) fn layer_backward_input(&mut self, site: Site, part: &PartTables) {
        match self.training.recomputes(part.part) {
            Recompute::Full => self.layer_outputs(again(site), part, Way::Again),
            Recompute::Selective => self.attention_again(again(site), part),
            Recompute::None => {}
        }
        let way = Way::BackwardInput;
        let d_y = self.buffer(site, Flows::ActivationGradient, part.place, part);
        let d_sum = self.before_dropout(site, part, Module::Add2, d_y);
        let d_norm = if self.training.model.has_experts() {
            self.experts_backward_input(site, part, d_sum)
        } else {
            let hidden = self.joined(site, part, (Module::Up, Way::Forward));
            let d_fed = self.enter(site, part, (Module::Down, way), d_sum);
            let d_hidden = self.input_gradient(site, part, Module::Down, &[d_fed, hidden], Module::Up);
            let d_hidden = self.join(site, part, (Module::Up, way), d_hidden);
            let d_norm = self.input_gradient(site, part, Module::Up, &[d_hidden], Module::Norm2);
            self.join(site, part, (Module::Norm2, way), d_norm)
        };
        let d_middle = self.input_gradient(site, part, Module::Norm2, &[d_norm, d_y], Module::Add1);

        let d_sum = self.before_dropout(site, part, Module::Add1, d_middle);
        let d_projected = self.enter(site, part, (Module::Projection, way), d_sum);
        let d_qkv = if super::shares_sequences(self.training) {
            let d_attended = self.attention_buffer(site, part, AttentionTensor::OutputGradient);
            self.module_backward_input(site, part, Module::Projection, &[d_projected], d_attended);
            self.attention_back(site, part)
        } else {
            let [qkv, attended] = [Module::Qkv, Module::Attention].map(|module| self.inside(site, part, Flow::Output, module));
            let d_attended = self.input_gradient(site, part, Module::Projection, &[d_projected], Module::Attention);
            vec![self.input_gradient(site, part, Module::Attention, &[d_attended, qkv, attended], Module::Qkv)]
        };
        let d_norm = self.input_gradient(site, part, Module::Qkv, &d_qkv, Module::Norm1);
        let d_norm = self.join(site, part, (Module::Norm1, way), d_norm);
        let d_x = self.buffer(site, Flows::ActivationGradient, part.place - 1, part);
        self.module_backward_input(site, part, Module::Norm1, &[d_norm, d_middle], d_x);
    }

    /// Backward for the weights, from the layer's end to its beginning.
    pub(super) fn layer_backward_weight(&mut self, site: Site, part: &PartTables) {
        let d_y = self.buffer(site, Flows::ActivationGradient, part.place, part);
        let d_middle = self.inside(site, part, Flow::OutputGradient, Module::Add1);
        for (add, last, first, norm, d_sum) in [
            (Module::Add2, Module::Down, Module::Up, Module::Norm2, d_y),
            (Module::Add1, Module::Projection, Module::Qkv, Module::Norm1, d_middle),
        ] {
            let d_sum = if self.drops() { self.inside(site, part, Flow::Deferred, add) } else { d_sum };
            self.weight_gradient(site, part, add, &[d_sum]);
            if last == Module::Down && self.training.model.has_experts() {
                self.experts_backward_weight(site, part);
                continue;
            }
            let input = match last {
                Module::Down => self.kept(site, part, Flow::Deferred, last).or_else(|| self.kept(site, part, Flow::Saved, last)),
                _ => None,
            };
            let input = input.unwrap_or_else(|| self.attended(site, part));
            let d_last =
                if super::shares_tokens(self.training) { self.inside(site, part, Flow::TokensGradient, last) } else { d_sum };
            let mut values = vec![input, d_last];
            if self.adds_bias_between(last) {
                values.push(self.joined(site, part, (first, Way::BackwardInput)));
            }
            self.weight_gradient(site, part, last, &values);
            self.behind_norm(site, part, norm, first);
        }
    }

    /// Whether `module` is the feed-forward's second product, and adds the bias of the first, behind a sum of that.
    fn adds_bias_between(&self, module: Module) -> bool {
        let is_behind_sum = self.training.split().behind(Module::Up) == Seam::Sum;
        module == Module::Down && is_behind_sum && self.training.model.bias != Bias::None && !self.program.setting.bias_before_sum
    }

    /// Backward for the weights of a norm and of the product behind it. The norm's output is made again: it costs
    /// a multiplication, and where tokens are shared out, a gather.
    pub(super) fn behind_norm(&mut self, site: Site, part: &PartTables, norm: Module, first: Module) {
        let input = self.norm_again(again(site), part, norm);
        let input = self.enter(again(site), part, (norm, Way::BackwardWeight), input);
        let mut values = vec![input];
        if first == Module::Qkv && super::shares_sequences(self.training) {
            values.extend(
                [AttentionTensor::QueryGradient, AttentionTensor::KeyValueGradient]
                    .map(|tensor| self.attention_buffer(site, part, tensor)),
            );
        } else {
            values.push(match first {
                Module::Logits => self.inside(site, part, Flow::Saved, Module::Loss),
                _ => self.joined(site, part, (first, Way::BackwardInput)),
            });
        }
        self.weight_gradient(site, part, first, &values);
        let kept = self.inside(site, part, Flow::Deferred, norm);
        self.weight_gradient(site, part, norm, &[kept]);
    }

    /// All outputs of a layer's modules.
    fn layer_outputs(&mut self, site: Site, part: &PartTables, way: Way) {
        let x = self.buffer(site, Flows::Activation, part.place - 1, part);
        let attended = self.half(site, part, way, x, &[Module::Norm1, Module::Qkv, Module::Attention, Module::Projection]);
        let middle = self.inside(site, part, Flow::Output, Module::Add1);
        self.module_forward(site, part, (Module::Add1, way), &[x, attended], middle);
        let fed = if self.training.model.has_experts() {
            self.experts_forward(site, part, way, middle)
        } else {
            self.half(site, part, way, middle, &[Module::Norm2, Module::Up, Module::Down])
        };
        // Backward needs all but the layer's own output.
        if way == Way::Forward {
            let y = self.buffer(site, Flows::Activation, part.place, part);
            self.module_forward(site, part, (Module::Add2, way), &[middle, fed], y);
        } else if let Some(mask) = self.kept(site, part, Flow::Saved, Module::Add2) {
            self.operands(&[middle], &[]);
            self.run(site, self.passes(site, part.module(Module::Add2)).again, &[mask]);
        }
    }

    /// Half a layer: a norm, from which all tokens enter, and modules that leave each rank a part of what the next one needs, or nothing to ask for.
    fn half(&mut self, site: Site, part: &PartTables, way: Way, first: BufferId, modules: &[Module]) -> BufferId {
        let mut value = first;
        for &module in modules {
            if super::shares_sequences(self.training) && matches!(module, Module::Qkv | Module::Attention) {
                value = self.attention_by_blocks(site, part, (module, way), value);
                continue;
            }
            let output = self.inside(site, part, Flow::Output, module);
            self.module_forward(site, part, (module, way), &[value], output);
            let at = (module, way);
            value = if module.is_norm() { self.enter(site, part, at, output) } else { self.join(site, part, at, output) };
        }
        value
    }

    pub(in crate::compile) fn module_forward(
        &mut self,
        site: Site,
        part: &PartTables,
        (module, way): (Module, Way),
        values: &[BufferId],
        output: BufferId,
    ) {
        let tables = part.module(module);
        self.operands(values, &tables.weights[site.home]);
        let recompute = self.training.recomputes(part.part);
        let is_forgotten = way == Way::Forward
            && (recompute == Recompute::Full || (recompute == Recompute::Selective && module == Module::Attention));
        let saved = self.kept(site, part, Flow::Saved, module).filter(|_| !is_forgotten);
        let kernel = if way == Way::Again { self.passes(site, tables).again } else { self.passes(site, tables).forward };
        self.write(site, kernel, output, saved);
    }

    /// Whether elements are dropped on their way.
    pub(super) fn drops(&self) -> bool {
        self.training.model.dropout > 0.0
    }

    /// The gradient of what stands before the dropout of `module`, from that of what stands behind it.
    pub(super) fn before_dropout(&mut self, site: Site, part: &PartTables, module: Module, behind: BufferId) -> BufferId {
        if !self.drops() {
            return behind;
        }
        let (mask, before) = (self.inside(site, part, Flow::Saved, module), self.inside(site, part, Flow::Deferred, module));
        self.operands(&[behind, mask], &[]);
        self.run(site, self.passes(site, part.module(module)).backward_input, &[before]);
        before
    }

    /// What attention made.
    fn attended(&mut self, site: Site, part: &PartTables) -> BufferId {
        if super::shares_sequences(self.training) {
            self.attention_buffer(site, part, AttentionTensor::Output)
        } else {
            self.inside(site, part, Flow::Output, Module::Attention)
        }
    }

    /// What attention did not save, from its input.
    fn attention_again(&mut self, site: Site, part: &PartTables) {
        let Some(saved) = self.kept(site, part, Flow::Saved, Module::Attention) else { return };
        let qkv = self.inside(site, part, Flow::Output, Module::Qkv);
        self.operands(&[qkv], &[]);
        self.run(site, self.passes(site, part.module(Module::Attention)).again, &[saved]);
    }

    /// A norm's output, from what it saved.
    pub(in crate::compile) fn norm_again(&mut self, site: Site, part: &PartTables, norm: Module) -> BufferId {
        let tables = part.module(norm);
        let saved = self.inside(site, part, Flow::Saved, norm);
        let output = self.inside(site, part, Flow::Output, norm);
        self.operands(&[saved], &tables.weights[site.home]);
        self.run(site, self.passes(site, tables).again, &[output]);
        output
    }

    /// Backward for the input of `module`, which is the output of the module `before`.
    pub(super) fn input_gradient(
        &mut self,
        site: Site,
        part: &PartTables,
        module: Module,
        values: &[BufferId],
        before: Module,
    ) -> BufferId {
        let gradient = self.inside(site, part, Flow::OutputGradient, before);
        self.module_backward_input(site, part, module, values, gradient);
        gradient
    }

    pub(super) fn module_backward_input(
        &mut self,
        site: Site,
        part: &PartTables,
        module: Module,
        values: &[BufferId],
        gradient: BufferId,
    ) {
        let tables = part.module(module);
        let saved = match module {
            // The gradient of a sum passes its mask on the way to the product; the activation's own is made from its input.
            Module::Projection | Module::Down if self.drops() => None,
            Module::Projection => self.kept(site, part, Flow::Saved, Module::Add1),
            Module::Down => self.kept(site, part, Flow::Saved, Module::Add2),
            // Its gradient stands where the logits did.
            Module::Logits => None,
            module => self.kept(site, part, Flow::Saved, module),
        };
        self.operands(values, &[]);
        self.reads.extend(saved);
        self.reads.extend_from_slice(&tables.weights[site.home]);
        let deferred = self.kept(site, part, Flow::Deferred, module);
        self.write(site, self.passes(site, tables).backward_input, gradient, deferred);
    }

    pub(in crate::compile) fn weight_gradient(&mut self, site: Site, part: &PartTables, module: Module, values: &[BufferId]) {
        let tables = part.module(module);
        let gradients = &tables.gradients[site.home];
        if gradients.is_empty() {
            return;
        }
        self.operands(values, gradients);
        self.run(site, self.passes(site, tables).backward_weight, gradients);
    }

    pub(in crate::compile) fn operands(&mut self, values: &[BufferId], parameters: &[BufferId]) {
        self.reads.clear();
        self.reads.extend_from_slice(values);
        self.reads.extend_from_slice(parameters);
    }

    pub(in crate::compile) fn write(&mut self, site: Site, kernel: KernelId, first: BufferId, second: Option<BufferId>) {
        match second {
            Some(second) => self.run(site, kernel, &[first, second]),
            None => self.run(site, kernel, &[first]),
        }
    }

    /// What a module keeps, if it keeps anything.
    pub(super) fn kept(&mut self, site: Site, part: &PartTables, flow: Flow, module: Module) -> Option<BufferId> {
        let layout = self.stages.inside[site.kind][&Inside { flow, module }];
        (!is_nothing(self.program, layout)).then(|| self.inside(site, part, flow, module))
    }

    pub(in crate::compile) fn inside(&mut self, site: Site, part: &PartTables, flow: Flow, module: Module) -> BufferId {
        self.buffer(site, Flows::Inside(Inside { flow, module }), part.place, part)
    }
}

/// The same place, for ops that compute again.
pub(in crate::compile) fn again(site: Site) -> Site {
    Site { origin: Origin { pass: PassName::Recompute, ..site.origin }, ..site }
}
