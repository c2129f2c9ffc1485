//! Bounds and formats that the existing operator does not check (D17, D62), in the order of the fields.

use super::field_error::Findings;
use crate::spec::{EngineSpec, WorkloadSpec};

/// Numbers of an engine that would make the server or the pod fail (D17).
pub(super) fn numbers(findings: &mut Findings, spec: &EngineSpec) {
    if let Some(server) = &spec.server {
        findings.range("spec.server.httpPort", server.http_port, 1024, 65535);
        findings.at_least("spec.server.chunkSize", server.chunk_size, 1);
        findings.at_least("spec.server.maxWorkers", server.max_workers, 1);
    }
    second_level(findings, spec);
    if let Some(pd) = &spec.pd {
        findings.range("spec.pd.nixlSideChannelPort", pd.nixl_side_channel_port, 1024, 65535);
    }
}

fn second_level(findings: &mut Findings, spec: &EngineSpec) {
    let Some(backend) = &spec.l2_backend else { return };
    if let Some(resp) = &backend.resp {
        findings.at_least("spec.l2Backend.resp.numWorkers", resp.num_workers, 1);
        findings.not_negative("spec.l2Backend.resp.maxCapacityGB", resp.max_capacity_gb);
    }
    findings.at_least("spec.l2Backend.prefetchMaxInFlight", backend.prefetch_max_in_flight, 1);
    if let Some(bits) = spec.aesgcm().map(crate::AesGcmSpec::aes_bits).filter(|bits| ![128, 256].contains(bits)) {
        findings.unsupported("spec.l2Backend.serde.aesgcm.aesBits", bits, &["128", "256"]);
    }
}

/// Numbers and texts of every kind that another API would refuse after the fact (D17, D62).
pub(super) fn workload(findings: &mut Findings, spec: &WorkloadSpec) {
    findings.range("spec.prometheus.port", spec.prometheus.as_ref().and_then(|it| it.port), 1, 65535);
    findings.at_least("spec.progressDeadlineSeconds", spec.progress_deadline_seconds, 1);
    let interval = spec.service_monitor().and_then(|monitor| monitor.interval.as_deref());
    if let Some(interval) = interval.filter(|interval| !is_prometheus_duration(interval)) {
        let detail = "must be a Prometheus duration such as 30s or 1m30s";
        findings.invalid("spec.prometheus.serviceMonitor.interval", interval, detail);
    }
    digest(findings, "spec.image.digest", spec.image.as_ref().and_then(|image| image.digest.as_deref()));
}

/// The digest of an image.
pub(super) fn digest(findings: &mut Findings, path: &str, digest: Option<&str>) {
    if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
        findings.invalid(path, digest, "must be an image digest: sha256: and 64 hexadecimal digits");
    }
}

/// Whether the text is `0`, empty, or numbers with the units y, w, d, h, m, s, ms, each at most once and in this order.
fn is_prometheus_duration(text: &str) -> bool {
    if text == "0" {
        return true;
    }
    let mut rest = text;
    for unit in ["y", "w", "d", "h", "m", "s", "ms"] {
        let unit_start = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let Some(after) = rest[unit_start..].strip_prefix(unit).filter(|_| unit_start > 0) else { continue };
        // "5ms" is milliseconds, not minutes followed by an "s".
        if unit == "m" && after.starts_with('s') {
            continue;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let parts_are_words = algorithm
        .split(['+', '.', '_', '-'])
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
    let is_hex = hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    parts_are_words && is_hex && (32..=128).contains(&hex.len())
}
