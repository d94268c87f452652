//! Topology: what `nvidia-smi topo -m` says about a node, as a description of hardware.

mod cells;
mod key;
mod parse;

pub(super) use key::read;

use std::fmt::Write;

use super::keys::{Key, hardware, inside};
use super::problem::Problems;
use super::value::Value;

/// A node: its devices, and how each pair of them is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In the order of the table.
    pub devices: Vec<Device>,
    /// Per device and other device.
    pub connections: Vec<Vec<Connection>>,
}

/// A row and column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// As written: `GPU0`, `NIC0`, `mlx5_0`.
    pub name: String,
    /// Whether it computes; otherwise it is a NIC.
    pub is_gpu: bool,
    /// What stands behind its connections: processor cores and memory nodes near it; empty for NICs.
    pub affinity: String,
    /// What the legend calls it; empty if it does not.
    pub called: String,
}

/// How two devices are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Connection {
    /// A device and itself.
    Own,
    /// So many `NVLinks`, bonded.
    NvLink(u32),
    /// At most one bridge of the `PCIe` bus.
    OneBridge,
    /// Several `PCIe` bridges, no host bridge.
    Bridges,
    /// A `PCIe` host bridge: the processor.
    HostBridge,
    /// Host bridges of one NUMA node.
    Node,
    /// The link between NUMA nodes.
    System,
}

/// The words of connections other than `NVLinks`, longest first where one begins another.
const WORDS: [(&str, Connection); 6] = [
    ("NODE", Connection::Node),
    ("PIX", Connection::OneBridge),
    ("PXB", Connection::Bridges),
    ("PHB", Connection::HostBridge),
    ("SYS", Connection::System),
    ("X", Connection::Own),
];

/// Bytes a second and direction of an `NVLink`: generations 2, 3 and 4 have 25 GB/s each (V100 6 links, A100 12, H100 18).
const NVLINK: f64 = 25e9;
/// Of a `PCIe` path, generation 4 with 16 lanes: what most such nodes have.
const PCIE: f64 = 31e9;

impl Topology {
    /// Reads the table. Tabs may have become blanks, and columns may be glued together.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its line and column.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        parse::topology(name, text)
    }

    /// Whether `text` begins like a table, and not like a scenario.
    #[must_use]
    pub fn looks_like(text: &str) -> bool {
        parse::header(text).is_some()
    }

    /// The number of devices that compute.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.devices.iter().filter(|device| device.is_gpu).count()
    }

    /// The slowest connection between two devices that compute; `None` if there are no two.
    #[must_use]
    pub fn slowest(&self) -> Option<Connection> {
        let gpus = || self.devices.iter().enumerate().filter(|(_, device)| device.is_gpu).map(|(place, _)| place);
        let pairs = gpus().flat_map(|a| gpus().filter(move |&b| a < b).map(move |b| self.connections[a][b]));
        pairs.min_by(|a, b| a.bytes_per_second().total_cmp(&b.bytes_per_second()).then(b.cmp(a)))
    }

    /// The number of NICs.
    #[must_use]
    pub fn nics(&self) -> usize {
        self.devices.len() - self.gpus()
    }

    /// The node as keys of a scenario: ranks and NICs in a node, and the link inside by its slowest pair, with what that rests on.
    /// NICs beyond one for each rank are not used.
    fn settings(&self) -> Vec<(&'static Key, Value)> {
        let integer = |size: usize| Value::Integer(i64::try_from(size).unwrap_or(i64::MAX));
        let mut settings = vec![(&hardware::RANKS_PER_NODE, integer(self.gpus()))];
        if self.nics() > 0 {
            let used = self.nics().min(self.gpus());
            settings.extend([(&hardware::SHARING, Value::Bool(true)), (&hardware::NICS_PER_NODE, integer(used))]);
        }
        if let Some(slowest) = self.slowest() {
            let source = Value::Text(format!("nvidia-smi topo -m: {}", slowest.reason()));
            let bandwidth = Value::Number(slowest.bytes_per_second() / 1e9);
            settings.extend([(&inside::BANDWIDTH, bandwidth), (&inside::SOURCE, source)]);
        }
        settings
    }

    /// The same as sections of a scenario.
    #[must_use]
    pub fn hardware(&self) -> String {
        let mut text = String::new();
        let mut section = None;
        for (key, value) in self.settings() {
            if section != Some(key.section) {
                let blank = if section.is_some() { "\n" } else { "" };
                let _ = writeln!(text, "{blank}{}", key.section.header());
                section = Some(key.section);
            }
            let _ = writeln!(text, "{} = {}", key.name, value.toml());
        }
        text
    }
}

impl Connection {
    /// Bytes a second in one direction: of `NVLinks` their sum, of all else what `PCIe` gives.
    #[must_use]
    pub fn bytes_per_second(self) -> f64 {
        match self {
            Self::Own => f64::INFINITY,
            Self::NvLink(links) => f64::from(links) * NVLINK,
            Self::OneBridge | Self::Bridges | Self::HostBridge | Self::Node | Self::System => PCIE,
        }
    }

    fn reason(self) -> String {
        match self {
            Self::NvLink(links) => format!("the slowest pair has {links} NVLinks, at 25 GB/s each (generations 2 to 4)"),
            other => format!("the slowest pair is {}; PCIe 4 x16 at 31 GB/s is an assumption", other.word()),
        }
    }

    /// Its word in the table.
    #[must_use]
    pub fn word(self) -> String {
        match (self, WORDS.iter().find(|word| word.1 == self)) {
            (Self::NvLink(links), _) => format!("NV{links}"),
            (_, word) => word.map_or_else(String::new, |word| word.0.to_owned()),
        }
    }
}
