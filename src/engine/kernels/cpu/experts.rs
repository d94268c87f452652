//! A mixture of experts: the router, the experts, and how their rows are sorted and put together, forward and backward.
//!
//! A *place* is a token and one of its choices, `token * k + choice`. Shape letters beside the usual ones: e experts, k choices, n rows of
//! one expert. Sums over choices run in the order of the choices.

#![expect(clippy::many_single_char_names, reason = "shape letters")]

use candle_core::{Result, Tensor, bail};

use super::float::{Float, vectorised};
use super::linear::{self, Linear};
use super::memory::{Slice, filled, tensor};
use super::product::{Matrix, Output, Write, multiply};
use super::reduce::{ColumnSums, dot, exponentials, scale};
use super::{activation, by_dtype, check};
use crate::base::model::Activation;

/// Logits that are nearer to each other, relative to their size, may change places by rounding.
const MARGIN: f64 = 1e-3;

/// How far a choice that is known beforehand is moved before the next one, and before those that are not chosen: farther than logits lie
/// from each other.
const BIAS: f64 = 32.0;

/// Rows that came from several ranks: for every place, which of the parts has its row, and which row; none where the token was dropped.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Parts `[n,h]`.
    pub parts: &'a [Tensor],
    /// By place.
    pub of: &'a [Option<(usize, usize)>],
}

/// One expert's matrices: fc1 `[f,h]`, or gate and up `[2f,h]`; fc2 `[h,f]`.
#[derive(Clone, Copy)]
pub struct Matrices<'a> {
    /// The first.
    pub fc1: &'a Tensor,
    /// The second.
    pub fc2: &'a Tensor,
    /// What stands between them.
    pub activation: Activation,
}

/// The router: probabilities `[t,e]` of a softmax over x `[t,h]` times its rows `[e,h]`, and by place the expert.
///
/// # Errors
/// When shapes or types do not fit, and where rounding could decide which experts a token goes to.
pub fn route(x: &Tensor, router: &Tensor, k: usize) -> Result<(Tensor, Vec<u32>)> {
    let (t, h) = x.dims2()?;
    let (e, _) = router.dims2()?;
    check::shape("router", router, &[e, h])?;
    if k == 0 || k > e {
        bail!("{k} of {e} experts cannot be chosen");
    }
    by_dtype!(x, route_of(x, router, [t, e, k], None))
}

/// The same where a bias beside the logits makes the choices of every token known, `known` by place, while the probabilities are those of
/// the logits alone.
///
/// # Errors
/// As [`route`], and where the router chooses otherwise: its logits lie too far from each other.
pub fn route_as(x: &Tensor, router: &Tensor, k: usize, known: &[u32]) -> Result<Tensor> {
    let ((t, h), (e, _)) = (x.dims2()?, router.dims2()?);
    check::shape("router", router, &[e, h])?;
    if known.len() != t * k || known.iter().any(|&expert| expert as usize >= e) {
        bail!("{} choices are not those of {t} tokens among {e} experts", known.len());
    }
    let (probabilities, chosen) = by_dtype!(x, route_of(x, router, [t, e, k], Some(known)))?;
    match chosen.iter().zip(known).position(|(found, known)| found != known) {
        None => Ok(probabilities),
        Some(place) => bail!("token {} goes to expert {}, not to {}", place / k.max(1), chosen[place], known[place]),
    }
}

fn route_of<T: Float>(x: &Tensor, router: &Tensor, [t, e, k]: [usize; 3], known: Option<&[u32]>) -> Result<(Tensor, Vec<u32>)> {
    let (x, weights) = (Slice::<T>::of(x)?, [Slice::<T>::of(router)?]);
    let layer = Linear { weight: 0, bias: None, inputs: x.len() / t.max(1), outputs: e };
    let mut logits = linear::forward(&[layer], &weights, &x, None);
    let mut chosen = Vec::with_capacity(t * k);
    for (token, row) in logits.chunks_exact(e).enumerate() {
        let Some(known) = known else {
            choose(token, row, k, &mut chosen)?;
            continue;
        };
        let mut biased = row.to_vec();
        for (steps, &expert) in (1..).zip(known[token * k..][..k].iter().rev()) {
            biased[expert as usize] += T::of(BIAS * f64::from(steps));
        }
        choose(token, &biased, k, &mut chosen)?;
    }
    vectorised!(for row in logits.chunks_exact_mut(e) {
        let (_, total) = exponentials(row);
        scale(row, T::one() / total);
    });
    Ok((tensor(logits, &[t, e])?, chosen))
}

