//! The verdict of a bare layer: the output, the log-sum-exp and the gradients of q, k and v against one device.
//!
//! One device runs the same kernels on the whole sequence. *Equal* are the same bits. *Expected drift* is as close to one device in f64 as
//! [`DRIFT_FACTOR`] times what one device in the run's own type is, plus what rounding alone leaves; runs in f64 may be off by
//! [`DOUBLE_DRIFT`] of the norm. *Wrong* is all else, and a tensor that was never made.

use super::fingerprint::{self, Looks};
use super::reference::{bare, last_writer};
use super::verdict::{DOUBLE_DRIFT, DRIFT_FACTOR, Difference, Verdict};
use crate::base::context::Attention;
use crate::base::settings::{ContextMethod, Dtype, Placement};
use crate::base::{AttentionTensor, BufferId, OpId, Rank};
use crate::engine::compare::{larger, largest_difference, norm};
use crate::engine::session::Session;
use crate::engine::value::Value;
use crate::program::{Name, Program};
use crate::scenario::{Layer, Scenario, Task};

/// The results of a layer, and the tensors that hold them.
const RESULTS: [(AttentionTensor, &str); 5] = [
    (AttentionTensor::Output, "o"),
    (AttentionTensor::Output, LSE),
    (AttentionTensor::QueryGradient, "dq"),
    (AttentionTensor::KeyValueGradient, "dk"),
    (AttentionTensor::KeyValueGradient, "dv"),
];

const LSE: &str = "lse";

/// How one result compares with one device's.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// `o`, `lse`, `dq`, `dk` or `dv`.
    pub name: &'static str,
    /// Per rank, the largest distance of an element from one device in f64; infinite where it was never made.
    pub off: Vec<f64>,
    /// Per rank, whether it is farther off than rounding explains.
    pub wrong: Vec<bool>,
    /// The largest element of one device.
    pub largest: f64,
    /// No element is larger than one device's.
    pub below: bool,
}

/// The verdict, and what a wrong one looks like.
pub(super) fn judge(scenario: &Scenario, layer: &Layer, session: &Session) -> crate::engine::Result<(Verdict, Option<Looks>)> {
    let own = Results::of(session.program(), |buffer| session.value(buffer))?;
    let one = Results::of_one_device(scenario, layer, false)?;
    if own.same_bits(&one) {
        return Ok((Verdict::Equal, None));
    }
    let max_abs_diff = own.distance(&one);
    let double = Results::of_one_device(scenario, layer, true)?;
    let compared = compared(scenario, layer, &own, [&one, &double]);
    let first = compared.iter().find_map(|result| Some((result.name, result.wrong.iter().position(|&wrong| wrong)?)));
    Ok(match first {
        None => (Verdict::ExpectedDrift { max_abs_diff }, None),
        Some((name, rank)) => {
            let (op, tensor, rank) = (writer(session.program(), name, rank), name.to_owned(), Rank::new(rank));
            let first_difference = Difference { step: 0, op, tensor, rank };
            let looks = fingerprint::diagnose(layer, session.program(), &compared);
            (Verdict::Wrong { max_abs_diff, first_difference }, Some(looks))
        }
    })
}

/// Every result of a finished run against one device: which are wrong, and on which ranks.
///
/// # Errors
/// If a kernel of the one-device runs fails.
pub fn compare(scenario: &Scenario, layer: &Layer, session: &Session) -> crate::engine::Result<Vec<Compared>> {
    let own = Results::of(session.program(), |buffer| session.value(buffer))?;
    let [one, double] = [false, true].map(|is_double| Results::of_one_device(scenario, layer, is_double));
    Ok(compared(scenario, layer, &own, [&one?, &double?]))
}

