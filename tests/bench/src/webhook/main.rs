//! `bench-webhook`: what a pod waits for the injectors, and whether any pod is refused because of them.
//!
//! First the injector alone, on one processor, asked directly over HTTPS; then many pods on an API server while the
//! operator restarts and its certificate rotates. Ends with 0 when every bound was kept, with 1 when one was missed,
//! with 2 when nothing could be measured.

mod direct;
mod latencies;
#[path = "../machine.rs"]
mod machine;
#[path = "../program.rs"]
mod program;
mod sample;
mod stage;
mod storm;
#[path = "../table.rs"]
mod table;
#[path = "../verdict.rs"]
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use latencies::shown;
use verdict::Verdict;

/// Requests a second on one processor, at least.
const RATE: f64 = 5_000.0;
/// With 1,000 requests a second, of a hundred answers ninety-nine come within this time.
const PATIENCE: Duration = Duration::from_millis(5);
/// The bounds on the storm are for this many pods.
const JUDGED: usize = 10_000;

/// Measures the injectors alone, and many pods while the operator restarts and its certificate rotates.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The operator's binary; by default target/release/manager beside this program's folder
    #[arg(long, value_name = "FILE")]
    manager: Option<PathBuf>,
    /// How many pods are created while the operator restarts; 0 leaves it out
    #[arg(long, value_name = "COUNT", default_value_t = JUDGED)]
    pods: usize,
    /// How many of them are on their way at a time
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    in_flight: u16,
    /// How long the injector alone is asked at each rate; 0 leaves it out
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    // Whatever is dropped here stops what it started.
    let result = tokio::select! {
        result = bench(&cli) => result,
        signal = program::interrupted() => signal.and_then(|()| Err(anyhow::anyhow!("interrupted"))),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-webhook: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// One line of the table: what was measured, what came out, what is promised, and whether it was kept.
struct Line(&'static str, String, String, Option<Verdict>);

impl Line {
    fn told(name: &'static str, value: String) -> Self {
        Line(name, value, "-".to_owned(), None)
    }
}

/// Measures and prints. Says whether every bound was kept.
async fn bench(cli: &Cli) -> Result<bool> {
    let manager = program::manager(cli.manager.clone())?;
    let machine = machine::Machine::this()?;
    println!("Machine: {machine}; load when it begins: {}\n", load());
    let cluster = stage::cluster().await?;
    let mut kept = true;
    if cli.seconds > 0 {
        let run = direct::measure(&cluster, &manager, Duration::from_secs(cli.seconds)).await?;
        println!("The injector alone, on one processor, a pod of {} bytes:", run.pod_bytes);
        kept &= print(&alone(&run));
    }
    if cli.pods > 0 {
        let run = storm::measure(&cluster, &manager, cli.pods, usize::from(cli.in_flight)).await?;
        let (pods, in_flight) = (cli.pods, cli.in_flight);
        println!("{pods} pods, {in_flight} in flight, while the operator restarts and its certificate rotates:");
        kept &= print(&in_a_storm(&run, cli.pods));
    }
    cluster.stop().await;
    Ok(kept)
}

/// How many processes want to run, over 1, 5 and 15 minutes: others on the machine make every figure worse.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn print(lines: &[Line]) -> bool {
    let mut rows = vec![["", "measured", "bound", ""].map(str::to_owned)];
    for Line(name, value, bound, verdict) in lines {
        rows.push([
            (*name).to_owned(),
            value.clone(),
            bound.clone(),
            verdict.as_ref().map(Verdict::text).unwrap_or_default(),
        ]);
    }
    println!("{}", table::table(&rows));
    lines.iter().all(|Line(.., verdict)| *verdict != Some(Verdict::Missed))
}

fn alone(run: &direct::Run) -> Vec<Line> {
    let p99 = run.paced.quantile(0.99);
    vec![
        Line(
            "requests a second",
            format!("{:.0}", run.rate),
            format!("{RATE:.0} or more"),
            Some(Verdict::of(run.rate >= RATE)),
        ),
        Line::told("requests a second of its CPU time", format!("{:.0}", run.rate_of_cpu)),
        Line::told("p50 at that rate", shown(run.full.quantile(0.5))),
        Line::told("p99 at that rate", shown(run.full.quantile(0.99))),
        Line::told("p50 at 1,000 a second", shown(run.paced.quantile(0.5))),
        Line(
            "p99 at 1,000 a second",
            shown(p99),
            format!("{} or less", shown(PATIENCE)),
            Some(Verdict::of(p99 <= PATIENCE)),
        ),
    ]
}

fn in_a_storm(run: &storm::Run, pods: usize) -> Vec<Line> {
    let sized = |met| if pods == JUDGED { Verdict::of(met) } else { Verdict::NotJudged("for 10,000 pods only") };
    let (quiet, busy) = (&run.without, &run.pods);
    vec![
        Line("refused", run.refused.len().to_string(), "0".to_owned(), Some(Verdict::of(run.refused.is_empty()))),
        Line::told("injected", run.injected.to_string()),
        Line(
            "not asked about, but for the restart",
            run.missed.to_string(),
            "0".to_owned(),
            Some(Verdict::of(run.missed == 0)),
        ),
        Line::told("let through during the restart", run.let_through.to_string()),
        Line::told("the restart took", shown(run.restart)),
        Line(
            "certificates that were served",
            run.certificates.to_string(),
            "3 or more".to_owned(),
            Some(sized(run.certificates >= 3)),
        ),
        Line::told("admission by the webhook, p50", run.admission.text(0.5)),
        Line::told("admission by the webhook, p99", run.admission.text(0.99)),
        Line::told("creation of a pod, p50", shown(busy.quantile(0.5))),
        Line::told("creation of a pod, p99", shown(busy.quantile(0.99))),
        Line::told("creation without the webhook, p50", shown(quiet.quantile(0.5))),
        Line::told("creation without the webhook, p99", shown(quiet.quantile(0.99))),
    ]
}
