//! Context parallelism inside a training step: every rank has a slice of each sequence, and attention goes by blocks of keys and values
//! that come from the others. All else works token by token, on the rank's own.
//!
//! The ranks see different data, so their gradients are summed like replicas'.

use crate::base::BufferId;
use crate::base::context::{Attention, HeadShare};
use crate::base::mesh::Axis;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::settings::{AttentionTensor, ContextMethod};
use crate::scenario::Training;

use super::layer::{Work, all_gather, ring, ulysses};
use super::lower::{Site, Walk};
use super::stages::PartTables;
use super::tensor_parallel::Way;

/// The attention of one layer on ranks with slices of the sequences; `None` where ranks have all of them.
pub(super) fn attention(training: &Training) -> Option<Attention> {
    let (model, tensor) = (&training.model, training.mesh.size(Axis::Tensor));
    let slices = training.mesh.size(Axis::Context);
    (slices > 1).then(|| Attention {
        batch: training.batch.micro_batch_size,
        sequence: model.sequence,
        heads: model.heads / tensor,
        kv_heads: (model.kv_heads / tensor).max(1),
        head_size: model.head_size(),
        causal: true,
        slices,
        placement: training.context_parallel.placement,
        sharpness: 1.0,
        bug: None,
    })
}

impl Walk<'_> {
    /// Forward through the making of q, k and v, or through attention.
    pub(super) fn attention_by_blocks(
        &mut self,
        site: Site,
        part: &PartTables,
        (module, way): (Module, Way),
        value: BufferId,
    ) -> BufferId {
        if module == Module::Attention {
            self.attend(site, part);
            return self.attention_buffer(site, part, AttentionTensor::Output);
        }
        let [q, kv] = [AttentionTensor::Query, AttentionTensor::KeyValue].map(|tensor| self.attention_buffer(site, part, tensor));
        let tables = part.module(module);
        self.operands(&[value], &tables.weights[site.home]);
        let passes = self.passes(site, tables);
        self.run(site, if way == Way::Again { passes.again } else { passes.forward }, &[q, kv]);
        q
    }

    fn attend(&mut self, site: Site, part: &PartTables) {
        let (place, method) = (self.slice(site), self.training.context_parallel.method);
        let mut work = self.blocks(site, part);
        match method {
            ContextMethod::AllGather => all_gather::forward(&mut work, place),
            ContextMethod::Ring => {
                let mut hops = ring::Hops::new(&work, place);
                ring::forward(&mut work, &mut hops);
            }
            ContextMethod::Ulysses => ulysses::forward(&mut Work { share: HeadShare::One, ..work }, place),
        }
    }

    /// Backward through attention: the gradients of q, and of k and v.
    pub(super) fn attention_back(&mut self, site: Site, part: &PartTables) -> Vec<BufferId> {
        let (place, method) = (self.slice(site), self.training.context_parallel.method);
        let mut work = self.blocks(site, part);
        match method {
            ContextMethod::AllGather => all_gather::backward(&mut work, place),
            ContextMethod::Ring => {
                let mut hops = ring::Hops::new(&work, place);
                ring::backward(&mut work, &mut hops);
            }
            ContextMethod::Ulysses => ulysses::backward(&mut Work { share: HeadShare::One, ..work }, place),
        }
        vec![
            self.attention_buffer(site, part, AttentionTensor::QueryGradient),
            self.attention_buffer(site, part, AttentionTensor::KeyValueGradient),
        ]
    }

    /// The rank's own slice of a tensor of attention.
    pub(super) fn attention_buffer(&mut self, site: Site, part: &PartTables, tensor: AttentionTensor) -> BufferId {
        let place = self.slice(site);
        self.blocks(site, part).buffer(place, tensor, place)
    }

    fn slice(&self, site: Site) -> usize {
        self.training.mesh.coordinate(self.training.folding.unfold(site.rank, 0), Axis::Context)
    }

    /// The attention of the layer and micro-batch at work.
    fn blocks(&mut self, site: Site, part: &PartTables) -> Work<'_> {
        let Training { mesh, folding, .. } = self.training;
        let slices = mesh.group(folding.unfold(site.rank, 0), Axis::Context).into_iter();
        let ranks = slices.map(|rank| folding.fold(rank).0).collect();
        let attention = self.program.setting.attention.expect("ranks have slices of sequences");
        let layer = if let Part::Block(layer) = part.part { layer } else { 0 };
        Work {
            program: &mut *self.program,
            stock: &mut *self.stock,
            attention,
            ranks,
            of: Some((layer, site.global)),
            origin: site.origin,
            share: HeadShare::All,
        }
    }
}
