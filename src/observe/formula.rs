//! Formulas: what theory says of a scenario, where it has a closed form; to be shown beside what ran, and labelled as what it is.

use crate::base::Ticks;
use crate::base::hardware::{Costs, Link};
use crate::base::mesh::Axis;
use crate::base::settings::AllReduce;
use crate::base::units::Clock;
use crate::scenario::{Collective, Scenario, Task, Training};

/// A closed form with its value for this scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    /// Which number it is for.
    pub of: Quantity,
    /// The form: `(p-1)/(m+p-1)`.
    pub text: &'static str,
    /// Its value: a share, or a time in the clock's unit.
    pub value: f64,
}

/// What a formula is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The end of the first step, in the clock's unit.
    Makespan,
    /// Idle over all time.
    BubbleFraction,
    /// Idle over busy time.
    BubbleRatio,
}

/// All closed forms of `scenario`. None with trouble: theory knows nothing of it.
#[must_use]
pub fn of(scenario: &Scenario) -> Vec<Formula> {
    if !scenario.trouble.is_empty() {
        return Vec::new();
    }
    match (&scenario.task, &scenario.hardware.costs) {
        (Task::Train(training), Costs::Unit(unit)) => {
            let slot = unit.forward + unit.backward_input + unit.backward_weight;
            pipeline(training, scenario.hardware.clock(), slot)
        }
        (Task::Collective(collective), Costs::Table(table)) if collective.ranks <= scenario.hardware.ranks_per_node => {
            all_reduce(collective, &table.inside).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The one of `all` for `quantity`.
#[must_use]
pub fn find(all: &[Formula], quantity: Quantity) -> Option<&Formula> {
    all.iter().find(|formula| formula.of == quantity)
}

/// With equal stages and free messages. GPipe and 1F1B share their makespan (Narayanan et al. 2021, section 2.2).
fn pipeline(training: &Training, clock: Clock, slot: Ticks) -> Vec<Formula> {
    let p = count(training.mesh.size(Axis::Pipeline));
    let m = f64::from(training.batch.micro_batches);
    let slot = clock.in_unit(slot);
    let formula = |of, text, value| Formula { of, text, value };
    match training.pipeline.schedule.name {
        "naive" => vec![
            formula(Quantity::Makespan, "p m t", p * m * slot),
            formula(Quantity::BubbleFraction, "(p-1)/p", (p - 1.0) / p),
            formula(Quantity::BubbleRatio, "p-1", p - 1.0),
        ],
        "gpipe" | "1f1b" => vec![
            formula(Quantity::Makespan, "(m+p-1) t", (m + p - 1.0) * slot),
            formula(Quantity::BubbleFraction, "(p-1)/(m+p-1)", (p - 1.0) / (m + p - 1.0)),
            formula(Quantity::BubbleRatio, "(p-1)/m", (p - 1.0) / m),
        ],
        _ => Vec::new(),
    }
}

/// The alpha-beta time of a bare all-reduce inside a node, in nanoseconds.
fn all_reduce(collective: &Collective, link: &Link) -> Option<Formula> {
    let n = count(collective.ranks);
    let alpha = Clock::Nanoseconds.in_unit(link.alpha);
    let per_byte = 1e9 / link.bytes_per_second;
    let bytes = count(usize::try_from(collective.bytes.0).ok()?);
    let (text, value) = match collective.algorithm {
        AllReduce::Ring if collective.chunks == collective.ranks => {
            ("2(n-1)(a + S/n/B)", 2.0 * (n - 1.0) * (alpha + bytes / n * per_byte))
        }
        AllReduce::Star if collective.chunks == 1 => ("2(n-1)(a + S/B)", 2.0 * (n - 1.0) * (alpha + bytes * per_byte)),
        _ => return None,
    };
    Some(Formula { of: Quantity::Makespan, text, value })
}

#[expect(clippy::cast_precision_loss, reason = "a count far below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}