/// The largest `k` of a token's logits, the largest first; of equal ones the first.
fn choose<T: Float>(token: usize, logits: &[T], k: usize, chosen: &mut Vec<u32>) -> Result<()> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].to_f64().total_cmp(&logits[a].to_f64()).then(a.cmp(&b)));
    if let Some(&next) = order.get(k) {
        let [last, next] = [order[k - 1], next].map(|expert| logits[expert].to_f64());
        // Written so that a NaN is no margin.
        let is_clear = last - next > MARGIN * (1.0 + last.abs());
        if !is_clear {
            bail!("token {token} has logits of {last} and {next} where it chooses: rounding could decide");
        }
    }
    chosen.extend(order[..k].iter().map(|&expert| u32::try_from(expert).unwrap_or(u32::MAX)));
    Ok(())
}

/// A rank's statistics `[2,e]`: how often each expert was chosen, and the sum of its probabilities.
///
/// # Errors
/// When the dtype is neither f32 nor f64.
pub fn statistics(probabilities: &Tensor, chosen: &[u32]) -> Result<Tensor> {
    by_dtype!(probabilities, statistics_of(probabilities, chosen))
}

fn statistics_of<T: Float>(probabilities: &Tensor, chosen: &[u32]) -> Result<Tensor> {
    let e = probabilities.dim(1)?;
    let probabilities = Slice::<T>::of(probabilities)?;
    let mut sums = ColumnSums::new(e);
    vectorised!(for row in probabilities.chunks_exact(e) {
        sums.add(row);
    });
    let mut values = vec![T::zero(); e];
    for &expert in chosen {
        values[expert as usize] += T::one();
    }
    values.extend(sums.total());
    tensor(values, &[2, e])
}

/// The auxiliary loss `factor * e * sum of (share of choices x mean probability)`, and the shares `[e]`, from the statistics of all ranks.
/// Source: Fedus et al. 2021, "Switch transformers", arXiv 2101.03961, equations 4 to 6.
///
/// # Errors
/// When shapes or types do not fit.
pub fn balance(statistics: &[Tensor], factor: f64, tokens: usize) -> Result<[Tensor; 2]> {
    let Some(first) = statistics.first() else { bail!("no statistics") };
    let (_, e) = first.dims2()?;
    check::shapes("statistics", statistics, statistics.iter().map(|_| [2, e]))?;
    by_dtype!(first, balance_of(statistics, factor, tokens, e))
}

#[expect(clippy::cast_precision_loss, reason = "numbers of tokens and experts")]
fn balance_of<T: Float>(statistics: &[Tensor], factor: f64, tokens: usize, e: usize) -> Result<[Tensor; 2]> {
    let statistics = Slice::<T>::all(statistics)?;
    let mut sums = vec![T::zero(); 2 * e];
    for own in &statistics {
        sums.iter_mut().zip(own.iter()).for_each(|(sum, &x)| *sum += x);
    }
    let (choices, probabilities) = sums.split_at(e);
    let all: f64 = choices.iter().map(|x| x.to_f64()).sum();
    let shares: Vec<T> = choices.iter().map(|x| T::of(x.to_f64() / all.max(1.0))).collect();
    let product = shares.iter().zip(probabilities).map(|(f, p)| f.to_f64() * p.to_f64() / tokens.max(1) as f64).sum::<f64>();
    Ok([tensor(vec![T::of(factor * e as f64 * product)], &[1])?, tensor(shares, &[e])?])
}

/// The tokens of these places, a row each `[n,h]`.
///
/// # Errors
/// When the dtype is neither f32 nor f64, or there is no such token.
pub fn gather(x: &Tensor, k: usize, places: &[u32]) -> Result<Tensor> {
    by_dtype!(x, gather_of(x, k, places))
}

fn gather_of<T: Float>(x: &Tensor, k: usize, places: &[u32]) -> Result<Tensor> {
    let (t, h) = x.dims2()?;
    let x = Slice::<T>::of(x)?;
    let mut rows = Vec::with_capacity(places.len() * h);
    for &place in places {
        let token = place as usize / k;
        if token >= t {
            bail!("there is no token {token} among {t}");
        }
        rows.extend_from_slice(&x[token * h..][..h]);
    }
    tensor(rows, &[places.len(), h])
}

