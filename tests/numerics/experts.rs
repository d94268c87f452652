//! A mixture of experts against a dense one by candle's autograd: every token through every expert, and masks in place of routes.
//!
//! The oracle knows the layer's given numbers alone. Which experts a token goes to, and who finds no room, it finds by itself.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use proptest::prelude::*;
use ranklab::base::BufferId;
use ranklab::base::experts::Experts;
use ranklab::base::model::Activation;
use ranklab::lab::Run;
use ranklab::scenario::Task;

use crate::support::run;

/// Output, auxiliary loss, and the gradients of tokens, router and experts, over all ranks.
struct Dense {
    output: Vec<f64>,
    auxiliary: f64,
    tokens: Vec<f64>,
    router: Vec<f64>,
    experts: Vec<f64>,
}

fn variable(dims: (usize, usize), value: impl Fn(usize, usize) -> f64) -> Result<Var> {
    let values: Vec<f64> = (0..dims.0).flat_map(|i| (0..dims.1).map(move |j| (i, j))).map(|(i, j)| value(i, j)).collect();
    Var::from_tensor(&Tensor::from_vec(values, dims, &Device::Cpu)?)
}

/// The same in the precision in which a run of f32 is given it.
fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.flatten_all().and_then(|flat| flat.to_vec1::<f64>()).expect("numbers")
}

/// By token, its experts in the order of their logits.
fn chosen(logits: &Tensor, k: usize) -> Vec<Vec<usize>> {
    let rows = logits.to_vec2::<f64>().expect("numbers");
    let best = |row: &Vec<f64>| {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        order.truncate(k);
        order
    };
    rows.iter().map(best).collect()
}

/// The masks `[n,e]` of what is chosen, and of what is chosen and finds room: first choices before second ones, group by group.
fn masks(layer: &Experts, chosen: &[Vec<usize>]) -> [Vec<f64>; 2] {
    let e = layer.count;
    let [mut wanted, mut kept] = [vec![0.0; chosen.len() * e], vec![0.0; chosen.len() * e]];
    for group in 0..layer.groups {
        let mut room = vec![layer.capacity().unwrap_or(usize::MAX); e];
        let tokens = group * layer.tokens..(group + 1) * layer.tokens;
        for (token, expert) in (0..layer.top_k).flat_map(|choice| tokens.clone().map(move |token| (token, chosen[token][choice])))
        {
            wanted[token * e + expert] = 1.0;
            if room[expert] > 0 {
                room[expert] -= 1;
                kept[token * e + expert] = 1.0;
            }
        }
    }
    [wanted, kept]
}

