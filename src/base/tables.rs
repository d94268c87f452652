//! The hardware tables that ship with ranklab. Every number names its source; what has none is called an assumption.

use super::hardware::{Device, Link, Table};
use super::units::{Bytes, Ticks};

/// Every table, in the order of the documents.
pub static TABLES: [Entry; 3] = [
    Entry {
        name: "h100-nvlink",
        meaning: "NVIDIA H100 SXM, NVLink 4 inside a node, one 400 Gb/s InfiniBand port per device between nodes",
        device: H100,
        inside: NVLINK4,
        between: NDR400,
    },
    Entry {
        name: "a100-nvlink",
        meaning: "NVIDIA A100 SXM 80 GB, NVLink 3 inside a node, one 200 Gb/s InfiniBand port per device between nodes",
        device: A100,
        inside: NVLINK3,
        between: HDR200,
    },
    Entry {
        name: "laptop",
        meaning: "processes on laptop processors, shared memory inside a machine, gigabit Ethernet between machines",
        device: LAPTOP,
        inside: SHARED_MEMORY,
        between: GIGABIT,
    },
];

/// A row: a [`Table`] as a constant.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name in scenarios.
    pub name: &'static str,
    /// What it stands for.
    pub meaning: &'static str,
    device: DeviceEntry,
    inside: LinkEntry,
    between: LinkEntry,
}

#[derive(Clone, Copy, Debug)]
struct DeviceEntry {
    flops_per_second: f64,
    peak_flops_per_second: Option<f64>,
    memory_bytes_per_second: f64,
    memory: Bytes,
    source: &'static str,
}

#[derive(Clone, Copy, Debug)]
struct LinkEntry {
    alpha_ns: u64,
    bytes_per_second: f64,
    source: &'static str,
}

impl Entry {
    /// The row called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        TABLES.iter().find(|entry| entry.name == name)
    }

    /// The row as costs.
    #[must_use]
    pub fn table(&self) -> Table {
        let device = Device {
            flops_per_second: self.device.flops_per_second,
            peak_flops_per_second: self.device.peak_flops_per_second,
            memory_bytes_per_second: self.device.memory_bytes_per_second,
            memory: self.device.memory,
            source: self.device.source.to_owned(),
        };
        Table { name: self.name.to_owned(), device, inside: self.inside.link(), between: self.between.link() }
    }
}

impl LinkEntry {
    fn link(&self) -> Link {
        let alpha = Ticks(self.alpha_ns);
        Link { alpha, bytes_per_second: self.bytes_per_second, source: self.source.to_owned() }
    }
}

const H100: DeviceEntry = DeviceEntry {
    flops_per_second: 794.5e12,
    peak_flops_per_second: Some(989.4e12),
    memory_bytes_per_second: 3.35e12,
    memory: Bytes(80_000_000_000),
    source: "bf16 matrix products at 794.5 TFLOP/s, 80 % of the dense peak of 989.4 (the best shape of \
             github.com/stas00/ml-engineering, compute/accelerator, maximum achievable matmul FLOPS; real shapes reach less); \
             989.4, and 80 GB at 3.35 TB/s (NVIDIA H100 SXM data sheet: 1,979 with sparsity, half of it without)",
};

const A100: DeviceEntry = DeviceEntry {
    flops_per_second: 271.2e12,
    peak_flops_per_second: Some(312e12),
    memory_bytes_per_second: 2.0e12,
    memory: Bytes(80_000_000_000),
    source: "bf16 matrix products at 271.2 TFLOP/s, 87 % of the dense peak of 312 (the best shape of \
             github.com/stas00/ml-engineering, compute/accelerator, maximum achievable matmul FLOPS; real shapes reach less); \
             312 (NVIDIA A100 data sheet, without sparsity); 80 GB at 2.0 TB/s (the first source, memory table)",
};

const LAPTOP: DeviceEntry = DeviceEntry {
    flops_per_second: 0.2e12,
    peak_flops_per_second: None,
    memory_bytes_per_second: 40e9,
    memory: Bytes(16_000_000_000),
    source: "assumption: f32 matrix products at 0.2 TFLOP/s, 16 GB at 40 GB/s",
};

const NVLINK4: LinkEntry = LinkEntry {
    alpha_ns: 1_500,
    bytes_per_second: 450e9,
    source: "NVLink 4: 450 GB/s per direction (github.com/stas00/ml-engineering, network); alpha 1.5 us is an assumption",
};

const NVLINK3: LinkEntry = LinkEntry {
    alpha_ns: 1_500,
    bytes_per_second: 300e9,
    source: "NVLink 3: 300 GB/s per direction (github.com/stas00/ml-engineering, network); alpha 1.5 us is an assumption",
};

const NDR400: LinkEntry = LinkEntry {
    alpha_ns: 5_000,
    bytes_per_second: 50e9,
    source: "InfiniBand NDR 400 Gb/s = 50 GB/s per direction (line rate); alpha 5 us is an assumption",
};

const HDR200: LinkEntry = LinkEntry {
    alpha_ns: 5_000,
    bytes_per_second: 25e9,
    source: "InfiniBand HDR 200 Gb/s = 25 GB/s per direction (line rate); alpha 5 us is an assumption",
};

const SHARED_MEMORY: LinkEntry =
    LinkEntry { alpha_ns: 1_000, bytes_per_second: 10e9, source: "assumption: 10 GB/s through shared memory, alpha 1 us" };

const GIGABIT: LinkEntry = LinkEntry {
    alpha_ns: 50_000,
    bytes_per_second: 0.125e9,
    source: "Ethernet 1 Gb/s = 0.125 GB/s per direction (line rate); alpha 50 us is an assumption",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_tables() {
        for entry in TABLES {
            let table = Entry::find(entry.name).expect("a table finds itself").table();
            assert_eq!(table.name, entry.name);
            for link in [&table.inside, &table.between] {
                assert!(link.bytes_per_second > 0.0 && !link.source.is_empty());
            }
            let device = &table.device;
            assert!(device.peak_flops_per_second.is_none_or(|peak| device.flops_per_second < peak), "{}", table.name);
        }
        assert!(Entry::find("unit").is_none(), "`unit` names the textbook's costs");
    }
}
