//! The usual process metrics, read from `/proc` on a scrape. On systems without `/proc` they are absent.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Kernel ticks per second as seen by user space; the same on every Linux architecture.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub(crate) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Some(process) = Process::read() else { return Ok(()) };
        let cpu = ConstCounter::new(process.cpu_seconds);
        cpu.encode(encoder.encode_descriptor(
            "process_cpu_seconds",
            "User and system CPU time spent.",
            None,
            cpu.metric_type(),
        )?)?;
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory size.", process.resident_bytes),
            ("process_start_time_seconds", "Start time since the Unix epoch.", process.start_time),
            ("process_open_fds", "Open file descriptors.", process.open_fds),
        ] {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct Process {
    cpu_seconds: f64,
    resident_bytes: Option<f64>,
    start_time: Option<f64>,
    open_fds: Option<f64>,
}

impl Process {
    fn read() -> Option<Process> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let (cpu_seconds, start_ticks) = parse_stat(&stat)?;
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|stat| parse_boot_time(&stat));
        Some(Process {
            cpu_seconds,
            resident_bytes: fs::read_to_string("/proc/self/status").ok().and_then(|status| parse_resident(&status)),
            start_time: boot.map(|boot| boot + start_ticks / TICKS_PER_SECOND),
            open_fds: fs::read_dir("/proc/self/fd").ok().and_then(|fds| u32::try_from(fds.count()).ok().map(f64::from)),
        })
    }
}

/// CPU seconds, and the start time in ticks since boot (`man 5 proc`: fields 14, 15 and 22).
fn parse_stat(stat: &str) -> Option<(f64, f64)> {
    // The program's name stands in parentheses and may hold blanks.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some(((ticks(14)? + ticks(15)?) / TICKS_PER_SECOND, ticks(22)?))
}

fn parse_boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn parse_resident(status: &str) -> Option<f64> {
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<f64>().ok().map(|kib| kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cpu_and_start_time_when_the_name_holds_blanks_and_parentheses() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 5 0 12345 1000 200 1844";
        assert_eq!(parse_stat(stat), Some((2.0, 12345.0)));
    }

    #[test]
    fn gives_nothing_for_a_broken_file() {
        assert_eq!(parse_stat("7 (a) S 1"), None);
        assert_eq!(parse_boot_time("cpu 1 2"), None);
        assert_eq!(parse_resident("VmRSS: many"), None);
    }

    #[test]
    fn reads_memory_and_boot_time() {
        assert_eq!(parse_resident("VmPeak:\t  10 kB\nVmRSS:\t    2048 kB\n"), Some(2_097_152.0));
        assert_eq!(parse_boot_time("cpu 1\nbtime 1700000000\n"), Some(1_700_000_000.0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn finds_this_very_process_alive() {
        let process = Process::read().unwrap();
        assert!(process.resident_bytes > Some(0.0) && process.open_fds > Some(2.0), "{process:?}");
        assert!(process.start_time > Some(1_600_000_000.0), "{process:?}");
    }
}