/// An expert on rows from several ranks: its results part by part, and what its first matrix made of all rows `[n,inner]`.
///
/// # Errors
/// When shapes or types do not fit.
pub fn forward(matrices: Matrices, parts: &[Tensor]) -> Result<(Vec<Tensor>, Tensor)> {
    matrices.check(parts)?;
    by_dtype!(matrices.fc1, forward_of(matrices, parts))
}

/// Its gradients: of the rows part by part, and of its two matrices, from the rows, what forward kept, and the gradient of the results.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    matrices: Matrices,
    parts: &[Tensor],
    hidden: &Tensor,
    gradients: &[Tensor],
) -> Result<(Vec<Tensor>, [Tensor; 2])> {
    matrices.check(parts)?;
    check::shapes("gradients of an expert's results", gradients, parts.iter().map(Tensor::dims))?;
    let n: usize = parts.iter().map(|part| part.dims()[0]).sum();
    check::shape("hidden rows", hidden, &[n, matrices.fc1.dims()[0]])?;
    by_dtype!(matrices.fc1, backward_of(matrices, parts, hidden, gradients))
}

impl Matrices<'_> {
    /// The layers as indices: fc1, fc2.
    fn layers(self) -> [Linear; 2] {
        let layer = |weight, matrix: &Tensor| Linear { weight, bias: None, inputs: matrix.dims()[1], outputs: matrix.dims()[0] };
        [layer(0, self.fc1), layer(1, self.fc2)]
    }

    fn check(self, parts: &[Tensor]) -> Result<()> {
        let ((inner, h), (out, f)) = (self.fc1.dims2()?, self.fc2.dims2()?);
        let factor = if self.activation == Activation::Swiglu { 2 } else { 1 };
        if inner != factor * f || out != h || h == 0 || f == 0 {
            bail!("matrices of {inner} x {h} and {out} x {f} are no expert with {}", self.activation);
        }
        for part in parts {
            let (n, _) = part.dims2()?;
            check::shape("rows of an expert", part, &[n, h])?;
        }
        Ok(())
    }
}

fn forward_of<T: Float>(matrices: Matrices, parts: &[Tensor]) -> Result<(Vec<Tensor>, Tensor)> {
    let [first, second] = matrices.layers();
    let weights = [Slice::<T>::of(matrices.fc1)?, Slice::<T>::of(matrices.fc2)?];
    let x = joined::<T>(parts)?;
    let hidden = linear::forward(&[first], &weights, &x, None);
    let activated = activation::forward(matrices.activation, second.inputs, &hidden);
    let y = linear::forward(&[second], &weights, &activated, None);
    Ok((cut(&y, parts)?, tensor(hidden, &[x.len() / first.inputs, first.outputs])?))
}

fn backward_of<T: Float>(
    matrices: Matrices,
    parts: &[Tensor],
    hidden: &Tensor,
    gradients: &[Tensor],
) -> Result<(Vec<Tensor>, [Tensor; 2])> {
    let [first, second] = matrices.layers();
    let weights = [Slice::<T>::of(matrices.fc1)?, Slice::<T>::of(matrices.fc2)?];
    let (x, d_y, hidden) = (joined::<T>(parts)?, joined::<T>(gradients)?, Slice::<T>::of(hidden)?);
    let d_activated = linear::backward_input(&[second], &weights, &d_y);
    let [d_hidden, activated] = activation::backward(matrices.activation, second.inputs, &hidden, &d_activated);
    let d_x = linear::backward_input(&[first], &weights, &d_hidden);
    let d_fc1 = tensor(outer(&d_hidden, first.outputs, &x, first.inputs), matrices.fc1.dims())?;
    let d_fc2 = tensor(outer(&d_y, second.outputs, &activated, second.inputs), matrices.fc2.dims())?;
    Ok((cut(&d_x, parts)?, [d_fc1, d_fc2]))
}

/// a^T b of rows of so many columns: zeros without rows.
fn outer<T: Float>(a: &[T], rows: usize, b: &[T], columns: usize) -> Vec<T> {
    if a.is_empty() {
        return vec![T::zero(); rows * columns];
    }
    let [out] = filled([rows * columns], |[out]| {
        let (a, b) = (Matrix::packed(a, rows), Matrix::packed(b, columns));
        multiply(Output::strided(out, rows, columns, columns), Write::New, T::one(), a.transposed(), b);
    });
    out
}

