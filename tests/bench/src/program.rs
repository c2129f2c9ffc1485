//! How both programs find the operator, and how they are told to stop.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tokio::signal::unix::{SignalKind, signal};

/// Waits for a signal to stop.
pub async fn interrupted() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// The operator's binary: the given one, or the release build beside this program's folder.
pub fn manager(given: Option<PathBuf>) -> Result<PathBuf> {
    let path = if let Some(path) = given {
        path
    } else {
        let own = std::env::current_exe()?;
        own.parent().and_then(Path::parent).context("no target folder")?.join("release/manager")
    };
    ensure!(path.is_file(), "{} does not exist; make build makes it", path.display());
    Ok(path.canonicalize()?)
}