fn compared(scenario: &Scenario, layer: &Layer, own: &Results, [one, double]: [&Results; 2]) -> Vec<Compared> {
    let is_double = scenario.numerics.dtype == Dtype::F64;
    // Weights come back as e^(s - lse): what rounding leaves of scores and of their log-sum-exp, it leaves of all gradients.
    let scores = 1.0 + double.rows[1].iter().flatten().fold(0.0, |most: f64, x| most.max(x.abs()));
    let of_result = |(place, (_, name)): (usize, (AttentionTensor, &'static str))| {
        let whole = &double.rows[place];
        let size = norm(whole.iter().flatten().copied()) + double.norm();
        let allowed = if is_double {
            DOUBLE_DRIFT * size
        } else {
            let drift = norm(one.rows[place].iter().flatten().zip(whole.iter().flatten()).map(|(a, b)| a - b));
            DRIFT_FACTOR * drift + f64::from(f32::EPSILON) * size * if name == LSE { 1.0 } else { scores }
        };
        let difference = |rank: usize| differences(&layer.attention.positions(rank), &own.rows[place], whole);
        let differences: Vec<Option<Vec<f64>>> = (0..layer.attention.slices).map(difference).collect();
        let off = differences.iter().map(|all| all.as_ref().map_or(f64::INFINITY, |all| all.iter().copied().fold(0.0, larger)));
        // Written so that a NaN is wrong.
        let is_close = |all: &Vec<f64>| norm(all.iter().copied()) <= allowed;
        let wrong = differences.iter().map(|all| !all.as_ref().is_some_and(is_close));
        let largest = whole.iter().flatten().map(|x| x.abs()).fold(0.0, larger);
        let pairs = own.rows[place].iter().flatten().zip(whole.iter().flatten());
        let below = pairs.into_iter().all(|(own, whole)| *own <= whole + f64::from(f32::EPSILON) * largest);
        Compared { name, off: off.collect(), wrong: wrong.collect(), largest, below }
    };
    RESULTS.into_iter().enumerate().map(of_result).collect()
}

/// How far the rows of a slice are from those of one device; `None` where one was never made.
fn differences(positions: &[u32], own: &[Vec<f64>], whole: &[Vec<f64>]) -> Option<Vec<f64>> {
    let mut all = Vec::new();
    for &position in positions {
        let (own, whole) = (&own[position as usize], &whole[position as usize]);
        if own.len() != whole.len() {
            return None;
        }
        all.extend(own.iter().zip(whole).map(|(a, b)| (a - b).abs()));
    }
    Some(all)
}

/// The op of `rank` that wrote the tensor of the result `name` last, or the rank's last op.
fn writer(program: &Program, name: &str, rank: usize) -> OpId {
    let tensor = RESULTS.iter().find(|row| row.1 == name).map_or(AttentionTensor::Output, |row| row.0);
    let slice = u32::try_from(rank).unwrap_or(u32::MAX);
    last_writer(program, rank, |name| name == Name::Attention(tensor, slice))
}

/// The results of all ranks: per result and position of the sequence, its elements.
struct Results {
    rows: [Vec<Vec<f64>>; 5],
}

impl Results {
    fn of<'a>(program: &Program, value: impl Fn(BufferId) -> Option<&'a Value>) -> crate::engine::Result<Self> {
        let mut rows: [Vec<Vec<f64>>; 5] = Default::default();
        let Some(attention) = program.setting.attention else { return Ok(Self { rows }) };
        for (place, (tensor, result)) in RESULTS.into_iter().enumerate() {
            rows[place] = vec![Vec::new(); attention.sequence];
            for (index, buffer) in program.buffers.iter().enumerate() {
                let Name::Attention(of, slice) = buffer.name else { continue };
                if of != tensor || slice != buffer.rank.0 {
                    continue;
                }
                let Some(flat) = value(BufferId::new(index)).map(Value::elements).transpose()?.flatten() else { continue };
                for (row, &position) in attention.positions(slice as usize).iter().enumerate() {
                    rows[place][position as usize] = row_of(&attention, result, &flat, row);
                }
            }
        }
        Ok(Self { rows })
    }

    /// The same layer on one device, in the run's own type or in f64.
    fn of_one_device(scenario: &Scenario, layer: &Layer, is_double: bool) -> crate::engine::Result<Self> {
        let attention = Attention { slices: 1, placement: Placement::Contiguous, bug: None, ..layer.attention };
        let task = Task::Layer(Layer { method: ContextMethod::Ring, attention });
        let world = bare(scenario, task, is_double)?;
        Self::of(&world.machine.program, |buffer| world.values.get(buffer))
    }

    fn same_bits(&self, other: &Self) -> bool {
        let bits = |rows: &[Vec<f64>]| rows.iter().flatten().map(|x| x.to_bits()).collect::<Vec<u64>>();
        self.rows.iter().zip(&other.rows).all(|(a, b)| bits(a) == bits(b))
    }

    /// The largest distance of two elements; infinite where one is missing.
    fn distance(&self, other: &Self) -> f64 {
        let pairs = self.rows.iter().flatten().zip(other.rows.iter().flatten());
        pairs.map(|(a, b)| largest_difference(a, b)).fold(0.0, larger)
    }

    /// The norm of all results but the log-sum-exp.
    fn norm(&self) -> f64 {
        let all = self.rows.iter().enumerate().filter(|(place, _)| *place != 1);
        norm(all.flat_map(|(_, rows)| rows.iter().flatten().copied()))
    }
}

/// The elements of the `row`-th token of a slice in a result, of the flat elements of its tensor.
fn row_of(attention: &Attention, result: &str, flat: &[f64], row: usize) -> Vec<f64> {
    let (t, n) = (attention.tokens(), attention.heads);
    let [queries, keys] = [n, attention.kv_heads].map(|heads| heads * attention.head_size);
    let piece = |start: usize, width: usize| flat.get(start..start + width).unwrap_or_default().to_vec();
    match result {
        LSE => (0..n).filter_map(|head| flat.get(t * queries + head * t + row)).copied().collect(),
        "dk" => piece(row * keys, keys),
        "dv" => piece((t + row) * keys, keys),
        _ => piece(row * queries, queries),
    }
}
