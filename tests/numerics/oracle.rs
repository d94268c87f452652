//! The same model composed of plain candle operations, for candle's autograd. It shares no code with the kernels.

use std::collections::BTreeMap;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use ranklab::base::model::{Activation, Model, Norm, Positions};

use super::cases::Outcome;

/// Loss and gradients by candle's autograd, with the elements dropped that the masks name.
pub fn run(
    model: &Model,
    values: &BTreeMap<String, Tensor>,
    masks: &BTreeMap<String, Tensor>,
    tokens: &Tensor,
    targets: &Tensor,
) -> Result<Outcome> {
    run_routed(model, values, (masks, &[]), tokens, targets)
}

/// Where the tokens of a micro-batch go in one layer.
pub struct Route {
    /// 1 where an expert takes a token `[tokens,experts]`.
    pub taken: Tensor,
    /// Each expert's share of all choices.
    pub shares: Vec<f64>,
}

/// The same of a model with experts: a token's route in each layer is given, the loss is that of the tokens.
pub fn run_routed(
    model: &Model,
    values: &BTreeMap<String, Tensor>,
    (masks, routes): (&BTreeMap<String, Tensor>, &[Route]),
    tokens: &Tensor,
    targets: &Tensor,
) -> Result<Outcome> {
    let variables: BTreeMap<&str, Var> =
        values.iter().map(|(name, value)| Ok((name.as_str(), Var::from_tensor(value)?))).collect::<Result<_>>()?;
    let net = Net {
        model,
        masks,
        routes,
        parameters: variables.iter().map(|(&name, variable)| (name, variable.as_tensor())).collect(),
    };
    let (loss, auxiliary) = net.loss(tokens, targets)?;
    let store = (&loss + auxiliary)?.backward()?;
    let gradient = |(&name, variable): (&&str, &Var)| {
        let gradient = store.get(variable).unwrap_or_else(|| panic!("{name} has no gradient in the oracle"));
        (name.to_owned(), gradient.clone())
    };
    Ok(Outcome { gradients: variables.iter().map(gradient).collect(), loss })
}

struct Net<'a> {
    model: &'a Model,
    masks: &'a BTreeMap<String, Tensor>,
    routes: &'a [Route],
    parameters: BTreeMap<&'a str, &'a Tensor>,
}