impl Dense {
    fn of(layer: &Experts, given: &[Vec<u32>]) -> Result<Self> {
        let (n, e, h) = (layer.all_tokens(), layer.count, layer.hidden);
        let x = variable((n, h), |token, column| layer.input(token, &given[token], column))?;
        let router = variable((e, h), |expert, column| layer.router(expert, column))?;
        let matrix = |expert, is_second| {
            let dims = if is_second { (h, layer.ffn) } else { (layer.inner(), h) };
            variable(dims, |row, column| layer.weight(expert, is_second, row, column))
        };
        let experts = (0..e).map(|expert| Ok([matrix(expert, false)?, matrix(expert, true)?])).collect::<Result<Vec<_>>>()?;
        let gradient = variable((n, h), |token, column| layer.output_gradient(token, column))?;

        let logits = x.matmul(&router.t()?)?;
        let exponentials = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?.exp()?;
        let probabilities = exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?;
        let [wanted, kept] = masks(layer, &chosen(&logits, layer.top_k)).map(|mask| Tensor::from_vec(mask, (n, e), &Device::Cpu));
        let weights = (&probabilities * kept?)?;
        let mut output = gradient.zeros_like()?;
        for (expert, [fc1, fc2]) in experts.iter().enumerate() {
            let hidden = x.matmul(&fc1.t()?)?;
            let activated = match layer.activation {
                Activation::Gelu => {
                    let cubic = ((&hidden * 0.044_715)? * hidden.sqr()?)?;
                    let inner = ((&hidden + cubic)? * (2.0 / std::f64::consts::PI).sqrt())?;
                    ((&hidden * 0.5)? * (inner.tanh()? + 1.0)?)?
                }
                Activation::Swiglu => {
                    let (gate, up) = (hidden.narrow(1, 0, layer.ffn)?, hidden.narrow(1, layer.ffn, layer.ffn)?);
                    ((&gate / (gate.neg()?.exp()? + 1.0)?)? * up)?
                }
            };
            let y = activated.matmul(&fc2.t()?)?;
            output = (output + y.broadcast_mul(&weights.narrow(1, expert, 1)?)?)?;
        }
        let shares = (wanted?.sum(0)? / (n * layer.top_k) as f64)?;
        let auxiliary = ((shares * probabilities.mean(0)?)?.sum_all()? * (layer.auxiliary * e as f64))?;
        let store = ((&output * gradient.as_tensor())?.sum_all()? + &auxiliary)?.backward()?;
        let of = |variable: &Var| flat(store.get(variable).expect("a gradient"));
        Ok(Self {
            output: flat(&output),
            auxiliary: auxiliary.to_scalar()?,
            tokens: of(&x),
            router: of(&router),
            experts: experts.iter().flatten().flat_map(of).collect(),
        })
    }
}

/// The elements of a tensor of all ranks, rank by rank.
fn by_rank(run: &Run, prefix: &str) -> Vec<Vec<f64>> {
    let program = run.session.program();
    let ids = (0..program.buffers.len()).map(BufferId::new);
    let mut found: Vec<(u32, Vec<f64>)> = ids
        .filter(|id| {
            let buffer = &program.buffers[id.index()];
            buffer.name.to_string() == format!("{prefix}{}", buffer.rank.0)
        })
        .map(|id| {
            let value = run.session.value(id).expect("values").elements().expect("readable");
            (program.buffers[id.index()].rank.0, value.unwrap_or_default())
        })
        .collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, values)| values).collect()
}

/// Fails where `own` is farther from `dense` than `bound` times its largest element.
fn check(what: &str, own: &[f64], dense: &[f64], bound: f64) {
    assert_eq!(own.len(), dense.len(), "{what}");
    let largest = dense.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    let off = own.iter().zip(dense).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off <= bound * largest, "{what} is off by {off:e} of {largest}");
}

/// Runs a layer and holds it against the dense one.
fn holds(text: &str, bound: f64) -> Run {
    let run = run(text);
    let Task::Experts(layer) = &run.scenario.task else { panic!("experts") };
    let given: Vec<Vec<u32>> =
        ranklab::base::routing::Routing::planned(layer).chosen.chunks(layer.top_k).map(<[u32]>::to_vec).collect();
    let dense = Dense::of(layer, &given).expect("a dense layer");
    check("out", &by_rank(&run, "tokout").concat(), &dense.output, bound);
    check("d tokens", &by_rank(&run, "dtokin").concat(), &dense.tokens, bound);
    check("d experts", &by_rank(&run, "dexperts").concat(), &dense.experts, bound);
    for (rank, router) in by_rank(&run, "drouter").iter().enumerate() {
        check(&format!("d router of r{rank}"), router, &dense.router, bound);
    }
    for balance in by_rank(&run, "balance") {
        check("auxiliary loss", &balance[..1], &[dense.auxiliary], bound);
    }
    run
}

fn layer(ranks: usize, rest: &str) -> String {
    format!(
        "[layer]\nkind = \"experts\"\n[model]\nhidden = 9\nffn = 7\nsequence = 11\n[parallel]\nexpert = {ranks}\n\
         [numerics]\ndtype = \"f64\"\n[experts]\n{rest}\n"
    )
}

