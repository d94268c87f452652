//! `[hardware]`: textbook slots, or a table of a device and its links.

use super::keys::{Key, Section, between, device, hardware, inside, pipeline};
use super::problem::Problem;
use super::reader::Extent;
use super::written::Written;
use super::{ContextMethod, Task, Training};
use crate::base::ChunkCosts;
use crate::base::hardware::{Costs, Device, Hardware, Link, Table, UnitCosts};
use crate::base::mesh::Axis;
use crate::base::module::Module;
use crate::base::tables::Entry;
use crate::base::units::gcd;
use crate::base::words::{grouped, number};
use crate::base::{Bytes, Ticks};

/// The costs; unit costs depend on the number of blocks in each stage.
pub(super) fn read(written: &mut Written, task: Option<&Task>, extent: Extent) -> Option<Hardware> {
    let name = written.text(&hardware::COSTS);
    let ranks_per_node = ranks_per_node(written, extent.ranks);
    let unit = unit_costs(written, task);
    let table = name.as_deref().and_then(Entry::find).and_then(|entry| table(written, entry.table()));
    let is_unit = name.as_deref() == Some("unit");
    if name.is_some() {
        refuse_idle(written, is_unit);
    }
    let is_shared = written.flag(&hardware::SHARING);
    let nics = is_shared.filter(|shared| *shared).and_then(|_| nics(written, is_unit, ranks_per_node));
    let costs = if name.as_deref() == Some("unit") { Costs::Unit(unit?) } else { Costs::Table(table?) };
    let of_device = match &costs {
        Costs::Unit(_) => None,
        Costs::Table(table) => Some(table.device.memory),
    };
    let memory = written.or(&hardware::MEMORY_GB, |written, key| gigabytes(written, key).map(Some), Some(of_device))?;
    let sharing = if is_shared? { Some(nics?) } else { None };
    Some(Hardware { costs, memory, ranks_per_node: ranks_per_node?, sharing })
}

/// Refuses what the costs do not look at. A slot that is written as the default says nothing, and stays.
fn refuse_idle(written: &mut Written, is_unit: bool) {
    let slots = [&hardware::FORWARD, &hardware::BACKWARD_INPUT, &hardware::BACKWARD_WEIGHT, &hardware::OVERLAPPED];
    let of_table = [Section::Device, Section::Inside, Section::Between].into_iter().flat_map(Section::keys);
    let keys: Vec<&'static Key> =
        if is_unit { of_table.collect() } else { slots.into_iter().filter(|key| !written.is_default(key)).collect() };
    let (costs, hint) = if is_unit {
        ("unit costs", "costs = \"h100-nvlink\" or another table, or leave it out")
    } else {
        ("a hardware table", "costs = \"unit\" counts slots; or leave it out")
    };
    for key in keys {
        if written.has(key, 0) {
            written.refuse(&[key], Problem::new(format!("`{}` means nothing with {costs}", key.path())).hint(hint));
        }
    }
}