/// The rows of all parts behind each other.
fn joined<T: Float>(parts: &[Tensor]) -> Result<Vec<T>> {
    Ok(Slice::<T>::all(parts)?.iter().flat_map(|part| part.iter().copied()).collect())
}

/// Rows cut into parts of the shapes of `like`.
fn cut<T: Float>(mut values: &[T], like: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut cut = |part: &Tensor| {
        let (own, rest) = values.split_at(part.elem_count());
        values = rest;
        tensor(own.to_vec(), part.dims())
    };
    like.iter().map(&mut cut).collect()
}

/// The output `[t,h]`: of every token the rows of its experts, weighted by its probabilities `[t,e]`.
///
/// # Errors
/// When shapes or types do not fit.
pub fn combine(probabilities: &Tensor, chosen: &[u32], rows: Rows, h: usize) -> Result<Tensor> {
    by_dtype!(probabilities, combine_of(probabilities, chosen, rows, h))
}

fn combine_of<T: Float>(probabilities: &Tensor, chosen: &[u32], rows: Rows, h: usize) -> Result<Tensor> {
    let (t, e) = probabilities.dims2()?;
    let (probabilities, parts) = (Slice::<T>::of(probabilities)?, Slice::<T>::all(rows.parts)?);
    let k = chosen.len() / t.max(1);
    let mut output = vec![T::zero(); t * h];
    for (place, &expert) in chosen.iter().enumerate() {
        let Some(row) = row_of(rows, &parts, place, h)? else { continue };
        let (token, p) = (place / k, probabilities[place / k * e + expert as usize]);
        for (sum, &y) in output[token * h..][..h].iter_mut().zip(row) {
            *sum = p.mul_add(y, *sum);
        }
    }
    tensor(output, &[t, h])
}

/// Its gradients: by place those of the rows `[t*k,h]`, and of the probabilities that they were weighted by `[t,k]`, from the gradient of the
/// output. A dropped place has zeros.
///
/// # Errors
/// When shapes or types do not fit.
pub fn combine_backward(probabilities: &Tensor, chosen: &[u32], rows: Rows, gradient: &Tensor) -> Result<[Tensor; 2]> {
    by_dtype!(probabilities, combine_backward_of(probabilities, chosen, rows, gradient))
}

fn combine_backward_of<T: Float>(probabilities: &Tensor, chosen: &[u32], rows: Rows, gradient: &Tensor) -> Result<[Tensor; 2]> {
    let ((t, e), (_, h)) = (probabilities.dims2()?, gradient.dims2()?);
    check::shape("gradient of the output", gradient, &[t, h])?;
    let (probabilities, parts) = (Slice::<T>::of(probabilities)?, Slice::<T>::all(rows.parts)?);
    let gradient = Slice::<T>::of(gradient)?;
    let k = chosen.len() / t.max(1);
    let (mut of_rows, mut of_gates) = (vec![T::zero(); chosen.len() * h], vec![T::zero(); chosen.len()]);
    for (place, &expert) in chosen.iter().enumerate() {
        let Some(row) = row_of(rows, &parts, place, h)? else { continue };
        let (p, d_out) = (probabilities[place / k * e + expert as usize], &gradient[place / k * h..][..h]);
        of_rows[place * h..][..h].iter_mut().zip(d_out).for_each(|(d_row, &d)| *d_row = p * d);
        vectorised!(of_gates[place] = dot(d_out, row));
    }
    Ok([tensor(of_rows, &[chosen.len(), h])?, tensor(of_gates, &[t, k])?])
}

/// The row of a place among what came from all ranks; `None` where the token was dropped.
fn row_of<'a, T: Float>(rows: Rows, parts: &'a [Slice<T>], place: usize, h: usize) -> Result<Option<&'a [T]>> {
    let Some((part, row)) = rows.of.get(place).copied().flatten() else { return Ok(None) };
    match parts.get(part).and_then(|part| part.get(row * h..(row + 1) * h)) {
        Some(row) => Ok(Some(row)),
        None => bail!("there is no row {row} in part {part} for place {place}"),
    }
}

/// What the router's backward pass takes beside its input and matrix.
#[derive(Clone, Copy)]
pub struct Routed<'a> {
    /// The softmax `[t,e]`.
    pub probabilities: &'a Tensor,
    /// By place, the expert.
    pub chosen: &'a [u32],
    /// The gradient of the chosen probabilities `[t,k]`.
    pub gates: &'a Tensor,
    /// Each expert's share of all choices `[e]`.
    pub shares: &'a Tensor,
    /// What the auxiliary loss is multiplied by, over all tokens.
    pub auxiliary: f64,
}

