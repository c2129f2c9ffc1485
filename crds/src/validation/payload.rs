//! The image to stage into injected pods (D15, D16, D62).

use super::{bounds, field_error::Findings};
use crate::spec::{InjectionSpec, PayloadImageSpec};

/// That an image to stage is needed.
pub(crate) const NEEDED_DETAIL: &str = "must be specified for CacheBlend injection";

/// Refuses an engine without an image to stage, unless only decoders may be injected (D16). The server's own image counts
/// as none, because older releases stored it there unasked (D15).
pub(super) fn needed(findings: &mut Findings, injection: Option<&InjectionSpec>, has_pd: bool) {
    if !has_pd && image(injection).is_none_or(PayloadImageSpec::is_server_image) {
        findings.required("spec.injection.payloadImage", NEEDED_DETAIL);
    }
}

/// An image that is written needs a repository (D15).
pub(super) fn repository(findings: &mut Findings, injection: Option<&InjectionSpec>) {
    if image(injection).is_some_and(|image| image.repository.as_ref().is_none_or(String::is_empty)) {
        findings.required("spec.injection.payloadImage.repository", "must be a non-empty string");
    }
}

/// The digest of the image (D62).
pub(super) fn digest(findings: &mut Findings, injection: Option<&InjectionSpec>) {
    let digest = image(injection).and_then(|image| image.digest.as_deref());
    bounds::digest(findings, "spec.injection.payloadImage.digest", digest);
}

fn image(injection: Option<&InjectionSpec>) -> Option<&PayloadImageSpec> {
    injection?.payload_image.as_ref()
}
