//! Blockwise attention against plain attention by candle's autograd, over all placements of a sequence on ranks.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use proptest::prelude::*;
use ranklab::base::settings::Placement;
use ranklab::engine::kernels::cpu::flash::{self, Block, Drops, Mask, MergeRule, Outcome, State};

use super::cases::{distance, elements};

/// One attention layer: q, k, v and the gradient of the output, `[b,t,n,d]` or `[b,t,kv,d]`.
struct Case {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gradient: Tensor,
    causal: bool,
    /// How much of the weights is dropped.
    dropout: f64,
}

/// Output, log-sum-exp, and the gradients of q, k and v, in the order of the sequence.
type Results = [Tensor; 5];

const NAMES: [&str; 5] = ["o", "lse", "dq", "dk", "dv"];

/// Where the sequence stands.
#[derive(Clone, Copy, Debug)]
struct Split {
    placement: Placement,
    ranks: usize,
}

const WHOLE: Split = Split { placement: Placement::Contiguous, ranks: 1 };

impl Case {
    /// Different numbers everywhere, of about `size`.
    fn new([b, t, n, kv, d]: [usize; 5], size: f64, causal: bool, dtype: DType) -> Result<Self> {
        let tensor = |heads: usize, salt: f64, size: f64| {
            let value = |i: usize| size * ((i as f64 + 0.5) * (1.3 + salt) + salt).sin() * (0.37 * i as f64 + salt).cos();
            Tensor::from_vec((0..b * t * heads * d).map(value).collect::<Vec<f64>>(), (b, t, heads, d), &Device::Cpu)?
                .to_dtype(dtype)
        };
        Ok(Self {
            q: tensor(n, 0.1, size)?,
            k: tensor(kv, 0.2, size)?,
            v: tensor(kv, 0.3, 1.0)?,
            gradient: tensor(n, 0.4, 1.0)?,
            causal,
            dropout: 0.0,
        })
    }

    /// The reference vector's inputs, with logits `factor` squared times as large.
    fn reference(causal: bool, factor: f64, dtype: DType) -> Result<Self> {
        let tensor = |value: &dyn Fn(f64, f64) -> f64| {
            let values = (0..64).map(|i| value(f64::from(i / 4), f64::from(i % 4))).collect::<Vec<f64>>();
            Tensor::from_vec(values, (1, 16, 1, 4), &Device::Cpu)?.to_dtype(dtype)
        };
        Ok(Self {
            q: tensor(&|i, d| factor * (0.7 * i + 1.3 * d + 0.1).sin())?,
            k: tensor(&|j, d| factor * (0.5 * j - 0.9 * d + 0.2).cos())?,
            v: tensor(&|j, d| (0.3 * j * d + 0.4 * d + 0.05 * j).sin())?,
            gradient: tensor(&|i, d| (0.2 * i + 0.6 * d).cos())?,
            causal,
            dropout: 0.0,
        })
    }

    fn to_dtype(&self, dtype: DType) -> Result<Self> {
        let [q, k, v, gradient] = [&self.q, &self.k, &self.v, &self.gradient].map(|tensor| tensor.to_dtype(dtype));
        Ok(Self { q: q?, k: k?, v: v?, gradient: gradient?, causal: self.causal, dropout: self.dropout })
    }

    /// Which weights of these queries on these keys stay, by sequence, head, query and key: some by their positions.
    fn keep(&self, queries: &[u32], keys: &[u32]) -> Vec<u8> {
        let (b, _, n, _) = self.q.dims4().unwrap_or_default();
        let stays =
            |head: u32, q: u32, k: u32| u8::from(f64::from((7 * head + 11 * q + 5 * k + q * k) % 10) >= 10.0 * self.dropout);
        let rows = (0..(b * n) as u32).flat_map(|head| queries.iter().map(move |&q| (head, q)));
        rows.flat_map(|(head, q)| keys.iter().map(move |&k| stays(head, q, k))).collect()
    }