/// The NICs of a node, where messages share links.
fn nics(written: &mut Written, is_unit: bool, ranks_per_node: Option<usize>) -> Option<usize> {
    if is_unit {
        let problem = Problem::new("with unit costs messages are free: there is nothing to share").allowed("a hardware table");
        written.refuse(&[&hardware::SHARING, &hardware::COSTS], problem.hint("costs = \"h100-nvlink\""));
        return None;
    }
    let ranks_per_node = ranks_per_node?;
    let nics = written.or(&hardware::NICS_PER_NODE, Written::size, Some(ranks_per_node))?;
    if nics > ranks_per_node {
        let message = format!("{nics} NICs are more than the {ranks_per_node} ranks of a node can use");
        let problem = Problem::new(message).allowed(format!("1 to {ranks_per_node}"));
        written.refuse(&[&hardware::NICS_PER_NODE, &hardware::RANKS_PER_NODE], problem);
        return None;
    }
    Some(nics)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the key's range is above 0 and below 2^53 bytes")]
fn gigabytes(written: &Written, key: &Key) -> Option<Bytes> {
    written.number(key).map(|gigabytes| Bytes((gigabytes * 1e9).round() as u64))
}

fn ranks_per_node(written: &mut Written, ranks: Option<usize>) -> Option<usize> {
    const USUAL: usize = 8;
    let key = &hardware::RANKS_PER_NODE;
    if !written.has(&hardware::NODES, 0) {
        return written.or(key, Written::size, Some(USUAL));
    }
    let (nodes, ranks) = (written.size(&hardware::NODES)?, ranks?);
    let per_node = written.or(key, Written::size, Some(ranks.div_ceil(nodes)))?;
    if nodes * per_node < ranks {
        let message = format!("{nodes} nodes of {per_node} ranks have no place for {} ranks", grouped(ranks as i128));
        let problem = Problem::new(message).hint(format!("nodes = {} would do", ranks.div_ceil(per_node)));
        written.refuse(&[&hardware::NODES, key], problem);
        return None;
    }
    Some(per_node)
}

/// The slots of a stage in thousandths: `forward = 0.5` is 500.
fn thousandths(written: &mut Written, key: &'static Key) -> Option<u64> {
    let slots = written.number(key)?;
    let thousandths = (slots * 1e3).round();
    if (thousandths / 1e3 - slots).abs() > 1e-9 {
        let problem = Problem::new(format!("`{}` is {}: more than 3 decimals", key.name, number(slots)));
        written.refuse(&[key], problem.allowed("up to 3 decimals, so that the clock ticks in whole numbers"));
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the key's range is 0 to 1,000")]
    Some(thousandths as u64)
}

/// A clock on which every block's share of a slot is whole: each block of a stage with n blocks costs slot / n.
fn unit_costs(written: &mut Written, task: Option<&Task>) -> Option<UnitCosts> {
    /// Far above any clock that a lesson needs, far below what would make times overflow.
    const MOST_TICKS: u64 = 1_000_000_000_000;
    let slots = [&hardware::FORWARD, &hardware::BACKWARD_INPUT, &hardware::BACKWARD_WEIGHT].map(|key| thousandths(written, key));
    let [Some(forward), Some(backward_input), Some(backward_weight)] = slots else { return None };
    let all = forward + backward_input + backward_weight;
    if all == 0 {
        let problem = Problem::new("forward, backward_input and backward_weight are all 0: nothing takes time");
        written.refuse(&[&hardware::FORWARD, &hardware::BACKWARD_INPUT, &hardware::BACKWARD_WEIGHT], problem.hint("forward = 1"));
        return None;
    }
    let overlapped = if written.has(&hardware::OVERLAPPED, 0) { thousandths(written, &hardware::OVERLAPPED)? } else { all };
    let unit = [forward, backward_input, backward_weight, overlapped].into_iter().fold(1_000, gcd);
    // What runs as one is shared in proportion: parts of the sum.
    let parts = if overlapped == all { 1 } else { all / unit };
    let shares = match task? {
        Task::Train(training) => shares(training),
        Task::Collective(_) => Some(1),
        Task::Experts(layer) => Some(layer.even_rows()),
        Task::Layer(layer) => {
            let parts = if layer.method == ContextMethod::Ulysses { layer.attention.slices as u64 } else { 1 };
            (layer.attention.slot() / layer.attention.grain()).checked_mul(parts)
        }
    };
    let (stages, ranks) = split(written, task?)?;
    let ticks_per_slot = |shares: u64| shares.checked_mul(1_000 / unit)?.checked_mul(parts * stages.max(ranks));
    let Some(shares) = shares.filter(|&shares| ticks_per_slot(shares).is_some_and(|ticks| ticks <= MOST_TICKS)) else {
        let problem = Problem::new("no clock divides a slot evenly among the blocks of all these stages");
        written.refuse(
            &[&pipeline::LAYERS_PER_STAGE, &hardware::FORWARD],
            problem.hint("give the stages numbers of layers with small common multiples"),
        );
        return None;
    };
    let ticks = |slots: u64| Ticks(slots / unit * shares * parts * ranks);
    Some(UnitCosts {
        ticks_per_slot: 1_000 / unit * shares * parts * stages,
        forward: ticks(forward),
        backward_input: ticks(backward_input),
        backward_weight: ticks(backward_weight),
        overlapped: ticks(overlapped),
    })
}

/// So many stages share the slots of so many ranks; 1 and 1 where each stage has a slot of its own.
fn split(written: &Written, task: &Task) -> Option<(u64, u64)> {
    let costs = written.choice(&pipeline::CHUNK_COSTS, ChunkCosts::find)?;
    let Task::Train(training) = task else { return Some((1, 1)) };
    let (stages, ranks) = (training.stages() as u64, training.mesh.size(Axis::Pipeline) as u64);
    let common = gcd(stages, ranks);
    Some(if costs == ChunkCosts::Split { (stages / common, ranks / common) } else { (1, 1) })
}

/// The least common multiple of the numbers of blocks, of which each is cut into its products where ranks share them; `None` if it is out
/// of all proportion.
fn shares(training: &Training) -> Option<u64> {
    const MOST: u64 = 1_000_000_000_000;
    let (model, tensor) = (&training.model, training.mesh.size(Axis::Tensor));
    let products = if tensor > 1 || model.has_experts() { u64::from(Module::PRODUCTS) } else { 1 };
    // Experts share theirs by the rows of an even share.
    let tokens = training.batch.micro_batch_size * model.sequence;
    let products = products * model.experts.as_ref().map_or(1, |experts| (tokens * experts.top_k) as u64);
    training.pipeline.layers_per_stage.iter().try_fold(1_u64, |multiple, &layers| {
        let layers = layers as u64 * products;
        (multiple / gcd(multiple, layers)).checked_mul(layers).filter(|multiple| *multiple <= MOST)
    })
}

/// `table` with the numbers that the scenario replaces.
fn table(written: &mut Written, table: Table) -> Option<Table> {
    let tera = |written: &Written, key: &Key| written.number(key).map(|value| Some(value * 1e12));
    let device = Device {
        flops_per_second: scaled(written, &device::FLOPS, 1e12, table.device.flops_per_second)?,
        peak_flops_per_second: written.or(&device::PEAK_FLOPS, tera, Some(table.device.peak_flops_per_second))?,
        memory_bytes_per_second: scaled(written, &device::BANDWIDTH, 1e9, table.device.memory_bytes_per_second)?,
        source: source(
            written,
            &device::SOURCE,
            &[&device::FLOPS, &device::PEAK_FLOPS, &device::BANDWIDTH],
            table.device.source,
        )?,
        ..table.device
    };
    refuse_beyond_peak(written, &device);
    let inside = link(written, [&inside::ALPHA, &inside::BANDWIDTH, &inside::SOURCE], table.inside)?;
    let between = link(written, [&between::ALPHA, &between::BANDWIDTH, &between::SOURCE], table.between)?;
    Some(Table { device, inside, between, ..table })
}

/// No device achieves more than its peak.
fn refuse_beyond_peak(written: &mut Written, device: &Device) {
    if let Some(peak) = device.peak_flops_per_second.filter(|peak| device.flops_per_second > *peak) {
        let [achieved, peak] = [device.flops_per_second, peak].map(|flops| number(flops / 1e12));
        let problem = Problem::new(format!("a device of {peak} TFLOP/s at its peak does not achieve {achieved}"));
        let problem =
            problem.allowed("`flops` up to `peak_flops`").hint("write both: what it achieves, and what its data sheet says");
        written.refuse(&[&device::FLOPS, &device::PEAK_FLOPS], problem);
    }
}

fn link(written: &Written, [alpha, bandwidth, text]: [&'static Key; 3], link: Link) -> Option<Link> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the key's range is 0 to a second")]
    let microseconds = |written: &Written, key: &Key| written.number(key).map(|alpha| Ticks((alpha * 1e3).round() as u64));
    Some(Link {
        alpha: written.or(alpha, microseconds, Some(link.alpha))?,
        bytes_per_second: scaled(written, bandwidth, 1e9, link.bytes_per_second)?,
        source: source(written, text, &[alpha, bandwidth], link.source)?,
    })
}

fn scaled(written: &Written, key: &Key, unit: f64, fallback: f64) -> Option<f64> {
    written.or(key, |written, key| written.number(key).map(|value| value * unit), Some(fallback))
}

/// A replaced number never keeps the table's source.
fn source(written: &Written, key: &Key, numbers: &[&Key], of_table: String) -> Option<String> {
    let replaced = numbers.iter().any(|key| written.has(key, 0));
    let fallback = if replaced { format!("set by the scenario; the rest: {of_table}") } else { of_table };
    written.or(key, Written::text, Some(fallback))
}
