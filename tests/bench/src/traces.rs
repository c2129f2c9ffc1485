//! What traces cost: the same run without and with a live collector that takes every span, in turns.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::figures::{Judge, mib};
use crate::mix::Mix;
use crate::progress::say;
use crate::run::{self, OperatorRun};
use crate::table::table;
use crate::verdict::Verdict;

/// Processor time with traces is at most this many times as much.
const CPU_FACTOR: f64 = 1.15;
/// Memory with traces is at most so much more, in MiB.
const MEMORY_MIB: f64 = 15.0;

/// Two runs, one after the other.
#[derive(Clone, Debug)]
pub struct Pair {
    without: OperatorRun,
    with: OperatorRun,
}

/// Measures so many pairs.
pub async fn measure(manager: &Path, mix: &Mix, pairs: u32) -> Result<Vec<Pair>> {
    let mut measured = Vec::new();
    for number in 1..=pairs {
        say(&format!("pair {number} of {pairs}, without traces"));
        let without = run::measure(manager, mix, Duration::ZERO, false).await?;
        say(&format!("pair {number} of {pairs}, with traces to a Jaeger"));
        let with = run::measure(manager, mix, Duration::ZERO, true).await?;
        measured.push(Pair { without, with });
    }
    Ok(measured)
}

/// A line of the table: what, without, with, the bound, the verdict.
type Row = [String; 5];

/// The table, and whether every bound was kept.
pub fn report(resources: u32, pairs: &[Pair]) -> (String, bool) {
    let judge = Judge { resources };
    let ratios: Vec<f64> =
        pairs.iter().map(|pair| pair.with.usage.cpu_seconds / pair.without.usage.cpu_seconds).collect();
    let memories = pairs.iter().map(|pair| mib(pair.with.usage.peak_memory) - mib(pair.without.usage.peak_memory));
    let (ratio, memory) = (median(ratios.clone()), median(memories.collect()));
    let dropped: u64 = pairs.iter().map(|pair| pair.with.scrape.spans_dropped).sum();
    let verdicts =
        [judge.at_full_size(ratio <= CPU_FACTOR), judge.at_full_size(memory <= MEMORY_MIB), Verdict::of(dropped == 0)];

    let mut rows: Vec<Row> = vec![["", "without", "with", "at most", ""].map(str::to_owned)];
    for (number, (pair, ratio)) in pairs.iter().zip(&ratios).enumerate() {
        let Pair { without, with } = pair;
        rows.push([
            format!("CPU time of pair {}", number + 1),
            format!("{:.2} s", without.usage.cpu_seconds),
            format!("{:.2} s ({ratio:.2} x)", with.usage.cpu_seconds),
            "-".to_owned(),
            String::new(),
        ]);
        rows.push([
            format!("peak memory of pair {}", number + 1),
            format!("{:.1} MiB", mib(without.usage.peak_memory)),
            format!("{:.1} MiB", mib(with.usage.peak_memory)),
            "-".to_owned(),
            String::new(),
        ]);
    }
    let exported: Vec<String> = pairs.iter().map(|pair| pair.with.scrape.spans_exported.to_string()).collect();
    let [cpu, more, none] = verdicts.each_ref().map(Verdict::text);
    rows.extend([
        row("spans exported", exported.join(", "), "-".to_owned(), String::new()),
        row("spans dropped", dropped.to_string(), "0".to_owned(), none),
        row("CPU time, the pair in the middle", format!("{ratio:.2} x"), format!("{CPU_FACTOR} x"), cpu),
        row("memory, the pair in the middle", format!("{memory:+.1} MiB"), format!("{MEMORY_MIB:+} MiB"), more),
    ]);
    (table(&rows), verdicts.iter().all(|verdict| *verdict != Verdict::Missed))
}

fn row(name: &str, with: String, bound: String, verdict: String) -> Row {
    [name.to_owned(), "-".to_owned(), with, bound, verdict]
}

/// The one in the middle; of two, the worse one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::machine::Usage;
    use crate::scrape::Scrape;

    fn run(cpu_seconds: f64, mib: u64, spans_dropped: u64) -> OperatorRun {
        OperatorRun {
            all_ready: Duration::from_mins(1),
            requests: crate::audit::Requests::default(),
            usage: Usage { cpu_seconds, peak_memory: mib * 1024 },
            scrape: Scrape { spans_dropped, ..Scrape::default() },
            edits: Vec::new(),
            settled: None,
            components: Vec::new(),
        }
    }

    #[rstest]
    #[case::within(1000, 5.7, 65, 0, true)]
    #[case::cpu(1000, 5.8, 50, 0, false)]
    #[case::memory(1000, 5.0, 66, 0, false)]
    #[case::dropped(1000, 5.0, 50, 1, false)]
    #[case::fewer(999, 9.0, 99, 0, true)]
    fn the_pair_in_the_middle_is_held_against_the_bounds(
        #[case] resources: u32,
        #[case] cpu: f64,
        #[case] memory: u64,
        #[case] dropped: u64,
        #[case] kept: bool,
    ) {
        let pair = |cpu, memory| Pair { without: run(5.0, 50, 0), with: run(cpu, memory, dropped) };
        let (table, met) = report(resources, &[pair(100.0, 1000), pair(cpu, memory), pair(1.0, 1)]);
        assert_eq!(met, kept, "{table}");
    }
}
