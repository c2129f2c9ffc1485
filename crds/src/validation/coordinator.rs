//! Rules of the existing operator for an `LMCacheCoordinator`, in its order and wording.

use super::field_error::Findings;
use crate::LMCacheCoordinatorSpec;

/// Port, replicas, intervals, shares, and the blend directory.
pub(super) fn coordinator(findings: &mut Findings, spec: &LMCacheCoordinatorSpec) {
    findings.range("spec.port", spec.port, 1, 65535);
    findings.at_least("spec.replicas", spec.replicas, 0);
    findings.positive("spec.instanceTimeout", spec.instance_timeout);
    findings.not_negative("spec.healthCheckInterval", spec.health_check_interval);
    findings.not_negative("spec.evictionCheckInterval", spec.eviction_check_interval);
    if let Some(ratio) = spec.eviction_ratio.filter(|ratio| !(0.0..=1.0).contains(ratio)) {
        findings.invalid("spec.evictionRatio", ratio, "must be in [0.0, 1.0]");
    }
    findings.share("spec.triggerWatermark", spec.trigger_watermark);
    for (path, tokens) in
        [("spec.blendChunkSize", spec.blend_chunk_size), ("spec.blendProbeStride", spec.blend_probe_stride)]
    {
        if let Some(tokens) = tokens.filter(|tokens| *tokens <= 0) {
            findings.invalid(path, tokens, "must be > 0");
        }
    }
}
