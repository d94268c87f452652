//! Experts inside a training step: the operands of their modules' ops.
//!
//! | module | forward | I | W |
//! |---|---|---|---|
//! | router | x -> gates, auxiliary loss | d gates, d rows, gates -> dx, d logits | x, d logits |
//! | dispatch | x -> rows | | |
//! | experts | rows -> results (and kept) | d results, kept -> d rows (and deferred) | rows, deferred, d results |
//! | combine | gates, results -> y | dy, gates, results -> d results, d gates | |
//!
//! Behind these values stand the parameters. The gates are the router's probabilities; rows and results are a tensor for each expert, and
//! where ranks share out the experts, of each of them.

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
        let layer = self.mixture()?;
        let h = layer.dims.model.hidden;
        match module {
            Module::Route => {
                let (k, routing) = (layer.group.top_k, layer.routing(self));
                let gates = experts::route_as(&tokens(&self.tensor(0)?, h)?, &self.tensor(1)?, k, &routing.chosen)?;
                let statistics = experts::statistics(&gates, &routing.chosen)?;
                let [loss, _] = experts::balance(&[statistics], layer.group.auxiliary, layer.group.tokens)?;
                Ok(vec![one(gates), one(loss)])
            }
            Module::Dispatch => {
                let (x, routing) = (tokens(&self.tensor(0)?, h)?, layer.routing(self));
                let rows = |expert| experts::gather(&x, layer.group.top_k, routing.rows(0, expert));
                Ok(vec![Value::Cpu((0..layer.group.count).map(rows).collect::<Result<Vec<_>>>()?.into())])
            }
            Module::Experts => {
                let (results, kept) = layer.experts(self).forward(&self.bundle(0)?, &self.rest(1)?)?;
                Ok([results, kept].map(|parts| Value::Cpu(parts.into())).into())
            }
            Module::Combine => {
                let (gates, parts, routing) = (self.tensor(0)?, self.bundle(1)?, layer.routing(self));
                let rows = Rows { parts: &parts, of: &places(&routing, layer.group.count) };
                let output = experts::combine(&gates, &routing.chosen, rows, h)?;
                Ok(vec![one(output.reshape(layer.dims.stream())?)])
            }
            other => bail!("{other} is no module of experts"),
        }
    }

    /// The gradients of what came in, and what W needs.
    pub(super) fn experts_backward_input(&self, module: Module) -> Result<Vec<Value>> {
        let layer = self.mixture()?;
        let h = layer.dims.model.hidden;
        match module {
            Module::Combine => {
                let (gradient, gates, parts) = (tokens(&self.tensor(0)?, h)?, self.tensor(1)?, self.bundle(2)?);
                let routing = layer.routing(self);
                let rows = Rows { parts: &parts, of: &places(&routing, layer.group.count) };
                let [by_place, of_gates] = experts::combine_backward(&gates, &routing.chosen, rows, &gradient)?;
                let rows = |expert| experts::gather(&by_place, 1, routing.rows(0, expert));
                let of_results = (0..layer.group.count).map(rows).collect::<Result<Vec<_>>>()?;
                Ok(vec![Value::Cpu(of_results.into()), one(of_gates)])
            }
            Module::Experts => {
                let (of_rows, deferred) =
                    layer.experts(self).backward_input(&self.bundle(0)?, &self.bundle(1)?, &self.rest(2)?)?;
                Ok([of_rows, deferred].map(|parts| Value::Cpu(parts.into())).into())
            }
            Module::Route => {
                let (of_gates, parts, gates, router) = (self.tensor(0)?, self.bundle(1)?, self.tensor(2)?, self.tensor(3)?);
                let routing = layer.routing(self);
                let statistics = experts::statistics(&gates, &routing.chosen)?;
                let [_, shares] = experts::balance(&[statistics], layer.group.auxiliary, layer.group.tokens)?;
                #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
                let auxiliary = layer.group.auxiliary / layer.group.tokens as f64;
                let chosen = &routing.chosen;
                let found = Routed { probabilities: &gates, chosen, gates: &of_gates, shares: &shares, auxiliary };
                let of_logits = experts::logit_gradient(found)?;
                let rows = Rows { parts: &parts, of: &places(&routing, layer.group.count) };
                let gradient = experts::token_gradient(&router, &of_logits, chosen, rows)?;
                Ok(vec![one(gradient.reshape(layer.dims.stream())?), one(of_logits)])
            }
            other => bail!("{other} is no module of experts with a gradient of its own"),
        }
    }

    /// The gradients of the parameters, added to those so far.
    pub(super) fn experts_backward_weight(&self, module: Module) -> Result<Vec<Value>> {
        let layer = self.mixture()?;
        let values = self.op.reads.len().saturating_sub(self.op.writes.len());
        let earlier = self.earlier(values)?;
        let gradients = match module {
            Module::Route => {
                let x = tokens(&self.tensor(0)?, layer.dims.model.hidden)?;
                mixture::router_weight(&layer.dims, &x, &self.tensor(1)?, earlier.as_deref())?
            }
            Module::Experts => {
                let own = self.op.writes.len() / Mixture::matrices(layer.dims.model.activation);
                let (rows, deferred, gradients) = (self.bundle(0)?, self.bundle(1)?, self.bundle(2)?);
                layer.experts(self).backward_weight(&rows, (&deferred, &gradients), (own, earlier.as_deref()))?
            }
            other => bail!("{other} has no parameters"),
        };
        Ok(gradients.into_iter().map(one).collect())
    }

    fn mixture(&self) -> Result<Layer> {
        let dims = self.dims()?;
        let Some(experts) = &dims.model.experts else { bail!("a module of experts in a model without any") };
        if let Some(flaw) = dims.model.flaw() {
            bail!("{flaw}");
        }
        let group = experts.group(&dims.model, dims.micro_batch_size * dims.model.sequence, self.setting().seed);
        Ok(Layer { dims, group })
    }
}

/// The experts of a layer, and the tokens of the op's micro-batch.
struct Layer {
    dims: cpu::Dims,
    group: Group,
}

impl Layer {
    /// Where the tokens go.
    fn routing(&self, operands: &Operands) -> Routing {
        let layer = match operands.program.kernel_of(operands.op.id).and_then(|kernel| kernel.words().1) {
            Some(Part::Module(layer, _)) => layer,
            _ => 0,
        };
        let place = (operands.setting().seed, layer, operands.piece().micro_batch);
        let experts = self.dims.model.experts.as_ref();
        experts
            .map_or_else(|| Routing::planned(&self.group), |experts| experts.routing(&self.dims.model, self.group.tokens, place))
    }

    fn experts(&self, operands: &Operands) -> Experts<'_> {
        Experts { dims: &self.dims, split: operands.setting().tensor.split(operands.op.rank) }
    }
}

/// By place, the part that has its row, and which row; none where the expert has no room for the token.
fn places(routing: &Routing, count: usize) -> Vec<Option<(usize, usize)>> {
    let mut places = vec![None; routing.chosen.len()];
    for expert in 0..count {
        for (row, &place) in routing.rows(0, expert).iter().enumerate() {
            places[place as usize] = Some((expert, row));
        }
    }
    places
}

/// A stream as a row for each token.
fn tokens(stream: &Tensor, width: usize) -> Result<Tensor> {
    stream.reshape(((), width))
}
