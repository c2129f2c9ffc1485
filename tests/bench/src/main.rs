//! `bench`: what the operator costs with many resources, beside a floor without any operator.
//!
//! The resources, a third of each kind, exist before the operator starts; one simulated node runs them all. Ends with 0 when every bound was
//! kept, with 1 when one was missed, with 2 when nothing could be measured.

mod audit;
mod bed;
mod edit;
mod figures;
mod fleet;
mod floor;
mod kinds;
mod load;
mod machine;
mod mix;
mod program;
mod progress;
mod report;
mod run;
mod scrape;
mod table;
mod traces;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use kinds::Kind;
use mix::Mix;

/// Measures the operator with many resources, and a floor: the same children created by eight plain clients.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The operator's binary; by default target/release/manager beside this program's folder
    #[arg(long, value_name = "FILE")]
    manager: Option<PathBuf>,
    /// How many resources there are; some bounds hold for 1,000 only
    #[arg(long, value_name = "COUNT", default_value_t = figures::JUDGED,
        value_parser = clap::value_parser!(u32).range(1..=50_000))]
    resources: u32,
    /// Kinds that they are of, in equal parts; by default all
    #[arg(long = "kind", value_name = "KIND", value_enum, value_delimiter = ',', default_values_t = Kind::ALL)]
    kinds: Vec<Kind>,
    /// How long requests are counted when all is quiet; 0 leaves it out
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    settled_seconds: u64,
    /// Leave the floor out
    #[arg(long)]
    skip_floor: bool,
    /// Instead of all else, compare so many pairs of runs, without traces and with traces to a live Jaeger
    #[arg(long, value_name = "PAIRS", value_parser = clap::value_parser!(u32).range(1..=99))]
    traces: Option<u32>,
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
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Measures and prints. Says whether every bound was kept.
async fn bench(cli: &Cli) -> Result<bool> {
    let manager = program::manager(cli.manager.clone())?;
    let machine = machine::Machine::this()?;
    let mix = Mix::new(&cli.kinds, cli.resources);
    let beds = format!("Resources: {mix}, on one simulated node\nMachine: {machine}\n");
    if let Some(pairs) = cli.traces {
        let pairs = traces::measure(&manager, &mix, pairs).await?;
        let (table, kept) = traces::report(mix.count(), &pairs);
        println!("{beds}\n{table}");
        return Ok(kept);
    }
    let settled = Duration::from_secs(cli.settled_seconds);
    let run = run::measure(&manager, &mix, settled, false).await?;
    let floor = if cli.skip_floor { None } else { Some(floor::measure(&mix).await?) };

    let figures = figures::figures(mix.count(), settled, &run, floor.as_ref());
    println!("{beds}\n{}", report::figures(&figures));
    println!("Requests of the operator until all was quiet, without watches and leases:");
    println!("{}", report::requests(&run.requests, mix.count()));
    if let Some(settled) = run.settled.as_ref().filter(|settled| settled.total() > 0) {
        println!("Requests in the settled time:\n{}", report::requests(settled, mix.count()));
    }
    if let Some(floor) = &floor {
        println!("Requests of the eight plain clients:\n{}", report::requests(&floor.requests, mix.count()));
    }
    println!("Peak memory of the cluster:");
    print!("{}", report::components(&run.components, floor.as_ref().map(|floor| floor.components.as_slice())));
    Ok(figures::all_met(&figures))
}
