//! The verdict: how a run's numbers compare with one device's.
//!
//! *Equal*: losses, gradients before the optimizer, and parameters are the same, bit for bit. *Expected drift*: sums were taken in another
//! order. Then every gradient of every step may be as far from one device in f64 as [`DRIFT_FACTOR`] times what one device in the run's own
//! type is, plus half a unit in the last place of its norm; runs in f64 may be off by [`DOUBLE_DRIFT`] of the norm. *Wrong*: all else.

use super::reference::{Pair, Reference};
use super::snapshot::{Snapshot, Snapshots};
use crate::base::settings::Dtype;
use crate::base::{OpId, ParameterId, Rank};
use crate::engine::compare::larger;
use crate::engine::session::Session;
use crate::engine::value::Loss;
use crate::program::op::SkippedKind;
use crate::program::{Kernel, Name, OpKind, Program};

/// How many times farther from f64 than one device a run may be.
pub const DRIFT_FACTOR: f64 = 8.0;

/// How far, relative to its norm, a gradient of an f64 run may be from one device in f64.
pub const DOUBLE_DRIFT: f64 = 1e-10;

/// How a run's numbers compare with one device's.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The same bits.
    Equal,
    /// As close as another order of summation allows.
    ExpectedDrift {
        /// The largest difference between a gradient's element and one device's.
        max_abs_diff: f64,
    },
    /// Other numbers.
    Wrong {
        /// The largest difference between a gradient's element and one device's.
        max_abs_diff: f64,
        /// The first place where they differ.
        first_difference: Difference,
    },
    /// There are no numbers to compare.
    None,
}

/// A place where numbers differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Training step, from 0.
    pub step: u32,
    /// The op that made the tensor, or should have.
    pub op: OpId,
    /// The tensor.
    pub tensor: String,
    /// The rank.
    pub rank: Rank,
}

impl Verdict {
    /// Its word in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::ExpectedDrift { .. } => "expected-drift",
            Self::Wrong { .. } => "wrong",
            Self::None => "none",
        }
    }
}

/// Compares a training run with its reference.
pub(super) fn judge(session: &Session, snapshots: &Snapshots, reference: &mut Pair) -> crate::engine::Result<Verdict> {
    let left_out = update_left_out(session.program());
    let has_updates = left_out.is_none();
    if has_updates && same_losses(session.values().losses(), &reference.own.losses) && same_snapshots(snapshots, &reference.own)?
    {
        return Ok(Verdict::Equal);
    }
    let max_abs_diff = max_abs_diff(snapshots, &reference.own)?;
    let is_double = reference.dtype() == Dtype::F64;
    let parameters = reference.parameters().to_vec();
    let (own, double) = reference.double()?;
    let until = left_out.as_ref().map_or(u32::MAX, |difference| session.program().op(difference.op).origin.update());
    for (&(update, parameter, rank), snapshot) in snapshots.by_place.iter().filter(|((update, ..), _)| *update <= until) {
        let (own, double) = (&one(own, update, parameter).gradient, &one(double, update, parameter).gradient);
        let norm = double.norm()?;
        let allowed = if is_double {
            DOUBLE_DRIFT * norm
        } else {
            DRIFT_FACTOR * own.distance(double)? + f64::from(f32::EPSILON) / 2.0 * norm
        };
        let distance = snapshot.gradient.distance(double)?;
        // Written so that a NaN is wrong.
        let within = distance <= allowed + f64::MIN_POSITIVE;
        if !within {
            let name = &parameters[parameter.index()].name;
            let first_difference = gradient_difference(session.program(), snapshot.op, name, rank);
            return Ok(Verdict::Wrong { max_abs_diff, first_difference });
        }
    }
    Ok(match left_out {
        Some(first_difference) => Verdict::Wrong { max_abs_diff, first_difference },
        None => Verdict::ExpectedDrift { max_abs_diff },
    })
}

