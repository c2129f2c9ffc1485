//! Finds the control plane's binaries, building them the first time.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// The folder with kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, etcd and kwok.
///
/// Runs `build.sh`: a folder named by `KUBEBUILDER_ASSETS` is taken as it is; otherwise the first call builds for
/// several minutes, with progress on stderr, and later calls return at once.
pub(crate) async fn locate() -> Result<PathBuf> {
    built_by("build.sh", "the test control plane").await
}

/// The binary of Jaeger, from `build-jaeger.sh`, in the same way.
pub(crate) async fn jaeger() -> Result<PathBuf> {
    built_by("build-jaeger.sh", "Jaeger").await
}

async fn built_by(script: &str, what: &str) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !output.status.success() {
        bail!("{what} is not available: {} failed, its reason is above", script.display());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}