    fn drops<'k>(&self, keep: &'k [u8]) -> Option<Drops<'k>> {
        (self.dropout > 0.0).then_some(Drops { keep, probability: self.dropout })
    }

    /// Plain attention in this case's type, and candle's gradients.
    fn plain(&self) -> Result<Results> {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(Var::from_tensor);
        let (q, k, v) = (q?, k?, v?);
        let (b, t, n, d) = q.dims4()?;
        let kv = k.dim(2)?;
        let heads = |x: &Tensor| x.transpose(1, 2)?.contiguous();
        let group = |x: &Tensor| heads(x)?.unsqueeze(2)?.broadcast_as((b, kv, n / kv, t, d))?.contiguous()?.reshape((b, n, t, d));
        let scores = (heads(&q)?.matmul(&group(&k)?.transpose(2, 3)?.contiguous()?)? / (d as f64).sqrt())?;
        let hidden: Vec<f64> = (0..t * t).map(|i| if self.causal && i % t > i / t { f64::NEG_INFINITY } else { 0.0 }).collect();
        let scores = scores.broadcast_add(&Tensor::from_vec(hidden, (t, t), &Device::Cpu)?.to_dtype(q.dtype())?)?;
        let most = scores.max_keepdim(D::Minus1)?.detach();
        let weights = scores.broadcast_sub(&most)?.exp()?;
        let total = weights.sum_keepdim(D::Minus1)?;
        let all: Vec<u32> = (0..t as u32).collect();
        let keep = Tensor::from_vec(self.keep(&all, &all), (b, n, t, t), &Device::Cpu)?.to_dtype(q.dtype())?;
        let kept = ((weights.broadcast_div(&total)? * keep)? / (1.0 - self.dropout))?;
        let output = kept.matmul(&group(&v)?)?.transpose(1, 2)?.contiguous()?;
        let lse = (total.log()? + most)?.squeeze(3)?;
        let store = (&output * &self.gradient)?.sum_all()?.backward()?;
        let of = |variable: &Var| store.get(variable).cloned().expect("a gradient");
        Ok([output.detach(), lse.detach(), of(&q), of(&k), of(&v)])
    }

    /// The same by blocks, as the ranks of a ring meet them.
    fn blockwise(&self, split: Split) -> Result<Results> {
        let Split { placement, ranks } = split;
        let held: Vec<Vec<u32>> = (0..ranks).map(|rank| placement.positions(self.q.dim(1).unwrap_or(0), ranks, rank)).collect();
        let part = |x: &Tensor, rank: usize| x.index_select(&Tensor::new(held[rank].as_slice(), &Device::Cpu)?, 1);
        let mask = |rank: usize, source: usize| {
            if self.causal { Mask::Causal { queries: &held[rank], keys: &held[source] } } else { Mask::Full }
        };
        let keep = |rank: usize, source: usize| self.keep(&held[rank], &held[source]);
        let from = |rank: usize| (0..ranks).map(move |hop| (rank + ranks - hop) % ranks);
        let mut results: [Vec<Tensor>; 5] = Default::default();
        let mut key_gradients: Vec<[Option<Tensor>; 2]> = vec![[None, None]; ranks];
        for rank in 0..ranks {
            let q = part(&self.q, rank)?;
            let mut state: Option<State> = None;
            for source in from(rank) {
                let (k, v) = (part(&self.k, source)?, part(&self.v, source)?);
                let keep = keep(rank, source);
                let block = flash::attend(&q, Block { k: &k, v: &v, drops: self.drops(&keep) }, &mask(rank, source))?;
                state = Some(state.map_or(Ok(block.clone()), |state| flash::merge(&state, &block, MergeRule::Exact))?);
            }
            let [output, lse] = flash::finish(&state.expect("at least one block"))?;
            let gradient = part(&self.gradient, rank)?;
            let outcome = Outcome { output: &output, lse: &lse, gradient: &gradient };
            let mut dq = None;
            for source in from(rank) {
                let (k, v) = (part(&self.k, source)?, part(&self.v, source)?);
                let [dk, dv] = &key_gradients[source];
                let earlier = [dq.as_ref(), dk.as_ref(), dv.as_ref()];
                let keep = keep(rank, source);
                let block = Block { k: &k, v: &v, drops: self.drops(&keep) };
                let [q_gradient, dk, dv] = flash::backward(&q, block, outcome, &mask(rank, source), earlier)?;
                dq = Some(q_gradient);
                key_gradients[source] = [Some(dk), Some(dv)];
            }
            for (list, tensor) in results.iter_mut().zip([output, lse, dq.expect("at least one block")]) {
                list.push(tensor);
            }
        }
        for [dk, dv] in key_gradients {
            results[3].extend(dk);
            results[4].extend(dv);
        }
        let order: Vec<u32> = held.concat();
        let back: Vec<u32> = (0..order.len() as u32).map(|p| order.iter().position(|&q| q == p).unwrap_or(0) as u32).collect();
        let back = Tensor::new(back, &Device::Cpu)?;
        let [o, lse, dq, dk, dv] = results;
        let joined = |list: Vec<Tensor>, dim: usize| Tensor::cat(&list, dim)?.index_select(&back, dim);
        Ok([joined(o, 1)?, joined(lse, 2)?, joined(dq, 1)?, joined(dk, 1)?, joined(dv, 1)?])
    }
}

