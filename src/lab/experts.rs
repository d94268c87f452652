//! The verdict of a mixture of experts: the output, the auxiliary loss, and the gradients of tokens, router and experts against one device.
//!
//! One device has all experts and routes the same groups of tokens, so that the same ones find no room. *Equal* are the same bits. *Expected
//! drift* is as close to one device in f64 as [`DRIFT_FACTOR`] times what one device in the run's own type is, plus what rounding leaves of
//! the norm; runs in f64 may be off by [`DOUBLE_DRIFT`] of it. *Wrong* is all else, and a tensor that was never made.

use super::reference::{bare, last_writer};
use super::verdict::{DOUBLE_DRIFT, DRIFT_FACTOR, Difference, Verdict};
use crate::base::experts::Experts;
use crate::base::settings::Dtype;
use crate::base::{BufferId, ExpertTensor, OpId, Rank};
use crate::engine::compare::{larger, largest_difference, norm};
use crate::engine::session::Session;
use crate::engine::value::Value;
use crate::program::{Name, Program};
use crate::scenario::{Scenario, Task};

/// The results, in the order in which they are made, and their names in reports.
const RESULTS: [(ExpertTensor, &str); 5] = [
    (ExpertTensor::Balance, "auxiliary loss"),
    (ExpertTensor::Output, "out"),
    (ExpertTensor::WeightGradient, "d experts"),
    (ExpertTensor::InputGradient, "d tokens"),
    (ExpertTensor::RouterGradient, "d router"),
];

/// How one result compares with one device's.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Its name.
    pub name: &'static str,
    /// Per rank, the distance of its elements from one device in f64, as a norm; infinite where they were never made.
    pub off: Vec<f64>,
    /// How far they may be.
    pub allowed: f64,
}

impl Compared {
    /// The first rank whose elements are farther off than rounding explains. Written so that a NaN is wrong.
    #[must_use]
    pub fn wrong(&self) -> Option<usize> {
        self.off.iter().position(|off| {
            let is_close = *off <= self.allowed;
            !is_close
        })
    }
}

/// The verdict.
pub(super) fn judge(scenario: &Scenario, layer: &Experts, session: &Session) -> crate::engine::Result<Verdict> {
    let own = Results::of(session.program(), |buffer| session.value(buffer))?;
    let one = Results::of_one_device(scenario, layer, false)?;
    if own.same_bits(&one) {
        return Ok(Verdict::Equal);
    }
    let max_abs_diff = own.largest_distance(&one);
    let double = Results::of_one_device(scenario, layer, true)?;
    let compared = compared(scenario, &own, [&one, &double]);
    let wrong = compared.iter().enumerate().find_map(|(place, result)| Some((place, result.name, result.wrong()?)));
    Ok(match wrong {
        None => Verdict::ExpectedDrift { max_abs_diff },
        Some((place, name, rank)) => {
            let (op, tensor, rank) = (writer(session.program(), place, rank), name.to_owned(), Rank::new(rank));
            Verdict::Wrong { max_abs_diff, first_difference: Difference { step: 0, op, tensor, rank } }
        }
    })
}

/// Every result of a finished run against one device.
///
/// # Errors
/// If a kernel of the one-device runs fails.
pub fn compare(scenario: &Scenario, layer: &Experts, session: &Session) -> crate::engine::Result<Vec<Compared>> {
    let own = Results::of(session.program(), |buffer| session.value(buffer))?;
    let [one, double] = [false, true].map(|is_double| Results::of_one_device(scenario, layer, is_double));
    Ok(compared(scenario, &own, [&one?, &double?]))
}