/// The gradients of the tokens `[t,h]` and of the router's matrix `[e,h]`: what came back from the experts, and through the softmax.
///
/// # Errors
/// When shapes or types do not fit.
pub fn route_backward(x: &Tensor, router: &Tensor, found: Routed, rows: Rows) -> Result<[Tensor; 2]> {
    let ((t, h), (e, _)) = (x.dims2()?, router.dims2()?);
    check::shape("probabilities", found.probabilities, &[t, e])?;
    check::shape("shares", found.shares, &[e])?;
    check::shape("gradient of the gates", found.gates, &[t, found.chosen.len() / t.max(1)])?;
    check::shape("router", router, &[e, h])?;
    let d_logits = logit_gradient(found)?;
    let d_x = token_gradient(router, &d_logits, found.chosen, rows)?;
    Ok([d_x, by_dtype!(x, router_gradient_of(x, &d_logits))?])
}

fn router_gradient_of<T: Float>(x: &Tensor, d_logits: &Tensor) -> Result<Tensor> {
    let ((_, h), (_, e)) = (x.dims2()?, d_logits.dims2()?);
    tensor(outer(&Slice::<T>::of(d_logits)?, e, &Slice::<T>::of(x)?, h), &[e, h])
}

/// The gradient of the router's logits `[t,e]`, through the softmax.
///
/// # Errors
/// When shapes or types do not fit.
pub fn logit_gradient(found: Routed) -> Result<Tensor> {
    let (t, e) = found.probabilities.dims2()?;
    check::shape("shares", found.shares, &[e])?;
    check::shape("gradient of the gates", found.gates, &[t, found.chosen.len() / t.max(1)])?;
    by_dtype!(found.probabilities, logit_gradient_of(found))
}

#[expect(clippy::cast_precision_loss, reason = "a number of experts")]
fn logit_gradient_of<T: Float>(found: Routed) -> Result<Tensor> {
    let (t, e) = found.probabilities.dims2()?;
    let k = found.chosen.len() / t.max(1);
    let (p, gates) = (Slice::<T>::of(found.probabilities)?, Slice::<T>::of(found.gates)?);
    let shares = Slice::<T>::of(found.shares)?;
    let auxiliary: Vec<T> = shares.iter().map(|f| T::of(found.auxiliary * e as f64 * f.to_f64())).collect();
    let mut d_logits = Vec::with_capacity(t * e);
    for (token, p) in p.chunks_exact(e).enumerate() {
        let mut d_p = auxiliary.clone();
        for place in token * k..(token + 1) * k {
            d_p[found.chosen[place] as usize] += gates[place];
        }
        let mut mean = T::zero();
        vectorised!(mean = dot(p, &d_p));
        d_logits.extend(p.iter().zip(&d_p).map(|(&p, &d)| p * (d - mean)));
    }
    tensor(d_logits, &[t, e])
}

/// The gradient of the tokens `[t,h]`: through the router, and what came back from the experts.
///
/// # Errors
/// When shapes or types do not fit.
pub fn token_gradient(router: &Tensor, d_logits: &Tensor, chosen: &[u32], rows: Rows) -> Result<Tensor> {
    let (e, _) = router.dims2()?;
    let (t, _) = d_logits.dims2()?;
    check::shape("gradient of the logits", d_logits, &[t, e])?;
    by_dtype!(d_logits, token_gradient_of(router, d_logits, chosen, rows))
}

fn token_gradient_of<T: Float>(router: &Tensor, d_logits: &Tensor, chosen: &[u32], rows: Rows) -> Result<Tensor> {
    let ((t, e), (_, h)) = (d_logits.dims2()?, router.dims2()?);
    let k = chosen.len() / t.max(1);
    let (weights, parts) = ([Slice::<T>::of(router)?], Slice::<T>::all(rows.parts)?);
    let layer = Linear { weight: 0, bias: None, inputs: h, outputs: e };
    let mut d_x = linear::backward_input(&[layer], &weights, &Slice::<T>::of(d_logits)?);
    for place in 0..chosen.len() {
        if let Some(row) = row_of(rows, &parts, place, h)? {
            d_x[place / k * h..][..h].iter_mut().zip(row).for_each(|(sum, &d)| *sum += d);
        }
    }
    tensor(d_x, &[t, h])
}