/// Fails where `case` over `split` is farther from plain attention than `bound` times its largest element.
fn check(case: &Case, split: Split, bound: f64) -> Result<()> {
    let (own, plain) = (case.blockwise(split)?, case.plain()?);
    for (name, (own, plain)) in NAMES.iter().zip(own.iter().zip(&plain)) {
        let (off, largest) = distance(own, plain)?;
        assert!(off <= bound * largest.max(1.0), "{name} over {split:?}: {off:e} of {largest}");
    }
    Ok(())
}

/// Fails where `case` in f32 is more than 8 times as far from f64 as plain attention in f32 is.
///
/// Where softmax has one winner the gradient of the scores is a difference of equal numbers: P (dP - D), and dq and dk are what its
/// rounding leaves, whatever the order. And weights come back as e^(s - lse), with a rounded lse. That is allowed, too.
fn check_single(case: &Case, split: Split) -> Result<()> {
    let single = case.to_dtype(DType::F32)?;
    let exact = single.to_dtype(DType::F64)?.plain()?;
    let (own, plain) = (single.blockwise(split)?, single.plain()?);
    let size = |x: &Tensor| elements(x).map(|all| all.into_iter().fold(0.0, |most: f64, x| most.max(x.abs())));
    let left = 2.0 * (case.q.dim(3)? as f64).sqrt() * size(&case.q)?.max(size(&case.k)?);
    let lse = size(&exact[1])?;
    for (place, name) in NAMES.iter().enumerate() {
        let (off, largest) = distance(&own[place], &exact[place])?;
        let (allowed, _) = distance(&plain[place], &exact[place])?;
        // Every score is rounded, by a share of its size, and with it every weight.
        let of_weights = if *name == "lse" { 0.0 } else { lse * largest };
        let of_gradients = if name.starts_with('d') { left } else { 0.0 };
        let floor = 4.0 * f64::from(f32::EPSILON) * (largest + of_weights + of_gradients);
        assert!(off <= 8.0 * allowed + floor, "{name} over {split:?}: {off:e}, plain attention {allowed:e}, floor {floor:e}");
    }
    Ok(())
}

fn splits() -> impl Iterator<Item = Split> {
    Placement::ALL.iter().flat_map(|&placement| [1, 2, 4].map(|ranks| Split { placement, ranks }))
}