fn compared(scenario: &Scenario, own: &Results, [one, double]: [&Results; 2]) -> Vec<Compared> {
    let is_double = scenario.numerics.dtype == Dtype::F64;
    let epsilon = if scenario.numerics.dtype == Dtype::Bf16 { 2.0_f64.powi(-8) } else { f64::from(f32::EPSILON) };
    let of_result = |(place, (_, name)): (usize, (ExpertTensor, &'static str))| {
        let ranks = own.ranks[place].len();
        let share = |results: &Results, rank: usize| results.share(place, rank, ranks);
        let size = norm(double.ranks[place].iter().flatten().copied());
        let drift = norm(one.ranks[place].iter().flatten().zip(double.ranks[place].iter().flatten()).map(|(a, b)| a - b));
        let allowed = if is_double { DOUBLE_DRIFT * size } else { DRIFT_FACTOR * drift + epsilon * size };
        let off = (0..ranks).map(|rank| distance(&own.ranks[place][rank], &share(double, rank)));
        Compared { name, off: off.collect(), allowed }
    };
    RESULTS.into_iter().enumerate().map(of_result).collect()
}

/// The norm of a difference; infinite where elements are missing.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    if a.len() == b.len() { norm(a.iter().zip(b).map(|(a, b)| a - b)) } else { f64::INFINITY }
}

/// The op of `rank` that wrote its part of a result last, or the rank's last op.
fn writer(program: &Program, place: usize, rank: usize) -> OpId {
    let (tensor, _) = RESULTS[place];
    last_writer(program, rank, |name| matches!(name, Name::Expert(of, _) if of == tensor))
}

/// The results of all ranks: per result and rank its elements.
struct Results {
    ranks: [Vec<Vec<f64>>; 5],
}

impl Results {
    fn of<'a>(program: &Program, value: impl Fn(BufferId) -> Option<&'a Value>) -> crate::engine::Result<Self> {
        let mut ranks: [Vec<Vec<f64>>; 5] = std::array::from_fn(|_| vec![Vec::new(); program.ranks()]);
        for (index, buffer) in program.buffers.iter().enumerate() {
            let Name::Expert(of, _) = buffer.name else { continue };
            let Some(place) = RESULTS.iter().position(|(tensor, _)| *tensor == of) else { continue };
            let flat = value(BufferId::new(index)).map(Value::elements).transpose()?.flatten().unwrap_or_default();
            ranks[place][buffer.rank.index()] = flat;
        }
        Ok(Self { ranks })
    }

    /// The same layer on one device, in the run's own type or in f64: without faults, and with the groups of tokens that the ranks have.
    fn of_one_device(scenario: &Scenario, layer: &Experts, is_double: bool) -> crate::engine::Result<Self> {
        let task = Task::Experts(Experts { ranks: 1, lost: None, ..layer.clone() });
        let world = bare(scenario, task, is_double)?;
        Self::of(&world.machine.program, |buffer| world.values.get(buffer))
    }

    /// What of one device's result `rank` of `ranks` has: its tokens or its experts; of the router and the loss all have all.
    fn share(&self, place: usize, rank: usize, ranks: usize) -> Vec<f64> {
        let Some(all) = self.ranks[place].first() else { return Vec::new() };
        if matches!(RESULTS[place].0, ExpertTensor::Balance | ExpertTensor::RouterGradient) {
            return all.clone();
        }
        let own = all.len() / ranks.max(1);
        all[rank * own..(rank + 1) * own].to_vec()
    }

    fn same_bits(&self, one: &Self) -> bool {
        let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
        self.ranks.iter().enumerate().all(|(place, ranks)| {
            ranks.iter().enumerate().all(|(rank, own)| bits(own) == bits(&one.share(place, rank, ranks.len())))
        })
    }

    /// The largest distance of two elements; infinite where one is missing.
    fn largest_distance(&self, one: &Self) -> f64 {
        let mut most = 0.0;
        for (place, ranks) in self.ranks.iter().enumerate() {
            for (rank, own) in ranks.iter().enumerate() {
                let share = one.share(place, rank, ranks.len());
                most = larger(most, largest_difference(own, &share));
            }
        }
        most
    }
}