/// The first update of parameters that a trouble rule took out: no gradient of its own step tells.
fn update_left_out(program: &Program) -> Option<Difference> {
    let is_update = |op: &OpId| match program.kind(*op) {
        OpKind::Skipped(SkippedKind::Run(kernel)) => {
            matches!(program.kernels[kernel.index()].kernel, Kernel::Optimizer(_) | Kernel::OptimizerShard)
        }
        _ => false,
    };
    let op = program.op(program.all().filter(is_update).min_by_key(|&op| program.op(op).origin.update())?);
    let tensor = op.writes.first().map_or_else(String::new, |written| program.buffers[written.index()].name.to_string());
    Some(Difference { step: op.origin.step, op: op.id, tensor, rank: op.rank })
}

/// One device's snapshot.
fn one(reference: &Reference, update: u32, parameter: ParameterId) -> &Snapshot {
    &reference.snapshots.by_place[&(update, parameter, Rank(0))]
}

fn same_losses(run: &[Loss], reference: &[Loss]) -> bool {
    let sorted = |losses: &[Loss]| {
        let mut bits: Vec<(u32, u64)> = losses.iter().map(|loss| (loss.micro_batch, loss.value.to_bits())).collect();
        bits.sort_unstable();
        bits
    };
    sorted(run) == sorted(reference)
}

fn same_snapshots(run: &Snapshots, reference: &Reference) -> crate::engine::Result<bool> {
    for (&(update, parameter, _), snapshot) in &run.by_place {
        let one = one(reference, update, parameter);
        if !snapshot.gradient.same_bits(&one.gradient)? || !snapshot.parameter.same_bits(&one.parameter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn max_abs_diff(run: &Snapshots, reference: &Reference) -> crate::engine::Result<f64> {
    let mut max: f64 = 0.0;
    for (&(update, parameter, _), snapshot) in &run.by_place {
        max = larger(max, snapshot.gradient.max_abs_difference(&one(reference, update, parameter).gradient)?);
    }
    Ok(max)
}

/// A wrong gradient: at an op that should have written it, or a part of it, but was taken out by a trouble rule; else at the op that wrote it
/// last before `update` read its average. Where ranks share a gradient, each of them may be to blame.
fn gradient_difference(program: &Program, update: OpId, parameter: &str, rank: Rank) -> Difference {
    let update = program.op(update).origin;
    let is_it = |id: ParameterId| program.parameters[id.index()].name == parameter;
    let in_unit = |unit: u32| program.units.get(unit as usize).is_some_and(|unit| unit.parameters.iter().copied().any(is_it));
    let is_gradient = |buffer: &crate::base::BufferId| match program.buffers[buffer.index()].name {
        Name::Gradient(written) | Name::Unreduced(written) => is_it(written),
        Name::GradientShard(written, _) | Name::Reduced(written, _) => in_unit(written),
        _ => false,
    };
    let writes = |op: &&OpId| {
        let op = program.op(**op);
        let is_of_it = match update.slot {
            Some(slot) => op.origin.slot.is_some_and(|other| other.micro_batch == slot.micro_batch),
            None => op.origin.step == update.step,
        };
        is_of_it && op.origin.pass != crate::program::PassName::Optimizer && op.writes.iter().any(is_gradient)
    };
    let is_skipped = |op: &&OpId| matches!(program.kind(**op), OpKind::Skipped(_)) && writes(op);
    let is_shared =
        program.setting.tensor.ranks > 1 || program.units.iter().any(|unit| unit.parameters.iter().copied().any(is_it));
    let sharing = if is_shared { program.ranks() } else { 1 };
    let skipped = program.order.iter().skip(rank.index()).take(sharing).find_map(|order| order.iter().find(is_skipped));
    let op = skipped.or_else(|| program.order[rank.index()].iter().rfind(writes)).copied().unwrap_or_default();
    let tensor = format!("gradient of {parameter}");
    Difference { step: update.step, op, tensor, rank: skipped.map_or(rank, |&op| program.rank_of(op)) }
}
