//! What the machine is, and what a process has used of it.

use std::fmt;
use std::fs;

use anyhow::{Context as _, Result};

/// Size of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory in KiB.
    pub memory: u64,
    /// Name of the processor, where the kernel tells it.
    pub model: Option<String>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Result<Self> {
        let memory = fs::read_to_string("/proc/meminfo").context("cannot read the size of the memory")?;
        let model = fs::read_to_string("/proc/cpuinfo").ok();
        let model = model.as_deref().and_then(|text| field(text, "model name")).map(str::to_owned);
        let cores = std::thread::available_parallelism()?.get();
        Ok(Self { cores, memory: kib(&memory, "MemTotal").context("/proc/meminfo has no MemTotal")?, model })
    }
}

impl fmt::Display for Machine {
    #[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.memory as f64 / f64::from(1 << 20);
        write!(f, "{} cores, {gib:.1} GiB memory", self.cores)?;
        self.model.as_ref().map_or(Ok(()), |model| write!(f, " ({model})"))
    }
}

/// What a process has used since it started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// User and system time in seconds.
    pub cpu_seconds: f64,
    /// The most memory that was resident at any time, in KiB.
    pub peak_memory: u64,
}

impl Usage {
    /// Of a running process, from `/proc`.
    pub fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let ticks = cpu_ticks(&read("stat")?).context("/proc/<pid>/stat has no times")?;
        let peak_memory = kib(&read("status")?, "VmHWM").context("/proc/<pid>/status has no VmHWM")?;
        #[allow(clippy::cast_precision_loss, reason = "ticks of one run are few")]
        let cpu_seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Self { cpu_seconds, peak_memory })
    }
}

/// utime and stime of `/proc/<pid>/stat`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn kib(text: &str, key: &str) -> Option<u64> {
    field(text, key)?.strip_suffix(" kB")?.trim().parse().ok()
}

fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_program_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 1 0 100 1 1";
        assert_eq!(cpu_ticks(stat), Some(200));
        assert_eq!(cpu_ticks("7 (x) S 1"), None);
    }

    #[test]
    fn memory_is_read_in_kib() {
        assert_eq!(kib("Name:\tmanager\nVmHWM:\t   61440 kB\nVmRSS:\t 1 kB\n", "VmHWM"), Some(61440));
        assert_eq!(kib("Name:\tmanager\n", "VmHWM"), None);
    }

    #[test]
    fn this_process_and_this_machine_are_measured() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.peak_memory > 0 && usage.cpu_seconds >= 0.0, "{usage:?}");
        let machine = Machine::this().unwrap();
        assert!(machine.memory > 0 && machine.to_string().contains(" cores, "), "{machine}");
    }
}