impl Net<'_> {
    /// The cross-entropy, and what auxiliary losses add to it.
    fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)> {
        let (b, t) = tokens.dims2()?;
        let table = self.parameters["embedding.tokens.weight"];
        let mut x = table.index_select(&tokens.flatten_all()?, 0)?.reshape((b, t, self.model.hidden))?;
        if self.model.positions == Positions::Learned {
            x = x.broadcast_add(self.parameters["embedding.positions.weight"])?;
        }
        x = self.drop(x, "embedding.embedding")?;
        let mut auxiliary = Tensor::zeros((), x.dtype(), &Device::Cpu)?;
        for layer in 0..self.model.layers {
            let block = format!("blocks.{layer}");
            let attended = self.attention(&self.norm(&x, &format!("{block}.norm1"))?, &block)?;
            x = (&x + self.drop(attended, &format!("{block}.attention"))?)?;
            let normed = self.norm(&x, &format!("{block}.norm2"))?;
            let fed = match self.routes.get(layer) {
                Some(route) => {
                    let (fed, loss) = self.experts(&normed, &block, route)?;
                    auxiliary = (auxiliary + loss)?;
                    fed
                }
                None => self.feed_forward(&normed, &format!("{block}.mlp"))?,
            };
            x = (&x + self.drop(fed, &format!("{block}.feed-forward"))?)?;
        }
        let x = self.norm(&x, "head.norm")?;
        let w = if self.model.tied { table } else { self.parameters["head.logits.weight"] };
        let logits = x.reshape((b * t, self.model.hidden))?.matmul(&w.t()?)?;
        let most = logits.max_keepdim(1)?.detach();
        let shifted = logits.broadcast_sub(&most)?;
        let log_total = shifted.exp()?.sum(1)?.log()?;
        let chosen = shifted.gather(&targets.flatten_all()?.unsqueeze(1)?, 1)?.squeeze(1)?;
        Ok(((log_total - chosen)?.mean_all()?, auxiliary))
    }

    /// Every expert on every token, of which only those count that it takes; and the auxiliary loss.
    fn experts(&self, x: &Tensor, block: &str, route: &Route) -> Result<(Tensor, Tensor)> {
        let mixture = self.model.experts.as_ref().expect("a model with experts");
        let (b, t, h) = x.dims3()?;
        let logits = self.linear(x, &format!("{block}.router"))?.reshape((b * t, mixture.count))?;
        let p = logits.broadcast_sub(&logits.max_keepdim(1)?.detach())?.exp()?;
        let p = p.broadcast_div(&p.sum_keepdim(1)?)?;
        let weights = (&p * &route.taken)?;
        let mut y = x.zeros_like()?;
        for expert in 0..mixture.count {
            let own = self.feed_forward(x, &format!("{block}.experts.{expert}"))?.reshape((b * t, h))?;
            y = (y + own.broadcast_mul(&weights.narrow(1, expert, 1)?)?.reshape((b, t, h))?)?;
        }
        let shares = Tensor::from_vec(route.shares.clone(), mixture.count, &Device::Cpu)?;
        let loss = ((p.mean(0)? * shares)?.sum_all()? * (mixture.auxiliary * mixture.count as f64))?;
        Ok((y, loss))
    }

    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let (b, t, inputs) = x.dims3()?;
        let w = self.parameters[format!("{name}.weight").as_str()];
        let y = x.reshape((b * t, inputs))?.matmul(&w.t()?)?.reshape((b, t, w.dim(0)?))?;
        self.parameters.get(format!("{name}.bias").as_str()).map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }

    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let x = match self.model.norm {
            Norm::Layer => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?,
            Norm::Rms => x.clone(),
        };
        let deviation = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
        let y = x.broadcast_div(&deviation)?.broadcast_mul(self.parameters[format!("{name}.weight").as_str()])?;
        self.parameters.get(format!("{name}.bias").as_str()).map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }

    /// x with elements dropped, and the others larger by as much.
    fn drop(&self, x: Tensor, place: &str) -> Result<Tensor> {
        let Some(mask) = self.masks.get(place) else { return Ok(x) };
        x * (mask.to_dtype(DType::F64)? / (1.0 - self.model.dropout))?
    }

    fn attention(&self, x: &Tensor, block: &str) -> Result<Tensor> {
        let name = format!("{block}.attn");
        let (b, t, h) = x.dims3()?;
        let (n, kv, d) = (self.model.heads, self.model.kv_heads, self.model.hidden / self.model.heads);
        let (q, k, v) = if self.model.fused_qkv {
            let qkv = self.linear(x, &format!("{name}.qkv"))?;
            (qkv.narrow(2, 0, n * d)?, qkv.narrow(2, n * d, kv * d)?, qkv.narrow(2, (n + kv) * d, kv * d)?)
        } else {
            let project = |which| self.linear(x, &format!("{name}.{which}"));
            (project("q")?, project("k")?, project("v")?)
        };
        let heads = |x: Tensor, n: usize| x.contiguous()?.reshape((b, t, n, d))?.transpose(1, 2)?.contiguous();
        let repeated = |x: Tensor| x.unsqueeze(2)?.broadcast_as((b, kv, n / kv, t, d))?.contiguous()?.reshape((b, n, t, d));
        let q = self.rotate(&heads(q, n)?)?;
        let k = repeated(self.rotate(&heads(k, kv)?)?)?;
        let v = repeated(heads(v, kv)?)?;
        let scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? / (d as f64).sqrt())?;
        let scores = scores.broadcast_add(&causal_mask(t, scores.dtype())?)?;
        let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?.exp()?;
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        let weights = self.drop(weights, &format!("{block}.softmax"))?;
        let mixed = weights.matmul(&v)?.transpose(1, 2)?.contiguous()?.reshape((b, t, h))?;
        self.linear(&mixed, &format!("{name}.proj"))
    }

    /// x `[b,n,t,d]` with each pair (i, i + d/2) turned by position / 10000^(2i/d), where positions are rotary.
    fn rotate(&self, x: &Tensor) -> Result<Tensor> {
        if self.model.positions != Positions::Rotary {
            return Ok(x.clone());
        }
        let (_, _, t, d) = x.dims4()?;
        let angles: Vec<f64> =
            (0..t).flat_map(|p| (0..d).map(move |i| p as f64 / 10_000f64.powf((2 * (i % (d / 2))) as f64 / d as f64))).collect();
        let angles = Tensor::from_vec(angles, (t, d), &Device::Cpu)?;
        let (cosines, sines) = (angles.cos()?.to_dtype(x.dtype())?, angles.sin()?.to_dtype(x.dtype())?);
        let turned = Tensor::cat(&[x.narrow(3, d / 2, d / 2)?.neg()?, x.narrow(3, 0, d / 2)?], 3)?;
        x.broadcast_mul(&cosines)? + turned.broadcast_mul(&sines)?
    }

    fn feed_forward(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        match self.model.activation {
            Activation::Gelu => {
                let x = self.linear(x, &format!("{name}.fc1"))?;
                let cubic = ((&x * 0.044_715)? * x.sqr()?)?;
                let inner = ((&x + cubic)? * (2.0 / std::f64::consts::PI).sqrt())?;
                let gelu = ((x * 0.5)? * (inner.tanh()? + 1.0)?)?;
                self.linear(&gelu, &format!("{name}.fc2"))
            }
            Activation::Swiglu => {
                let gate = self.linear(x, &format!("{name}.gate"))?;
                let silu = (&gate / (gate.neg()?.exp()? + 1.0)?)?;
                self.linear(&(silu * self.linear(x, &format!("{name}.up"))?)?, &format!("{name}.down"))
            }
        }
    }
}

/// `[t,t]`: 0 where a query may look, far below any score elsewhere.
fn causal_mask(t: usize, dtype: DType) -> Result<Tensor> {
    let mask: Vec<f64> = (0..t * t).map(|i| if i % t > i / t { -1e30 } else { 0.0 }).collect();
    Tensor::from_vec(mask, (t, t), &Device::Cpu)?.to_dtype(dtype)
}