/// Sums and elements that an implementation of its own gave, to 12 digits.
#[test]
fn the_reference_vector_comes_out() -> Result<()> {
    let causal = [17.973_699_202_505, 34.602_570_015_264, -2.548_245_734_311, 0.0, -23.285_481_337_215];
    let full = [9.164_704_756_151, 47.564_817_208_577, -1.541_720_085_236, 0.0, -23.285_481_337_215];
    let row = [0.175_466_937_703, 0.859_978_792_249, -0.087_852_190_057, -0.353_011_877_817];
    for split in splits() {
        for (is_causal, sums) in [(true, causal), (false, full)] {
            let results = Case::reference(is_causal, 1.0, DType::F64)?.blockwise(split)?;
            for ((name, tensor), sum) in NAMES.iter().zip(&results).zip(sums) {
                let found: f64 = elements(tensor)?.iter().sum();
                assert!((found - sum).abs() < 2e-12, "sum of {name} over {split:?}: {found}");
            }
            if is_causal {
                let found = elements(&results[0].narrow(1, 5, 1)?)?;
                assert!(found.iter().zip(row).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} over {split:?}");
                assert!((elements(&results[1])?[5] - 1.768_042_291_178).abs() < 1e-12);
            }
        }
    }
    Ok(())
}

/// Scores of about +-100 and +-1000: e^100 overflows f32, and e^1000 overflows f64.
#[test]
fn large_scores_neither_overflow_nor_lose_digits() -> Result<()> {
    for size in [1.0, 17.0, 55.0] {
        for causal in [true, false] {
            let case = Case::new([1, 16, 2, 1, 5], size, causal, DType::F64)?;
            for split in splits() {
                check(&case, split, 1e-12)?;
                check_single(&case, split)?;
            }
        }
    }
    Ok(())
}

/// Several tiles of queries and of keys, of which the last ones are not whole.
#[test]
fn tiles_join() -> Result<()> {
    for causal in [true, false] {
        let case = Case::new([1, 1_100, 2, 1, 3], 2.0, causal, DType::F64)?;
        for split in [WHOLE, Split { placement: Placement::Zigzag, ranks: 2 }] {
            check(&case, split, 1e-12)?;
            check_single(&case, split)?;
        }
    }
    Ok(())
}

/// Weights are dropped behind the softmax, wherever their query and their key stand.
#[test]
fn the_same_weights_are_dropped_in_any_blocks() -> Result<()> {
    for (dims, dropout) in [([2, 12, 4, 2, 3], 0.3), ([1, 16, 3, 1, 5], 0.8), ([1, 520, 1, 1, 3], 0.1)] {
        for causal in [true, false] {
            let case = Case { dropout, ..Case::new(dims, 2.0, causal, DType::F64)? };
            for split in splits().filter(|split| dims[1].is_multiple_of(split.placement.divisor(split.ranks))) {
                check(&case, split, 1e-12)?;
            }
        }
    }
    Ok(())
}

/// A block that lies wholly in the future: nothing is seen, nothing changes, and no gradient comes of it.
#[test]
fn a_masked_block_does_nothing() -> Result<()> {
    for dtype in [DType::F64, DType::F32] {
        let case = Case::new([2, 6, 4, 2, 3], 3.0, true, dtype)?;
        let (early, late): (Vec<u32>, Vec<u32>) = ((0..6).collect(), (6..12).collect());
        let block = Block::new(&case.k, &case.v);
        let unseen = flash::attend(&case.q, block, &Mask::Causal { queries: &early, keys: &late })?;
        assert!(elements(&unseen.output)?.iter().chain(&elements(&unseen.total)?).all(|&x| x == 0.0));
        let seen = flash::attend(&case.q, block, &Mask::Causal { queries: &early, keys: &early })?;
        for merged in [flash::merge(&seen, &unseen, MergeRule::Exact)?, flash::merge(&unseen, &seen, MergeRule::Exact)?] {
            assert_eq!(elements(&merged.output)?, elements(&seen.output)?);
            assert_eq!(elements(&merged.total)?, elements(&seen.total)?);
        }
        let [output, lse] = flash::finish(&flash::merge(&unseen, &unseen, MergeRule::Exact)?)?;
        assert!(elements(&lse)?.iter().all(|&x| x == f64::NEG_INFINITY));
        for mask in [Mask::Causal { queries: &early, keys: &late }, Mask::Causal { queries: &early, keys: &early }] {
            let outcome = Outcome { output: &output, lse: &lse, gradient: &case.gradient };
            let gradients = flash::backward(&case.q, block, outcome, &mask, [None; 3])?;
            assert!(gradients.iter().all(|gradient| elements(gradient).is_ok_and(|all| all.iter().all(|&x| x == 0.0))));
        }
    }
    Ok(())
}

