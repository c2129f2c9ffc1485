//! `manager`: the operator's binary.

use std::process::ExitCode;

use std::time::Duration;

use lmcache_observability::Metrics;
use lmcache_observability::traces::{TraceSettings, Traces};
use lmcache_operator::{cli, startup};

/// How long the last traces may take to leave.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let options = match cli::parse(std::env::args_os(), |name| std::env::var(name).ok()) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    let metrics = Metrics::new(cli::VERSION, cli::COMMIT);
    let traces = match traces(&options, &metrics) {
        Ok(traces) => traces,
        Err(error) => return say(&format!("cannot export traces: {error}")),
    };
    if let Err(error) = lmcache_observability::init_logging(options.log_format, &options.log_level, &traces) {
        return say(&error.to_string());
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("Failed to start: {error}")),
    };
    let result = runtime.block_on(startup::run(options, metrics, traces.clone()));
    // What has not stopped by now is not worth waiting for, and must not go on while the last traces leave.
    runtime.shutdown_background();
    if !traces.shutdown(FLUSH_LIMIT) {
        tracing::warn!("Gave up traces that were not exported within {} s", FLUSH_LIMIT.as_secs());
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&lmcache_operator::observe::chain(&error)),
    }
}

fn traces(options: &cli::Options, metrics: &Metrics) -> Result<Traces, Box<dyn std::error::Error>> {
    let settings = TraceSettings::read(&options.otlp, |name| std::env::var(name).ok())?;
    Ok(Traces::start(settings, cli::VERSION, metrics)?)
}

/// There is no log yet to say it in.
fn say(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}

fn fail(message: &str) -> ExitCode {
    tracing::error!("{message}");
    ExitCode::FAILURE
}
