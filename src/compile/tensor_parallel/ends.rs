//! The model's ends on ranks that share the vocabulary: the embedding, and the head with the loss. And the door to all parts that are cut.

use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::settings::Positions;
use crate::compile::lower::{Flows, Site, Walk};
use crate::compile::stages::PartTables;
use crate::program::{Flow, Name, Role};

use super::meeting::Way;

impl Walk<'_> {
    /// Forward through a part, module by module.
    pub(in crate::compile) fn modules_forward(&mut self, site: Site, part: &PartTables) {
        match part.part {
            Part::Embedding => self.embedding_forward(site, part),
            Part::Head => self.head_forward(site, part),
            Part::Block(_) | Part::Module(..) => self.layer_forward(site, part),
        }
    }

    /// Backward for a part's input.
    pub(in crate::compile) fn modules_backward_input(&mut self, site: Site, part: &PartTables) {
        match part.part {
            // Nothing stands before the embedding.
            Part::Embedding => {}
            Part::Head => self.head_backward_input(site, part),
            Part::Block(_) | Part::Module(..) => self.layer_backward_input(site, part),
        }
    }

    /// Backward for a part's weights.
    pub(in crate::compile) fn modules_backward_weight(&mut self, site: Site, part: &PartTables) {
        match part.part {
            Part::Embedding => self.embedding_backward_weight(site, part),
            Part::Head => self.behind_norm(site, part, Module::FinalNorm, Module::Logits),
            Part::Block(_) | Part::Module(..) => self.layer_backward_weight(site, part),
        }
    }

    fn embedding_forward(&mut self, site: Site, part: &PartTables) {
        self.reads.clear();
        let tokens = self.load(site, Flows::Tokens, part, self.stages.load_tokens);
        let output = self.buffer(site, Flows::Activation, part.place, part);
        let has_positions = self.adds_positions();
        // Without positions the sum is the embedding.
        let is_in_place = !has_positions && !super::shares_tokens(self.training);
        let looked_up = if is_in_place { output } else { self.inside(site, part, Flow::Output, Module::Tokens) };
        self.module_forward(site, part, (Module::Tokens, Way::Forward), &[tokens], looked_up);
        let to = (!has_positions).then_some(output);
        let sum = self.leave(site, part, (Module::Tokens, Way::Forward), looked_up, to);
        if has_positions {
            self.module_forward(site, part, (Module::Positions, Way::Forward), &[sum], output);
        }
    }

    fn embedding_backward_weight(&mut self, site: Site, part: &PartTables) {
        let tokens = self.buffer(site, Flows::Tokens, part.place, part);
        let gradient = self.buffer(site, Flows::ActivationGradient, part.place, part);
        let gradient = self.before_dropout(site, part, Module::Positions, gradient);
        self.weight_gradient(site, part, Module::Positions, &[gradient]);
        let gradient = self.enter(site, part, (Module::Tokens, Way::BackwardInput), gradient);
        self.weight_gradient(site, part, Module::Tokens, &[tokens, gradient]);
    }

    /// Whether anything is done to the embedded tokens: positions are added, or elements dropped.
    fn adds_positions(&self) -> bool {
        self.training.model.positions == Positions::Learned || self.drops()
    }

    fn head_forward(&mut self, site: Site, part: &PartTables) {
        self.reads.clear();
        let targets = self.load(site, Flows::Targets, part, self.stages.load_targets);
        let x = self.buffer(site, Flows::Activation, part.place - 1, part);
        let norm = self.inside(site, part, Flow::Output, Module::FinalNorm);
        self.module_forward(site, part, (Module::FinalNorm, Way::Forward), &[x], norm);
        let norm = self.enter(site, part, (Module::FinalNorm, Way::Forward), norm);
        let told = self.inside(site, part, Flow::Output, Module::Logits);
        self.module_forward(site, part, (Module::Logits, Way::Forward), &[norm, targets], told);
        let told = self.gather(site, part, (Module::Logits, Way::Forward), told);
        let logits = self.inside(site, part, Flow::Saved, Module::Logits);
        let loss = self.program.buffer(site.rank, Name::Loss(site.global), Role::Scratch, self.stages.loss);
        self.module_forward(site, part, (Module::Loss, Way::Forward), &[told, logits, targets], loss);
    }

    fn head_backward_input(&mut self, site: Site, part: &PartTables) {
        let d_logits = self.inside(site, part, Flow::Saved, Module::Loss);
        let d_norm = self.input_gradient(site, part, Module::Logits, &[d_logits], Module::FinalNorm);
        let d_norm = self.leave(site, part, (Module::FinalNorm, Way::BackwardInput), d_norm, None);
        let d_x = self.buffer(site, Flows::ActivationGradient, part.place - 1, part);
        self.module_backward_input(site, part, Module::FinalNorm, &[d_norm], d_x);
    }
}