/// Memory that was never written reads as zeros: such a state is one that saw nothing.
#[test]
fn a_state_of_zeros_saw_nothing() -> Result<()> {
    let case = Case::new([1, 5, 2, 2, 3], 3.0, false, DType::F64)?;
    let seen = flash::attend(&case.q, Block::new(&case.k, &case.v), &Mask::Full)?;
    let zeros = State { most: seen.most.zeros_like()?, total: seen.total.zeros_like()?, output: seen.output.zeros_like()? };
    let merged = flash::merge(&zeros, &seen, MergeRule::Exact)?;
    for (merged, seen) in [(&merged.most, &seen.most), (&merged.total, &seen.total), (&merged.output, &seen.output)] {
        assert_eq!(elements(merged)?, elements(seen)?);
    }
    Ok(())
}

#[test]
fn a_nan_goes_through() -> Result<()> {
    let case = Case::new([1, 5, 1, 1, 3], 1.0, false, DType::F32)?;
    let q = (&case.q * f64::NAN)?;
    let state = flash::attend(&q, Block::new(&case.k, &case.v), &Mask::Full)?;
    assert!(elements(&state.output)?.iter().all(|x| x.is_nan()));
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let case = Case::new([1, 4, 4, 2, 3], 1.0, true, DType::F32)?;
    let other = Case::new([1, 5, 3, 3, 3], 1.0, true, DType::F32)?;
    let positions: Vec<u32> = (0..4).collect();
    let block = Block::new(&case.k, &case.v);
    let refused = |result: Result<State>, word: &str| {
        let error = result.expect_err("refused").to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(flash::attend(&other.q, block, &Mask::Full), "does not fit");
    refused(flash::attend(&case.q, Block::new(&case.k, &other.v), &Mask::Full), "values");
    refused(flash::attend(&case.q, block, &Mask::Causal { queries: &positions[1..], keys: &positions }), "mask");
    refused(flash::attend(&case.q.to_dtype(DType::F64)?, block, &Mask::Full), "dtype");
    refused(flash::attend(&case.q.to_dtype(DType::U32)?, block, &Mask::Full), "f32 and f64");
    let state = flash::attend(&case.q, block, &Mask::Full)?;
    let short = State { total: state.most.narrow(2, 0, 3)?, ..state.clone() };
    refused(flash::merge(&state, &short, MergeRule::Exact), "shape");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_placement_is_plain_attention(
        place in 0..3usize,
        ranks in prop::sample::select(vec![1usize, 2, 3, 5, 8]),
        pieces in 1..4usize,
        (b, kv, group, d) in (1..3usize, 1..4usize, 1..4usize, 1..10usize),
        size in 0.1..20.0f64,
        causal: bool,
    ) {
        let placement = Placement::ALL[place];
        let t = pieces * placement.divisor(ranks);
        let case = Case::new([b, t, kv * group, kv, d], size, causal, DType::F64).expect("a case");
        let split = Split { placement, ranks };
        check(&case, split, 1e-12).expect("kernels that run");
        check_single(&case, split).expect("kernels that run");
    }
}
