//! Formulas: what theory says of a scenario, where it has a closed form; to be shown beside what ran, and labelled as what it is.

use crate::base::hardware::{Costs, Link, UnitCosts};
use crate::base::settings::AllReduce;
use crate::base::units::Clock;
use crate::scenario::{Collective, Order, Scenario, Task, Training};
use crate::schedule::Times;

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
        (Task::Train(training), Costs::Unit(unit)) => pipeline(training, scenario.hardware.clock(), unit),
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

/// With equal stages and free messages.
fn pipeline(training: &Training, clock: Clock, unit: &UnitCosts) -> Vec<Formula> {
    let Order::Schedule(schedule) = &training.pipeline.order else { return Vec::new() };
    let slots = [unit.forward, unit.backward_input, unit.backward_weight, unit.overlapped];
    let [forward, input, weight, overlapped] = slots.map(|slot| clock.in_unit(slot));
    let (size, times) = (training.size(), Times { forward, input, weight, overlapped });
    let Some(idle) = (schedule.theory.value)(size, times) else { return Vec::new() };
    let busy = f64::from(size.micro_batches) * f64::from(size.chunks) * times.all();
    let theory = &schedule.theory;
    let formula = |of, text, value| Formula { of, text, value };
    vec![
        formula(Quantity::Makespan, theory.makespan, busy + idle),
        formula(Quantity::BubbleFraction, theory.fraction, idle / (busy + idle)),
        formula(Quantity::BubbleRatio, theory.ratio, idle / busy),
    ]
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
