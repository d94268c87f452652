//! What this machine has.

use std::fs;

use crate::base::Bytes;

/// Memory that a run may take; `None` where the system does not say.
#[must_use]
pub fn available_memory() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kibibytes * 1024))
}
