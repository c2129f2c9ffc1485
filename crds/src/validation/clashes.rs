//! Values that are fine alone and impossible together (D18, D24, D43).

use super::field_error::Findings;
use crate::spec::EngineSpec;

/// Volume that holds the master key.
pub(crate) const KEY_VOLUME: &str = "l2-master-key";
/// Directory that the master key is mounted at.
pub(crate) const KEY_PATH: &str = "/etc/lmcache/keys";

/// One port, one listener (D18). The metrics port may equal the HTTP port: the server publishes its metrics there
/// anyway, and the metrics Service forwards to it (D83).
pub(super) fn ports(findings: &mut Findings, spec: &EngineSpec) {
    let server = spec.server_port();
    if spec.http_port() == server {
        findings.invalid("spec.server.httpPort", server, "must differ from spec.server.port");
    }
    if spec.prometheus_enabled() && spec.workload.metrics_port() == server {
        findings.invalid("spec.prometheus.port", server, "must differ from spec.server.port while metrics are enabled");
    }
}

/// The adapter's type has one place (D24).
pub(super) fn raw_type(findings: &mut Findings, spec: &EngineSpec) {
    let config = spec.l2_backend.as_ref().and_then(|backend| backend.raw.as_ref()?.config.as_ref());
    if config.is_some_and(|config| config.contains_key("type")) {
        let detail = "must not hold a 'type' key: use spec.l2Backend.raw.type";
        findings.invalid("spec.l2Backend.raw.config", "", detail);
    }
}

/// The master key needs its volume and its directory for itself (D43).
pub(super) fn key_volume(findings: &mut Findings, spec: &EngineSpec) {
    if spec.aesgcm().is_none() {
        return;
    }
    for (index, volume) in spec.workload.volumes.iter().flatten().enumerate() {
        if volume.name == KEY_VOLUME {
            let detail = "is taken by the master key of spec.l2Backend.serde.aesgcm";
            findings.invalid(&format!("spec.volumes[{index}].name"), volume.name.as_str(), detail);
        }
    }
    for (index, mount) in spec.workload.volume_mounts.iter().flatten().enumerate() {
        if mount.mount_path.trim_end_matches('/') == KEY_PATH {
            let detail = "is taken by the master key of spec.l2Backend.serde.aesgcm";
            findings.invalid(&format!("spec.volumeMounts[{index}].mountPath"), mount.mount_path.as_str(), detail);
        }
    }
}
