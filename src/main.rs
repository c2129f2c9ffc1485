//! `manager`: the operator's binary.

use std::process::ExitCode;

use lmcache_operator::{cli, startup};

fn main() -> ExitCode {
    let options = match cli::parse(std::env::args_os(), |name| std::env::var(name).ok()) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    if let Err(error) = lmcache_observability::init_logging(options.log_format, &options.log_level) {
        // There is no log yet to say it in.
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("Failed to start: {error}")),
    };
    let result = runtime.block_on(startup::run(options));
    // What has not stopped by now is not worth waiting for.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&lmcache_operator::observe::chain(&error)),
    }
}

fn fail(message: &str) -> ExitCode {
    tracing::error!("{message}");
    ExitCode::FAILURE
}
