//! Memory of the components, for benchmarks.

use crate::Cluster;

/// Memory of one component, in KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentMemory {
    /// Name of the binary.
    pub name: &'static str,
    /// Resident now.
    pub resident: u64,
    /// The most that was resident at any time.
    pub peak: u64,
}

impl Cluster {
    /// Memory of every running component, read from `/proc`; empty where there is none.
    pub fn memory(&self) -> Vec<ComponentMemory> {
        self.pids().into_iter().filter_map(|(name, pid)| measure(name, pid)).collect()
    }
}

fn measure(name: &'static str, pid: u32) -> Option<ComponentMemory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    Some(ComponentMemory { name, resident: field("VmRSS")?, peak: field("VmHWM")? })
}
