//! Kubeconfig files.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use crate::files::private_file;
use crate::pki::Identity;

/// Writes a kubeconfig whose only context is `name`, for one client of the API server at 127.0.0.1:`port`.
pub(crate) fn write(path: PathBuf, name: &str, port: u16, authority: &Path, client: &Identity) -> Result<PathBuf> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "clusters": [{"name": name, "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": authority,
        }}],
        "users": [{"name": name, "user": {"client-certificate": client.certificate, "client-key": client.key}}],
    });
    private_file(&path, &serde_norway::to_string(&config)?)?;
    Ok(path)
}