#[test]
fn a_layer_over_ranks_is_a_dense_one() {
    for ranks in [1, 2, 3, 4, 8] {
        for (k, rest) in [(1, "skew = 1.3"), (2, ""), (3, "skew = 0.7\nauxiliary = 3.5")] {
            let text = layer(ranks, &format!("count = {}\ntop_k = {k}\n{rest}", ranks * (1 + 4 / ranks)));
            holds(&text, 1e-12);
        }
    }
}

/// Some experts are never chosen, and one rank has nothing to do.
#[test]
fn idle_experts_have_gradients_of_zeros() {
    let run = holds(&layer(4, "count = 8\ntop_k = 1\nloads = [9, 0, 3, 4, 0, 0, 1, 2]"), 1e-12);
    assert!(by_rank(&run, "dexperts")[2].iter().all(|&x| x == 0.0));
}

#[test]
fn dropped_tokens_come_back_without_their_experts() {
    for factor in [0.5, 1.0, 1.25] {
        let run = holds(&layer(3, &format!("count = 6\ncapacity_factor = {factor}\nskew = 1.0")), 1e-12);
        assert!(matches!(run.verdict.name(), "equal" | "expected-drift"), "one device drops the same: {:?}", run.verdict);
    }
}

#[test]
fn swiglu_experts_are_dense_ones_too() {
    let text = layer(3, "count = 6\nskew = 0.5").replace("ffn = 7", "ffn = 7\nactivation = \"swiglu\"");
    holds(&text, 1e-12);
}

/// In f32 the given numbers are rounded; so is all that follows.
#[test]
fn single_precision_is_near() {
    for ranks in [1, 3] {
        let run = holds(&layer(ranks, "count = 6\nskew = 0.5").replace("f64", "f32"), 1e-5);
        assert!(matches!(run.verdict.name(), "equal" | "expected-drift"), "{:?}", run.verdict);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_layer_is_a_dense_one(
        ranks in prop::sample::select(vec![1usize, 2, 3, 5]),
        (own, k, tokens, wider, ffn) in (1..4usize, 1..4usize, 1..13usize, 0..6usize, 1..9usize),
        (skew, factor) in (0.0..3.0f64, prop::sample::select(vec![0.0, 0.4, 1.0, 1.7])),
        swiglu: bool,
        seed in 0..1000u32,
    ) {
        let count = ranks * own;
        let k = k.min(count);
        let activation = if swiglu { "swiglu" } else { "gelu" };
        holds(&format!(
            "seed = {seed}\n[layer]\nkind = \"experts\"\n[model]\nhidden = {}\nffn = {ffn}\nactivation = \"{activation}\"\n\
             sequence = {tokens}\n[parallel]\nexpert = {ranks}\n[numerics]\ndtype = \"f64\"\n\
             [experts]\ncount = {count}\ntop_k = {k}\nskew = {skew}\ncapacity_factor = {factor}\n",
            count + wider
        ), 1e-11);
    }
}

/// What rounding could decide is no choice.
#[test]
fn a_router_without_a_margin_is_refused() -> Result<()> {
    use ranklab::engine::kernels::cpu::experts::route;
    let x = Tensor::new(&[[1.0, 0.5], [0.3, 0.2]], &Device::Cpu)?;
    let router = Tensor::new(&[[1.0, 0.0], [1.0, 1e-5], [0.0, 1.0]], &Device::Cpu)?;
    let error = route(&x, &router, 1).expect_err("refused").to_string();
    assert!(error.contains("token 0"), "{error}");
    assert_eq!(route(&x, &router, 2)?.1, [1, 0, 1, 0]);
    let (nan, single) = ((&x * f64::NAN)?, router.to_dtype(DType::F32)?);
    assert!(route(&nan, &router, 1).is_err());
    assert!(route(&x, &single, 1).is_err());
    assert!(route(&x, &router, 4).is_err());
    Ok(())
}
