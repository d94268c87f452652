//! Experts inside a training step: the operands of their modules' ops.
//!
//! | module | forward | I | W |
//! |---|---|---|---|
//! | router | x -> gates, auxiliary loss | d gates, d rows, gates -> dx, d logits | x, d logits |
//! | dispatch | x -> rows | | |
//! | experts | rows -> results (and kept) | d results, kept -> d rows (and deferred) | rows, deferred, d results |
//! | combine | gates, results -> y | dy, gates, results -> d results, d gates | |
//!
//! Behind these values stand the parameters. The gates are the router's probabilities; rows and results are a tensor for each expert and
//! group of tokens, and where ranks share out the experts, of each of them.

use std::ops::Range;

use candle_core::{Result, Tensor, bail};

use super::cpu::experts::{self, Routed, Rows};
use super::cpu::mixture::{self, Experts};
use super::{Operands, cpu, one};
use crate::base::experts::Experts as Group;
use crate::base::mixture::Mixture;
use crate::base::model::Part;
use crate::base::module::Module;
use crate::base::routing::Routing;
use crate::engine::value::Value;

impl Operands<'_> {
    /// Output, and what stands beside it.
    pub(super) fn experts_forward(&self, module: Module) -> Result<Vec<Value>> {
        let dims = self.dims()?;
        if module == Module::Experts {
            let (results, kept) = self.own_experts(&dims).forward(&self.bundle(0)?, &self.rest(1)?)?;
            return Ok([results, kept].map(|parts| Value::Cpu(parts.into())).into());
        }
        let h = dims.model.hidden;
        match module {
            Module::Route => {
                let x = tokens(&self.tensor(0)?, h)?;
                let layer = self.routed(&dims, x.dims()[0])?;
                let chosen = &layer.routing.chosen;
                let gates = experts::route_as(&x, &self.tensor(1)?, layer.group.top_k, chosen)?;
                let statistics = experts::statistics(&gates, chosen)?;
                let [loss, _] = experts::balance(&[statistics], layer.auxiliary(), x.dims()[0])?;
                Ok(vec![one(gates), one(loss)])
            }
            Module::Dispatch => {
                let x = tokens(&self.tensor(0)?, h)?;
                let layer = self.routed(&dims, x.dims()[0])?;
                Ok(vec![layer.rows(|places| experts::gather(&x, layer.group.top_k, places))?])
            }
            Module::Combine => {
                let (gates, parts) = (self.tensor(0)?, self.bundle(1)?);
                let layer = self.routed(&dims, gates.dims()[0])?;
                let rows = Rows { parts: &parts, of: &layer.places() };
                let output = experts::combine(&gates, &layer.routing.chosen, rows, h)?;
                Ok(vec![one(self.as_written(&output)?)])
            }
            other => bail!("{other} is no module of experts"),
        }
    }

    /// The gradients of what came in, and what W needs.
    pub(super) fn experts_backward_input(&self, module: Module) -> Result<Vec<Value>> {
        let dims = self.dims()?;
        match module {
            Module::Combine => {
                let (gradient, gates, parts) = (tokens(&self.tensor(0)?, dims.model.hidden)?, self.tensor(1)?, self.bundle(2)?);
                let layer = self.routed(&dims, gates.dims()[0])?;
                let rows = Rows { parts: &parts, of: &layer.places() };
                let [by_place, of_gates] = experts::combine_backward(&gates, &layer.routing.chosen, rows, &gradient)?;
                Ok(vec![layer.rows(|places| experts::gather(&by_place, 1, places))?, one(of_gates)])
            }
            Module::Experts => {
                let (gradients, kept, matrices) = (self.bundle(0)?, self.bundle(1)?, self.rest(2)?);
                let (of_rows, deferred) = self.own_experts(&dims).backward_input(&gradients, &kept, &matrices)?;
                Ok([of_rows, deferred].map(|parts| Value::Cpu(parts.into())).into())
            }
            Module::Route => {
                let (of_gates, parts, gates, router) = (self.tensor(0)?, self.bundle(1)?, self.tensor(2)?, self.tensor(3)?);
                let (layer, t) = (self.routed(&dims, gates.dims()[0])?, gates.dims()[0]);
                let chosen = &layer.routing.chosen;
                let [_, shares] = experts::balance(&[experts::statistics(&gates, chosen)?], layer.auxiliary(), t)?;
                #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
                let auxiliary = layer.auxiliary() / t as f64;
                let found = Routed { probabilities: &gates, chosen, gates: &of_gates, shares: &shares, auxiliary };
                let of_logits = experts::logit_gradient(found)?;
                let rows = Rows { parts: &parts, of: &layer.places() };
                let gradient = experts::token_gradient(&router, &of_logits, chosen, rows)?;
                Ok(vec![one(self.as_written(&gradient)?), one(of_logits)])
            }
            other => bail!("{other} is no module of experts with a gradient of its own"),
        }
    }

    /// The gradients of the parameters, added to those so far.
    pub(super) fn experts_backward_weight(&self, module: Module) -> Result<Vec<Value>> {
        let dims = self.dims()?;
        let values = self.op.reads.len().saturating_sub(self.op.writes.len());
        let earlier = self.earlier(values)?;
        let gradients = match module {
            Module::Route => {
                let x = tokens(&self.tensor(0)?, dims.model.hidden)?;
                mixture::router_weight(&dims, &x, &self.tensor(1)?, earlier.as_deref())?
            }
            Module::Experts => {
                let own = self.op.writes.len() / Mixture::matrices(dims.model.activation);
                let (rows, deferred, gradients) = (self.bundle(0)?, self.bundle(1)?, self.bundle(2)?);
                self.own_experts(&dims).backward_weight(&rows, (&deferred, &gradients), (own, earlier.as_deref()))?
            }
            other => bail!("{other} has no parameters"),
        };
        Ok(gradients.into_iter().map(one).collect())
    }

    fn own_experts<'d>(&self, dims: &'d cpu::Dims) -> Experts<'d> {
        Experts { dims, split: self.setting().split(self.op.rank) }
    }

    /// Where so many tokens go: all of the op's micro-batch, or the rank's own.
    fn routed(&self, dims: &cpu::Dims, tokens: usize) -> Result<Layer> {
        let Some(experts) = &dims.model.experts else { bail!("a module of experts in a model without any") };
        if let Some(flaw) = dims.model.flaw() {
            bail!("{flaw}");
        }
        let (setting, groups, size) = (self.setting(), experts.groups, dims.micro_batch_size);
        let (each, count) = (experts.group_tokens(&dims.model, size), groups.count());
        let own = if tokens < each * count { setting.own_group(self.op.rank, groups) } else { 0 };
        let is_whole = tokens > 0 && (tokens == each || tokens == each * count);
        if !is_whole || own >= count || !groups.fit((size, dims.model.sequence)) {
            bail!("{tokens} tokens are neither one of {count} groups of {each} nor all of them");
        }
        let layer = match self.program.kernel_of(self.op.id).and_then(|kernel| kernel.words().1) {
            Some(Part::Module(layer, _)) => layer,
            _ => 0,
        };
        let place = (setting.seed, layer, self.piece().micro_batch);
        let routing = experts.routing(&dims.model, size, place, own..own + tokens / each);
        Ok(Layer {
            group: experts.group(&dims.model, each, 0),
            own: 0..tokens / each,
            of: count / setting.context.ranks,
            routing,
        })
    }

    /// Rows in the shape of what is written first.
    fn as_written(&self, rows: &Tensor) -> Result<Tensor> {
        match self.op.writes.first().and_then(|&buffer| self.layout(buffer).parts.first()) {
            Some(part) => rows.reshape(part.dims.as_slice()),
            None => bail!("nothing is written"),
        }
    }
}

