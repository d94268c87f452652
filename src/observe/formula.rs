//! Formulas: what theory says of a scenario, where it has a closed form; to be shown beside what ran, and labelled as what it is.

use crate::base::hardware::{Costs, Link, Table, UnitCosts};
use crate::base::mesh::Axis;
use crate::base::precision::Precision;
use crate::base::settings::{AllReduce, Dtype, Recompute};
use crate::base::split::Split;
use crate::base::units::Clock;
use crate::scenario::{Collective, Order, Reshard, Scenario, Task, Training};
use crate::schedule::Times;

/// A closed form with its value for this scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    /// Which number it is for.
    pub of: Quantity,
    /// The form: `(p-1)/(m+p-1)`.
    pub text: String,
    /// Its value: a share, a time in the clock's unit, or bytes.
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
    /// What a rank of the first stage owns between steps and its gradients, in bytes.
    State,
    /// Payloads of a rank's collectives, in units of its parameters.
    Traffic,
    /// Tokens of a micro-batch that take as long to compute as its traffic takes.
    HidingTokens,
}

/// All closed forms of `scenario`. None with trouble: theory knows nothing of it.
#[must_use]
pub fn of(scenario: &Scenario) -> Vec<Formula> {
    if !scenario.trouble.is_empty() {
        return Vec::new();
    }
    match (&scenario.task, &scenario.hardware.costs) {
        (Task::Train(training), Costs::Unit(unit)) => {
            let pipeline = pipeline(training, scenario.hardware.clock(), unit);
            pipeline.into_iter().chain(data_parallel(training)).collect()
        }
        (Task::Train(training), Costs::Table(table)) => {
            data_parallel(training).into_iter().chain(hiding_tokens(scenario, training, table)).collect()
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

/// With equal stages and free messages, and nothing computed twice.
fn pipeline(training: &Training, clock: Clock, unit: &UnitCosts) -> Vec<Formula> {
    let Order::Schedule(schedule) = &training.pipeline.order else { return Vec::new() };
    if training.recompute.mode != Recompute::None {
        return Vec::new();
    }
    let slots = [unit.forward, unit.backward_input, unit.backward_weight, unit.overlapped];
    let [forward, input, weight, overlapped] = slots.map(|slot| clock.in_unit(slot));
    let (size, times) = (training.size(), Times { forward, input, weight, overlapped });
    let Some(idle) = (schedule.theory.value)(size, times) else { return Vec::new() };
    let busy = f64::from(size.micro_batches) * f64::from(size.chunks) * times.all();
    let theory = &schedule.theory;
    let formula = |of, text: &str, value| Formula { of, text: text.to_owned(), value };
    let makespan = formula(Quantity::Makespan, theory.makespan, busy + idle);
    // Later micro-batches fill what the first step leaves idle.
    if schedule.updates.is_asynchronous() {
        return vec![makespan];
    }
    vec![
        makespan,
        formula(Quantity::BubbleFraction, theory.fraction, idle / (busy + idle)),
        formula(Quantity::BubbleRatio, theory.ratio, idle / busy),
    ]
}

/// What ranks keep and move under the strategy; of one rank there is nothing to say.
fn data_parallel(training: &Training) -> Vec<Formula> {
    if training.data_ranks() == 1 { Vec::new() } else { vec![state(training), traffic(training)] }
}

/// Bytes of each kind for each parameter; what is shared out, over N (Rajbhandari et al. 2020, figure 1).
#[expect(clippy::cast_precision_loss, reason = "a few bytes")]
fn state(training: &Training) -> Formula {
    let (sharing, shards) = training.sharing();
    let bytes = training.precision.bytes(training.optimizer.kind);
    let is_cut = [sharing.parameters, sharing.gradients, sharing.optimizer];
    let [dense, experts] = parameters(training, training.split());
    let (whole, text) = match training.expert {
        1 => (dense + experts, ["P", "P"].map(str::to_owned)),
        ranks => (dense + experts / count(ranks), [format!("(D + E/{ranks})"), "(D + E)".to_owned()]),
    };
    // A rank that has some of the experts shares them with as many fewer.
    let terms = bytes.iter().zip(is_cut);
    let text = terms.map(|(bytes, cut)| if cut { format!("{bytes}{}/{shards}", text[1]) } else { format!("{bytes}{}", text[0]) });
    let text = text.collect::<Vec<_>>().join(" + ");
    let each = bytes.iter().zip(is_cut);
    let value = each.map(|(&bytes, cut)| bytes as f64 * if cut { (dense + experts) / count(shards) } else { whole }).sum();
    Formula { of: Quantity::State, text, value }
}

/// Parameters of the first stage on one of the ranks that share its tensors: those that all tokens go through, and those of all experts.
fn parameters(training: &Training, split: Split) -> [f64; 2] {
    let own = training.parts_of(0).into_iter().flat_map(|part| training.model.slices_of(part, split));
    own.fold([0.0; 2], |[dense, experts], parameter| match parameter.expert() {
        None => [dense + count(parameter.elements()), experts],
        Some(_) => [dense, experts + count(parameter.elements())],
    })
}

/// An all-reduce counts 2, a reduce-scatter and an all-gather 1 each; G micro-batches (section 7 of the same paper).
fn traffic(training: &Training) -> Formula {
    let (sharing, shards) = training.sharing();
    let micro_batches = f64::from(training.batch.micro_batches);
    let passes = if training.fsdp.reshard_after_forward == Reshard::Keep { 2.0 } else { 3.0 };
    let (text, value) = match () {
        () if sharing.parameters && shards < training.data_ranks() => {
            (format!("({passes} + 2/{shards}) G"), (passes + 2.0 / count(shards)) * micro_batches)
        }
        () if sharing.parameters => (format!("{passes} G"), passes * micro_batches),
        () if sharing.gradients => ("G + 1".to_owned(), micro_batches + 1.0),
        () if training.data_parallel.no_sync => ("2".to_owned(), 2.0),
        () => ("2 G".to_owned(), 2.0 * micro_batches),
    };
    if training.expert < training.data_ranks() || training.expert == 1 {
        return Formula { of: Quantity::Traffic, text, value };
    }
    // Who alone has its experts has nobody to exchange anything of them with.
    let [dense, experts] = parameters(training, training.split());
    let share = dense / (dense + experts / count(training.expert));
    Formula { of: Quantity::Traffic, text: format!("({text}) D/(D + E/{})", training.expert), value: value * share }
}

/// Tokens of a micro-batch from which on traffic hides behind computation: both take as long.
///
/// Of P weights and T tokens a forward pass computes 2 P T FLOPs, a backward pass 4 P T (Narayanan et al. 2021, arXiv 2104.04473, appendix;
/// attention, which only helps, left out). A ring moves (N-1)/N of P elements of e bytes past a rank, twice that in an all-reduce. Sums of
/// gradients run beside a backward pass; shared parameters are gathered beside a forward pass, which is the tighter of the two. With F
/// FLOP/s and B bytes a second, P cancels. Latency is left out, and so is the last bucket or layer, behind which nothing is computed.
fn hiding_tokens(scenario: &Scenario, training: &Training, table: &Table) -> Option<Formula> {
    let (sharing, shards) = training.sharing();
    let n = if sharing.parameters { shards } else { training.data_ranks() };
    if n == 1 || training.mesh.size(Axis::Pipeline) > 1 || !training.data_parallel.overlap {
        return None;
    }
    let link = if n <= scenario.hardware.ranks_per_node { &table.inside } else { &table.between };
    let ring = |dtype: Dtype| (count(n) - 1.0) / count(n) * bytes(dtype) * table.device.flops_per_second / link.bytes_per_second;
    let Precision { parameter, gradient, .. } = training.precision;
    let (text, value) = match () {
        () if sharing.parameters => (format!("(N-1)/N {} F/(2B)", parameter.size()), ring(parameter) / 2.0),
        () if sharing.gradients || (sharing.optimizer && training.data_parallel.no_sync) => {
            (format!("(N-1)/N {} F/(4B)", gradient.size()), ring(gradient) / 4.0)
        }
        () => (format!("2 (N-1)/N {} F/(4B)", gradient.size()), ring(gradient) / 2.0),
    };
    Some(Formula { of: Quantity::HidingTokens, text, value })
}

#[expect(clippy::cast_precision_loss, reason = "a few bytes")]
fn bytes(dtype: Dtype) -> f64 {
    dtype.size() as f64
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
        AllReduce::HalvingDoubling if collective.ranks.is_power_of_two() => {
            ("2 log2(n) a + 2(n-1)/n S/B", 2.0 * n.log2() * alpha + 2.0 * (n - 1.0) / n * bytes * per_byte)
        }
        AllReduce::Star if collective.chunks == 1 => ("2(n-1)(a + S/B)", 2.0 * (n - 1.0) * (alpha + bytes * per_byte)),
        _ => return None,
    };
    Some(Formula { of: Quantity::Makespan, text: text.to_owned(), value })
}

#[expect(clippy::cast_precision_loss, reason = "a count far below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}
