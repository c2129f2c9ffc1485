//! Rules of the existing operator that engine kinds share, in its order and wording.

use super::field_error::Findings;
use crate::spec::{EngineSpec, L2BackendSpec};

const NON_EMPTY: &str = "must be a non-empty string";

/// Size of the first level, eviction, cache port.
pub(super) fn memory_and_server(findings: &mut Findings, spec: &EngineSpec) {
    findings.positive("spec.l1.sizeGB", Some(spec.l1.size_gb));
    if let Some(eviction) = &spec.eviction {
        findings.share("spec.eviction.triggerWatermark", eviction.trigger_watermark);
        findings.share("spec.eviction.evictionRatio", eviction.eviction_ratio);
    }
    if let Some(server) = &spec.server {
        findings.range("spec.server.port", server.port, 1024, 65535);
    }
}

/// Where the second level is, and where the coordinator.
pub(super) fn connections(findings: &mut Findings, spec: &EngineSpec) {
    second_level(findings, spec);
    coordinator(findings, spec);
}

/// Exactly one adapter, its required parts, and what is done to the data.
fn second_level(findings: &mut Findings, spec: &EngineSpec) {
    let Some(backend) = &spec.l2_backend else { return };
    match (&backend.resp, &backend.raw) {
        (None, None) => findings.required("spec.l2Backend", "exactly one of resp or raw must be set"),
        (Some(_), Some(_)) => {
            findings.invalid("spec.l2Backend", "", "exactly one of resp or raw must be set, got multiple");
        }
        _ => {}
    }
    adapters(findings, backend);
    transformation(findings, backend);
}

fn adapters(findings: &mut Findings, backend: &L2BackendSpec) {
    if let Some(resp) = &backend.resp {
        if resp.host.is_empty() {
            findings.required("spec.l2Backend.resp.host", NON_EMPTY);
        }
        findings.range("spec.l2Backend.resp.port", Some(resp.port), 1, 65535);
        if resp.auth_secret_ref.as_ref().is_some_and(|secret| secret.name.is_empty()) {
            findings.required("spec.l2Backend.resp.authSecretRef.name", "must be non-empty");
        }
    }
    if backend.raw.as_ref().is_some_and(|raw| raw.type_.is_empty()) {
        findings.required("spec.l2Backend.raw.type", NON_EMPTY);
    }
}

fn transformation(findings: &mut Findings, backend: &L2BackendSpec) {
    let Some(serde) = &backend.serde else { return };
    match &serde.aesgcm {
        None => findings.required("spec.l2Backend.serde", "exactly one serde type must be set"),
        Some(aesgcm) if aesgcm.master_key_secret_ref.name.is_empty() => {
            findings.required("spec.l2Backend.serde.aesgcm.masterKeySecretRef.name", "must be non-empty");
        }
        Some(_) => {}
    }
    let config = backend.raw.as_ref().and_then(|raw| raw.config.as_ref());
    if config.is_some_and(|config| config.contains_key("serde")) {
        let detail = "cannot be combined with a raw adapter that sets a 'serde' config key";
        findings.invalid("spec.l2Backend.serde", "", detail);
    }
}

/// Exactly one way to the coordinator, and sensible intervals.
fn coordinator(findings: &mut Findings, spec: &EngineSpec) {
    let Some(coordinator) = &spec.coordinator else { return };
    match (coordinator.ref_name(), coordinator.url()) {
        (Some(_), Some(_)) => {
            findings.invalid("spec.coordinator", "", "exactly one of ref or url must be set, got both");
        }
        (None, None) => findings.required("spec.coordinator", "exactly one of ref or url must be set"),
        _ => {}
    }
    findings.positive("spec.coordinator.heartbeatInterval", coordinator.heartbeat_interval);
    findings.positive("spec.coordinator.l2EventFlushInterval", coordinator.l2_event_flush_interval);
}