/// The experts of a layer, and where the tokens that an op works on go.
struct Layer {
    /// One group of tokens.
    group: Group,
    /// The groups that the op works on, counted from its first.
    own: Range<usize>,
    /// Groups of those sequences, or slices of them, whose loss the rank takes the mean of.
    of: usize,
    routing: Routing,
}

impl Layer {
    /// What the auxiliary loss of these tokens is multiplied by: it is a mean over groups.
    #[expect(clippy::cast_precision_loss, reason = "numbers of groups")]
    fn auxiliary(&self) -> f64 {
        self.group.auxiliary * self.own.len() as f64 / self.of as f64
    }

    /// Group by group, a part for each expert, of the places that it takes.
    fn rows(&self, part: impl Fn(&[u32]) -> Result<Tensor>) -> Result<Value> {
        let of_group = |group: usize| (0..self.group.count).map(move |expert| (group, expert));
        let places = self.own.clone().flat_map(of_group).map(|(group, expert)| part(self.routing.rows(group, expert)));
        Ok(Value::Cpu(places.collect::<Result<Vec<_>>>()?.into()))
    }

    /// By place, the part that has its row, and which row; none where the expert has no room for the token.
    fn places(&self) -> Vec<Option<(usize, usize)>> {
        let mut places = vec![None; self.routing.chosen.len()];
        for part in 0..self.own.len() * self.group.count {
            let taken = self.routing.rows(part / self.group.count, part % self.group.count);
            for (row, &place) in taken.iter().enumerate() {
                places[place as usize] = Some((part, row));
            }
        }
        places
    }
}

/// A stream as a row for each token.
fn tokens(stream: &Tensor, width: usize) -> Result<Tensor> {
    stream.reshape(((), width))
}
